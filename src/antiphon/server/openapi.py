"""Our own OpenAPI document, made from the shapes that the server really reads and writes.

Names are those of the Open Responses specification wherever it has one. What the shapes keep open stays open here: unknown fields
are allowed everywhere, and where objects of several types may stand, one of a type nobody knows may stand too.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import msgspec

from antiphon import __version__
from antiphon.errors import STATUS_OF_TYPE
from antiphon.gateway.models import Model, ModelList
from antiphon.protocol import content, conversation, events, items, request, response, tools
from antiphon.protocol.base import EXTRA_NAME, UNKNOWN_TAG
from antiphon.protocol.errors import ErrorBody
from antiphon.protocol.losses import Loss
from antiphon.server.count_tokens import InputTokens

Schema = dict[str, Any]


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
                "/health": {"get": _health()},
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
            _header_parameter("Antiphon-Style", STYLE, {"enum": ["standard", "older"]}),
            _header_parameter("Antiphon-Extensions", EXTENSIONS, {"type": "string", "examples": ["losses"]}),
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("CreateResponseBody")}}},
        "responses": {
            "200": {
                "description": "The response, or with `stream: true` its events as they happen.",
                "headers": _headers("x-request-id", "Antiphon-Losses"),
                "content": {
                    "application/json": {"schema": _ref("ResponseResource")},
                    "text/event-stream": {"schema": _ref("StreamingEvent")},
                },
            },
            **_errors(EVERYWHERE, KEYED, CREATING),
        },
    }


def _compact_response() -> Schema:
    return {
        "operationId": "compactResponse",
        "summary": "Compact a conversation",
        "description": COMPACT,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("CompactResponseMethodPublicBody")}}},
        "responses": {
            "200": {
                "description": "What stands for the conversation from here on.",
                "headers": _headers("x-request-id", "Antiphon-Losses"),
                "content": {"application/json": {"schema": _ref("CompactResource")}},
            },
            **_errors(EVERYWHERE, KEYED, CREATING),
        },
    }


def _count_tokens() -> Schema:
    return {
        "operationId": "countInputTokens",
        "summary": "Count the tokens of a request",
        "description": COUNT,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("CreateResponseBody")}}},
        "responses": {
            "200": {
                "description": "How many there are.",
                "headers": _headers("x-request-id", "Antiphon-Losses", "Antiphon-Estimated"),
                "content": {"application/json": {"schema": _ref("InputTokens")}},
            },
            **_errors(EVERYWHERE, KEYED, {status: CREATING[status] for status in (400, 404, 413, 415)}),
        },
    }


def _get_response() -> Schema:
    return {
        "operationId": "getResponse",
        "summary": "Get a response that is kept",
        "description": GET,
        "parameters": [
            ID,
            _include(),
            _query_parameter("stream", "Whether the response is told as events.", {"type": "boolean"}),
            _query_parameter("starting_after", AFTER_EVENT, {"type": "integer", "minimum": 0, "maximum": 2**53}),
            _query_parameter("include_obfuscation", "Whether deltas are padded.", {"type": "boolean"}),
            _header_parameter("Antiphon-Style", STYLE, {"enum": ["standard", "older"]}),
        ],
        "responses": {
            "200": {
                "description": "The response, or with `stream=true` its events.",
                "headers": _headers("x-request-id"),
                "content": {
                    "application/json": {"schema": _ref("ResponseResource")},
                    "text/event-stream": {"schema": _ref("StreamingEvent")},
                },
            },
            **_errors(EVERYWHERE, KEYED, KEPT),
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
        "responses": {"200": _json("It is gone.", schema), **_errors(EVERYWHERE, KEYED, KEPT)},
    }


def _cancel_response() -> Schema:
    return {
        "operationId": "cancelResponse",
        "summary": "Cancel a response that is made in the background",
        "description": CANCEL,
        "parameters": [ID],
        "responses": {
            "200": _json("The response, as it ended.", _ref("ResponseResource")),
            **_errors(EVERYWHERE, KEYED, KEPT),
        },
    }


def _list_input_items() -> Schema:
    return {
        "operationId": "listInputItems",
        "summary": "List the items that a response was asked with",
        "description": "Those of its own request, without what it continued.",
        "parameters": [ID, *_paging()],
        "responses": {"200": _json("A page of them.", _page()), **_errors(EVERYWHERE, KEYED, KEPT)},
    }


def _create_conversation() -> Schema:
    return {
        "operationId": "createConversation",
        "summary": "Create a conversation",
        "description": CONVERSATION,
        "requestBody": _body("CreateConversation"),
        "responses": {
            "200": _json("It is made.", _ref("ConversationResource")),
            **_errors(EVERYWHERE, KEYED, IN_CONVERSATION, TAKEN),
        },
    }


def _of_conversation() -> dict[str, Schema]:
    errors = _errors(EVERYWHERE, KEYED, IN_CONVERSATION)
    return {
        "get": {
            "operationId": "getConversation",
            "summary": "Get a conversation",
            "parameters": [CONVERSATION_ID],
            "responses": {"200": _json("The conversation.", _ref("ConversationResource")), **errors},
        },
        "post": {
            "operationId": "updateConversation",
            "summary": "Change the metadata of a conversation",
            "description": "All of it: what is not sent again is gone.",
            "parameters": [CONVERSATION_ID],
            "requestBody": _body("UpdateConversation"),
            "responses": {
                "200": _json("It is changed.", _ref("ConversationResource")),
                **_errors(EVERYWHERE, KEYED, IN_CONVERSATION, TAKEN),
            },
        },
        "delete": {
            "operationId": "deleteConversation",
            "summary": "Delete a conversation",
            "description": "With its items. Responses that were made in it stay.",
            "parameters": [CONVERSATION_ID],
            "responses": {"200": _json("It is gone.", _ref("DeletedConversation")), **errors},
        },
    }


def _list_items() -> Schema:
    return {
        "operationId": "listConversationItems",
        "summary": "List the items of a conversation",
        "parameters": [CONVERSATION_ID, *_paging()],
        "responses": {"200": _json("A page of them.", _page()), **_errors(EVERYWHERE, KEYED, IN_CONVERSATION)},
    }


def _add_items() -> Schema:
    return {
        "operationId": "createConversationItems",
        "summary": "Add items to a conversation",
        "description": "At its end, in their order, all of them or none.",
        "parameters": [CONVERSATION_ID, _include()],
        "requestBody": _body("AddItems"),
        "responses": {"200": _json("They are added.", _page()), **_errors(EVERYWHERE, KEYED, IN_CONVERSATION, TAKEN)},
    }


def _of_item() -> dict[str, Schema]:
    errors = _errors(EVERYWHERE, KEYED, IN_CONVERSATION)
    return {
        "get": {
            "operationId": "getConversationItem",
            "summary": "Get an item of a conversation",
            "parameters": [CONVERSATION_ID, ITEM_ID, _include()],
            "responses": {"200": _json("The item.", _ref("ItemParam")), **errors},
        },
        "delete": {
            "operationId": "deleteConversationItem",
            "summary": "Delete an item of a conversation",
            "parameters": [CONVERSATION_ID, ITEM_ID],
            "responses": {"200": _json("It is gone; the conversation.", _ref("ConversationResource")), **errors},
        },
    }


def _list_models() -> Schema:
    return {
        "operationId": "listModels",
        "summary": "List the models that can be asked for",
        "responses": {"200": _json("The models.", _ref("ModelList")), **_errors(EVERYWHERE, KEYED)},
    }


def _health() -> Schema:
    schema = {
        "type": "object",
        "properties": {"status": {"const": "ok"}, "version": {"type": "string"}},
        "required": ["status", "version"],
    }
    return {
        "operationId": "health",
        "summary": "Whether the gateway is up",
        "description": "Says nothing about the servers behind it. Needs no key.",
        "security": [],
        "responses": {"200": _json("It is.", schema), **_errors(EVERYWHERE)},
    }


def _metrics() -> Schema:
    return {
        "operationId": "metrics",
        "summary": "What was counted",
        "description": "In the text form of Prometheus. Needs a key, unless the configuration has `public_metrics`.",
        "responses": {
            "200": {
                "description": "The measurements.",
                "headers": _headers("x-request-id"),
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **_errors(EVERYWHERE, KEYED),
        },
    }


def _openapi() -> Schema:
    return {
        "operationId": "openapi",
        "summary": "This document",
        "description": "Needs no key.",
        "security": [],
        "responses": {"200": _json("This document.", {"type": "object"}), **_errors(EVERYWHERE)},
    }


def _errors(*tables: dict[int, dict[str, str]]) -> dict[str, Schema]:
    """The answers that are not 2xx, each with an example of every code it may have."""
    codes: dict[int, dict[str, str]] = {}
    for table in tables:
        for status, told in table.items():
            codes[status] = codes.get(status, {}) | told
    return {str(status): _error(status, codes[status]) for status in sorted(codes)}


def _error(status: int, codes: dict[str, str]) -> Schema:
    examples = {
        code: {"value": {"error": {"type": _type_of(status, code), "code": code, "message": message, "param": PARAMS.get(code)}}}
        for code, message in codes.items()
    }
    return {
        "description": f"{TITLES[status]}: " + ", ".join(f"`{code}`" for code in codes),
        "headers": _headers("x-request-id", *HEADERS_OF_STATUS.get(status, ())),
        "content": {"application/json": {"schema": _ref("ErrorBody"), "examples": examples}},
    }


def _type_of(status: int, code: str) -> str:
    if code == "tool_not_allowed":
        return "model_error"
    types = {number: type for type, number in STATUS_OF_TYPE.items() if type != "model_error"}
    return types.get(status, "invalid_request" if status < 500 else "server_error")


def _json(description: str, schema: Schema) -> Schema:
    return {"description": description, "headers": _headers("x-request-id"), "content": {"application/json": {"schema": schema}}}


def _body(name: str) -> Schema:
    return {"required": True, "content": {"application/json": {"schema": _ref(name)}}}


def _page() -> Schema:
    """Some of many items."""
    return {
        "type": "object",
        "properties": {
            "object": {"const": "list"},
            "data": {"type": "array", "items": _ref("ItemParam")},
            "first_id": {"type": ["string", "null"]},
            "last_id": {"type": ["string", "null"]},
            "has_more": {"type": "boolean"},
        },
        "required": ["object", "data", "first_id", "last_id", "has_more"],
    }


def _paging() -> list[Schema]:
    return [
        _query_parameter("limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
        _query_parameter("order", "The newest first, or the oldest.", {"enum": ["asc", "desc"], "default": "desc"}),
        _query_parameter("after", "The id of the item that the page begins behind.", {"type": "string"}),
        _include(),
    ]


def _include() -> Schema:
    return _query_parameter("include", INCLUDE, {"type": "array", "items": {"type": "string"}, "maxItems": 20})


def _path_parameter(name: str, description: str) -> Schema:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _headers(*names: str) -> dict[str, Schema]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _header_parameter(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def _query_parameter(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


# Schemas


@cache
def schemas() -> dict[str, Schema]:
    """Every shape by its public name."""
    roots, made = msgspec.json.schema_components([*UNIONS.values(), *ROOTS], ref_template="{name}")
    defaulted = {cls.__name__: _always_written(cls) for cls in ROOTS}
    unions = dict(zip(UNIONS, roots, strict=False))
    named = {msgspec.json.encode(schema): name for name, schema in unions.items()}
    tidy = _Tidying(named)
    found = {_public(name): tidy.component(name, schema, defaulted.get(name, [])) for name, schema in made.items()}
    found |= {name: tidy.union(schema) for name, schema in unions.items()}
    found["LossesStreamingEvent"] = LOSSES
    found["StreamingEvent"]["anyOf"].append(_ref("LossesStreamingEvent"))
    return dict(sorted(found.items()))


class _Tidying:
    """What msgspec says of a type, as readers of this document need it."""

    def __init__(self, named: dict[bytes, str]) -> None:
        self._named = named

    def component(self, name: str, schema: Schema, always: list[str]) -> Schema:
        if name in UNKNOWN:
            return UNKNOWN[name]
        schema = {key: value for key, value in schema.items() if key not in ("title", "additionalProperties")}
        if "description" in schema:
            schema["description"] = ABOUT_SHAPES.get(name) or _without_rows(schema["description"])
        if "properties" in schema:
            schema["properties"] = {key: self.schema(value) for key, value in schema["properties"].items() if key != EXTRA_NAME}
            schema["required"] = [*schema["required"], *always]
        return schema

    def schema(self, value: Any) -> Any:
        match value:
            case {"$ref": name}:
                return _ref(_public(name))
            case {"anyOf": _}:
                name = self._named.get(msgspec.json.encode(value))
                return _ref(name) if name else self.union(value)
            case dict():
                return {key: self.schema(member) for key, member in value.items()}
            case list():
                return [self.schema(member) for member in value]
            case _:
                return value

    def union(self, schema: Schema) -> Schema:
        """A choice. One that is open says of what is unknown that it has none of the known types."""
        known = [tag for tag in schema.get("discriminator", {}).get("mapping", {}) if tag != UNKNOWN_TAG]
        options = []
        for option in schema["anyOf"]:
            told = self.schema(option)
            if option.get("$ref") in UNKNOWN:
                told = told | {"properties": {"type": {"not": {"enum": known}}}}
            options.append(told)
        return {"anyOf": options}


def _public(name: str) -> str:
    return NAMES.get(name, name)


def _always_written(cls: type) -> list[str]:
    """Fields that may be left out on reading and never are on writing: they can be one thing only."""
    return [field.encode_name for field in msgspec.structs.fields(cls) if field.default not in (msgspec.NODEFAULT, msgspec.UNSET)]


def _without_rows(text: str) -> str:
    """A docstring without the rows of requirements that it names."""
    text = ROW_BEFORE.sub("", ROWS_BEHIND.sub("", text))
    return text[:1].upper() + text[1:]


ROW: Final = r"[A-Z]+-\d+"
ROWS_BEHIND: Final = re.compile(rf"\s*\({ROW}(?:, {ROW})*\)")
ROW_BEFORE: Final = re.compile(rf"^{ROW}: ")

ROOTS: Final[tuple[type, ...]] = (
    request.Request,
    request.CompactRequest,
    response.Response,
    response.CompactResource,
    ErrorBody,
    ModelList,
    Model,
    Loss,
    InputTokens,
    conversation.CreateConversation,
    conversation.UpdateConversation,
    conversation.AddItems,
    conversation.ConversationResource,
    conversation.DeletedConversation,
)
# Choices that have a name.
UNIONS: Final[dict[str, Any]] = {
    "ItemParam": items.ItemParam,
    "ItemField": items.Item,
    "ContentParam": content.ContentParam,
    "Content": content.Content,
    "ResponsesToolParam": tools.ToolParam,
    "Tool": tools.Tool,
    "SpecificToolChoiceParam": tools.SpecificToolChoice,
    "TextFormatParam": request.TextFormatParam,
    "StreamingEvent": events.StreamEvent,
}
# Our names and the specification's.
NAMES: Final[dict[str, str]] = {
    "InputText": "InputTextContent",
    "InputImageParam": "InputImageContentParamAutoParam",
    "InputImage": "InputImageContent",
    "InputFileParam": "InputFileContentParam",
    "InputFile": "InputFileContent",
    "InputVideo": "InputVideoContent",
    "InputAudio": "InputAudioContent",
    "UrlCitation": "UrlCitationBody",
    "OutputTextParam": "OutputTextContentParam",
    "OutputText": "OutputTextContent",
    "Text": "TextContent",
    "SummaryText": "SummaryTextContent",
    "ReasoningText": "ReasoningTextContent",
    "Refusal": "RefusalContent",
    "ItemReference": "ItemReferenceParam",
    "ReasoningParam": "ReasoningItemParam",
    "Reasoning": "ReasoningBody",
    "CompactionParam": "CompactionSummaryItemParam",
    "Compaction": "CompactionBody",
    "MessageParam": "MessageItemParam",
    "FunctionCallParam": "FunctionCallItemParam",
    "FunctionCallOutputParam": "FunctionCallOutputItemParam",
    "SpecificFunction": "SpecificFunctionParam",
    "SpecificCustom": "SpecificCustomParam",
    "AllowedTools": "AllowedToolChoice",
    "TextFormat": "TextResponseFormat",
    "JsonObjectFormat": "JsonObjectResponseFormat",
    "JsonSchemaFormatParam": "JsonSchemaResponseFormatParam",
    "JsonSchemaFormat": "JsonSchemaResponseFormat",
    "StreamOptions": "StreamOptionsParam",
    "ReasoningConfigParam": "ReasoningParam",
    "ReasoningConfig": "Reasoning",
    "TextConfig": "TextField",
    "Request": "CreateResponseBody",
    "CompactRequest": "CompactResponseMethodPublicBody",
    "Response": "ResponseResource",
    "ResponseCreated": "ResponseCreatedStreamingEvent",
    "ResponseQueued": "ResponseQueuedStreamingEvent",
    "ResponseInProgress": "ResponseInProgressStreamingEvent",
    "ResponseCompleted": "ResponseCompletedStreamingEvent",
    "ResponseFailed": "ResponseFailedStreamingEvent",
    "ResponseIncomplete": "ResponseIncompleteStreamingEvent",
    "ItemAdded": "ResponseOutputItemAddedStreamingEvent",
    "ItemDone": "ResponseOutputItemDoneStreamingEvent",
    "ContentPartAdded": "ResponseContentPartAddedStreamingEvent",
    "ContentPartDone": "ResponseContentPartDoneStreamingEvent",
    "OutputTextDelta": "ResponseOutputTextDeltaStreamingEvent",
    "OutputTextDone": "ResponseOutputTextDoneStreamingEvent",
    "AnnotationAdded": "ResponseOutputTextAnnotationAddedStreamingEvent",
    "RefusalDelta": "ResponseRefusalDeltaStreamingEvent",
    "RefusalDone": "ResponseRefusalDoneStreamingEvent",
    "ReasoningDelta": "ResponseReasoningDeltaStreamingEvent",
    "ReasoningDone": "ResponseReasoningDoneStreamingEvent",
    "SummaryPartAdded": "ResponseReasoningSummaryPartAddedStreamingEvent",
    "SummaryPartDone": "ResponseReasoningSummaryPartDoneStreamingEvent",
    "SummaryTextDelta": "ResponseReasoningSummaryDeltaStreamingEvent",
    "SummaryTextDone": "ResponseReasoningSummaryDoneStreamingEvent",
    "ArgumentsDelta": "ResponseFunctionCallArgumentsDeltaStreamingEvent",
    "ArgumentsDone": "ResponseFunctionCallArgumentsDoneStreamingEvent",
    "CustomInputDelta": "ResponseCustomToolCallInputDeltaStreamingEvent",
    "CustomInputDone": "ResponseCustomToolCallInputDoneStreamingEvent",
    "ErrorEvent": "ErrorStreamingEvent",
}
ABOUT_SHAPES: Final = {
    "CreateConversation": "The body of `POST /v1/conversations`.",
    "UpdateConversation": "The body of `POST /v1/conversations/{id}`.",
    "AddItems": "The body of `POST /v1/conversations/{id}/items`.",
    "Request": "The body of `POST /v1/responses`.",
    "CompactRequest": "The body of `POST /v1/responses/compact`.",
    "CompactResource": "A conversation made short: its output is the base of further input.",
    "Response": "The whole response: every field is there, null where there is nothing to say.",
    "ResponseCreated": "The first event of a stream.",
    "ResponseCompleted": "The last event of a stream that came to its end.",
    "ResponseFailed": "The last event of a stream that failed; `response.error` says why.",
    "ResponseIncomplete": "The last event of a stream that was cut short; `response.incomplete_details` says why.",
}


def _open_object(description: str, *others: str) -> Schema:
    properties: Schema = {"type": {"type": "string"}} | {name: {"type": "integer"} for name in others}
    return {"description": description, "type": "object", "properties": properties, "required": list(properties)}


UNKNOWN: Final[dict[str, Schema]] = {
    "UnknownItem": _open_object(
        "An item of another type: an extension, or one that is newer than this document. It is carried as it is."
    ),
    "UnknownContent": _open_object("A part of another type."),
    "UnknownAnnotation": _open_object("An annotation of another type."),
    "UnknownTool": _open_object("A tool of another type."),
    "UnknownToolChoice": _open_object("A choice of a tool of another type."),
    "UnknownEvent": _open_object("An event of another type.", "sequence_number"),
}
LOSSES: Final[Schema] = {
    "description": "The extension event that tells what the translation could not carry; sent to clients that ask for it.",
    "type": "object",
    "properties": {
        "type": {"const": "antiphon:losses"},
        "sequence_number": {"type": "integer"},
        "losses": {"type": "array", "items": _ref("Loss")},
    },
    "required": ["type", "sequence_number", "losses"],
}

ABOUT: Final = (
    "A gateway that speaks Open Responses to its clients, whatever the servers behind it speak. Every answer has an `x-request-id`;"
    " every answer that is not 2xx is a JSON error."
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
INCLUDE: Final = "What is shown only to who asks for it, such as `reasoning.encrypted_content`."
AFTER_EVENT: Final = "Of a stream, the `sequence_number` of the last event that the client has."
ID: Final = _path_parameter("id", "The id of a response.")
CONVERSATION_ID: Final = _path_parameter("id", "The id of a conversation.")
ITEM_ID: Final = _path_parameter("item_id", "The id of an item in it.")
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
STYLE: Final = "How events are spelled: as the specification does, or as older clients of this API read them."
EXTENSIONS: Final = "Extension events that the client wants, separated by commas: `losses`."
HEADERS: Final[dict[str, Schema]] = {
    "x-request-id": {"description": "By which the gateway's log knows the request.", "schema": {"type": "string"}},
    "Antiphon-Losses": {
        "description": "How much could not be carried to the server behind, and where it stood: `2; tools[0], input[3]`.",
        "schema": {"type": "string"},
    },
    "Antiphon-Estimated": {"description": "The server behind does not count.", "schema": {"const": "true"}},
    "Retry-After": {"description": "Seconds to wait before asking again.", "schema": {"type": "integer", "minimum": 1}},
    "Allow": {"description": "The methods that the path answers.", "schema": {"type": "string"}},
    "Upgrade": {"description": "What to speak instead.", "schema": {"type": "string"}},
}
HEADERS_OF_STATUS: Final[dict[int, tuple[str, ...]]] = {
    405: ("Allow",),
    426: ("Upgrade",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
TITLES: Final[dict[int, str]] = {
    400: "The request cannot be understood",
    401: "No valid key",
    403: "Not from there",
    404: "There is no such thing",
    405: "Not with this method",
    413: "Too large",
    415: "Not JSON",
    426: "No WebSocket here",
    429: "Too many requests",
    431: "The head is too large",
    500: "A fault of the gateway, or of the model",
    502: "A fault of the server behind the gateway",
    503: "Not now",
    504: "The server behind the gateway took too long",
}
PARAMS: Final = {
    "invalid_value": "temperature",
    "missing_field": "input[0].content",
    "unsupported_parameter": "background",
    "context_length_exceeded": "input",
    "previous_response_not_found": "previous_response_id",
    "orphan_tool_output": "input[2].call_id",
    "invalid_compaction": "input[0].encrypted_content",
    "model_not_found": "model",
}
# By status: the codes that may stand there, and what is said with them.
EVERYWHERE: Final[dict[int, dict[str, str]]] = {
    400: {"invalid_value": 'temperature: got "hot", wanted a number'},
    403: {
        "forbidden_host": "the Host header names a host that this gateway does not answer for",
        "forbidden_origin": "pages of this origin may not call this gateway",
    },
    405: {"method_not_allowed": "this path answers GET"},
    426: {"upgrade_required": "there is no WebSocket here: send the request with POST"},
    431: {"headers_too_large": "the head of the request is too large"},
    500: {"internal_error": "something went wrong inside the gateway"},
    503: {"server_shutdown": "the server is shutting down"},
}
KEYED: Final[dict[int, dict[str, str]]] = {401: {"invalid_api_key": "a valid key is needed"}}
NOT_REACHED: Final = {"storage_unavailable": "the response could not be kept"}
KEPT: Final[dict[int, dict[str, str]]] = {404: {"not_found": "no response with this id is kept here"}, 503: NOT_REACHED}
IN_CONVERSATION: Final[dict[int, dict[str, str]]] = {
    404: {"not_found": "no conversation with this id is kept here"},
    503: NOT_REACHED,
}
CREATING: Final[dict[int, dict[str, str]]] = {
    400: {
        "invalid_json": "the body is not valid JSON: it breaks off after 17 bytes",
        "json_too_deep": "the body is nested too deeply",
        "invalid_unicode": "the body is not valid UTF-8",
        "missing_field": "input[0].content: it is missing",
        "unsupported_parameter": "background: got true, but store is false, and what runs in the background must be kept",
        "context_length_exceeded": "the input is longer than the model's context",
        "previous_response_not_found": "no response with this id is kept here",
        "orphan_tool_output": "input[2].call_id: no call before it has this id",
        "invalid_compaction": "input[0].encrypted_content: this compaction cannot be used",
    },
    404: {"model_not_found": "no upstream serves this model", "not_found": "the upstream knows no such thing"},
    413: {"request_too_large": "the body is larger than the limit"},
    415: {"unsupported_media_type": "content-type: got 'text/plain', wanted 'application/json'"},
    429: {"rate_limit_exceeded": "the upstream's rate limit is reached"},
    500: {"tool_not_allowed": "the model called a tool that was not allowed"},
    502: {
        "upstream_unavailable": "the upstream cannot be reached",
        "upstream_invalid_response": "the upstream broke its own protocol",
        "upstream_disconnected": "the upstream closed the connection before it had answered",
        "upstream_auth_failed": "the upstream refused the gateway's credentials",
        "upstream_error": "the upstream failed with status 500",
    },
    503: {"overloaded": "the upstream is overloaded", **NOT_REACHED},
    504: {"upstream_timeout": "the upstream took too long"},
}
# Of a body that is kept and asks nobody anything.
TAKEN: Final[dict[int, dict[str, str]]] = {
    400: {code: CREATING[400][code] for code in ("invalid_json", "json_too_deep", "invalid_unicode", "missing_field")},
    413: CREATING[413],
    415: CREATING[415],
}
