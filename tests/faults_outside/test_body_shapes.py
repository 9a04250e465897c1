"""Bodies of 60 MiB in different shapes at every path that takes a body: whether the gateway takes or refuses them, it
serves other requests meanwhile. Measured from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.faults_outside.gateway_process import LOAD_FACTOR, GatewayProcess, gateway_process, health_prober
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
SHAPES = ITEM_SHAPES | TEXT_SHAPES
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
        client.send(message)
        event = client.receive_json()
    print(f"WebSocket, {shape}: {event['type']}, {health}")
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * HEALTH
