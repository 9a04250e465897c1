"""The ASGI application: the table of routes, the access policy before all of them, and one catch-all for errors.

Every route needs a key unless it is marked as public. A caller without a key cannot learn which paths exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from antiphon import __version__
from antiphon.api import openapi
from antiphon.api.background_endpoints import cancel_response
from antiphon.api.compact import compact_response
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
from antiphon.api.count_tokens import count_tokens
from antiphon.api.create_response import create_response
from antiphon.api.create_turn import create_turn
from antiphon.api.models import get_model, list_models
from antiphon.api.request_dialect import dialect_for
from antiphon.api.responses_websocket import responses_websocket
from antiphon.api.stored_responses import delete_response, get_response, list_input_items
from antiphon.api.usage import show_usage
from antiphon.api.vscode import count_editor_tokens, list_editor_models
from antiphon.errors import AntiphonError, ApiError, ClientFault
from antiphon.gateway.background_runner import BackgroundRunner
from antiphon.gateway.ids import new_id
from antiphon.gateway.turn_lifecycle import shutdown_error
from antiphon.http.access_policy import AccessPolicy
from antiphon.http.asgi import JSON, Headers, MethodNotAllowed, Receive, Scope, Send, first_header
from antiphon.http.body import ClientDisconnected
from antiphon.http.exchange import Exchange
from antiphon.http.websocket import WebSocketRoutes, WebSocketTimeouts
from antiphon.ops.exposition import CONTENT_TYPE
from antiphon.ops.services import Services
from antiphon.profiles.client_headers import CORS_CLIENT_HEADERS

Endpoint = Callable[[Services, Exchange], Awaitable[None]]


class Route(Struct, frozen=True, kw_only=True):
    """The endpoints of a path, by method."""

    methods: dict[str, Endpoint]
    public: bool = False  # answers without a key


class App:
    """The application that uvicorn calls."""

    def __init__(self, services: Services, environ: Mapping[str, str]) -> None:
        self._services = services
        self._access_policy = AccessPolicy.from_config(services.config, environ)
        services.metrics.register_paths(PATHS)
        endpoints = {"/v1/responses": responses_websocket(services)}
        sockets = WebSocketRoutes(
            self._access_policy, endpoints, services.max_body, WebSocketTimeouts(lifetime=services.websocket_lifetime)
        )
        self.websockets = sockets if services.config.server.websocket else None

    def start_shutdown(self) -> None:
        """Called when the server stops accepting connections."""
        self._services.start_shutdown()

    def force_shutdown(self) -> None:
        """Called at the second stop signal."""
        self._services.force_shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                try:
                    await self._run_lifespan(receive, send)
                except asyncio.CancelledError:  # forced shutdown: requests in flight still send their last events
                    self.force_shutdown()
                    await self._services.close()
            case _:  # no other scope is served; the protocol refuses upgrades before they get here
                await send({"type": "websocket.close", "code": 1008})

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            match (await receive())["type"]:
                case "lifespan.startup":
                    try:
                        await self._services.open()
                        self._start_background_runner()
                    except AntiphonError as error:  # a problem that appeared after the check in `run_server`
                        await send({"type": "lifespan.startup.failed", "message": str(error)})
                        return
                    await send({"type": "lifespan.startup.complete"})
                case "lifespan.shutdown":
                    await self._services.close()
                    await send({"type": "lifespan.shutdown.complete"})
                    return

    def _start_background_runner(self) -> None:
        services = self._services
        if services.store is not None:
            services.background = BackgroundRunner(
                services, services.store, services.config.background.running, services.background_timings
            )

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        services = self._services
        id = new_id("req")
        exchange = Exchange(id, scope, receive, send, dialect_for(scope), self._access_policy.cors_headers(scope))
        if services.traces is not None:
            exchange.trace = services.traces.start_trace(id)
        if services.telemetry is not None:
            exchange.log_entry.traceparent = first_header(scope, b"traceparent").decode("latin-1")
        services.requests_in_flight += 1
        try:
            await self._serve(exchange)
        except ClientDisconnected:
            exchange.is_disconnected = True
        except ApiError as error:
            await exchange.respond_with_error(error)
        except asyncio.CancelledError:
            exchange.uncancel_current_task()
            if not exchange.is_disconnected:
                await exchange.respond_with_error(shutdown_error())
        except Exception as error:
            services.logger.fault("a request failed inside the gateway", error, request_id=id)
            await exchange.respond_with_error(ApiError(f"internal error; see the log for request id {id}"))
        finally:
            services.requests_in_flight -= 1
            exchange.log_entry.client_disconnected = exchange.is_disconnected
            services.logger.request(exchange.log_entry)
            if exchange.trace is not None:
                exchange.trace.record_note("error", exchange.log_entry.error)
                exchange.trace.finish()

    async def _serve(self, exchange: Exchange) -> None:
        """Applies the access policy, then calls the endpoint."""
        scope = exchange.scope
        self._access_policy.check_host_and_origin(scope)
        route = ROUTES.get(scope["path"]) or _model_route(exchange) or _resource_route(exchange)
        if scope["method"] == "OPTIONS" and first_header(scope, b"access-control-request-method"):
            await exchange.respond(204, PREFLIGHT_HEADERS, b"")  # the origin was admitted
            return
        if route is None or not (
            route.public or (scope["path"] == METRICS_PATH and self._services.config.server.public_metrics)
        ):
            caller = self._access_policy.authenticate(scope, in_query=exchange.dialect.has_key_in_query)
            exchange.log_entry.owner, exchange.key_style = caller
        if route is None:
            paths = ", ".join(sorted(PATHS))
            raise ClientFault(f"there is nothing at this path; there is {paths}", type="not_found", code="not_found")
        endpoint = route.methods.get(scope["method"]) or (
            route.methods.get("GET") if scope["method"] == "HEAD" else None
        )
        if endpoint is None:
            allowed = ", ".join(sorted(route.methods))
            raise MethodNotAllowed(f"this path answers {allowed}", allowed.encode())
        await endpoint(self._services, exchange)


def _model_route(exchange: Exchange) -> Route | None:
    """The route of a path with a model, `/v1/models/<model>`, and an optional `:<action>`. The name of a model may
    contain any character, slashes and colons too."""
    path: str = exchange.scope["path"]
    for prefix in MODEL_PREFIXES:
        if path.startswith(prefix):
            name, _, action = path.removeprefix(prefix).rpartition(":")
            route = MODEL_ROUTES.get(f"{prefix}{{model}}:{action}") if name else None
            if route is None:
                name, route = path.removeprefix(prefix), MODEL_ROUTES[f"{prefix}{{model}}"]
            exchange.path_parameters = [name]
            return route if name else None
    return None


def _resource_route(exchange: Exchange) -> Route | None:
    """The route of a path with one id, `/v1/<collection>/<id>/…`, or two, `/v1/<collection>/<id>/<collection>/<id>`."""
    parts: list[str] = exchange.scope["path"].split("/")
    exchange.path_parameters = parts[3:6:2]
    if not all(exchange.path_parameters):
        return None
    parts[3:6:2] = PATH_PARAMETERS[: len(exchange.path_parameters)]
    return RESOURCE_ROUTES.get("/".join(parts))


async def health(services: Services, exchange: Exchange) -> None:
    """Answers that the gateway is up. Upstreams are not checked."""
    del services
    await exchange.respond(200, [JSON], msgspec.json.encode({"status": "ok", "version": __version__}))


async def show_metrics(services: Services, exchange: Exchange) -> None:
    """Shows the metrics, which have no content of requests."""
    services.logger.flush()
    await exchange.respond(200, [(b"content-type", CONTENT_TYPE)], services.metrics.render())


async def openapi_document(services: Services, exchange: Exchange) -> None:
    del services
    await exchange.respond(200, [JSON], openapi.document())


METRICS_PATH: Final = "/metrics"
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
    METRICS_PATH: Route(methods={"GET": show_metrics}),
}
RESOURCE_ROUTES: Final[dict[str, Route]] = {
    "/v1/responses/{id}": Route(methods={"GET": get_response, "DELETE": delete_response}),
    "/v1/responses/{id}/cancel": Route(methods={"POST": cancel_response}),
    "/v1/responses/{id}/input_items": Route(methods={"GET": list_input_items}),
    "/v1/conversations/{id}": Route(
        methods={"GET": get_conversation, "POST": update_conversation, "DELETE": delete_conversation}
    ),
    "/v1/conversations/{id}/items": Route(methods={"GET": list_items, "POST": add_items}),
    "/v1/conversations/{id}/items/{item_id}": Route(methods={"GET": get_item, "DELETE": delete_item}),
}
MODEL_PREFIXES: Final = ("/v1/models/", "/v1beta/models/")
MODEL_ACTION_ROUTES: Final[dict[str, Route]] = {
    "": Route(methods={"GET": get_model}),
    ":generateContent": Route(methods={"POST": create_turn}),
    ":streamGenerateContent": Route(methods={"POST": create_turn}),
    ":countTokens": Route(methods={"POST": count_tokens}),
}
MODEL_ROUTES: Final = {
    f"{prefix}{{model}}{action}": route for prefix in MODEL_PREFIXES for action, route in MODEL_ACTION_ROUTES.items()
}
PATHS: Final = (*ROUTES, *RESOURCE_ROUTES, *MODEL_ROUTES)
PATH_PARAMETERS: Final = ("{id}", "{item_id}")
OWN_HEADERS: Final = (b"authorization", b"content-type", b"antiphon-style", b"antiphon-extensions", b"antiphon-losses")
PREFLIGHT_HEADERS: Final[Headers] = [
    (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b", ".join([*OWN_HEADERS, *CORS_CLIENT_HEADERS])),
    (b"access-control-max-age", b"600"),
]
