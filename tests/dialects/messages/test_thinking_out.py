"""RSN-4: effort and summary are sent in the form of a Messages server; and settings that exclude thinking."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw
from tests.dialects.messages.asking import RICH, ask
from tests.dialects.messages.test_history_out import assistant, call, output, thought, user

from antiphon.dialects.messages import request_from_hub
from antiphon.dialects.messages.wire import MessagesWire, ModelThinking
from antiphon.profiles import load_profile
from antiphon.protocol.request import ReasoningConfigParam, Request
from antiphon.protocol.tools import FunctionToolParam, SpecificFunction

BUDGET = MessagesWire()
NONE = MessagesWire(thinking="none")
FEW = MessagesWire(thinking="adaptive", efforts=("low", "medium"))
LOW = MessagesWire(models=(ModelThinking(names=("*",), thinking=("adaptive", "between_tools")),))
ALWAYS = MessagesWire(models=(ModelThinking(names=("m",), thinking=("adaptive",), efforts=("low", "high")),))
LOST = ("thinking", "reasoning.effort")


def sent(wire: MessagesWire, effort: Any = "high", **fields: Any) -> tuple[Any, list[str]]:
    """`thinking` and `output_config` of the body, and the losses."""
    request = Request(**{"model": "m", "input": "q", "reasoning": ReasoningConfigParam(effort=effort), **fields})
    body, losses = ask(request, wire)
    return (body.get("thinking"), body.get("output_config")), [loss.path for loss in losses]


@pytest.mark.parametrize(
    ("wire", "effort", "thinking", "config", "lost"),
    [
        (RICH, "high", {"type": "adaptive"}, {"effort": "high"}, []),
        (RICH, "minimal", {"type": "adaptive"}, {"effort": "low"}, ["reasoning.effort"]),
        (FEW, "max", {"type": "adaptive"}, {"effort": "medium"}, ["reasoning.effort"]),
        (RICH, "none", {"type": "disabled"}, None, []),
        (BUDGET, "low", {"type": "enabled", "budget_tokens": 4096}, None, []),
        (BUDGET, "max", {"type": "enabled", "budget_tokens": 24000}, None, ["reasoning.effort"]),
        (BUDGET, "none", {"type": "disabled"}, None, []),
        (NONE, "high", None, None, ["reasoning.effort"]),
        (NONE, "none", None, None, []),
        (RICH, None, None, None, []),
        (ALWAYS, "none", None, None, ["reasoning.effort"]),
        (LOW, "none", {"type": "between_tools"}, None, []),
        (LOW, "high", {"type": "adaptive"}, None, ["reasoning.effort"]),
    ],
)
def test_effort_is_sent_in_the_form_of_the_server_RSN4(
    wire: MessagesWire, effort: Any, thinking: Any, config: Any, lost: list[str]
) -> None:
    assert sent(wire, effort) == ((thinking, config), lost)


def test_thinking_budget_fits_the_output_limit_RSN4() -> None:
    assert sent(BUDGET, max_output_tokens=4000) == (
        ({"type": "enabled", "budget_tokens": 3000}, None),
        ["reasoning.effort"],
    )
    assert sent(BUDGET, max_output_tokens=1024) == ((None, None), ["reasoning.effort"])


def test_summary_is_requested_if_supported_RSN4() -> None:
    shown = ReasoningConfigParam(effort="low", summary="auto")
    assert sent(RICH, reasoning=shown)[0][0] == {"type": "adaptive", "display": "summarized"}
    assert sent(BUDGET, reasoning=shown)[1] == []
    assert sent(RICH, reasoning=ReasoningConfigParam(effort="none", summary="auto"))[1] == ["reasoning.summary"]


@pytest.mark.parametrize(
    ("wire", "written", "effort", "thinking", "config", "lost"),
    [
        (
            RICH,
            {"type": "adaptive", "display": "omitted"},
            "high",
            {"type": "adaptive", "display": "omitted"},
            {"effort": "high"},
            [],
        ),
        (RICH, {"type": "adaptive"}, None, {"type": "adaptive"}, None, []),
        (RICH, {"type": "disabled"}, "none", {"type": "disabled"}, None, []),
        (
            RICH,
            {"type": "enabled", "budget_tokens": 5000},
            "medium",
            {"type": "adaptive"},
            {"effort": "medium"},
            ["thinking"],
        ),
        (
            BUDGET,
            {"type": "enabled", "budget_tokens": 5000},
            "medium",
            {"type": "enabled", "budget_tokens": 5000},
            None,
            [],
        ),
        (BUDGET, {"type": "adaptive"}, None, {"type": "enabled", "budget_tokens": 12288}, None, ["thinking"]),
        (NONE, {"type": "adaptive"}, "high", None, None, ["thinking"]),
        (NONE, {"type": "disabled"}, "none", None, None, []),
        (RICH, {"type": "between_tools"}, None, {"type": "disabled"}, None, ["thinking"]),
        (LOW, {"type": "disabled"}, "none", {"type": "between_tools"}, None, ["thinking"]),
        (LOW, {"type": "between_tools"}, None, {"type": "between_tools"}, None, []),
        (LOW, {"type": "adaptive"}, "high", {"type": "adaptive"}, None, ["reasoning.effort"]),
        (ALWAYS, {"type": "disabled"}, "none", None, None, ["thinking"]),
        (ALWAYS, {"type": "enabled", "budget_tokens": 5000}, "max", {"type": "adaptive"}, {"effort": "high"}, [*LOST]),
    ],
)
def test_client_thinking_is_kept_if_the_server_accepts_it_RSN4(
    wire: MessagesWire, written: Any, effort: Any, thinking: Any, config: Any, lost: list[str]
) -> None:
    extra = {"messages:thinking": Raw(json.dumps(written).encode())}
    assert sent(wire, effort, extra=extra) == ((thinking, config), lost)


def test_thinking_of_unknown_kind_is_passed_through() -> None:
    """REQ-7."""
    for written in ('{"type":"dreaming"}', '{"type":7}', "[]"):
        body, _ = request_from_hub(
            Request(model="m", input="q", extra={"messages:thinking": Raw(written.encode())}), RICH
        )
        assert json.loads(body)["thinking"] == json.loads(written)


def test_forced_call_switches_thinking_off() -> None:
    """F-4: servers refuse a budget beside it, and models before 4.6 all thinking."""
    tools = [FunctionToolParam(name="look")]
    assert sent(BUDGET, tools=tools, tool_choice="required") == (({"type": "disabled"}, None), ["thinking"])
    assert sent(LOW, tools=tools, tool_choice="required")[0] == ({"type": "between_tools"}, None)
    assert sent(RICH, tools=tools, tool_choice="auto")[1] == []
    assert sent(LOW, effort="none", tools=tools, tool_choice="required") == (({"type": "between_tools"}, None), [])


def test_adaptive_thinking_stays_beside_a_forced_call_of_newer_models() -> None:
    tools = [FunctionToolParam(name="look")]
    assert sent(RICH, tools=tools, tool_choice="required") == (({"type": "adaptive"}, {"effort": "high"}), [])


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-opus-4-6", {"type": "adaptive"}),
        ("claude-sonnet-4-6", {"type": "adaptive"}),
        ("claude-opus-4-8", {"type": "adaptive"}),
        ("claude-sonnet-9", {"type": "adaptive"}),
        ("other", {"type": "adaptive"}),
        ("claude-opus-4-5", {"type": "disabled"}),
    ],
)
def test_profile_knows_the_models_whose_calls_can_be_forced(model: str, thinking: Any) -> None:
    wire: Any = load_profile("anthropic").wire
    tools = [FunctionToolParam(name="look")]
    assert sent(wire, model=model, tools=tools, tool_choice="required")[0][0] == thinking


@pytest.mark.parametrize("effort", ["high", None])
@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-fable-5", "claude-mythos-5", "claude-mythos-preview"])
@pytest.mark.parametrize("choice", ["required", SpecificFunction(name="look")])
def test_model_that_always_thinks_gets_no_forced_call(choice: Any, model: str, effort: Any) -> None:
    """F-4: the server refuses a forced call, also beside the thinking that no setting asks for."""
    wire: Any = load_profile("anthropic").wire
    reasoning = ReasoningConfigParam(effort=effort) if effort else UNSET
    tools: Any = [FunctionToolParam(name="look")]
    request = Request(model=model, input="q", reasoning=reasoning, tools=tools, tool_choice=choice)
    body, losses = ask(request, wire)
    assert (body["tool_choice"], body.get("thinking")) == ({"type": "auto"}, {"type": "adaptive"} if effort else None)
    assert [loss.path for loss in losses] == ["tool_choice"]


def test_forced_call_is_kept_where_the_model_can_stop_thinking() -> None:
    body, _ = ask(Request(model="m", input="q", tools=[FunctionToolParam(name="look")], tool_choice="required"), LOW)
    assert body["tool_choice"] == {"type": "any"}


@pytest.mark.parametrize(
    ("wire", "word", "config", "lost"),
    [
        (RICH, "max", {"effort": "max"}, []),
        (FEW, "max", {"effort": "medium"}, ["output_config.effort"]),
        (FEW, "utmost", {"effort": "utmost"}, []),
        (BUDGET, "low", None, ["output_config.effort"]),
        (NONE, "low", None, ["output_config.effort"]),
    ],
)
def test_client_effort_is_mapped_to_an_accepted_value_RSN4(
    wire: MessagesWire, word: str, config: Any, lost: list[str]
) -> None:
    extra = {"messages:thinking": Raw(b"null"), "messages:output_config": Raw(json.dumps({"effort": word}).encode())}
    body, losses = request_from_hub(Request(model="m", input="q", extra=extra), wire)
    assert (json.loads(body).get("output_config"), [loss.path for loss in losses]) == (config, lost)


def test_effort_beside_a_budget_is_removed_with_it_RSN4() -> None:
    """A client of this dialect may send both; if thinking is switched off, both are removed."""
    wire = MessagesWire(
        models=(ModelThinking(names=("*",), thinking=("enabled", "disabled"), efforts=("low", "high")),)
    )
    written = {"type": "enabled", "budget_tokens": 2000}
    extra = {
        "messages:thinking": Raw(json.dumps(written).encode()),
        "messages:output_config": Raw(b'{"effort":"high"}'),
    }
    tools = [FunctionToolParam(name="look")]
    assert sent(wire, extra=extra) == ((written, {"effort": "high"}), [])
    assert sent(wire, extra=extra, tools=tools, tool_choice="required") == (({"type": "disabled"}, None), ["thinking"])


def test_prefilled_answer_switches_thinking_off() -> None:
    """F-4."""
    assert sent(RICH, input=[user("q"), assistant("It is")]) == (({"type": "disabled"}, None), ["thinking"])


@pytest.mark.parametrize(
    ("wire", "items", "off"),
    [
        (BUDGET, [user("q"), call("a"), output("a")], True),
        (BUDGET, [user("q"), thought("t", maker="other"), call("a"), output("a")], True),
        (BUDGET, [user("q"), thought("t"), call("a"), output("a")], False),
        (BUDGET, [user("q"), thought("t"), call("a"), output("a"), call("b"), output("b")], False),
        (BUDGET, [user("q"), call("a"), output("a"), assistant("done"), user("r")], False),
        (RICH, [user("q"), call("a"), output("a")], False),
    ],
)
def test_tool_loop_without_its_thoughts_switches_thinking_off_RSN3(
    wire: MessagesWire, items: list[Any], off: bool
) -> None:
    """Real servers refuse it together with a thinking budget."""
    (thinking, _), lost = sent(wire, input=items)
    assert (thinking["type"] == "disabled", "thinking" in lost) == (off, off)


def test_sampling_settings_are_omitted_with_thinking() -> None:
    """F-4."""
    asked = {"temperature": 0.5, "top_p": 0.9, "extra": {"messages:top_k": Raw(b"5")}}
    assert sent(RICH, **asked)[1] == ["temperature", "top_p", "top_k"]
    request = Request(model="m", input="q", reasoning=ReasoningConfigParam(effort="low"), temperature=1)
    assert ask(request)[0]["temperature"] == 1
    request = Request(model="m", input="q", reasoning=ReasoningConfigParam(effort="low"), top_p=0.97)
    assert ask(request)[0]["top_p"] == 0.97


def test_smallest_limit_that_leaves_room_to_think() -> None:
    """RSN-4: three quarters of the limit are 1024 tokens, the least budget, and the whole budget of this effort."""
    enabled = {"type": "enabled", "budget_tokens": 1024}
    assert sent(BUDGET, "minimal", max_output_tokens=1366) == ((enabled, None), [])
    assert sent(BUDGET, "minimal", max_output_tokens=1365) == ((None, None), ["reasoning.effort"])


@pytest.mark.parametrize(("top_p", "lost"), [(0.95, []), (0.94, ["top_p"])])
def test_least_top_p_beside_thinking_is_sent(top_p: float, lost: list[str]) -> None:
    body, losses = ask(Request(model="m", input="q", reasoning=ReasoningConfigParam(effort="low"), top_p=top_p), RICH)
    assert body.get("top_p") == (None if lost else top_p)
    assert [loss.path for loss in losses] == lost
