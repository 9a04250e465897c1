"""The table of routes: every path with its methods, their endpoints, and their descriptions for the OpenAPI
document."""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from antiphon import __version__
from antiphon.api import openapi
from antiphon.api.background_endpoints import cancel_response
from antiphon.api.compact import handle_compact
from antiphon.api.completions import create_completion
from antiphon.api.conversations import (
    add_items,
    create_conversation,
    delete_conversation,
    delete_item,
    get_conversation,
    get_item,
    list_items,
    update_conversation,
)
from antiphon.api.count_tokens import InputTokens, count_tokens
from antiphon.api.dialect_operations import DIALECT_OPERATIONS
from antiphon.api.documented_errors import (
    BODY_ERRORS,
    COMPLETION_ERRORS,
    CONVERSATION_ERRORS,
    COUNT_ERRORS,
    EMBEDDING_ERRORS,
    READINESS_ERRORS,
    STORED_RESPONSE_ERRORS,
    TURN_ERRORS,
    USAGE_ERRORS,
)
from antiphon.api.embeddings import create_embeddings
from antiphon.api.item_pages import PAGE_SCHEMA
from antiphon.api.models import list_models
from antiphon.api.operation import (
    LOSSES,
    Answer,
    Endpoint,
    ErrorCodes,
    Operation,
    Parameter,
    Route,
    json_answer,
    path_parameter,
    schema_ref,
)
from antiphon.api.route_endpoints import DIALECT_NAMES, list_upstreams, show_route
from antiphon.api.stored_responses import delete_response, get_response, list_input_items
from antiphon.api.turn_endpoints import create_response
from antiphon.api.usage import DAY_SCHEMA, USAGE_SCHEMA, show_usage
from antiphon.errors import ApiError
from antiphon.gateway.model_catalog import ModelList
from antiphon.gateway.route_plan import RoutePlan, UpstreamList
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange
from antiphon.ops.exposition import CONTENT_TYPE
from antiphon.ops.services import Services
from antiphon.protocol.conversation import (
    AddItems,
    ConversationResource,
    CreateConversation,
    DeletedConversation,
    UpdateConversation,
)
from antiphon.protocol.request import CompactRequest, Request
from antiphon.protocol.response import CompactResource, Response
from antiphon.store.usage_sums import GROUPINGS

# Endpoints of the gateway itself


async def show_health(services: Services, exchange: Exchange) -> None:
    """Answers that the gateway is up. Upstreams are not checked."""
    del services
    await exchange.respond(200, [JSON], msgspec.json.encode({"status": "ok", "version": __version__}))


async def show_readiness(services: Services, exchange: Exchange) -> None:
    """Answers whether new requests should be sent here: not before the start is complete, not while the store is
    unavailable, and not after a stop signal."""
    if services.readiness.problems:
        message = f"not ready: {'; '.join(services.readiness.problems)}"
        raise ApiError(message, code="not_ready", status=503)
    await show_health(services, exchange)


async def show_metrics(services: Services, exchange: Exchange) -> None:
    """Shows the metrics, which have no content of requests. Only the key of the metrics shows the names of models."""
    services.logger.flush()
    metrics = services.metrics.render(names_models=exchange.has_metrics_key)
    await exchange.respond(200, [(b"content-type", CONTENT_TYPE)], metrics)


async def show_openapi_document(services: Services, exchange: Exchange) -> None:
    del services
    await exchange.respond(200, [JSON], openapi_document())


@cache
def openapi_document() -> bytes:
    """The OpenAPI document of all routes."""
    return openapi.render_document(ALL_ROUTES)


# Parameters

