"""A Messages client's request, decoded: the settings, and the request of a real agent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET
from tests.dialects.messages.client_asking import HELLO, read

from antiphon.dialects.messages.request_in import request_to_hub
from antiphon.errors import ApiError, InvalidValue, UnsupportedParameter
from antiphon.protocol.content import InputText
from antiphon.protocol.items import MessageParam
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    Request,
    TextParam,
    input_items,
)


def extra_in(request: Request) -> dict[str, Any]:
    return {name: json.loads(bytes(raw)) for name, raw in (request.extra or {}).items()}


def test_minimal_request_is_decoded() -> None:
    """RSN-2: sealed reasoning is always requested, since the client's history contains it; nothing is stored."""
    request, losses = read()
    assert request == Request(
        model="m",
        input=[MessageParam(role="user", content=[InputText(text="hello")])],
        max_output_tokens=100,
        include=[ENCRYPTED_IF_ANY],
        store=False,
    )
    assert list(losses) == []


def test_settings_are_decoded() -> None:
    """REQ-5."""
    request, losses = read(
        temperature=0.5,
        top_p=1,
        stream=True,
        metadata={"user_id": "u" * 200},
        service_tier="standard_only",
        max_tokens=1,
    )
    assert (request.temperature, request.top_p, request.stream) == (0.5, 1, True)
    assert (request.user, request.service_tier, request.max_output_tokens) == ("u" * 200, "default", 1)
    assert extra_in(request) == {"messages:service_tier": "standard_only"}
    assert list(losses) == []


@pytest.mark.parametrize("thread", [{"type": "fork"}, {"type": "continue"}])
def test_unknown_form_of_a_thread_is_refused(thread: Any) -> None:
    """REQ-6."""
    with pytest.raises(UnsupportedParameter) as caught:
        read(thread=thread)
    assert caught.value.param == "thread"


@pytest.mark.parametrize("system", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
def test_thread_begins_with_its_tools_and_its_system_text(system: Any) -> None:
    """API-7: as items, because later requests of the thread have only new messages."""
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    request, losses = read(thread={"type": "create"}, system=system, tools=tools)
    items = input_items(request)
    assert [type(item).__name__ for item in items] == ["AdditionalTools", "MessageParam", "MessageParam"]
    assert (request.store, request.previous_response_id, request.tools, request.instructions) == (
        True,
        UNSET,
        UNSET,
        UNSET,
    )
    assert not losses


def test_continued_thread_has_only_its_new_messages() -> None:
    """API-7: system text and tools are in the stored conversation."""
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    request, losses = read(thread=thread, system=None, tools=[])
    assert (request.store, request.previous_response_id, request.instructions) == (True, "resp_1", UNSET)
    assert [type(item).__name__ for item in input_items(request)] == ["MessageParam"]
    assert not losses
    assert input_items(read(thread=thread, messages=[])[0]) == []
    for field in ({"system": "Be brief."}, {"tools": [{"name": "f", "input_schema": {"type": "object"}}]}):
        with pytest.raises(InvalidValue, match="expected none, because a thread keeps"):
            read(thread=thread, **field)


def test_null_thread_is_accepted() -> None:
    assert read(thread=None)[0] == read()[0]


def test_native_fields_are_passed_through_under_their_names() -> None:
    """REQ-7, F-4."""
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    request, losses = read(
        top_k=0,
        stop_sequences=["END"],
        context_management=edits,
        container="c_1",
        mcp_servers=[{"type": "url"}],
        service_tier="batch",
        output_format={"type": "grammar"},
    )
    assert extra_in(request) == {
        "messages:top_k": 0,
        "messages:stop_sequences": ["END"],
        "messages:context_management": edits,
        "messages:container": "c_1",
        "messages:mcp_servers": [{"type": "url"}],
        "messages:service_tier": "batch",
        "messages:output_format": {"type": "grammar"},
    }
    assert list(losses) == []


def test_null_fields_set_nothing() -> None:
    request, losses = read(
        top_k=None,
        stop_sequences=None,
        thinking=None,
        output_config=None,
        metadata=None,
        tools=None,
        tool_choice=None,
        system=None,
        service_tier=None,
    )
    assert extra_in(request) == {}
    assert list(losses) == []


@pytest.mark.parametrize(
    ("members", "effort", "carried"),
    [
        (
            {"thinking": {"type": "enabled", "budget_tokens": 4000}},
            "low",
            {"thinking": {"type": "enabled", "budget_tokens": 4000}},
        ),
        ({"thinking": {"type": "enabled", "budget_tokens": 1}, "output_config": {"effort": "high"}}, "high", None),
        ({"thinking": {"type": "adaptive"}}, None, {"thinking": {"type": "adaptive"}}),
        (
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
            "max",
            {"thinking": {"type": "adaptive"}},
        ),
        ({"thinking": {"type": "disabled"}}, "none", {"thinking": {"type": "disabled"}}),
        (
            {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}},
            "none",
            {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}},
        ),
        ({"output_config": {"effort": "low"}}, "low", {"thinking": None, "output_config": {"effort": "low"}}),
        ({"output_config": {"effort": "utmost"}}, None, {"output_config": {"effort": "utmost"}}),
        (
            {
                "thinking": {"type": "between_tools", "x": 1},
                "output_config": {"effort": "low", "task_budget": {"total": 9}},
            },
            "low",
            {
                "thinking": {"type": "between_tools", "x": 1},
                "output_config": {"effort": "low", "task_budget": {"total": 9}},
            },
        ),
    ],
)
def test_thinking_becomes_effort_and_is_passed_through(
    members: dict[str, Any], effort: str | None, carried: dict[str, Any] | None
) -> None:
    """RSN-4."""
    request, losses = read(**members)
    assert (request.reasoning.effort if isinstance(request.reasoning, ReasoningConfigParam) else None) == effort
    if carried is not None:
        assert extra_in(request) == {f"messages:{name}": value for name, value in carried.items()}
    assert list(losses) == []


