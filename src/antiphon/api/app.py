"""The ASGI application: applies the access policy, finds the route of a request, and calls its endpoint.

Every route needs a key unless it is marked as public. A caller without a key cannot learn which paths exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from antiphon.api.operation import Route
from antiphon.api.request_options import dialect_for
from antiphon.api.responses_websocket import responses_websocket
from antiphon.api.routes import ALL_ROUTES, METRICS_PATH, MODEL_PREFIXES, MODEL_ROUTES, RESOURCE_ROUTES, ROUTES
from antiphon.config import Config
from antiphon.errors import AntiphonError, ClientFault, ConfigError
from antiphon.gateway.admission import MAX_INPUTS_AT_ONCE, InputQueue
from antiphon.gateway.background_runner import BackgroundRunner
from antiphon.gateway.ids import new_id
from antiphon.gateway.request_scope import run_in_scope
from antiphon.http.access_policy import AccessPolicy, Caller
from antiphon.http.asgi import Headers, MethodNotAllowed, Receive, Scope, Send, first_header
from antiphon.http.body_budget import BodyBudget
from antiphon.http.exchange import Exchange
from antiphon.http.websocket import WebSocketRoutes, WebSocketTimeouts
from antiphon.ops.services import Services
from antiphon.profiles.client_headers import CORS_CLIENT_HEADERS


class App:
    """The application that uvicorn calls."""

    def __init__(self, services: Services, environ: Mapping[str, str]) -> None:
        self._services = services
        self._environ = environ
        self._loop: asyncio.AbstractEventLoop | None = None  # set at the start
        self.input_queue = InputQueue(MAX_INPUTS_AT_ONCE)
        services.metrics.register_paths(ALL_ROUTES)
        self._body_budget = BodyBudget(services.config.server.unfinished_bytes)
        services.metrics.add_gauge(
            "antiphon_unfinished_body_bytes",
            "Bytes of request bodies that have not arrived in full or are not prepared yet.",
            lambda: self._body_budget.used_bytes,
        )
        self._use_services(services, AccessPolicy.from_config(services.config, environ))

    def _use_services(self, services: Services, access_policy: AccessPolicy) -> None:
        server = services.config.server
        self._services = services
        self._access_policy = access_policy
        self.body_timeout = server.body_timeout
        self._body_budget.set_limit(server.unfinished_bytes)
        websocket_routes = WebSocketRoutes(
            access_policy,
            {"/v1/responses": responses_websocket(services, self._authenticate)},
            services.max_body,
            WebSocketTimeouts(lifetime=services.websocket_lifetime),
            self._body_budget,
        )
        self.websockets = websocket_routes if server.websocket else None

    def _authenticate(self, scope: Scope) -> Caller:
        """The owner of a key by the newest configuration."""
        return self._access_policy.authenticate(scope)

    def guess_owner(self, data: bytes) -> str | None:
        """The owner of a request by its first bytes, for the order in which input is processed."""
        return self._access_policy.guess_owner(data)

    def apply_config(self, config: Config) -> None:
        """Serves new requests with another configuration; requests in flight keep theirs. Called in another thread, it
        returns once the configuration is in use, or raises and changes nothing."""
        assert self._loop is not None  # it was started
        routes = self._services.make_routes(config)
        access_policy = AccessPolicy.from_config(config, self._environ)

        async def use_config() -> None:
            self._use_services(self._services.reconfigure(config, routes), access_policy)

        result = asyncio.run_coroutine_threadsafe(use_config(), self._loop)
        try:
            result.result(APPLY_TIMEOUT)
        except TimeoutError:
            result.cancel()
            raise ConfigError("the gateway is too busy to change its configuration; try again") from None

    @property
    def shutdown_delay(self) -> float:
        """Seconds from the stop signal until the port is closed."""
        return self._services.config.server.shutdown_delay

    def stop_being_ready(self) -> None:
        """Called at the stop signal."""
        self._services.stop_being_ready()

    def start_shutdown(self) -> None:
        """Called when the server stops accepting connections."""
        self._services.start_shutdown()

    def force_shutdown(self) -> None:
        """Called at the second stop signal."""
        self._services.force_shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve_request(scope, receive, send)
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
                        self._loop = asyncio.get_running_loop()
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

    async def _serve_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        services = self._services
        id = new_id("req")
        trace = services.traces.start_trace(id) if services.traces is not None else None
        cors_headers = self._access_policy.cors_headers(scope)
        exchange = Exchange(id, scope, receive, send, dialect_for(scope), cors_headers, trace, self._body_budget)
        if services.telemetry is not None:
            exchange.log_entry.traceparent = first_header(scope, b"traceparent").decode("latin-1")
        services.process.requests_in_flight += 1
        try:
            await run_in_scope(services, exchange.request_scope, exchange, self._call_endpoint(services, exchange))
        finally:
            exchange.release_body()
            services.process.requests_in_flight -= 1

    async def _call_endpoint(self, services: Services, exchange: Exchange) -> None:
        """Applies the access policy, then calls the endpoint."""
        scope = exchange.scope
        self._access_policy.check_host_and_origin(scope)
        route = ROUTES.get(scope["path"]) or _model_route(exchange) or _resource_route(exchange)
        if scope["method"] == "OPTIONS" and first_header(scope, b"access-control-request-method"):
            await exchange.respond(204, PREFLIGHT_HEADERS, b"")  # the origin was admitted
            return
        if route is None or not (route.is_public or (route is METRICS_ROUTE and self._can_read_metrics(exchange))):
            caller = self._access_policy.authenticate(scope, in_query=exchange.dialect.has_key_in_query)
            exchange.log_entry.owner, exchange.key_style = caller
        if route is None:
            raise _unknown_path(exchange)
        operation = route.operations.get(scope["method"]) or (
            route.operations.get("GET") if scope["method"] == "HEAD" else None
        )
        if operation is None:
            allowed = ", ".join(sorted(route.operations))
            raise MethodNotAllowed(f"method not allowed; this path supports {allowed}", allowed.encode())
        await operation.endpoint(services, exchange)

    def _can_read_metrics(self, exchange: Exchange) -> bool:
        """Whether a request for the metrics needs no client's key."""
        exchange.has_metrics_key = self._access_policy.has_metrics_key(exchange.scope)
        return exchange.has_metrics_key or self._services.config.server.public_metrics


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
    parts[3:6:2] = PARAMETER_PLACEHOLDERS[: len(exchange.path_parameters)]
    return RESOURCE_ROUTES.get("/".join(parts))


def _unknown_path(exchange: Exchange) -> ClientFault:
    """The error for a path without a route. It names what to use in place of a known path of the client's API."""
    path: str = exchange.scope["path"]
    for beginning, advice in exchange.dialect.unsupported_paths:
        if path.startswith(beginning):
            return ClientFault(f"{beginning} is not supported: {advice}", type="not_found", code="not_found")
    return ClientFault("unknown path; see /openapi.json", type="not_found", code="not_found")


METRICS_ROUTE: Final = ROUTES[METRICS_PATH]
APPLY_TIMEOUT: Final = 5.0  # seconds for a busy event loop to change its configuration
PARAMETER_PLACEHOLDERS: Final = ("{id}", "{item_id}")
GATEWAY_HEADERS: Final = (
    b"authorization",
    b"content-type",
    b"antiphon-style",
    b"antiphon-extensions",
    b"antiphon-losses",
)
PREFLIGHT_HEADERS: Final[Headers] = [
    (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b", ".join([*GATEWAY_HEADERS, *CORS_CLIENT_HEADERS])),
    (b"access-control-max-age", b"600"),
]
