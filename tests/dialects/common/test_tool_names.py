"""Tool names on flat servers: the map is one to one, valid, and deterministic."""

from __future__ import annotations

import string
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from antiphon.dialects.common.tool_names import (
    GEMINI_NAMES,
    MESSAGES_NAMES,
    OLLAMA_NAMES,
    PLAIN_NAMES,
    NameRule,
    ToolNames,
    ToolRef,
    tools_of_request,
)
from antiphon.protocol.items import AdditionalTools, MessageParam
from antiphon.protocol.request import Request
from antiphon.protocol.tools import (
    CustomTool,
    FunctionToolParam,
    NamespaceTool,
    SpecificCustom,
    SpecificFunction,
    ToolParam,
    WebSearchTool,
)

LETTERS = st.text(alphabet=string.ascii_letters + string.digits + "_-", min_size=1)
# Few words in many combinations, so that flat names collide; long ones and invalid ones.
WORDS = (
    st.sampled_from(
        [
            "a",
            "b",
            "a__b",
            "b__a",
            "__",
            "a__b__a",
            "x" * 64,
            "x" * 63,
            "y" * 128,
            "y" * 129,
            "2a",
            "é",
            "a.b",
            "a b",
            "",
        ]
    )
    | LETTERS
)


def _tool(kind: str, name: str) -> FunctionToolParam | CustomTool:
    return FunctionToolParam(name=name) if kind == "function" else CustomTool(name=name)


MEMBERS = st.builds(_tool, st.sampled_from(["function", "custom"]), WORDS)
NAMESPACES = st.builds(
    lambda name, tools: NamespaceTool(name=name, tools=tools), WORDS.filter(bool), st.lists(MEMBERS, max_size=3)
)
TOOLS: st.SearchStrategy[list[ToolParam]] = st.lists(MEMBERS | NAMESPACES | st.just(WebSearchTool()), max_size=6)
RULES = st.sampled_from([PLAIN_NAMES, MESSAGES_NAMES, GEMINI_NAMES, OLLAMA_NAMES])


def _refs(tools: list[ToolParam]) -> list[ToolRef]:
    refs = []
    for tool in tools:
        for member in tool.tools if isinstance(tool, NamespaceTool) else [tool]:
            if isinstance(member, FunctionToolParam | CustomTool):
                kind: Literal["function", "custom"] = "custom" if isinstance(member, CustomTool) else "function"
                refs.append(ToolRef(kind, member.name, tool.name if isinstance(tool, NamespaceTool) else None))
    return refs


@given(TOOLS, TOOLS, RULES)
def test_offered_tools_have_unique_valid_names_that_map_back(
    top: list[ToolParam], later: list[ToolParam], rule: NameRule
) -> None:
    request = Request(tools=top, input=[MessageParam(role="user", content="hi"), AdditionalTools(tools=later)])
    names = ToolNames.for_request(request, rule)
    refs = set(_refs([*top, *later]))
    sent = {ref: names.wire_name(ref) for ref in refs}
    assert len(set(sent.values())) == len(refs)
    assert all(rule.is_legal(name) for name in sent.values())
    assert all(names.original_tool(name) == ref and names.is_offered(name) for ref, name in sent.items())
    assert names.is_identity == all(ref.name == name for ref, name in sent.items())


@given(TOOLS, RULES)
def test_tool_name_map_is_deterministic(tools: list[ToolParam], rule: NameRule) -> None:
    request = Request(tools=tools)
    ours, theirs = ToolNames.for_request(request, rule), ToolNames.for_request(request, rule)
    assert [ours.wire_name(ref) for ref in _refs(tools)] == [theirs.wire_name(ref) for ref in _refs(tools)]


@given(TOOLS, RULES)
def test_valid_tool_name_is_unchanged(tools: list[ToolParam], rule: NameRule) -> None:
    names = ToolNames.for_request(Request(tools=tools), rule)
    plain = [ref for ref in _refs(tools) if ref.namespace is None and rule.is_legal(ref.name)]
    for ref in plain:
        if all(other == ref for other in plain if other.name == ref.name):
            assert names.wire_name(ref) == ref.name


def test_namespace_is_a_prefix_of_the_name() -> None:
    space = NamespaceTool(name="files", tools=[FunctionToolParam(name="read")])
    names = ToolNames.for_request(Request(tools=[space]), PLAIN_NAMES)
    assert names.wire_name(ToolRef("function", "read", "files")) == "files__read"
    assert names.original_tool("files__read") == ToolRef("function", "read", "files")


def test_tool_that_is_not_offered_keeps_its_normalized_name() -> None:
    names = ToolNames.for_request(Request(), PLAIN_NAMES)
    assert names.wire_name(ToolRef("function", "old")) == "old"
    assert PLAIN_NAMES.legal_name.fullmatch(names.wire_name(ToolRef("custom", "old one!", "x" * 70)))
    assert names.original_tool("never_offered") == ToolRef("function", "never_offered")


def test_shortened_names_stay_distinct() -> None:
    """A hash of eight digits can collide on purpose: then it is computed again."""
    tools: list[ToolParam] = [NamespaceTool(name="n" * 60, tools=[FunctionToolParam(name="tool")])]
    taken = ToolNames(tools, PLAIN_NAMES).wire_name(ToolRef("function", "tool", "n" * 60))
    names = ToolNames([*tools, FunctionToolParam(name=taken)], PLAIN_NAMES)
    assert names.wire_name(ToolRef("function", taken)) == taken
    assert names.wire_name(ToolRef("function", "tool", "n" * 60)) != taken
    assert names.original_tool(names.wire_name(ToolRef("function", "tool", "n" * 60))).namespace == "n" * 60


def test_additional_tools_follow_those_of_the_request() -> None:
    first, second, third = FunctionToolParam(name="a"), CustomTool(name="b"), FunctionToolParam(name="c")
    items = [AdditionalTools(tools=[second]), AdditionalTools(tools=[third])]
    assert tools_of_request(Request(tools=[first], input=list(items))) == [first, second, third]
    assert tools_of_request(Request(input="hi")) == []


def test_tool_ref_of_a_choice_names_the_offered_tool() -> None:
    """TOOL-3."""
    assert ToolRef.from_choice(SpecificFunction(name="look")) == ("function", "look", None)
    assert ToolRef.from_choice(SpecificCustom(name="patch", namespace="files")) == ("custom", "patch", "files")
