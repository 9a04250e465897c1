"""The OpenAPI document of the gateway, generated from the types that the server reads and writes.

Names are those of the Open Responses specification where it has one. Unknown fields are allowed everywhere, and unions
accept objects of unknown types.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from antiphon import __version__
from antiphon.api import openapi_dialects, openapi_usage
from antiphon.api.openapi_errors import (
    AUTHENTICATION_ERRORS,
    BODY_ERRORS,
    COMMON_ERRORS,
    CONVERSATION_ERRORS,
    CREATE_ERRORS,
    STORED_RESPONSE_ERRORS,
    error_responses,
)
from antiphon.api.openapi_parts import (
    HEADERS,
    Schema,
    header_parameter,
    header_refs,
    include_parameter,
    item_page,
    json_body,
    json_response,
    paging_parameters,
    path_parameter,
    query_parameter,
    ref,
)
from antiphon.api.openapi_schemas import schemas


@cache
def document() -> bytes:
    """The document that `GET /openapi.json` returns."""
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Antiphon", "version": __version__, "description": DESCRIPTION},
            "servers": [{"url": "/"}],
            "security": [{"bearer": []}, {"apiKey": []}],
            "paths": {
                "/v1/responses": {"post": _create_response()},
                "/v1/responses/compact": {"post": _compact_response()},
                "/v1/responses/input_tokens": {"post": _count_tokens()},
                "/v1/responses/{id}": {"get": _get_response(), "delete": _delete_response()},
                "/v1/responses/{id}/cancel": {"post": _cancel_response()},
                "/v1/responses/{id}/input_items": {"get": _list_input_items()},
                "/v1/conversations": {"post": _create_conversation()},
                "/v1/conversations/{id}": _conversation_operations(),
                "/v1/conversations/{id}/items": {"get": _list_items(), "post": _add_items()},
                "/v1/conversations/{id}/items/{item_id}": _item_operations(),
                "/v1/models": {"get": _list_models()},
                "/v1/usage": {"get": openapi_usage.usage_operation()},
                **openapi_dialects.dialect_paths(),
                "/": {"get": _health("home")},
                "/health": {"get": _health("health")},
                "/openapi.json": {"get": _openapi()},
                "/metrics": {"get": _metrics()},
            },
            "components": {
                "schemas": schemas(),
                "headers": HEADERS,
                "securitySchemes": {
                    "bearer": {"type": "http", "scheme": "bearer", "description": KEYS},
                    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": KEYS},
                },
            },
        }
    )


# Operations


def _create_response() -> Schema:
    return {
        "operationId": "createResponse",
        "summary": "Create a response",
        "description": CREATE,
        "parameters": [
            header_parameter("Antiphon-Style", STYLE, {"enum": ["standard", "older"]}),
            header_parameter("Antiphon-Extensions", EXTENSIONS, {"type": "string", "examples": ["losses"]}),
            openapi_dialects.LOSSES,
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": ref("CreateResponseBody")}}},
        "responses": {
            "200": {
                "description": "The response, or with `stream: true` its events as they happen.",
                "headers": header_refs("x-request-id", "Antiphon-Losses"),
                "content": {
                    "application/json": {"schema": ref("ResponseResource")},
                    "text/event-stream": {"schema": ref("StreamingEvent")},
                },
            },
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CREATE_ERRORS),
        },
    }


def _compact_response() -> Schema:
    return {
        "operationId": "compactResponse",
        "summary": "Compact a conversation",
        "description": COMPACT,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ref("CompactResponseMethodPublicBody")}},
        },
        "responses": {
            "200": {
                "description": "The compaction that replaces the conversation.",
                "headers": header_refs("x-request-id", "Antiphon-Losses"),
                "content": {"application/json": {"schema": ref("CompactResource")}},
            },
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CREATE_ERRORS),
        },
    }


def _count_tokens() -> Schema:
    return {
        "operationId": "countInputTokens",
        "summary": "Count the tokens of a request",
        "description": COUNT,
        "parameters": [openapi_dialects.LOSSES],
        "requestBody": {"required": True, "content": {"application/json": {"schema": ref("CreateResponseBody")}}},
        "responses": {
            "200": {
                "description": "The number of tokens.",
                "headers": header_refs("x-request-id", "Antiphon-Losses", "Antiphon-Estimated"),
                "content": {"application/json": {"schema": ref("InputTokens")}},
            },
            **error_responses(
                COMMON_ERRORS, AUTHENTICATION_ERRORS, {status: CREATE_ERRORS[status] for status in (400, 404, 413, 415)}
            ),
        },
    }


def _get_response() -> Schema:
    return {
        "operationId": "getResponse",
        "summary": "Get a stored response",
        "description": GET,
        "parameters": [
            ID,
            include_parameter(),
            query_parameter("stream", "Whether the response is returned as events.", {"type": "boolean"}),
            query_parameter("starting_after", AFTER_EVENT, {"type": "integer", "minimum": 0, "maximum": 2**53}),
            query_parameter("include_obfuscation", "Whether deltas are padded.", {"type": "boolean"}),
            header_parameter("Antiphon-Style", STYLE, {"enum": ["standard", "older"]}),
        ],
        "responses": {
            "200": {
                "description": "The response, or with `stream=true` its events.",
                "headers": header_refs("x-request-id"),
                "content": {
                    "application/json": {"schema": ref("ResponseResource")},
                    "text/event-stream": {"schema": ref("StreamingEvent")},
                },
            },
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, STORED_RESPONSE_ERRORS),
        },
    }


def _delete_response() -> Schema:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "object": {"const": "response"}, "deleted": {"const": True}},
        "required": ["id", "object", "deleted"],
    }
    return {
        "operationId": "deleteResponse",
        "summary": "Delete a stored response",
        "description": "Deletes it completely. Responses that continued it can no longer be continued.",
        "parameters": [ID],
        "responses": {
            "200": json_response("The response was deleted.", schema),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, STORED_RESPONSE_ERRORS),
        },
    }


def _cancel_response() -> Schema:
    return {
        "operationId": "cancelResponse",
        "summary": "Cancel a background response",
        "description": CANCEL,
        "parameters": [ID],
        "responses": {
            "200": json_response("The response after its cancellation.", ref("ResponseResource")),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, STORED_RESPONSE_ERRORS),
        },
    }


def _list_input_items() -> Schema:
    return {
        "operationId": "listInputItems",
        "summary": "List the input items of a response",
        "description": "The items of its own request, without earlier turns.",
        "parameters": [ID, *paging_parameters()],
        "responses": {
            "200": json_response("A page of items.", item_page()),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, STORED_RESPONSE_ERRORS),
        },
    }


def _create_conversation() -> Schema:
    return {
        "operationId": "createConversation",
        "summary": "Create a conversation",
        "description": CONVERSATION,
        "requestBody": json_body("CreateConversation"),
        "responses": {
            "200": json_response("The conversation was created.", ref("ConversationResource")),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS, BODY_ERRORS),
        },
    }


def _conversation_operations() -> dict[str, Schema]:
    errors = error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS)
    return {
        "get": {
            "operationId": "getConversation",
            "summary": "Get a conversation",
            "parameters": [CONVERSATION_ID],
            "responses": {"200": json_response("The conversation.", ref("ConversationResource")), **errors},
        },
        "post": {
            "operationId": "updateConversation",
            "summary": "Change the metadata of a conversation",
            "description": "Replaces all metadata.",
            "parameters": [CONVERSATION_ID],
            "requestBody": json_body("UpdateConversation"),
            "responses": {
                "200": json_response("The conversation was updated.", ref("ConversationResource")),
                **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS, BODY_ERRORS),
            },
        },
        "delete": {
            "operationId": "deleteConversation",
            "summary": "Delete a conversation",
            "description": "Deletes it with its items, but not its responses.",
            "parameters": [CONVERSATION_ID],
            "responses": {"200": json_response("The conversation was deleted.", ref("DeletedConversation")), **errors},
        },
    }


def _list_items() -> Schema:
    return {
        "operationId": "listConversationItems",
        "summary": "List the items of a conversation",
        "parameters": [CONVERSATION_ID, *paging_parameters()],
        "responses": {
            "200": json_response("A page of items.", item_page()),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS),
        },
    }


def _add_items() -> Schema:
    return {
        "operationId": "createConversationItems",
        "summary": "Add items to a conversation",
        "description": "Appends the items in this order, all or none.",
        "parameters": [CONVERSATION_ID, include_parameter()],
        "requestBody": json_body("AddItems"),
        "responses": {
            "200": json_response("The added items.", item_page()),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS, BODY_ERRORS),
        },
    }


def _item_operations() -> dict[str, Schema]:
    errors = error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS)
    return {
        "get": {
            "operationId": "getConversationItem",
            "summary": "Get an item of a conversation",
            "parameters": [CONVERSATION_ID, ITEM_ID, include_parameter()],
            "responses": {"200": json_response("The item.", ref("ItemParam")), **errors},
        },
        "delete": {
            "operationId": "deleteConversationItem",
            "summary": "Delete an item of a conversation",
            "parameters": [CONVERSATION_ID, ITEM_ID],
            "responses": {
                "200": json_response("The item was deleted; the conversation.", ref("ConversationResource")),
                **errors,
            },
        },
    }


def _list_models() -> Schema:
    return {
        "operationId": "listModels",
        "summary": "List the available models",
        "responses": {
            "200": json_response("The models.", ref("ModelList")),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS),
        },
    }


def _health(id: str) -> Schema:
    schema = {
        "type": "object",
        "properties": {"status": {"const": "ok"}, "version": {"type": "string"}},
        "required": ["status", "version"],
    }
    return {
        "operationId": id,
        "summary": "Check whether the gateway is up",
        "description": "Does not check the upstream servers. Needs no key.",
        "security": [],
        "responses": {"200": json_response("The gateway is up.", schema), **error_responses(COMMON_ERRORS)},
    }


def _metrics() -> Schema:
    return {
        "operationId": "metrics",
        "summary": "Get the metrics",
        "description": "In the text format of Prometheus. Needs a key, unless the configuration has `public_metrics`.",
        "responses": {
            "200": {
                "description": "The metrics.",
                "headers": header_refs("x-request-id"),
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS),
        },
    }


def _openapi() -> Schema:
    return {
        "operationId": "openapi",
        "summary": "This document",
        "description": "Needs no key.",
        "security": [],
        "responses": {"200": json_response("This document.", {"type": "object"}), **error_responses(COMMON_ERRORS)},
    }


DESCRIPTION: Final = (
    "A gateway with the Open Responses, Chat Completions, Messages and Gemini APIs, for upstream servers of any"
    " of these dialects. Every answer has an `x-request-id`; every answer that is not 2xx is a JSON error."
)
KEYS: Final = "A key from the gateway's configuration. If none is configured, no key is needed."
CREATE: Final = (
    "Creates one turn of a conversation. `Antiphon-Losses` lists what could not be translated for the upstream"
    " server. With `stream: true` the answer is server-sent events, whose `event:` equals `type` in their data;"
    " comment lines keep the connection alive, and the last line is `data: [DONE]`. The response is stored unless"
    " `store` is false, and can be continued with `previous_response_id`. With `background: true` it is created"
    " even if the client disconnects: the answer is the queued response, or its stream. The same turns are"
    ' available over a WebSocket at this path, which OpenAPI cannot describe: each message `{"type":'
    ' "response.create", …}` is answered by the same events, one message each; a turn that fails before its first'
    ' event is answered by one error, `{"type": "error", "status": …, "error": …}`.'
)
GET: Final = (
    "Returns a stored response. With `stream=true` it is returned as events that are generated from the response:"
    " their deltas may be longer than the original ones. For a background response they are the original events,"
    " and the stream continues until its end."
)
CANCEL: Final = (
    "Ends a response with `background: true` that has not ended: its status is then `cancelled`. One that has"
    " ended is returned unchanged."
)
AFTER_EVENT: Final = "The `sequence_number` of the last event that the client has; only for a stream."
ID: Final = path_parameter("id", "The id of a response.")
CONVERSATION_ID: Final = path_parameter("id", "The id of a conversation.")
ITEM_ID: Final = path_parameter("item_id", "The id of an item in the conversation.")
CONVERSATION: Final = (
    "A conversation is an ordered list of items. A turn that names it in `conversation` gets all of them before"
    " its own input, and appends its input and output when it has ended. A conversation is stored until it is"
    " deleted."
)
COMPACT: Final = (
    "The model summarises a conversation as one `compaction` item. Sent as `input` instead of the conversation,"
    " it gives the next turn the earlier content. The item is encrypted, and only the same owner can use it."
)
COUNT: Final = (
    "Counts the input tokens of a turn without running it. The body is that of a turn; its history is counted"
    " too. If the upstream server cannot count, the answer is an estimate and has `antiphon:estimated`."
)
STYLE: Final = (
    "The style of events. `standard` is the form of the specification: `response.reasoning.*`, nested errors."
    " `older` has `response.reasoning_text.*`, flat errors and no `[DONE]`. Default: the style of the key, else"
    " of the server, else `response.reasoning_text.*` and nested errors, which most clients accept."
)
EXTENSIONS: Final = "Extension events that the client wants, separated by commas: `losses`."
