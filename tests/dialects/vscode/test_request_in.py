"""An editor's options and tools as the settings of a hub request."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from tests.dialects.vscode.reading import USER, message, read

from antiphon.dialects.vscode import request_to_hub
from antiphon.errors import ApiError, ClientFault
from antiphon.protocol.request import ENCRYPTED_IF_ANY, ReasoningConfigParam
from antiphon.protocol.tools import FunctionToolParam

TURN = message(USER, "hi")
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS: list[dict[str, Any]] = [
    {"name": "look", "description": "Looks.", "inputSchema": SCHEMA, "tags": ["x"]},
    {"name": "bare"},
]


def test_request_streams_without_store_and_includes_encrypted_reasoning() -> None:
    """RSN-2."""
    request, loss_paths = read(TURN)
    assert (request.model, request.stream, request.store, request.include, loss_paths) == (
        "m",
        True,
        False,
        [ENCRYPTED_IF_ANY],
        [],
    )
    assert read(TURN, stream=False)[0].stream is False
    assert (request.tools, request.tool_choice, request.instructions) == (UNSET, UNSET, UNSET)


@pytest.mark.parametrize(("mode", "choice"), [(1, "auto"), (2, "required"), (None, UNSET)])
def test_tools_are_flat_and_the_mode_becomes_the_choice(mode: int | None, choice: Any) -> None:
    """A-7."""
    request, loss_paths = read(
        TURN, options={"tools": TOOLS, "toolMode": mode, "justification": "why", "requestInitiator": "who"}
    )
    assert loss_paths == []
    assert request.tools == [
        FunctionToolParam(name="look", description="Looks.", parameters=SCHEMA, strict=False),
        FunctionToolParam(name="bare", strict=False),
    ]
    assert request.tool_choice == choice


def test_mode_without_tools_is_ignored_and_an_unknown_one_is_auto() -> None:
    """A-7: the editor always sends one."""
    assert read(TURN, options={"toolMode": 1})[0].tool_choice is UNSET
    request, loss_paths = read(TURN, options={"tools": [{**TOOLS[0], "cost": 1}], "toolMode": 9})
    assert (request.tool_choice, sorted(loss_paths)) == ("auto", ["options.toolMode", "options.tools[0].cost"])


def test_model_options_are_mapped_to_hub_fields() -> None:
    options = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 99,
        "reasoning": {"effort": "low"},
        "parallel_tool_calls": False,
    }
    request, loss_paths = read(TURN, options={"modelOptions": options})
    assert (request.temperature, request.top_p, request.max_output_tokens, loss_paths) == (0.5, 0.9, 99, [])
    assert (request.reasoning, request.parallel_tool_calls) == (ReasoningConfigParam(effort="low"), False)


def test_unknown_options_pass_and_request_fields_do_not() -> None:
    """REQ-7: an option cannot override the rest of the body."""
    options = {"chat:stop": ["x"], "seed": 1, "previous_response_id": "resp_1", "store": True}
    request, loss_paths = read(TURN, options={"modelOptions": options})
    assert {name: bytes(raw) for name, raw in (request.extra or {}).items()} == {"chat:stop": b'["x"]', "seed": b"1"}
    assert sorted(loss_paths) == ["options.modelOptions.previous_response_id", "options.modelOptions.store"]
    assert request.store is False


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": 1, "content": 5}]}, "messages[0].content"),
        ({"messages": [TURN], "options": {"modelOptions": {"temperature": "hot"}}}, "options.modelOptions.temperature"),
        ({"messages": [TURN], "options": {"tools": [{}]}}, "options.tools[0].name"),
        ({"messages": [TURN], "choices": {"json": "xml"}}, "choices.json"),
    ],
)
def test_invalid_requests_are_refused_with_a_path(body: Any, param: str) -> None:
    """ERR-3."""
    with pytest.raises(ClientFault) as caught:
        request_to_hub(json.dumps(body).encode())
    assert caught.value.param == param


def test_invalid_json_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        request_to_hub(b"{")
    assert caught.value.code == "invalid_json"


NAMES = [
    "type",
    "value",
    "id",
    "metadata",
    "signature",
    "callId",
    "name",
    "input",
    "content",
    "mimeType",
    "data",
    "node",
    "$mid",
    "children",
]
LEAVES = st.sampled_from(
    [
        None,
        True,
        1,
        2,
        3,
        2.5,
        "",
        "text",
        "thinking",
        "tool_call",
        "tool_result",
        "data",
        "aGk=",
        "image/png",
        "cache_control",
    ]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=30)
@given(st.lists(st.fixed_dictionaries({"role": LEAVES, "content": st.lists(VALUES, max_size=4)}), max_size=3), VALUES)
def test_any_body_is_decoded_or_refused(messages: list[Any], options: Any) -> None:
    """ERR-1: no body causes an internal error."""
    body = json.dumps({"messages": messages, "options": options}).encode()
    with suppress(ClientFault):
        request_to_hub(body)
