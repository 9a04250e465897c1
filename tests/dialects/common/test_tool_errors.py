"""Failed tools: every client that can mark them, every profile of every upstream dialect. The law checks the body that
the server receives."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec.structs import replace
from tests.testing.requests import error_of, make_request

from antiphon.dialects.common.tool_errors import (
    ERROR_MARK,
    TOOL_ERROR_PREFIX,
    is_failed,
    mark_failure_in_text,
    tool_error_text,
    without_error_mark,
)
from antiphon.dialects.dialect import ClientDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS
from antiphon.profiles import Profile, load_profile, profile_names
from antiphon.protocol.content import InputImageParam, InputText
from antiphon.protocol.items import CustomToolCallOutputParam, FunctionCallOutputParam, MessageParam
from antiphon.protocol.losses import Loss
from antiphon.protocol.request import Request, input_items
from antiphon.testing.chat.server import ChatBehavior
from antiphon.testing.gemini.server import GeminiBehavior
from antiphon.testing.messages.server import MessagesBehavior
from antiphon.testing.ollama.server import OllamaBehavior
from antiphon.testing.responses.server import ResponsesBehavior
from antiphon.testing.rules import ServerLimits

Json = dict[str, Any]


class Result(NamedTuple):
    text: str
    failed: bool


class Sent(NamedTuple):
    """A result as the server receives it: whether a field marks the failure, and the text."""

    field: bool
    text: str


# The bodies of each kind of client: one call of `look` per result, all results after it, then another user message.


def _messages(results: list[Result]) -> Json:
    calls = [{"type": "tool_use", "id": f"call_{at}", "name": "look", "input": {}} for at, _ in enumerate(results)]
    return {
        "max_tokens": 100,
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": [*_blocks(results), {"type": "text", "text": "go on"}]},
        ],
    }


def _blocks(results: list[Result]) -> list[Json]:
    return [
        {"type": "tool_result", "tool_use_id": f"call_{at}", "content": result.text, "is_error": result.failed}
        for at, result in enumerate(results)
    ]


def _gemini(results: list[Result]) -> Json:
    given = [{"name": "look", "response": {"error" if result.failed else "output": result.text}} for result in results]
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "q"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}} for _ in results]},
            {"role": "user", "parts": [*({"functionResponse": each} for each in given), {"text": "go on"}]},
        ]
    }


def _vscode(results: list[Result]) -> Json:
    calls = [{"callId": f"call_{at}", "name": "look", "input": {}} for at, _ in enumerate(results)]
    given = [
        {"callId": f"call_{at}", "content": [{"value": result.text}], "isError": result.failed}
        for at, result in enumerate(results)
    ]
    return {
        "messages": [
            {"role": 1, "content": "q"},
            {"role": 2, "content": calls},
            {"role": 1, "content": [*given, {"value": "go on"}]},
        ]
    }


def _chat(results: list[Result]) -> Json:
    calls = [
        {"id": f"call_{at}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for at, _ in enumerate(results)
    ]
    return {
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "user", "content": _blocks(results)},
            {"role": "user", "content": "go on"},
        ]
    }


def _responses(results: list[Result]) -> Json:
    outputs = [
        {"type": "function_call_output", "call_id": f"call_{at}", "output": result.text, "is_error": result.failed}
        for at, result in enumerate(results)
    ]
    return _items(results, outputs)


def _items(results: list[Result], outputs: list[Json]) -> Json:
    calls = [
        {"type": "function_call", "call_id": f"call_{at}", "name": "look", "arguments": "{}"}
        for at, _ in enumerate(results)
    ]
    return {"input": [{"role": "user", "content": "q"}, *calls, *outputs, {"role": "user", "content": "go on"}]}


class Client(NamedTuple):
    dialect: ClientDialectName
    body: Callable[[list[Result]], Json]


CLIENTS: Final = {
    "messages": Client("messages", _messages),
    "gemini": Client("gemini", _gemini),
    "vscode": Client("vscode", _vscode),
    "chat": Client("chat", _chat),
    "responses": Client("responses", _responses),
}


# The bodies for each kind of server.


def _results_in_chat(body: Json) -> list[Sent]:
    return [Sent(False, message["content"]) for message in body["messages"] if message["role"] == "tool"]


def _results_in_responses(body: Json) -> list[Sent]:
    outputs = [item for item in body["input"] if item.get("type") == "function_call_output"]
    return [Sent("is_error" in item, item["output"]) for item in outputs]


def _results_in_blocks(body: Json) -> list[Sent]:
    messages = body.get("messages") or body["input"]
    blocks = [block for message in messages if isinstance(message.get("content"), list) for block in message["content"]]
    results = [block for block in blocks if block["type"] == "tool_result"]
    return [Sent(block.get("is_error", False), block.get("content", "")) for block in results]


def _results_in_gemini(body: Json) -> list[Sent]:
    parts = [part for content in body["contents"] for part in content["parts"] if "functionResponse" in part]
    given = [part["functionResponse"]["response"] for part in parts]
    return [Sent("error" in response, response.get("error", response.get("output"))) for response in given]


def _results_in_text(body: Json) -> list[Sent]:
    messages = body.get("messages") or body["input"]
    contents = [message["content"] for message in messages if message["role"] == "user"]
    texts = [
        text
        for content in contents
        for text in ([content] if isinstance(content, str) else [p["text"] for p in content])
    ]
    matches = [text.partition("]: ") for text in texts if text.startswith("[Tool Result for call_")]
    return [Sent(False, text) for _, _, text in matches]


BY_DIALECT: Final[dict[str, Callable[[Json], list[Sent]]]] = {
    "chat": _results_in_chat,
    "responses": _results_in_responses,
    "messages": _results_in_blocks,
    "gemini": _results_in_gemini,
    "ollama": _results_in_chat,
}
BY_PROFILE: Final[dict[str, Callable[[Json], list[Sent]]]] = {
    "ccr-tool-result": _results_in_blocks,
    "local": _results_in_text,
    "vercel-ai-gateway-2026-01": _results_in_text,
}
STRICT: Final[dict[str, Any]] = {
    "chat": ChatBehavior(ServerLimits(strict_fields=True)),
    "responses": ResponsesBehavior(ServerLimits(strict_fields=True)),
    "messages": MessagesBehavior(),
    "gemini": GeminiBehavior(),
    "ollama": OllamaBehavior(),
}
PROFILES: Final = {name: load_profile(name) for name in profile_names()}
MODELS: Final = {"anthropic": "claude-sonnet-4-6", "gemini": "gemini-2.5-flash", "google": "gemini-2.5-flash"}
TEXTS: Final = st.sampled_from(["", "no such file", " \n", "[tool error] no", '{"a":1}', "é\x00中", "[Tool"])
results = st.lists(st.builds(Result, TEXTS, st.booleans()), min_size=1, max_size=3)


def asked(client: Client, profile: Profile, results: list[Result]) -> tuple[Json, list[Loss]]:
    """The body for a server, and all losses on the way."""
    request, losses = CLIENT_DIALECTS[client.dialect].request_to_hub(json.dumps(client.body(results)).encode())
    body, lost = sent(replace(request, model=MODELS.get(profile.name, "m")), profile)
    return body, [*losses, *lost]


def sent(request: Request, profile: Profile) -> tuple[Json, list[Loss]]:
    prepared, lost_by_profile = profile.apply_quirks(request)
    body, lost = SERVER_DIALECTS[profile.dialect].request_from_hub(prepared, profile.wire)
    return json.loads(body), [*lost_by_profile, *lost]


def wanted(result: Result, profile: Profile) -> Sent:
    if not result.failed:
        return Sent(False, result.text)
    if profile.dialect == "messages":  # its servers refuse an error without text
        return Sent(True, result.text if result.text.strip() else "[tool error]")
    if profile.dialect == "gemini":  # an empty `error` is no error there
        return Sent(True, result.text or "[tool error]")
    if profile.name == "ccr-tool-result":
        return Sent(True, result.text)
    return Sent(False, f"[tool error] {result.text}" if result.text else "[tool error]")


@pytest.mark.without_coverage
@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("client", CLIENTS)
@given(results=results)
def test_tool_failure_reaches_every_server(client: str, name: str, results: list[Result]) -> None:
    """F-4: by the dialect's own field, or at the start of the result's text; nothing is lost, so no loss is
    reported."""
    profile = PROFILES[name]
    if client == "gemini":  # its `error` is the error's text: without text no tool failed
        results = [result._replace(failed=result.failed and bool(result.text)) for result in results]
    body, losses = asked(CLIENTS[client], profile, results)
    read = BY_PROFILE.get(name, BY_DIALECT[profile.dialect])
    assert read(body) == [wanted(result, profile) for result in results]
    assert [loss for loss in losses if "is_error" in loss.path or "fail" in loss.what] == []
    if name != "ccr-tool-result":  # its servers have their own rule
        asking = replace(
            make_request(body, anthropic_version="2023-06-01"), path="/v1beta/models/gemini-2.5-flash:generateContent"
        )
        assert error_of(STRICT[profile.dialect].find_refusal(asking)) == {}


@pytest.mark.without_coverage
@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("client", CLIENTS)
@given(results=results)
def test_tool_failure_has_the_same_bytes_every_turn(client: str, name: str, results: list[Result]) -> None:
    """The start of a conversation stays the same, so that a server's cache of it stays valid."""
    profile = PROFILES[name]
    client_dialect = CLIENT_DIALECTS[CLIENTS[client].dialect]
    request, _ = client_dialect.request_to_hub(json.dumps({"model": "m", **CLIENTS[client].body(results)}).encode())
    request = replace(request, model=MODELS.get(name, "m"))
    more = [MessageParam(role="assistant", content="I see."), MessageParam(role="user", content="And now?")]
    before, after = (
        _conversation(sent(each, profile)[0])
        for each in (request, replace(request, input=[*input_items(request), *more]))
    )
    assert json.dumps(after[: len(before)]) == json.dumps(before)
    assert len(after) == len(before) + 2


