"""Tools and the choice among them for a Messages server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw
from tests.dialects.messages.asking import RICH, ask
from tests.hostile_schemas import many_forms, object_of

from antiphon.dialects.common.schema_budget import MAX_NODES
from antiphon.dialects.common.tool_names import MESSAGES_NAMES, ToolNames
from antiphon.dialects.messages.tools_out import tools_from_hub
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.errors import InvalidValue
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
    ToolChoiceParam,
    ToolList,
    ToolParam,
    UnknownTool,
    UnknownToolChoice,
    WebSearchTool,
)

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
LOOK = FunctionToolParam(name="look", description="d", parameters=SCHEMA)
SEARCH = UnknownTool(
    kind="web_search_20250305", raw=Raw(b'{"type":"web_search_20250305","name":"web_search","max_uses":3}')
)
MARK = {"cache_control": Raw(b'{"type":"ephemeral"}')}


def sent(*tools: ToolParam, wire: MessagesWire = RICH, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    body, losses = ask(Request(model="m", input="q", tools=list(tools), **fields), wire)
    return body, [loss.path for loss in losses]


def schema_of(parameters: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    body, lost = sent(FunctionToolParam(name="look", parameters=parameters))
    return body["tools"][0]["input_schema"], [path.removeprefix("tools[0].parameters") for path in lost]


def test_function_schema_is_sent_as_input_schema() -> None:
    """TOOL-1."""
    assert sent(LOOK) == (
        {**sent(LOOK)[0], "tools": [{"name": "look", "description": "d", "input_schema": SCHEMA}]},
        [],
    )


def test_strict_function_is_strict_if_supported() -> None:
    """TOOL-1: with a schema that it can enforce."""
    strict = FunctionToolParam(name="look", parameters=SCHEMA, strict=True)
    body, lost = sent(strict)
    assert body["tools"][0] == {
        "name": "look",
        "input_schema": {**SCHEMA, "additionalProperties": False},
        "strict": True,
    }
    assert lost == []
    assert sent(strict, wire=MessagesWire())[1] == ["tools[0].strict"]
    open_schema = {"type": "object", "additionalProperties": True}
    assert sent(FunctionToolParam(name="look", parameters=open_schema, strict=True))[1] == ["tools[0].strict"]


@pytest.mark.parametrize("schema", [None, {"type": "object"}, {"type": "object", "properties": {}, "required": []}])
def test_strict_function_may_have_no_properties(schema: Any) -> None:
    body, lost = sent(FunctionToolParam(name="look", parameters=schema, strict=True))
    assert (body["tools"][0]["strict"], lost) == (True, [])
    assert body["tools"][0]["input_schema"]["additionalProperties"] is False


def test_custom_tool_is_a_function_of_one_string_with_its_grammar_described() -> None:
    """TOOL-1, F-4."""
    grammar = GrammarFormat(syntax="lark", definition="start: x")
    body, lost = sent(
        CustomTool(name="patch", description="p", format=grammar),
        CustomTool(name="bare", format=grammar),
        CustomTool(name="text", format=TextFormatOfTool()),
    )
    assert [tool["input_schema"]["required"] for tool in body["tools"]] == [["input"]] * 3
    assert [tool.get("description") for tool in body["tools"]] == [
        "p\n\nThe input must match this lark grammar:\nstart: x",
        "The input must match this lark grammar:\nstart: x",
        None,
    ]
    assert lost == ["tools[0].format", "tools[1].format"]


def test_namespace_is_flattened() -> None:
    """TOOL-2."""
    body, lost = sent(
        NamespaceTool(name="files", description="d", tools=[FunctionToolParam(name="read")]),
        NamespaceTool(name="n", tools=[]),
    )
    assert ([tool["name"] for tool in body["tools"]], lost) == (["files__read"], ["tools[0].description"])


def test_native_server_tools_are_passed_through_and_others_are_losses() -> None:
    """F-4."""
    toolset = UnknownTool(kind="mcp_toolset", raw=Raw(b'{"type":"mcp_toolset"}'))
    body, lost = sent(SEARCH, toolset, WebSearchTool(), UnknownTool(kind="acme", raw=Raw(b'{"type":"acme"}')))
    assert body["tools"] == [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        {"type": "mcp_toolset"},
    ]
    assert lost == ["tools[2]", "tools[3]"]


@pytest.mark.parametrize("kind", ["tool_search_tool_regex", "tool_search_tool_bm25"])
def test_tool_search_is_passed_through_without_a_version(kind: str) -> None:
    """F-4: the API accepts the name of the newest version without its date."""
    tool = {"type": kind, "name": kind}
    body, lost = sent(UnknownTool(kind=kind, raw=Raw(json.dumps(tool).encode())))
    assert (body["tools"], lost) == ([tool], [])


def test_last_of_two_tools_of_one_name_counts() -> None:
    """F-4."""
    body, lost = sent(LOOK, LOOK, FunctionToolParam(name="look"))
    assert ([tool.get("description") for tool in body["tools"]], lost) == ([None], ["tools[1]"])


def test_native_tool_fields_are_sent() -> None:
    """E-4."""
    body, lost = sent(FunctionToolParam(name="look", extra={**MARK, "note": Raw(b"1")}))
    assert (body["tools"][0]["cache_control"], lost) == ({"type": "ephemeral"}, ["tools[0].note"])


def test_defer_loading_is_sent_only_with_a_search() -> None:
    """F-4: the server's search, or a tool of the client that finds deferred tools. Another API's search is lost."""
    later = FunctionToolParam(name="look", defer_loading=True)
    finder = UnknownTool(
        kind="tool_search_tool_regex_20251119",
        raw=Raw(b'{"type":"tool_search_tool_regex_20251119","name":"tool_search_tool_regex"}'),
    )
    assert sent(later)[1] == ["tools[0].defer_loading"]
    body, lost = sent(finder, later)
    assert (body["tools"][1]["defer_loading"], lost) == (True, [])
    own_search = FunctionToolParam(name="find_tools")
    body, lost = sent(own_search, later)
    assert (body["tools"][1]["defer_loading"], lost) == (True, [])
    foreign_search = UnknownTool(kind="tool_search", raw=Raw(b'{"type":"tool_search"}'))
    assert sorted(sent(own_search, later, foreign_search)[1]) == ["tools[1].defer_loading", "tools[2]"]


def test_tools_are_translated_once_for_each_server() -> None:
    tools: ToolList[ToolParam] = ToolList([FunctionToolParam(name="look", strict=True, parameters=SCHEMA)])
    plain = MessagesWire()
    bodies = [ask(Request(model="m", input="q", tools=tools), wire)[0]["tools"] for wire in (RICH, plain, RICH, plain)]
    assert bodies[0] == bodies[2] != bodies[1] == bodies[3]


# Schemas.


def test_schema_without_a_type_becomes_an_object() -> None:
    assert schema_of({"properties": {"q": {}}}) == ({"type": "object", "properties": {"q": {}}}, [])
    assert schema_of({"type": ["object", "null"]}) == ({"type": "object", "properties": {}}, [])


def test_schema_of_another_type_is_a_loss() -> None:
    """F-4."""
    assert schema_of({"type": "string"}) == ({"type": "object", "properties": {}}, [""])


def test_choice_at_the_top_of_a_schema_is_merged_into_members() -> None:
    """F-4: servers refuse it there."""
    forms = [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {}}}, True]
    assert schema_of({"type": "object", "oneOf": forms, "required": ["c"]}) == (
        {"type": "object", "properties": {"b": {}, "a": {"type": "string"}}, "required": ["c"]},
        [".oneOf"],
    )
    assert schema_of({"allOf": forms})[0]["required"] == ["a"]
    assert schema_of({"anyOf": "nonsense"}) == ({"type": "object", "properties": {}}, [".anyOf"])


def test_parameter_with_an_unsupported_name_is_a_loss() -> None:
    """F-4."""
    schema, lost = schema_of({"properties": {"$filter": {}, "q": {}}, "required": ["$filter", "q"]})
    assert (schema, lost) == ({"type": "object", "properties": {"q": {}}, "required": ["q"]}, [".properties"])


class ComparedName(str):
    """A name that counts its comparisons with others."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        ComparedName.comparisons += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_required_names_of_many_forms_are_not_compared_with_one_another() -> None:
    """Faults: five thousand forms that each require a member of their own took twelve million comparisons."""
    forms = [{"required": [ComparedName(f"m{number}")]} for number in range(500)]
    request = Request(model="m", input="q", tools=[FunctionToolParam(name="look", parameters={"allOf": forms})])
    tool = tools_from_hub(request, ToolNames.for_request(request, MESSAGES_NAMES), RICH).by_name["look"]
    assert len(tool.input_schema["required"]) == 500
    assert ComparedName.comparisons < 1000


