"""`dialects/chat/tools_out`: tools and tool choices for a chat server."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw
from tests.generate.chat_rules import assert_chat_accepts

from antiphon.dialects.chat.request_out import request_from_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.protocol.items import AdditionalTools, MessageParam
from antiphon.protocol.request import Request
from antiphon.protocol.tools import (
    AllowedToolsParam,
    CustomTool,
    FunctionToolParam,
    GrammarFormat,
    NamespaceTool,
    SpecificCustom,
    SpecificFunction,
    TextFormatOfTool,
    ToolParam,
    ToolSearchTool,
    UnknownTool,
    UnknownToolChoice,
    WebSearchTool,
)

Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {"q": {"type": "string"}}}
SEARCH = FunctionToolParam(name="search", description="finds", parameters=SCHEMA, strict=True)
PATCH = CustomTool(name="patch", description="patches", format=GrammarFormat(syntax="lark", definition="start: x"))
LEFT_OUT = "left out"


def sent(wire: ChatWire | None = None, **fields: Any) -> tuple[Json, list[str]]:
    """The body, and the paths of the losses."""
    body, losses = request_from_hub(Request(**{"input": "hi", **fields}), wire or ChatWire())
    return assert_chat_accepts(body), [loss.path for loss in losses]


def tools(*offered: ToolParam, wire: ChatWire | None = None) -> tuple[list[Json], list[str]]:
    body, losses = sent(wire, tools=list(offered))
    return body.get("tools", []), losses


def choice(chosen: Any, *offered: ToolParam, wire: ChatWire | None = None) -> tuple[Any, list[str]]:
    body, losses = sent(wire, tools=list(offered), tool_choice=chosen)
    return body.get("tool_choice", LEFT_OUT), losses


# Out: functions.


def test_flat_functions_are_nested_for_chat_TOOL1_C3() -> None:
    function = {"name": "search", "description": "finds", "parameters": SCHEMA, "strict": True}
    assert tools(SEARCH) == ([{"type": "function", "function": function}], [])


@pytest.mark.parametrize("parameters", [UNSET, None, {}])
def test_function_without_parameters_gets_an_empty_schema(parameters: Any) -> None:
    [tool] = tools(FunctionToolParam(name="f", parameters=parameters))[0]
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize(("given", "expected"), [(UNSET, False), (None, False), (False, False), (True, True)])
def test_strict_is_always_sent_if_supported(given: Any, expected: bool) -> None:
    function = FunctionToolParam(name="f", strict=given)
    assert tools(function)[0][0]["function"]["strict"] is expected
    [tool], losses = tools(function, wire=ChatWire(strict_tools=False))
    assert "strict" not in tool["function"]
    assert losses == (["tools[0].strict"] if expected else [])


def test_unknown_fields_of_tools_are_losses_E4() -> None:
    tool = FunctionToolParam(name="f", defer_loading=True, extra={"cache_control": Raw(b"1")})
    assert tools(tool)[1] == ["tools[0].cache_control", "tools[0].defer_loading"]


# Out: custom tools, namespaces, tools as items, and what is none of these.


def test_custom_tool_becomes_a_function_with_its_grammar_described() -> None:
    [tool], losses = tools(PATCH)
    function = tool["function"]
    assert function["name"] == "patch"
    assert function["description"] == "patches\n\nThe input must match this lark grammar:\nstart: x"
    assert list(function["parameters"]["properties"]) == function["parameters"]["required"] == ["input"]
    assert function["strict"] is False
    assert losses == ["tools[0].format"]


def test_unknown_fields_of_tool_formats_are_losses() -> None:
    format = TextFormatOfTool(extra={"x": Raw(b"1")})
    assert tools(CustomTool(name="c", format=format))[1] == ["tools[0].format.x"]


def test_grammar_is_described_without_a_description() -> None:
    [tool], _ = tools(CustomTool(name="patch", format=GrammarFormat(syntax="regex", definition="a+")))
    assert tool["function"]["description"] == "The input must match this regex grammar:\na+"


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        (UNSET, {}),
        (None, {}),
        (TextFormatOfTool(), {"format": {"type": "text"}}),
        (
            GrammarFormat(syntax="lark", definition="x"),
            {"format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}},
        ),
    ],
)
def test_custom_tool_is_native_if_supported(format: Any, expected: Json) -> None:
    native = ChatWire(custom_tools="native")
    assert tools(CustomTool(name="patch", format=format), wire=native) == (
        [{"type": "custom", "custom": {"name": "patch", **expected}}],
        [],
    )


def test_namespaces_are_flattened() -> None:
    members: list[FunctionToolParam | CustomTool | UnknownTool] = [
        SEARCH,
        UnknownTool(kind="acme:tool", raw=Raw(b"{}")),
    ]
    group = NamespaceTool(name="web", tools=members, description="the web", extra={"x": Raw(b"1")})
    offered, losses = tools(group, NamespaceTool(name="db", tools=[SEARCH]))
    assert [tool["function"]["name"] for tool in offered] == ["web__search", "db__search"]
    assert losses == ["tools[0].x", "tools[0].description", "tools[0].tools[1]"]


def test_additional_tools_are_offered() -> None:
    later = AdditionalTools(tools=[PATCH, WebSearchTool()])
    body, losses = sent(tools=[SEARCH], input=[MessageParam(role="user", content="hi"), later])
    assert [tool["function"]["name"] for tool in body["tools"]] == ["search", "patch"]
    assert losses == ["input[1].tools[0].format", "input[1].tools[1]"]


def test_duplicate_tool_is_sent_once_and_the_last_counts() -> None:
    newer = FunctionToolParam(name="search", description="finds more", parameters=SCHEMA, strict=True)
    assert tools(SEARCH, SEARCH) == (tools(SEARCH)[0], [])
    assert tools(SEARCH, newer) == (tools(newer)[0], ["tools[0]"])


def test_tools_that_the_server_runs_itself_are_sent_as_they_are() -> None:
    own = UnknownTool(kind="acme:search", raw=Raw(b'{"type":"acme:search","parameters":{}}'))
    other = UnknownTool(kind="other:search", raw=Raw(b'{"type":"other:search"}'))
    request = Request(model="m", input="q", tools=[own, other])
    body, losses = request_from_hub(request, ChatWire(own_tools=("acme:*",)))
    assert json.loads(body)["tools"] == [{"type": "acme:search", "parameters": {}}]
    assert [loss.path for loss in losses] == ["tools[1]"]


def test_hosted_and_unknown_tools_are_losses() -> None:
    others: list[ToolParam] = [WebSearchTool(), ToolSearchTool(), UnknownTool(kind="acme:tool", raw=Raw(b"{}"))]
    assert tools(*others) == ([], ["tools[0]", "tools[1]", "tools[2]"])


def test_tools_and_choices_of_other_types_are_sent_for_chat_clients() -> None:
    own = {"type": "acme:tool", "x": None}
    unknown = UnknownTool(kind="acme:tool", raw=Raw(msgspec.json.encode(own)))
    wire = ChatWire(native_types=True)
    choice = UnknownToolChoice(kind="acme:tool", raw=Raw(b'{"type":"acme:tool"}'))
    body, losses = request_from_hub(
        Request(input="hi", tools=[SEARCH, unknown, WebSearchTool()], tool_choice=choice), wire
    )
    sent_body = msgspec.json.decode(body)
    assert (sent_body["tools"][1:], len(losses)) == ([own, {"type": "web_search"}], 0)
    assert sent_body["tool_choice"] == {"type": "acme:tool"}


# Out: tool choice.


NAMED = {"type": "function", "function": {"name": "search"}}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (UNSET, LEFT_OUT),
        (None, LEFT_OUT),
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        (SpecificFunction(name="search"), NAMED),
        (AllowedToolsParam(tools=[SpecificFunction(name="search"), SpecificFunction(name="x")]), "auto"),
        (
            AllowedToolsParam(tools=[SpecificFunction(name="search"), SpecificFunction(name="x")], mode="required"),
            "required",
        ),
        (AllowedToolsParam(tools=[SpecificFunction(name="search")], mode="required"), NAMED),
        (AllowedToolsParam(tools=[SpecificFunction(name="search")], mode="none"), "none"),
    ],
)
def test_every_tool_choice_reaches_the_server_TOOL2_TOOL3(chosen: Any, expected: Any) -> None:
    assert choice(chosen, SEARCH) == (expected, [])


def test_allowed_tools_leave_all_tools_in_the_request_TOOL3() -> None:
    allowed = AllowedToolsParam(tools=[SpecificFunction(name="search")])
    body, _ = sent(tools=[SEARCH, FunctionToolParam(name="other")], tool_choice=allowed)
    assert len(body["tools"]) == 2


def test_chosen_custom_tool_has_the_form_it_was_sent_in() -> None:
    tool = CustomTool(name="patch")
    function = {"type": "function", "function": {"name": "patch"}}
    assert choice(SpecificCustom(name="patch"), tool) == (function, [])
    native = {"type": "custom", "custom": {"name": "patch"}}
    assert choice(SpecificCustom(name="patch"), tool, wire=ChatWire(custom_tools="native")) == (native, [])


def test_chosen_tool_of_a_namespace_has_its_flattened_name() -> None:
    group = NamespaceTool(name="web", tools=[SEARCH])
    chosen = SpecificFunction(name="search", namespace="web")
    assert choice(chosen, group) == ({"type": "function", "function": {"name": "web__search"}}, [])


@pytest.mark.parametrize(
    "chosen", ["required", SpecificFunction(name="search"), SpecificFunction(name="never_offered")]
)
def test_unsupported_tool_choice_is_a_loss(chosen: Any) -> None:
    assert choice(chosen) == (LEFT_OUT, ["tool_choice"])
    assert choice(chosen, SEARCH, wire=ChatWire(forced_tools="none")) == (LEFT_OUT, ["tool_choice"])


def test_auto_and_none_without_tools_are_dropped_silently() -> None:
    assert choice("auto") == (LEFT_OUT, [])
    assert choice("none") == (LEFT_OUT, [])


def test_unknown_tool_choice_is_a_loss() -> None:
    assert choice(UnknownToolChoice(kind="web_search", raw=Raw(b"{}")), SEARCH) == (LEFT_OUT, ["tool_choice"])


def test_unknown_fields_of_tool_choices_are_losses() -> None:
    extra = {"x": Raw(b"1")}
    named = SpecificFunction(name="search")
    assert choice(SpecificFunction(name="search", extra=extra), SEARCH) == (NAMED, ["tool_choice.x"])
    assert choice(AllowedToolsParam(tools=[named], extra=extra), SEARCH) == ("auto", ["tool_choice.x"])


@pytest.mark.parametrize("parallel", [True, False])
def test_parallel_tool_calls_are_sent_only_with_tools_TOOL4(parallel: bool) -> None:
    assert sent(tools=[SEARCH], parallel_tool_calls=parallel)[0]["parallel_tool_calls"] is parallel
    body, losses = sent(parallel_tool_calls=parallel)
    assert "parallel_tool_calls" not in body
    assert not losses
