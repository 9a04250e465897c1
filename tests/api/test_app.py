"""The app: which paths exist, how each answers, and the headers that every answer has. Access rules are in
`test_security.py`."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.api.probing import ALICE, ASKED, Answer, Probed, head, probed
from tests.running import one_upstream, running, until

from antiphon import __version__
from antiphon.api.app import App
from antiphon.api.operation import Route
from antiphon.api.routes import ALL_ROUTES, MODEL_ROUTES, RESOURCE_ROUTES, ROUTES, openapi_document
from antiphon.config import ModelRule, UpstreamConfig
from antiphon.testing import ChatServer

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
REPO = Path(__file__).resolve().parents[2]
PAGE = "https://page.example"
OTHERS = ("/api", "/v1/chat", "/v1/messages", "/v1/vscode", "/v1beta")  # their errors have other forms


@pytest.fixture(scope="module")
def shared() -> Iterator[Probed]:
    with probed(keys=True, allowed_origins=[PAGE, "http://localhost:5173"]) as place:
        yield place


@pytest.fixture
def place(shared: Probed) -> Iterator[Probed]:
    shared.begin()
    yield shared
    shared.settle()


# Paths and methods


def test_route_table_lists_every_path_and_which_are_public() -> None:
    assert {path: (sorted(route.operations), route.is_public) for path, route in ROUTES.items()} == {
        "/v1/responses": (["POST"], False),
        "/v1/responses/compact": (["POST"], False),
        "/v1/models": (["GET"], False),
        "/v1/usage": (["GET"], False),
        "/v1/route": (["POST"], False),
        "/v1/upstreams": (["GET"], False),
        "/health": (["GET"], True),
        "/livez": (["GET"], True),
        "/readyz": (["GET"], True),
        "/openapi.json": (["GET"], True),
        "/metrics": (["GET"], False),
        "/v1/responses/input_tokens": (["POST"], False),
        "/v1/conversations": (["POST"], False),
        "/v1/embeddings": (["POST"], False),
        "/v1/completions": (["POST"], False),
        "/v1/chat/completions": (["POST"], False),
        "/v1/messages": (["POST"], False),
        "/v1/messages/count_tokens": (["POST"], False),
        "/api/chat": (["POST"], False),
        "/api/generate": (["POST"], False),
        "/api/embed": (["POST"], False),
        "/api/embeddings": (["POST"], False),
        "/api/show": (["POST"], False),
        "/api/tags": (["GET"], False),
        "/api/version": (["GET"], False),
        "/v1/vscode/chat": (["POST"], False),
        "/v1/vscode/count_tokens": (["POST"], False),
        "/v1/vscode/models": (["GET"], False),
        "/v1beta/models": (["GET"], False),
        "/": (["GET"], True),
    }
    assert {path: (sorted(route.operations), route.is_public) for path, route in MODEL_ROUTES.items()} == {
        f"/{version}/models/{{model}}{action}": ([method], False)
        for version in ("v1", "v1beta")
        for action, method in {
            "": "GET",
            ":generateContent": "POST",
            ":streamGenerateContent": "POST",
            ":countTokens": "POST",
            ":embedContent": "POST",
            ":batchEmbedContents": "POST",
        }.items()
    }
    assert {path: (sorted(route.operations), route.is_public) for path, route in RESOURCE_ROUTES.items()} == {
        "/v1/responses/{id}": (["DELETE", "GET"], False),
        "/v1/responses/{id}/input_items": (["GET"], False),
        "/v1/responses/{id}/cancel": (["POST"], False),
        "/v1/conversations/{id}": (["DELETE", "GET", "POST"], False),
        "/v1/conversations/{id}/items": (["GET", "POST"], False),
        "/v1/conversations/{id}/items/{item_id}": (["DELETE", "GET"], False),
    }
    assert not Route(operations=ROUTES["/health"].operations).is_public


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/v1",
            "/v1/",
            "/v1/responses/",
            "/v1/responses//input_items",
            "/v1/responses/resp_1/",
            "/v1/responses/resp_1/items",
        ),
        *("/v1/responses/resp_1/input_items/", "/x/v1/responses/resp_1", "/v2/models", "/favicon.ico", "/v1/models/"),
    ],
)
def test_unknown_path_is_404_and_names_the_openapi_document(place: Probed, path: str) -> None:
    """ERR-2: `not_found` is 404."""
    for method in ("GET", "POST", "DELETE"):
        answer = place.ask(method, path)
        answer.tells(404, "not_found")
        assert answer.error["type"] == "not_found"
        assert answer.error["message"] == "unknown path; see /openapi.json"


METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"]


@pytest.mark.parametrize("path", [path for path in ROUTES if not path.startswith(OTHERS)])
def test_unsupported_method_is_405_with_allowed_methods(place: Probed, path: str) -> None:
    allowed = sorted(ROUTES[path].operations)
    for method in set(METHODS) - set(allowed):
        answer = place.ask(method, path)
        answer.tells(405, "method_not_allowed")
        assert (answer.error["type"], answer.headers["allow"]) == ("invalid_request", ", ".join(allowed))
    assert place.seen == []


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/openapi.json"])
def test_head_request_is_answered_as_get_without_body(place: Probed, path: str) -> None:
    got, asked = place.ask("GET", path), place.ask("HEAD", path)
    assert (asked.status, asked.body) == (200, b"")
    assert asked.headers["content-type"] == got.headers["content-type"]
    assert int(asked.headers["content-length"]) == len(got.body)


def test_head_request_of_post_only_path_is_405(place: Probed) -> None:
    answer = place.ask("HEAD", "/v1/responses")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_query_string_does_not_change_the_route(place: Probed) -> None:
    assert place.ask("GET", "/health?x=y#z").status == 200
    assert place.ask(
        "POST", "/v1/responses?stream=true", ("content-type", "application/json"), body=msgspec.json.encode(ASKED)
    ).json


# Endpoints


def test_health_reports_status_without_calling_an_upstream(place: Probed) -> None:
    answer = place.ask("GET", "/health")
    assert answer.json == {"status": "ok", "version": __version__}
    assert place.network.asked == []


def test_health_answers_while_the_upstream_is_unreachable() -> None:
    with running(one_upstream("http://127.0.0.1:1/v1")) as gateway:
        assert gateway.get("/health").json()["status"] == "ok"


def test_openapi_path_serves_the_generated_document(place: Probed) -> None:
    answer = place.ask("GET", "/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.body == openapi_document()


def test_openapi_document_lists_exactly_the_routes() -> None:
    documented = msgspec.json.decode(openapi_document())["paths"]
    assert {path: {method.upper() for method in methods} for path, methods in documented.items()} == {
        path: set(route.operations) for path, route in ALL_ROUTES.items()
    }
    for path, route in ALL_ROUTES.items():
        for method in route.operations:
            assert (documented[path][method.lower()].get("security") == []) == route.is_public


def test_model_list_joins_configured_names_and_upstream_lists() -> None:
    """API-5."""
    with ChatServer(models=["mock-1", "mock-2", "other"]) as upstream:
        rules: list[str | ModelRule] = ["named", "mock-*", ModelRule(from_="fast", to="mock-1")]
        lab = UpstreamConfig(name="lab", dialect="chat", base_url=upstream.base_url, models=rules)
        away = UpstreamConfig(name="away", dialect="chat", base_url="http://127.0.0.1:1/v1", models=["far", "far-*"])
        config = msgspec.structs.replace(one_upstream(upstream.base_url), upstreams=[lab, away])
        with running(config) as gateway:
            answers = [gateway.get("/v1/models") for _ in range(3)]
            assert len(upstream.received) == 1  # a list is good for a minute
    listed = answers[0].json()
    assert listed["object"] == "list"
    assert {model["id"]: model["owned_by"] for model in listed["data"]} == {
        "named": "lab", "fast": "lab", "mock-1": "lab", "mock-2": "lab", "far": "away",
    }  # fmt: skip
    assert all(model["object"] == "model" and isinstance(model["created"], int) for model in listed["data"])
    assert all(answer.json() == listed for answer in answers)


def test_model_list_contains_only_models_that_answer() -> None:
    """API-5."""
    with ChatServer(models=["mock-1", "mock-2"]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        names = [model["id"] for model in gateway.get("/v1/models").json()["data"]]
        assert names == ["mock-1", "mock-2"]
        assert {gateway.post({**ASKED, "model": name}).status_code for name in names} == {200}


def test_unserved_model_is_404_and_names_served_models() -> None:
    """ERR-2."""
    with ChatServer() as upstream:
        config = one_upstream(upstream.base_url)
        config = msgspec.structs.replace(
            config, upstreams=[msgspec.structs.replace(config.upstreams[0], models=["mock-1"])]
        )
        with running(config) as gateway:
            answer = gateway.post({**ASKED, "model": "mock-9"})
        assert upstream.received == []
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("not_found", "model_not_found", "model")
    assert "'mock-1'" in error["message"]


# Request ids


def every_kind_of_answer(place: Probed) -> list[Answer]:
    """A plain answer, a stream, and refusals of every layer."""
    return [
        place.post(ASKED),
        place.post({**ASKED, "stream": True}),
        place.ask("GET", "/health"),
        place.post(b"{"),
        place.post(ASKED, ("content-encoding", "gzip")),
        place.post(ASKED, ("origin", "https://evil.example")),
        place.post(ASKED, ("origin", PAGE)),
        place.ask("GET", "/nothing"),
        place.ask("GET", "/health", host="evil.example"),
        place.ask("GET", "/v1/models", key="wrong"),
        place.ask("PUT", "/health"),
        place.ask("OPTIONS", "/health", ("origin", PAGE), ("access-control-request-method", "GET")),
        place.ask("GET", "/health", ("x", "y" * 100_000)),
        place.raw(b"no HTTP\r\n\r\n"),
    ]


def test_every_answer_has_a_unique_request_id_that_is_logged(place: Probed) -> None:
    """HTTP-8."""
    before = len(place.gateway.requests(0))
    answers = every_kind_of_answer(place)
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("req_[0-9a-f]{40}", id) for id in ids)
    place.gateway.requests(
        before + len(answers) - 2
    )  # the HTTP parser refused the last two: they never became requests and are not logged as such
    logged = {line["request_id"]: line for line in place.gateway.log if "request_id" in line}
    for answer in answers:
        line = logged[answer.headers["x-request-id"]]
        assert line["status"] == answer.status
        assert line.get("error") == (answer.error["code"] if answer.status >= 400 else None)


def test_request_id_from_client_is_ignored(place: Probed) -> None:
    """HTTP-8: otherwise two requests could share one id."""
    answer = place.post(ASKED, ("x-request-id", "req_mine"))
    assert answer.headers["x-request-id"] != "req_mine"
    assert "req_mine" not in str(place.gateway.log)


def test_answers_do_not_reveal_the_server_software(place: Probed) -> None:
    for answer in every_kind_of_answer(place):
        assert not {"server", "x-powered-by", "date"} & set(answer.headers)


# Browser pages and CORS


def test_allowed_origin_gets_cors_headers(place: Probed) -> None:
    for answer in (
        place.post(ASKED, ("origin", PAGE)),
        place.post({**ASKED, "stream": True}, ("origin", PAGE)),
        place.post(b"{", ("origin", PAGE)),
    ):
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["vary"] == "origin"
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers


def test_preflight_of_allowed_origin_needs_no_key(place: Probed) -> None:
    asked = [
        ("origin", PAGE),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ]
    for path in (
        *ROUTES,
        "/nothing",
    ):  # browsers send no key here, so the answer needs none; it also does not reveal which paths exist
        answer = place.raw(head("OPTIONS", path, ("host", "localhost"), ("connection", "close"), *asked))
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert {"GET", "POST"} <= set(answer.headers["access-control-allow-methods"].split(", "))
        assert {"authorization", "content-type", "x-api-key"} <= set(
            answer.headers["access-control-allow-headers"].split(", ")
        )
    assert place.seen == []


def test_request_without_origin_gets_no_cors_header(place: Probed) -> None:
    for answer in (place.post(ASKED), place.ask("GET", "/health"), place.ask("GET", "/v1/models", key="wrong")):
        assert not [name for name in answer.headers if name.startswith("access-control")]


# Connections


def test_connection_serves_pipelined_requests(place: Probed) -> None:
    body = msgspec.json.encode(ASKED)
    lines = [("host", "localhost"), ("authorization", f"Bearer {ALICE}"), ("content-type", "application/json")]
    one = head("POST", "/v1/responses", *lines, ("content-length", str(len(body)))) + body
    last = head("GET", "/health", ("host", "localhost"), ("connection", "close"))
    with place.gateway.connect() as connection:
        connection.sendall(one + one + last)
        data = b""
        while piece := connection.recv(65536):
            data += piece
    assert data.count(b"HTTP/1.1 200 OK") == 3
    assert len(place.seen) == 2


# Scopes of other kinds


def test_app_closes_websocket_scope_that_is_not_served() -> None:
    """Fail closed: the app closes a WebSocket scope that gets past the protocol."""
    with probed() as place:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            raise AssertionError("nothing is read from it")

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(App(place.gateway.services, {})({"type": "websocket", "headers": []}, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


# Garbage collection


def test_reference_cycles_are_freed_while_automatic_collection_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    class Circle:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr("antiphon.ops.services.GC_INTERVAL", 0.01)
    gc.disable()
    try:
        left = weakref.ref(Circle())
        with ChatServer() as upstream, running(one_upstream(upstream.base_url)):
            until(lambda: left() is None)
    finally:
        gc.enable()