def test_members_of_all_forms_have_a_common_limit() -> None:
    """Faults: for one tool, and for all tools of a request."""
    assert len(schema_of(many_forms(600))[0]["required"]) == 600
    choice: dict[str, Any] = {"anyOf": [{}] * (MAX_NODES + 1)}
    for schema in (many_forms(5000), object_of(MAX_NODES + 1), choice):
        with pytest.raises(InvalidValue, match="1,250 nodes") as refused:
            schema_of(schema)
        assert refused.value.param == "tools[0].parameters"
    tools = [FunctionToolParam(name=f"f{number}", parameters=object_of(1000)) for number in range(20)]
    with pytest.raises(InvalidValue, match="12,500 nodes") as refused:
        sent(*tools)
    assert refused.value.param == "tools[12].parameters"
    assert len(sent(*tools[:12])[0]["tools"]) == 12


def test_strict_tools_have_a_common_limit() -> None:
    """Faults: checked for their members and for the enforceable schema."""
    tools = [FunctionToolParam(name=f"f{number}", parameters=object_of(1000), strict=True) for number in range(20)]
    with pytest.raises(InvalidValue, match="12,500 nodes") as refused:
        sent(*tools)
    assert refused.value.param == "tools[6].parameters"


def test_required_names_are_unique_strings() -> None:
    schema, lost = schema_of({"properties": {"q": {}}, "required": ["q", 5, "q", ["q"]]})
    assert (schema["required"], lost) == (["q"], [".required"])
    wrong: list[Any] = [[5], True]
    for required in wrong:
        schema, lost = schema_of({"properties": {"q": {}}, "required": required})
        assert (schema, lost) == ({"type": "object", "properties": {"q": {}}}, [".required"])


