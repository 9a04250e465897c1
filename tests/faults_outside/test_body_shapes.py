"""Bodies of 60 MiB in different shapes at every path that takes a body: whether the gateway takes or refuses them, it
serves other requests meanwhile. Measured from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import trustme
from tests.faults_outside.echoing_upstream import echoing_upstream
from tests.faults_outside.gateway_process import LOAD_FACTOR, GatewayProcess, gateway_process, health_prober
from tests.faults_outside.quick_upstream import quick_upstream
from tests.running import BOUND, until
from tests.websocket_client import open_websocket

from antiphon import testing
from antiphon.api.routes import MODEL_ROUTES, RESOURCE_ROUTES, ROUTES
from antiphon.testing import ChatServer, turn

pytestmark = pytest.mark.timed

HEALTH = 0.1  # seconds that `/health` may take
SIZE = 60 << 20  # bytes of a body, about
SHORT = turn(testing.text("Hello."), testing.usage(5, 2))
#: With 512 tools, 60 MiB.
SCHEMA = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(4700)}}
#: Members of the body of a turn, by the name of its list of items.
Shape = Callable[[str], dict[str, Any]]


def message(field: str, content: Any) -> dict[str, Any]:
    """An item for the list with this name."""
    if field == "contents":
        parts = [{"text": content}] if isinstance(content, str) else [{"text": part["text"]} for part in content]
        return {"role": "user", "parts": parts}
    return {"role": "user", "content": content}


def one_string(field: str) -> dict[str, Any]:
    return {field: [message(field, "x" * SIZE)]}


def many_parts(field: str) -> dict[str, Any]:
    kind = "input_text" if field in ("input", "items") else "text"
    return {field: [message(field, [{"type": kind, "text": "word"}] * 1_000_000)]}


def many_items(field: str) -> dict[str, Any]:
    return {field: [message(field, "x" * (SIZE // 10_000))] * 10_000}


def too_many_items(field: str) -> dict[str, Any]:
    return {field: [message(field, "x")] * 1_000_000}


def deep(field: str) -> dict[str, Any]:
    value: Any = "x"
    for _ in range(200):
        value = {"a": value}
    return {field: [message(field, "Hi")], "metadata": {"deep": [value] * 40_000}}


def tools(field: str) -> dict[str, Any]:
    names = (f"tool_{number}" for number in range(512))
    definitions = [{"type": "function", "name": name, "description": "d", "parameters": SCHEMA} for name in names]
    if field in ("messages", "prompt"):
        definitions = [{"type": "function", "function": each} for each in definitions]
    if field == "contents":
        declarations = [{"name": each["name"], "description": "d", "parameters": SCHEMA} for each in definitions]
        return {field: [message(field, "Hi")], "tools": [{"functionDeclarations": declarations}]}
    return {field: [message(field, "Hi")], "tools": definitions}


def metadata(field: str) -> dict[str, Any]:
    return {field: [message(field, "Hi")], "metadata": {f"key {number}": "x" * 100 for number in range(500_000)}}


def output_schema(field: str) -> dict[str, Any]:
    """A schema of the output with a million distinct names."""
    schema = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(1_500_000)}}
    return {field: [message(field, "Hi")], "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}


def many_members(field: str) -> dict[str, Any]:
    return {field: [message(field, "Hi")], **{f"unknown {number}": number for number in range(1_000_000)}}


def namespace(field: str) -> dict[str, Any]:
    members = [{"type": "function", "name": f"f{number}"} for number in range(1_000_000)]
    return {field: [message(field, "Hi")], "tools": [{"type": "namespace", "name": "n", "tools": members}]}


def long_instructions(field: str) -> dict[str, Any]:
    """Characters that JSON escapes: the response repeats them."""
    return {field: [message(field, "Hi")], "instructions": "\x01" * (SIZE // 6)}


def long_number(field: str) -> dict[str, Any]:
    return {field: [message(field, "Hi")], "temperature": msgspec.Raw(b"0." + b"1" * SIZE)}


def images(field: str) -> dict[str, Any]:
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * (SIZE // 3)}
    return {field: [message(field, [image] * 3)]}


def wrong_type_at_the_end(field: str) -> dict[str, Any]:
    return {field: [*many_items(field)[field][1:], {"role": 7}]}


def unknown_previous_response(field: str) -> dict[str, Any]:
    return {field: [message(field, "Hi")], "previous_response_id": "x" * SIZE}


def texts(field: str) -> dict[str, Any]:
    """A list of strings, as embeddings and completions take it."""
    return {field: ["some words"] * 4_000_000}


def numbers(field: str) -> dict[str, Any]:
    """Tokens, as embeddings and completions take them."""
    return {field: [[17] * 1000] * 20_000}


ITEM_SHAPES: dict[str, Shape] = {
    "one string": one_string,
    "many parts": many_parts,
    "many items": many_items,
    "too many items": too_many_items,
    "deep": deep,
    "tools": tools,
    "metadata": metadata,
}
#: For paths that take texts.
TEXT_SHAPES: dict[str, Shape] = {"one string": one_string, "texts": texts, "numbers": numbers, "metadata": metadata}
#: For one path: what only a Responses request has.
RESPONSES_SHAPES: dict[str, Shape] = {
    "output schema": output_schema,
    "many members": many_members,
    "namespace": namespace,
    "long instructions": long_instructions,
    "long number": long_number,
    "images": images,
    "wrong type at the end": wrong_type_at_the_end,
    "unknown previous response": unknown_previous_response,
}
SHAPES = ITEM_SHAPES | TEXT_SHAPES | RESPONSES_SHAPES
#: Paths that take a body, with the name of their list of items, or of the member that can be large.
FIELDS = {
    "/v1/responses": "input",
    "/v1/responses/compact": "input",
    "/v1/responses/input_tokens": "input",
    "/v1/embeddings": "input",
    "/v1/completions": "prompt",
    "/v1/conversations": "items",
    "/v1/conversations/{id}": "metadata",
    "/v1/conversations/{id}/items": "items",
    "/v1/route": "input",
    "/v1/chat/completions": "messages",
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "messages",
    "/v1/vscode/chat": "messages",
    "/v1/vscode/count_tokens": "messages",
    "/api/chat": "messages",
    "/api/generate": "prompt",
    "/api/embed": "input",
    "/api/embeddings": "prompt",
    "/api/show": "model",
    "/v1beta/models/{model}:generateContent": "contents",
    "/v1beta/models/{model}:streamGenerateContent": "contents",
    "/v1beta/models/{model}:countTokens": "contents",
    "/v1beta/models/{model}:embedContent": "content",
    "/v1beta/models/{model}:batchEmbedContents": "requests",
}
WITHOUT_BODY = {"/v1/responses/{id}/cancel"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder: Path = tmp_path_factory.mktemp("gateway")
    with (
        ChatServer(lambda _: SHORT) as upstream,
        gateway_process(folder, upstream.base_url, store=f"sqlite:///{folder}/antiphon.db") as running,
    ):
        yield running


def test_every_path_that_takes_a_body_is_measured() -> None:
    paths = {
        path.replace("/v1/models/", "/v1beta/models/")
        for routes in (ROUTES, MODEL_ROUTES, RESOURCE_ROUTES)
        for path, route in routes.items()
        if "POST" in route.operations
    }
    assert paths == FIELDS.keys() | WITHOUT_BODY


def cases() -> Iterator[tuple[str, str]]:
    for path, field in FIELDS.items():
        takes_texts = field in ("prompt", "content", "requests", "model") or "embed" in path
        for shape in TEXT_SHAPES if takes_texts else ITEM_SHAPES:
            yield path, shape
    for shape in RESPONSES_SHAPES:
        yield "/v1/responses", shape


@pytest.mark.parametrize("shape", ["tools", "long instructions"])
@pytest.mark.parametrize("option", ["stream", "background", "store"])
def test_echo_of_large_settings_does_not_block_the_gateway(tmp_path: Path, option: str, shape: str) -> None:
    """The server takes them, and the response repeats them."""
    body = msgspec.json.encode({"model": "m", **SHAPES[shape]("input"), option: True})
    store = f"sqlite:///{tmp_path}/antiphon.db"
    with quick_upstream() as url, gateway_process(tmp_path, url, store=store) as gateway:
        with health_prober(gateway) as health:
            assert gateway.post(body).status_code == 200
            if option == "background":
                until(lambda: '"method":"BACKGROUND"' in gateway.log.read_text(), BOUND)
    print(f"{option}, {shape}, {len(body) >> 20} MiB: {health}")
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * HEALTH


@pytest.mark.parametrize("shape", ["tools", "long instructions"])
@pytest.mark.parametrize("option", ["stream", "background", "store"])
def test_answer_that_repeats_large_settings_does_not_block_the_gateway(tmp_path: Path, option: str, shape: str) -> None:
    """The server repeats them too."""
    body = msgspec.json.encode({"model": "m", **SHAPES[shape]("input"), option: True})
    store = f"sqlite:///{tmp_path}/antiphon.db"
    with echoing_upstream() as url, gateway_process(tmp_path, url, dialect="responses", store=store) as gateway:
        with health_prober(gateway) as health:
            assert gateway.post(body).status_code == 200
            if option == "background":
                until(lambda: '"method":"BACKGROUND"' in gateway.log.read_text(), BOUND)
    print(f"{option}, {shape} of the server, {len(body) >> 20} MiB: {health}")
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * HEALTH


@pytest.mark.parametrize("shape", ["tools", "long instructions"])
def test_stored_response_with_large_settings_is_used_without_blocking(tmp_path: Path, shape: str) -> None:
    """Read whole and as a stream, cancelled and continued."""
    body = msgspec.json.encode({"model": "m", **SHAPES[shape]("input"), "background": True})
    with quick_upstream() as url, gateway_process(tmp_path, url, store=f"sqlite:///{tmp_path}/antiphon.db") as gateway:
        id = gateway.post(body).json()["id"]
        until(lambda: '"method":"BACKGROUND"' in gateway.log.read_text(), BOUND)
        path = f"/v1/responses/{id}"
        uses: dict[str, Callable[[], httpx2.Response]] = {
            "read": lambda: gateway.get(path),
            "stream": lambda: gateway.get(f"{path}?stream=true"),
            "end of the stream": lambda: gateway.get(f"{path}?stream=true&starting_after=3"),
            "input": lambda: gateway.get(f"{path}/input_items"),
            "cancel": lambda: gateway.post(b"", f"{path}/cancel"),
            "continue": lambda: gateway.post({"model": "m", "input": "Go on.", "previous_response_id": id}),
        }
        for name, use in uses.items():
            with health_prober(gateway) as health:
                assert use().status_code == 200
            print(f"{shape}, {name}: {health}")
            assert health.failures == 0
            assert health.worst_seconds < LOAD_FACTOR * HEALTH


def test_large_body_for_a_tls_server_does_not_block_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is encrypted in the event loop, in parts."""
    authority, certificate = trustme.CA(), tmp_path / "certificate.pem"
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    body = msgspec.json.encode({"model": "m", **many_items("input"), "store": False})
    with quick_upstream(certificate) as url, gateway_process(tmp_path, url) as gateway:
        with health_prober(gateway) as health:
            assert gateway.post(body).status_code == 200
    print(f"TLS, {len(body) >> 20} MiB: {health}")
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * HEALTH


