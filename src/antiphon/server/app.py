"""The ASGI application: one table of routes, one layer of edges before all of them, one catch-all behind them.

A route that says nothing about itself needs a key: new ones fail closed. Paths that do not exist are told apart from those that do
only to callers who may ask at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from antiphon import __version__
from antiphon.errors import AntiphonError, ApiError, ClientFault
from antiphon.profiles.known_clients import HEADERS_OF_PAGES
from antiphon.server import openapi
from antiphon.server.asgi import JSON, Headers, MethodNotAllowed, Receive, Scope, Send, first_of
from antiphon.server.background import Background
from antiphon.server.background_endpoints import cancel_response
from antiphon.server.body import ClientLeft
from antiphon.server.client_dialects import speech_for
from antiphon.server.compact import compact_response
from antiphon.server.conversations import (
    add_items,
    create_conversation,
    delete_conversation,
    delete_item,
    get_conversation,
    get_item,
    list_items,
    update_conversation,
)
from antiphon.server.count_tokens import count_tokens
from antiphon.server.create_response import create_response
from antiphon.server.create_turn import create_turn
from antiphon.server.edge import Edge
from antiphon.server.exchange import Exchange, shutdown
from antiphon.server.exposition import CONTENT_TYPE
from antiphon.server.models import get_model, list_models
from antiphon.server.responses_socket import responses_socket
from antiphon.server.retrieve import delete_response, get_response, list_input_items
from antiphon.server.services import Services, new_id
from antiphon.server.usage import show_usage
from antiphon.server.vscode import count_editor_tokens, list_editor_models
from antiphon.server.websocket import Times, WebSockets

Endpoint = Callable[[Services, Exchange], Awaitable[None]]


class Route(Struct, frozen=True, kw_only=True):
    """What a path answers."""

    methods: dict[str, Endpoint]
    public: bool = False  # answers without a key


class App:
    """What uvicorn calls."""

    def __init__(self, services: Services, environ: Mapping[str, str]) -> None:
        self._services = services
        self._edge = Edge.of(services.config, environ)
        services.metrics.know_paths(PATHS)
        endpoints = {"/v1/responses": responses_socket(services)}
        sockets = WebSockets(self._edge, endpoints, services.max_body, Times(life=services.life))
        self.websockets = sockets if services.config.server.websocket else None

    def begin_to_stop(self) -> None:
        """The server lets nobody in any more."""
        self._services.begin_to_stop()

    def hurry(self) -> None:
        """It is told so for the second time."""
        self._services.hurry()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                try:
                    await self._live(receive, send)
                except asyncio.CancelledError:  # told to stop at once, as everybody else is: they still have their last words
                    self.hurry()
                    await self._services.close()
            case _:  # no other scope is served; the protocol refuses upgrades before they get here
                await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            match (await receive())["type"]:
                case "lifespan.startup":
                    try:
                        await self._services.open()
                        self._begin_background()
                    except AntiphonError as error:  # since `serve` looked, for then it said so itself
                        await send({"type": "lifespan.startup.failed", "message": str(error)})
                        return
                    await send({"type": "lifespan.startup.complete"})
                case "lifespan.shutdown":
                    await self._services.close()
                    await send({"type": "lifespan.shutdown.complete"})
                    return

    def _begin_background(self) -> None:
        services = self._services
        if services.store is not None:
            services.background = Background(services, services.store, services.config.background.running, services.pace)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        services = self._services
        id = new_id("req")
        exchange = Exchange(id, scope, receive, send, speech_for(scope), self._edge.headers_for(scope))
        if services.traces is not None:
            exchange.trace = services.traces.begin(id)
        if services.telemetry is not None:
            exchange.line.traceparent = first_of(scope, b"traceparent").decode("latin-1")
        services.under_way += 1
        try:
            await self._serve(exchange)
        except ClientLeft:
            exchange.left = True
        except ApiError as error:
            await exchange.refuse(error)
        except asyncio.CancelledError:
            exchange.come_back()
            if not exchange.left:
                await exchange.refuse(shutdown())
        except Exception as error:
            services.logger.fault("a request failed inside the gateway", error, request_id=id)
            await exchange.refuse(ApiError("something went wrong inside the gateway; its log has more under this request's id"))
        finally:
            services.under_way -= 1
            exchange.line.client_left = exchange.left
            services.logger.request(exchange.line)
            if exchange.trace is not None:
                exchange.trace.note("error", exchange.line.error)
                exchange.trace.finish()

    async def _serve(self, exchange: Exchange) -> None:
        """Edges, then the route."""
        scope = exchange.scope
        self._edge.admit(scope)
        route = ROUTES.get(scope["path"]) or _route_of_model(exchange) or _route_of_one(exchange)
        if scope["method"] == "OPTIONS" and first_of(scope, b"access-control-request-method"):
            await exchange.answer(204, PREFLIGHT, b"")  # the origin was admitted
            return
        if route is None or not (route.public or (scope["path"] == METRICS and self._services.config.server.public_metrics)):
            caller = self._edge.caller_of(scope, in_query=exchange.speech.has_key_in_query)
            exchange.line.owner, exchange.key_style = caller
        if route is None:
            paths = ", ".join(sorted(PATHS))
            raise ClientFault(f"there is nothing at this path; there is {paths}", type="not_found", code="not_found")
        endpoint = route.methods.get(scope["method"]) or (route.methods.get("GET") if scope["method"] == "HEAD" else None)
        if endpoint is None:
            allowed = ", ".join(sorted(route.methods))
            raise MethodNotAllowed(f"this path answers {allowed}", allowed.encode())
        await endpoint(self._services, exchange)


def _route_of_model(exchange: Exchange) -> Route | None:
    """The route of a path that names a model, `/v1/models/<model>`, and what is to be done with it, `:<action>`. The name may hold
    anything, slashes and colons too."""
    path: str = exchange.scope["path"]
    for prefix in MODEL_PREFIXES:
        if path.startswith(prefix):
            name, _, action = path.removeprefix(prefix).rpartition(":")
            route = OF_MODEL.get(f"{prefix}{{model}}:{action}") if name else None
            if route is None:
                name, route = path.removeprefix(prefix), OF_MODEL[f"{prefix}{{model}}"]
            exchange.parameters = [name]
            return route if name else None
    return None


def _route_of_one(exchange: Exchange) -> Route | None:
    """The route of a path that names one of many, `/v1/<what>/<id>/…`, or one of many in it, `/v1/<what>/<id>/<what>/<id>`."""
    parts: list[str] = exchange.scope["path"].split("/")
    exchange.parameters = parts[3:6:2]
    if not all(exchange.parameters):
        return None
    parts[3:6:2] = PARAMETERS[: len(exchange.parameters)]
    return OF_ONE.get("/".join(parts))


async def health(services: Services, exchange: Exchange) -> None:
    """That the gateway is up, and nothing about anything behind it."""
    del services
    await exchange.answer(200, [JSON], msgspec.json.encode({"status": "ok", "version": __version__}))


async def show_metrics(services: Services, exchange: Exchange) -> None:
    """What was counted, and nothing of what was said."""
    services.logger.flush()
    await exchange.answer(200, [(b"content-type", CONTENT_TYPE)], services.metrics.text())


async def openapi_document(services: Services, exchange: Exchange) -> None:
    del services
    await exchange.answer(200, [JSON], openapi.document())


METRICS: Final = "/metrics"
ROUTES: Final[dict[str, Route]] = {
    "/v1/responses": Route(methods={"POST": create_response}),
    "/v1/responses/compact": Route(methods={"POST": compact_response}),
    "/v1/responses/input_tokens": Route(methods={"POST": count_tokens}),
    "/v1/chat/completions": Route(methods={"POST": create_turn}),
    "/v1/messages": Route(methods={"POST": create_turn}),
    "/v1/messages/count_tokens": Route(methods={"POST": count_tokens}),
    "/v1/vscode/chat": Route(methods={"POST": create_turn}),
    "/v1/vscode/count_tokens": Route(methods={"POST": count_editor_tokens}),
    "/v1/vscode/models": Route(methods={"GET": list_editor_models}),
    "/v1/conversations": Route(methods={"POST": create_conversation}),
    "/v1/models": Route(methods={"GET": list_models}),
    "/v1/usage": Route(methods={"GET": show_usage}),
    "/v1beta/models": Route(methods={"GET": list_models}),
    "/": Route(methods={"GET": health}, public=True),
    "/health": Route(methods={"GET": health}, public=True),
    "/openapi.json": Route(methods={"GET": openapi_document}, public=True),
    METRICS: Route(methods={"GET": show_metrics}),
}
OF_ONE: Final[dict[str, Route]] = {
    "/v1/responses/{id}": Route(methods={"GET": get_response, "DELETE": delete_response}),
    "/v1/responses/{id}/cancel": Route(methods={"POST": cancel_response}),
    "/v1/responses/{id}/input_items": Route(methods={"GET": list_input_items}),
    "/v1/conversations/{id}": Route(methods={"GET": get_conversation, "POST": update_conversation, "DELETE": delete_conversation}),
    "/v1/conversations/{id}/items": Route(methods={"GET": list_items, "POST": add_items}),
    "/v1/conversations/{id}/items/{item_id}": Route(methods={"GET": get_item, "DELETE": delete_item}),
}
MODEL_PREFIXES: Final = ("/v1/models/", "/v1beta/models/")
ACTIONS: Final[dict[str, Route]] = {
    "": Route(methods={"GET": get_model}),
    ":generateContent": Route(methods={"POST": create_turn}),
    ":streamGenerateContent": Route(methods={"POST": create_turn}),
    ":countTokens": Route(methods={"POST": count_tokens}),
}
OF_MODEL: Final = {f"{prefix}{{model}}{action}": route for prefix in MODEL_PREFIXES for action, route in ACTIONS.items()}
PATHS: Final = (*ROUTES, *OF_ONE, *OF_MODEL)
PARAMETERS: Final = ("{id}", "{item_id}")
OWN_HEADERS: Final = (b"authorization", b"content-type", b"antiphon-style", b"antiphon-extensions", b"antiphon-losses")
PREFLIGHT: Final[Headers] = [
    (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b", ".join([*OWN_HEADERS, *HEADERS_OF_PAGES])),
    (b"access-control-max-age", b"600"),
]