# The choice.


@pytest.mark.parametrize(
    ("choice", "made", "lost"),
    [
        (UNSET, None, []),
        (None, None, []),
        ("auto", {"type": "auto"}, []),
        ("none", {"type": "none"}, []),
        ("required", {"type": "any"}, []),
        (SpecificFunction(name="look"), {"type": "tool", "name": "look"}, []),
        (SpecificCustom(name="patch"), {"type": "tool", "name": "patch"}, []),
        (SpecificFunction(name="unknown"), None, ["tool_choice"]),
        (
            UnknownToolChoice(kind="tool", raw=Raw(b'{"type":"tool","name":"web_search"}')),
            {"type": "tool", "name": "web_search"},
            [],
        ),
        (UnknownToolChoice(kind="tool", raw=Raw(b'{"type":"tool"}')), None, ["tool_choice"]),
        (
            UnknownToolChoice(kind="web_search", raw=Raw(b'{"type":"web_search"}')),
            {"type": "tool", "name": "web_search"},
            [],
        ),
        (UnknownToolChoice(kind="file_search", raw=Raw(b'{"type":"file_search"}')), None, ["tool_choice"]),
        (
            AllowedToolsParam(tools=[SpecificFunction(name="look")], mode="required"),
            {"type": "tool", "name": "look"},
            [],
        ),
        (AllowedToolsParam(tools=[SpecificFunction(name="look")], mode="none"), {"type": "none"}, []),
        (AllowedToolsParam(tools=[SpecificFunction(name="other")]), {"type": "none"}, []),
    ],
)
def test_tool_choice_is_translated_TOOL4(choice: ToolChoiceParam, made: dict[str, Any] | None, lost: list[str]) -> None:
    body, loss_paths = sent(LOOK, CustomTool(name="patch"), SEARCH, tool_choice=choice)
    assert (body.get("tool_choice"), loss_paths) == (made, lost)


def test_allowed_tools_are_sent_with_all_others() -> None:
    """TOOL-3: the cached prefix of the server stays valid, and nothing is lost."""
    unknown = UnknownToolChoice(kind="tool", raw=Raw(b'{"type":"tool","name":"web_search"}'))
    allowed = AllowedToolsParam(tools=[SpecificFunction(name="look"), unknown], mode="required")
    body, lost = sent(LOOK, CustomTool(name="patch"), SEARCH, tool_choice=allowed)
    assert ([tool["name"] for tool in body["tools"]], body["tool_choice"], lost) == (
        ["look", "patch", "web_search"],
        {"type": "any"},
        [],
    )


def test_forced_call_without_tools_is_a_loss() -> None:
    """F-4."""
    assert sent(tool_choice="required")[1] == ["tool_choice"]
    assert sent(tool_choice="auto") == sent()


@pytest.mark.parametrize(
    ("choice", "made"), [(UNSET, {"type": "auto", "disable_parallel_tool_use": True}), ("none", {"type": "none"})]
)
def test_parallel_tool_calls_false_is_sent_in_the_choice_TOOL4(choice: Any, made: dict[str, Any]) -> None:
    assert sent(LOOK, parallel_tool_calls=False, tool_choice=choice)[0]["tool_choice"] == made
    assert "tool_choice" not in sent(parallel_tool_calls=False)[0]