@pytest.mark.parametrize("place", ["output_config", "output_format"])
def test_output_format_is_decoded_from_both_fields(place: str) -> None:
    """REQ-1."""
    format = {"type": "json_schema", "schema": {"type": "object"}}
    request, losses = read(**{place: {"format": format} if place == "output_config" else format})
    assert request.text == TextParam(
        format=JsonSchemaFormatParam(name="response", schema={"type": "object"}, strict=True)
    )
    assert list(losses) == []


def test_unknown_output_format_is_passed_through() -> None:
    request, losses = read(output_config={"format": {"type": "grammar", "g": 1}})
    assert extra_in(request) == {"messages:output_config": {"format": {"type": "grammar", "g": 1}}}
    assert list(losses) == []


def test_unsupported_fields_are_losses() -> None:
    """F-4."""
    _, losses = read(
        metadata={"user_id": "u", "team": "t"},
        output_config={"format": {"type": "json_schema", "schema": {}, "name": "n"}},
        tool_choice={"type": "auto", "why": 1},
    )
    assert [loss.path for loss in losses] == ["output_config.format.name", "metadata.team", "tool_choice.why"]


@pytest.mark.parametrize(
    ("members", "param", "expected"),
    [
        ({"messages": []}, "messages", "expected an array of at least 1 objects"),
        (
            {"messages": [{"role": "tool", "content": "x"}]},
            "messages[0].role",
            'expected one of "assistant", "system", "user", got "tool"',
        ),
        ({"messages": [*HELLO, {"role": "user"}]}, "messages[1].content", "is missing"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type", "is missing"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "is missing"),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "n", "input": "x"}]}
                ]
            },
            "messages[0].content[0].input",
            'expected an object, got "x"',
        ),
        ({"max_tokens": "many"}, "max_tokens", 'expected an integer from 0 to 2147483647 or null, got "many"'),
        (
            {"tool_choice": {"type": "some"}},
            "tool_choice.type",
            'expected one of "auto", "any", "tool", "none", got "some"',
        ),
        ({"tools": [{"name": "x"}]}, "tools[0].input_schema", "is missing: expected an object"),
        ({"tools": [{"type": "custom", "input_schema": {}}]}, "tools[0].name", "is missing: expected a string"),
    ],
)
def test_request_error_names_value_expectation_and_path(members: dict[str, Any], param: str, expected: str) -> None:
    """ERR-3."""
    body = {"model": "m", "max_tokens": 1, "messages": HELLO, **members}
    with pytest.raises(ApiError) as raised:
        request_to_hub(json.dumps(body).encode())
    assert raised.value.param == param
    assert expected in raised.value.message


def test_request_of_a_coding_agent_has_no_loss() -> None:
    """System text in blocks and in mid-conversation, adaptive thinking, effort, context management, cache marks."""
    cached = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    request, losses = read(
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "<system-reminder>"}, {"type": "text", "text": "do it", **cached}],
            },
            {"role": "system", "content": "be quick"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {
                        "type": "tool_use",
                        "id": "toolu_1",
                        "name": "Bash",
                        "input": {"command": "ls"},
                        "caller": {"type": "direct"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a", "is_error": False, **cached}
                ],
            },
        ],
        system=[{"type": "text", "text": "You are an agent."}, {"type": "text", "text": "Rules.", **cached}],
        tools=[{"name": "Bash", "description": "d", "input_schema": {"type": "object"}, **cached}],
        thinking={"type": "adaptive"},
        output_config={"effort": "high"},
        context_management={"edits": []},
        metadata={"user_id": "{}"},
        stream=True,
        max_tokens=32_000,
    )
    assert isinstance(request.input, list)
    assert [getattr(item, "role", type(item).__name__) for item in request.input] == [
        "system",
        "user",
        "system",
        "ReasoningParam",
        "FunctionCallParam",
        "FunctionCallOutputParam",
    ]
    assert list(losses) == []