#: Bodies of less than 1 MiB that take long: each of their values does.
DENSE_BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "parts": ("/v1/responses", {"input": [message("input", [{"type": "input_text", "text": "w", "x": 1}] * 20_000)]}),
    "chat parts": (
        "/v1/chat/completions",
        {"messages": [message("messages", [{"type": "text", "text": "w", "x": 1}] * 25_000)]},
    ),
    "gemini members": (
        "/v1beta/models/m:generateContent",
        {"contents": [message("contents", "Hi")], **{f"k{number}": 1 for number in range(80_000)}},
    ),
    "messages members": (
        "/v1/messages",
        {"max_tokens": 9, "messages": [message("messages", "Hi")], **{f"k{number}": 1 for number in range(80_000)}},
    ),
    "deep": ("/v1/responses", {"input": "Hi", "x": [msgspec.Raw(b"[" * 200 + b"]" * 200)] * 2400}),
    "too many items": ("/v1/responses", {"input": [message("input", "")] * 25_000}),
}


@pytest.mark.parametrize("name", DENSE_BODIES)
def test_dense_body_does_not_block_the_gateway(gateway: GatewayProcess, name: str) -> None:
    path, members = DENSE_BODIES[name]
    body = msgspec.json.encode({"model": "m", **members})
    assert len(body) < 1 << 20
    with health_prober(gateway) as health:
        answer = gateway.post(body, path)
    print(f"{path}, {name}, {len(body) >> 10} KiB: {answer.status_code}, {health}")
    assert answer.status_code != 500, answer.text[:500]
    assert health.worst_seconds < LOAD_FACTOR * HEALTH