STYLE: Final = Parameter(
    "Antiphon-Style",
    "header",
    "The style of events. `standard` is the form of the specification: `response.reasoning.*`, nested errors."
    " `older` has `response.reasoning_text.*`, flat errors and no `[DONE]`. Default: the style of the key, else"
    " of the server, else `response.reasoning_text.*` and nested errors, which most clients accept.",
    {"enum": ["standard", "older"]},
)
EXTENSIONS: Final = Parameter(
    "Antiphon-Extensions",
    "header",
    "Extension events that the client wants, separated by commas: `losses`.",
    {"type": "string", "examples": ["losses"]},
)
INCLUDE: Final = Parameter(
    "include",
    "query",
    "Fields that are included only on request, such as `reasoning.encrypted_content`.",
    {"type": "array", "items": {"type": "string"}, "maxItems": 20},
)
PAGING: Final = (
    Parameter(
        "limit",
        "query",
        "The maximum number of items.",
        {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    ),
    Parameter(
        "order",
        "query",
        "The order: newest first (`desc`) or oldest first (`asc`).",
        {"enum": ["asc", "desc"], "default": "desc"},
    ),
    Parameter("after", "query", "The id of the item before the page.", {"type": "string"}),
    INCLUDE,
)
RESPONSE_ID: Final = path_parameter("id", "The id of a response.")
CONVERSATION_ID: Final = path_parameter("id", "The id of a conversation.")
ITEM_ID: Final = path_parameter("item_id", "The id of an item in the conversation.")


def _health(
    path: str,
    id: str,
    endpoint: Endpoint = show_health,
    summary: str = "Check whether the gateway is up",
    description: str = "Does not check the upstream servers. Needs no key.",
    errors: ErrorCodes = {},  # noqa: B006
) -> Operation:
    schema = {
        "type": "object",
        "properties": {"status": {"const": "ok"}, "version": {"type": "string"}},
        "required": ["status", "version"],
    }
    return Operation(
        "GET",
        path,
        endpoint,
        id=id,
        summary=summary,
        description=description,
        answer=json_answer("The gateway is up.", schema),
        errors=errors,
    )


# The table

EMBEDDINGS_BODY: Final = {
    "type": "object",
    "properties": {
        "model": {"type": "string"},
        "input": {
            "description": "A text, a list of at most 2048 texts, a list of tokens, or a list of such lists.",
            "type": ["string", "array"],
        },
        "encoding_format": {"enum": ["float", "base64", None]},
        "dimensions": {"type": ["integer", "null"], "minimum": 1, "maximum": 65536},
        "user": {"type": ["string", "null"]},
    },
    "required": ["input"],
}
EMBEDDINGS_ANSWER: Final = {
    "type": "object",
    "properties": {
        "object": {"const": "list"},
        "data": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "object": {"const": "embedding"},
                    "index": {"type": "integer"},
                    "embedding": {"type": ["array", "string"]},
                },
            },
        },
        "model": {"type": "string"},
        "usage": {
            "type": "object",
            "properties": {"prompt_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"}},
        },
    },
    "required": ["data"],
}
METRICS_PATH: Final = "/metrics"
STREAM_OF_EVENTS: Final = schema_ref("StreamingEvent")
OPERATIONS: Final = (
    Operation(
        "POST",
        "/v1/responses",
        create_response,
        id="createResponse",
        summary="Create a response",
        description="Creates one turn of a conversation. `Antiphon-Losses` lists what could not be translated"
        " for the upstream server. With `stream: true` the answer is server-sent events, whose `event:` equals"
        " `type` in their data; comment lines keep the connection alive, and the last line is `data: [DONE]`."
        " The response is stored unless `store` is false, and can be continued with `previous_response_id`."
        " With `background: true` it is created even if the client disconnects: the answer is the queued"
        " response, or its stream. The same turns are available over a WebSocket at this path, which OpenAPI"
        ' cannot describe: each message `{"type": "response.create", …}` is answered by the same events, one'
        " message each; a turn that fails before its first event is answered by one error,"
        ' `{"type": "error", "status": …, "error": …}`.',
        parameters=(STYLE, EXTENSIONS, LOSSES),
        body=Request,
        answer=Answer(
            "The response, or with `stream: true` its events as they happen.",
            {"application/json": Response, "text/event-stream": STREAM_OF_EVENTS},
            ("Antiphon-Losses",),
        ),
        errors=TURN_ERRORS,
    ),
    Operation(
        "POST",
        "/v1/responses/compact",
        handle_compact,
        id="compactResponse",
        summary="Compact a conversation",
        description="The model summarises a conversation as one `compaction` item, which follows the user messages in"
        " the output. Sent as `input` instead of the conversation, the output, or the item alone, gives the next turn"
        " the earlier content. The item is encrypted, and only the same owner can use it.",
        body=CompactRequest,
        answer=json_answer("The compaction that replaces the conversation.", CompactResource, "Antiphon-Losses"),
        errors=TURN_ERRORS,
    ),
    Operation(
        "POST",
        "/v1/responses/input_tokens",
        count_tokens,
        id="countInputTokens",
        summary="Count the tokens of a request",
        description="Counts the input tokens of a turn without running it. The body is that of a turn; its"
        " history is counted too. If the upstream server cannot count, the answer is an estimate and has"
        " `antiphon:estimated`.",
        parameters=(LOSSES,),
        body=Request,
        answer=json_answer("The number of tokens.", InputTokens, "Antiphon-Losses", "Antiphon-Estimated"),
        errors=COUNT_ERRORS,
    ),
    Operation(
        "POST",
        "/v1/embeddings",
        create_embeddings,
        id="createEmbeddings",
        summary="Create embeddings",
        description="Returns a vector for each text. Servers of Chat Completions,"
        " Responses, Gemini and Ollama have embeddings. If the server does not count the tokens, their number is an"
        " estimate and the answer has the header `Antiphon-Estimated`.",
        parameters=(LOSSES,),
        body=EMBEDDINGS_BODY,
        answer=json_answer("The vectors.", EMBEDDINGS_ANSWER, "Antiphon-Losses", "Antiphon-Estimated"),
        errors=EMBEDDING_ERRORS,
    ),
    Operation(
        "POST",
        "/v1/completions",
        create_completion,
        id="createCompletion",
        summary="Complete a text (legacy)",
        description="Passes the request to a server of Chat Completions or Responses that has text completions, and its"
        " answer back. Other servers have none: use a turn.",
        body={
            "type": "object",
            "properties": {
                "model": {"type": "string"},
                "prompt": {"type": ["string", "array"]},
                "stream": {"type": ["boolean", "null"]},
            },
            "required": ["prompt"],
        },
        answer=Answer(
            "The completion, or with `stream: true` its events as they happen.",
            {"application/json": {"type": "object"}, "text/event-stream": {"type": "object"}},
            ("Antiphon-Losses",),
        ),
        errors=COMPLETION_ERRORS,
    ),
    Operation(
        "POST",
        "/v1/conversations",
        create_conversation,
        id="createConversation",
        summary="Create a conversation",
        description="A conversation is an ordered list of items. A turn that names it in `conversation` gets"
        " all of them before its own input, and appends its input and output when it has ended. A conversation"
        " is stored until it is deleted.",
        body=CreateConversation,
        answer=json_answer("The conversation was created.", ConversationResource),
        errors={**CONVERSATION_ERRORS, **BODY_ERRORS},
    ),
    Operation(
        "GET",
        "/v1/models",
        list_models,
        id="listModels",
        summary="List the available models",
        answer=json_answer("The models.", ModelList),
    ),
    Operation(
        "POST",
        "/v1/route",
        show_route,
        id="explainRoute",
        summary="Explain the route of a turn",
        description="The targets of a turn in the order in which they would be asked and why, what each would lose, and"
        " its health. The body is that of a turn; no upstream is asked.",
        parameters=(
            LOSSES,
            Parameter(
                "dialect", "query", "The API of the body.", {"enum": list(DIALECT_NAMES), "default": "responses"}
            ),
            Parameter("model", "query", "The model, for APIs whose body has none.", {"type": "string"}),
        ),
        body=Request,
        answer=json_answer("The plan.", RoutePlan),
        errors=COUNT_ERRORS,
    ),
    Operation(
        "GET",
        "/v1/upstreams",
        list_upstreams,
        id="listUpstreams",
        summary="List the targets that were asked, with their health",
        description="The state of the targets in the process that answers.",
        answer=json_answer("The targets.", UpstreamList),
    ),
    Operation(
        "GET",
        "/v1/usage",
        show_usage,
        id="getUsage",
        summary="Get the usage",
        description="The sums of requests, tokens, errors and losses of the owner of the key. Days are in UTC.",
        parameters=(
            Parameter("by", "query", "The grouping of the sums.", {"enum": list(GROUPINGS), "default": "model"}),
            Parameter("since", "query", "The first day. Default: 30 days up to `until`.", DAY_SCHEMA),
            Parameter("until", "query", "The last day. Default: today.", DAY_SCHEMA),
        ),
        answer=json_answer("The usage.", USAGE_SCHEMA),
        errors=USAGE_ERRORS,
    ),
    _health("/", "home"),
    _health("/health", "health"),
    _health("/livez", "livez"),
    _health(
        "/readyz",
        "readyz",
        show_readiness,
        summary="Check whether the gateway accepts new requests",
        description="503 before the start is complete, while the store cannot be read, and from the stop signal on. "
        "Needs no key.",
        errors=READINESS_ERRORS,
    ),
    Operation(
        "GET",
        "/openapi.json",
        show_openapi_document,
        id="openapi",
        summary="This document",
        description="Needs no key.",
        answer=json_answer("This document.", {"type": "object"}),
    ),
    Operation(
        "GET",
        METRICS_PATH,
        show_metrics,
        id="metrics",
        summary="Get the metrics",
        description="In the text format of Prometheus. Needs a key, unless the configuration has `public_metrics`. "
        "Only the key in `metrics_key_env` shows the names of models; others see `other`.",
        answer=Answer("The metrics.", {"text/plain": {"type": "string"}}),
    ),
    Operation(
        "GET",
        "/v1/responses/{id}",
        get_response,
        id="getResponse",
        summary="Get a stored response",
        description="Returns a stored response. With `stream=true` it is returned as events that are generated"
        " from the response: their deltas may be longer than the original ones. For a background response they"
        " are the original events, and the stream continues until its end.",
        parameters=(
            RESPONSE_ID,
            INCLUDE,
            Parameter("stream", "query", "Whether the response is returned as events.", {"type": "boolean"}),
            Parameter(
                "starting_after",
                "query",
                "The `sequence_number` of the last event that the client has; only for a stream.",
                {"type": "integer", "minimum": 0, "maximum": 2**53},
            ),
            Parameter("include_obfuscation", "query", "Whether deltas are padded.", {"type": "boolean"}),
            STYLE,
        ),
        answer=Answer(
            "The response, or with `stream=true` its events.",
            {"application/json": Response, "text/event-stream": STREAM_OF_EVENTS},
        ),
        errors=STORED_RESPONSE_ERRORS,
    ),
    Operation(
        "DELETE",
        "/v1/responses/{id}",
        delete_response,
        id="deleteResponse",
        summary="Delete a stored response",
        description="Deletes it completely. Responses that continued it can no longer be continued.",
        parameters=(RESPONSE_ID,),
        answer=json_answer(
            "The response was deleted.",
            {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "object": {"const": "response"},
                    "deleted": {"const": True},
                },
                "required": ["id", "object", "deleted"],
            },
        ),
        errors=STORED_RESPONSE_ERRORS,
    ),
    Operation(
        "POST",
        "/v1/responses/{id}/cancel",
        cancel_response,
        id="cancelResponse",
        summary="Cancel a background response",
        description="Ends a response with `background: true` that has not ended: its status is then"
        " `cancelled`. One that has ended is returned unchanged.",
        parameters=(RESPONSE_ID,),
        answer=json_answer("The response after its cancellation.", Response),
        errors=STORED_RESPONSE_ERRORS,
    ),
    Operation(
        "GET",
        "/v1/responses/{id}/input_items",
        list_input_items,
        id="listInputItems",
        summary="List the input items of a response",
        description="The items of its own request, without earlier turns.",
        parameters=(RESPONSE_ID, *PAGING),
        answer=json_answer("A page of items.", PAGE_SCHEMA),
        errors=STORED_RESPONSE_ERRORS,
    ),
    Operation(
        "GET",
        "/v1/conversations/{id}",
        get_conversation,
        id="getConversation",
        summary="Get a conversation",
        parameters=(CONVERSATION_ID,),
        answer=json_answer("The conversation.", ConversationResource),
        errors=CONVERSATION_ERRORS,
    ),
    Operation(
        "POST",
        "/v1/conversations/{id}",
        update_conversation,
        id="updateConversation",
        summary="Change the metadata of a conversation",
        description="Replaces all metadata.",
        parameters=(CONVERSATION_ID,),
        body=UpdateConversation,
        answer=json_answer("The conversation was updated.", ConversationResource),
        errors={**CONVERSATION_ERRORS, **BODY_ERRORS},
    ),
    Operation(
        "DELETE",
        "/v1/conversations/{id}",
        delete_conversation,
        id="deleteConversation",
        summary="Delete a conversation",
        description="Deletes it with its items, but not its responses.",
        parameters=(CONVERSATION_ID,),
        answer=json_answer("The conversation was deleted.", DeletedConversation),
        errors=CONVERSATION_ERRORS,
    ),
    Operation(
        "GET",
        "/v1/conversations/{id}/items",
        list_items,
        id="listConversationItems",
        summary="List the items of a conversation",
        parameters=(CONVERSATION_ID, *PAGING),
        answer=json_answer("A page of items.", PAGE_SCHEMA),
        errors=CONVERSATION_ERRORS,
    ),
    Operation(
        "POST",
        "/v1/conversations/{id}/items",
        add_items,
        id="createConversationItems",
        summary="Add items to a conversation",
        description="Appends the items in this order, all or none.",
        parameters=(
            CONVERSATION_ID,
            INCLUDE,
        ),
        body=AddItems,
        answer=json_answer("The added items.", PAGE_SCHEMA),
        errors={**CONVERSATION_ERRORS, **BODY_ERRORS},
    ),
    Operation(
        "GET",
        "/v1/conversations/{id}/items/{item_id}",
        get_item,
        id="getConversationItem",
        summary="Get an item of a conversation",
        parameters=(
            CONVERSATION_ID,
            ITEM_ID,
            INCLUDE,
        ),
        answer=json_answer("The item.", schema_ref("ItemParam")),
        errors=CONVERSATION_ERRORS,
    ),
    Operation(
        "DELETE",
        "/v1/conversations/{id}/items/{item_id}",
        delete_item,
        id="deleteConversationItem",
        summary="Delete an item of a conversation",
        parameters=(
            CONVERSATION_ID,
            ITEM_ID,
        ),
        answer=json_answer("The item was deleted; the conversation.", ConversationResource),
        errors=CONVERSATION_ERRORS,
    ),
    *DIALECT_OPERATIONS,
)


def _routes() -> dict[str, Route]:
    routes: dict[str, Route] = {}
    for operation in OPERATIONS:
        route = routes.setdefault(operation.path, Route(operations={}, is_public=operation.path in PUBLIC_PATHS))
        route.operations[operation.method] = operation
    return routes


# Callers of these paths need no key.
PUBLIC_PATHS: Final = frozenset({"/", "/health", "/livez", "/readyz", "/openapi.json"})
ALL_ROUTES: Final = _routes()
ROUTES: Final = {path: route for path, route in ALL_ROUTES.items() if "{" not in path}
RESOURCE_ROUTES: Final = {path: route for path, route in ALL_ROUTES.items() if "{id}" in path}
MODEL_ROUTES: Final = {path: route for path, route in ALL_ROUTES.items() if "{model}" in path}
MODEL_PREFIXES: Final = ("/v1/models/", "/v1beta/models/")