def _conversation(body: Json) -> list[Any]:
    conversation: list[Any] = body.get("messages") or body.get("input") or body["contents"]
    return conversation


# The functions themselves.

IMAGE: Final = InputImageParam(image_url="https://i/1.png")


@pytest.mark.parametrize("kind", [FunctionCallOutputParam, CustomToolCallOutputParam])
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("no", "[tool error] no"),
        ("", "[tool error]"),
        ([], [InputText(text="[tool error]")]),
        ([IMAGE], [InputText(text="[tool error]"), IMAGE]),
        (
            [IMAGE, InputText(text="a"), InputText(text="b")],
            [IMAGE, InputText(text="[tool error] a"), InputText(text="b")],
        ),
        ([InputText(text=""), InputText(text="b")], [InputText(text="[tool error]"), InputText(text="b")]),
    ],
)
def test_failure_mark_starts_the_first_text(kind: Any, given: Any, wanted: Any) -> None:
    other = {"note": Raw(b"1")}
    assert mark_failure_in_text(kind(call_id="a", output=given, extra={**ERROR_MARK, **other})) == kind(
        call_id="a", output=wanted, extra=other
    )
    assert mark_failure_in_text(kind(call_id="a", output=given, extra=ERROR_MARK)) == kind(call_id="a", output=wanted)
    assert mark_failure_in_text(kind(call_id="a", output=given)) == kind(call_id="a", output=given)


@pytest.mark.parametrize(
    ("mark", "failed", "expected"),
    [(b"true", True, False), (b"false", False, False), (b"null", False, False), (b'"yes"', False, True)],
)
def test_failure_mark_must_be_a_boolean(mark: bytes, failed: bool, expected: bool) -> None:
    """REQ-7: any other value is an unknown member, and is unchanged."""
    extra = {"is_error": Raw(mark)}
    output = FunctionCallOutputParam(call_id="a", output="x", extra=extra)
    assert is_failed(output) is failed
    assert without_error_mark(output) == replace(output, extra=extra if expected else UNSET)


def test_tool_error_text_is_a_prefix_and_the_text() -> None:
    assert (tool_error_text("no"), tool_error_text("")) == (f"{TOOL_ERROR_PREFIX}no", TOOL_ERROR_PREFIX.rstrip())
