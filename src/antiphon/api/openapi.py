"""Our own OpenAPI document, made from the shapes that the server really reads and writes.

Names are those of the Open Responses specification wherever it has one. What the shapes keep open stays open here: unknown fields
are allowed everywhere, and where objects of several types may stand, one of a type nobody knows may stand too.
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
    """The document, as `GET /openapi.json` answers it."""
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Antiphon", "version": __version__, "description": ABOUT},
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
                "/v1/conversations/{id}": _of_conversation(),
                "/v1/conversations/{id}/items": {"get": _list_items(), "post": _add_items()},
                "/v1/conversations/{id}/items/{item_id}": _of_item(),
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
        "requestBody": {"required": True, "content": {"application/json": {"schema": ref("CompactResponseMethodPublicBody")}}},
        "responses": {
            "200": {
                "description": "What stands for the conversation from here on.",
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
                "description": "How many there are.",
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
        "summary": "Get a response that is kept",
        "description": GET,
        "parameters": [
            ID,
            include_parameter(),
            query_parameter("stream", "Whether the response is told as events.", {"type": "boolean"}),
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
        "summary": "Delete a response that is kept",
        "description": "Nothing of it is left, and nothing can be continued that continued it.",
        "parameters": [ID],
        "responses": {
            "200": json_response("It is gone.", schema),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, STORED_RESPONSE_ERRORS),
        },
    }


def _cancel_response() -> Schema:
    return {
        "operationId": "cancelResponse",
        "summary": "Cancel a response that is made in the background",
        "description": CANCEL,
        "parameters": [ID],
        "responses": {
            "200": json_response("The response, as it ended.", ref("ResponseResource")),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, STORED_RESPONSE_ERRORS),
        },
    }


def _list_input_items() -> Schema:
    return {
        "operationId": "listInputItems",
        "summary": "List the items that a response was asked with",
        "description": "Those of its own request, without what it continued.",
        "parameters": [ID, *paging_parameters()],
        "responses": {
            "200": json_response("A page of them.", item_page()),
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
            "200": json_response("It is made.", ref("ConversationResource")),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS, BODY_ERRORS),
        },
    }


def _of_conversation() -> dict[str, Schema]:
    refusals = error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS)
    return {
        "get": {
            "operationId": "getConversation",
            "summary": "Get a conversation",
            "parameters": [CONVERSATION_ID],
            "responses": {"200": json_response("The conversation.", ref("ConversationResource")), **refusals},
        },
        "post": {
            "operationId": "updateConversation",
            "summary": "Change the metadata of a conversation",
            "description": "All of it: what is not sent again is gone.",
            "parameters": [CONVERSATION_ID],
            "requestBody": json_body("UpdateConversation"),
            "responses": {
                "200": json_response("It is changed.", ref("ConversationResource")),
                **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS, BODY_ERRORS),
            },
        },
        "delete": {
            "operationId": "deleteConversation",
            "summary": "Delete a conversation",
            "description": "With its items. Responses that were made in it stay.",
            "parameters": [CONVERSATION_ID],
            "responses": {"200": json_response("It is gone.", ref("DeletedConversation")), **refusals},
        },
    }


def _list_items() -> Schema:
    return {
        "operationId": "listConversationItems",
        "summary": "List the items of a conversation",
        "parameters": [CONVERSATION_ID, *paging_parameters()],
        "responses": {
            "200": json_response("A page of them.", item_page()),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS),
        },
    }


def _add_items() -> Schema:
    return {
        "operationId": "createConversationItems",
        "summary": "Add items to a conversation",
        "description": "At its end, in their order, all of them or none.",
        "parameters": [CONVERSATION_ID, include_parameter()],
        "requestBody": json_body("AddItems"),
        "responses": {
            "200": json_response("They are added.", item_page()),
            **error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS, BODY_ERRORS),
        },
    }


def _of_item() -> dict[str, Schema]:
    refusals = error_responses(COMMON_ERRORS, AUTHENTICATION_ERRORS, CONVERSATION_ERRORS)
    return {
        "get": {
            "operationId": "getConversationItem",
            "summary": "Get an item of a conversation",
            "parameters": [CONVERSATION_ID, ITEM_ID, include_parameter()],
            "responses": {"200": json_response("The item.", ref("ItemParam")), **refusals},
        },
        "delete": {
            "operationId": "deleteConversationItem",
            "summary": "Delete an item of a conversation",
            "parameters": [CONVERSATION_ID, ITEM_ID],
            "responses": {"200": json_response("It is gone; the conversation.", ref("ConversationResource")), **refusals},
        },
    }


def _list_models() -> Schema:
    return {
        "operationId": "listModels",
        "summary": "List the models that can be asked for",
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
        "summary": "Whether the gateway is up",
        "description": "Says nothing about the servers behind it. Needs no key.",
        "security": [],
        "responses": {"200": json_response("It is.", schema), **error_responses(COMMON_ERRORS)},
    }


def _metrics() -> Schema:
    return {
        "operationId": "metrics",
        "summary": "What was counted",
        "description": "In the text form of Prometheus. Needs a key, unless the configuration has `public_metrics`.",
        "responses": {
            "200": {
                "description": "The measurements.",
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


ABOUT: Final = (
    "A gateway that speaks Open Responses to its clients, and Chat Completions, Messages and Gemini to those that know no better,"
    " whatever the servers behind it speak. Every answer has an `x-request-id`; every answer that is not 2xx is a JSON error."
)
KEYS: Final = "A key from the gateway's configuration. Where none is configured, none is asked for."
CREATE: Final = (
    "One turn of a conversation. What the chosen server cannot be told is named in `Antiphon-Losses`. With `stream: true` the"
    " answer is server-sent events, `event:` equal to `type` in their data; comment lines fill silence, and the last line is"
    " `data: [DONE]`. The response is kept unless `store` is false, and can be continued with `previous_response_id`."
    " With `background: true` it is made whether the client stays or not: the answer is the response that waits, or its stream."
    " The same turns can be had over a WebSocket at this path, which OpenAPI has no words for: each message"
    ' `{"type": "response.create", …}` brings the same events, one message each, and a turn that fails before its first event'
    ' one error, `{"type": "error", "status": …, "error": …}`.'
)
GET: Final = (
    "What was told to the client that asked for it. With `stream=true` it is told as events once more, made from the response:"
    " their deltas may be longer than they were. The events of a response that is made in the background are the very ones that"
    " came, and the stream goes on until its end."
)
CANCEL: Final = (
    "Ends a response that was asked for with `background: true` and has not ended: its status is `cancelled`. One that has ended"
    " is told as it is."
)
AFTER_EVENT: Final = "Of a stream, the `sequence_number` of the last event that the client has."
ID: Final = path_parameter("id", "The id of a response.")
CONVERSATION_ID: Final = path_parameter("id", "The id of a conversation.")
ITEM_ID: Final = path_parameter("item_id", "The id of an item in it.")
CONVERSATION: Final = (
    "A conversation holds items in their order. A turn that names it in `conversation` is asked with all of them before its own"
    " input, and adds its input and output once it has ended. It stays until it is deleted."
)
COMPACT: Final = (
    "The model sums a conversation up, and one `compaction` item stands for it: sent as `input` in its place, it tells the next"
    " turn what came before. Its content is sealed, and opens for the same owner alone."
)
COUNT: Final = (
    "How long a turn would be, without asking for it: the body is that of a turn, and what it continues counts too. Where the"
    " server behind does not count, the answer is an estimate and has `antiphon:estimated`."
)
STYLE: Final = (
    "How events are written. `standard` is the specification's form: `response.reasoning.*`, nested errors. `older` has"
    " `response.reasoning_text.*`, flat errors and no `[DONE]`. Without the header: the style of the key, else of the server, else"
    " `response.reasoning_text.*` and nested errors, which most clients read."
)
EXTENSIONS: Final = "Extension events that the client wants, separated by commas: `losses`."