def test_many_bodies_at_once_do_not_block_the_gateway(tmp_path: Path) -> None:
    """A hundred of just below 1 MiB, each of which the event loop prepares itself."""
    body = msgspec.json.encode({"model": "m", "input": "x" * 900_000, "store": False})
    with quick_upstream() as url, gateway_process(tmp_path, url) as gateway:
        with health_prober(gateway) as health, ThreadPoolExecutor(100) as threads:
            answers = list(threads.map(lambda _: gateway.post(body).status_code, range(100)))
    print(f"100 bodies of {len(body) >> 10} KiB: {health}")
    assert set(answers) == {200}
    assert health.worst_seconds < LOAD_FACTOR * HEALTH


@pytest.mark.parametrize(("path", "shape"), list(cases()))
def test_body_does_not_block_the_gateway(gateway: GatewayProcess, path: str, shape: str) -> None:
    if "/conversations/{id}" in path:
        path = path.replace("{id}", gateway.post(b"{}", "/v1/conversations").json()["id"])
    members = {"model": "m", "max_tokens": 100, **SHAPES[shape](FIELDS.get(path, "items"))}
    body = msgspec.json.encode(members)
    assert len(body) < 64 << 20
    del members
    with health_prober(gateway) as health:
        answer = gateway.post(body, path.replace("{model}", "m"))
    print(f"{path}, {shape}, {len(body) >> 20} MiB: {answer.status_code}, {health}")
    assert answer.status_code != 500, answer.text[:500]
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * HEALTH


@pytest.mark.parametrize("shape", ITEM_SHAPES)
def test_message_of_a_websocket_does_not_block_the_gateway(gateway: GatewayProcess, shape: str) -> None:
    message = {"type": "response.create", "model": "m", **SHAPES[shape]("input")}
    with health_prober(gateway) as health, open_websocket(gateway.port, "/v1/responses") as client:
        client.send(msgspec.json.encode(message).decode())  # without spaces: it is within the limit
        event = client.receive_json()
    print(f"WebSocket, {shape}: {event['type']}, {health}")
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * HEALTH
