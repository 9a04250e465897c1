"""Tools and their choice for a gemini server."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from tests.dialects.gemini.sending import judged, lost, send
from tests.hostile_schemas import object_of

from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.errors import InvalidValue
from antiphon.protocol.items import AdditionalTools, ItemParam, MessageParam
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
    ToolList,
    ToolParam,
    UnknownTool,
    UnknownToolChoice,
    WebSearchTool,
)

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}, "additionalProperties": False}
ONE = FunctionToolParam(name="one", description="First.", parameters=SCHEMA, strict=False)
TWO = CustomTool(name="two")
OLD = GeminiWire(schemas="openapi")


def offered(*tools: ToolParam, wire: GeminiWire = GeminiWire(), **members: Any) -> dict[str, Any]:  # noqa: B008
    return judged(send(Request(model="m", input="hi", tools=list(tools), **members), wire)[0])


def losses_of(*tools: ToolParam, wire: GeminiWire = GeminiWire(), **members: Any) -> list[str]:  # noqa: B008
    return lost(Request(model="m", input="hi", tools=list(tools), **members), wire)


def test_functions_are_declared_by_json_schema_or_in_the_older_form() -> None:
    """TOOL-1."""
    assert offered(ONE)["tools"] == [
        {"functionDeclarations": [{"name": "one", "description": "First.", "parametersJsonSchema": SCHEMA}]}
    ]
    assert losses_of(ONE) == []
    parameters = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "minLength": 1}}}
    assert offered(ONE, wire=OLD)["tools"][0]["functionDeclarations"][0]["parameters"] == parameters
    assert losses_of(ONE, wire=OLD) == ["tools[0].parameters.additionalProperties"]


def test_function_without_parameters_has_no_schema() -> None:
    """Issue 7, point 5: some versions refuse objects without members."""
    for parameters in ({}, {"type": "object", "properties": {}}, None):
        assert offered(FunctionToolParam(name="f", parameters=parameters))["tools"] == [
            {"functionDeclarations": [{"name": "f"}]}
        ]


def test_parameters_are_always_an_object() -> None:
    untyped = FunctionToolParam(name="f", parameters={"properties": {"a": {"type": "string"}}})
    assert offered(untyped)["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]["type"] == "object"
    assert losses_of(untyped) == []
    assert losses_of(FunctionToolParam(name="f", parameters={"type": "string", "minLength": 1})) == [
        "tools[0].parameters.type"
    ]


@pytest.mark.parametrize("schemas", ["json_schema", "openapi"])
def test_tools_have_a_limit_each_and_a_common_limit(schemas: Any) -> None:
    """Faults."""
    tools = [FunctionToolParam(name=f"f{number}", parameters=object_of(1000)) for number in range(20)]
    wire = GeminiWire(schemas=schemas)
    assert len(offered(*tools[:12], wire=wire)["tools"][0]["functionDeclarations"]) == 12
    with pytest.raises(InvalidValue, match="12,500 nodes") as refused:
        offered(*tools, wire=wire)
    assert refused.value.param == "tools[12].parameters"
    with pytest.raises(InvalidValue, match="1,250 nodes") as refused:
        offered(tools[0], FunctionToolParam(name="large", parameters=object_of(5000)), wire=wire)
    assert refused.value.param == "tools[1].parameters"


def test_unknown_function_fields_are_losses() -> None:
    """REQ-6."""
    tool = FunctionToolParam(
        name="f", strict=True, defer_loading=True, extra={"cache_control": Raw(b"{}"), "x": Raw(b"1")}
    )
    assert losses_of(tool) == ["tools[0].strict", "tools[0].x", "tools[0].defer_loading"]


def test_native_function_members_are_sent() -> None:
    """REQ-7."""
    tool = FunctionToolParam(
        name="f", extra={"behavior": Raw(b'"NON_BLOCKING"'), "responseJsonSchema": Raw(b'{"type":"object"}')}
    )
    body, losses = send(Request(model="m", input="hi", tools=[tool]))
    assert body["tools"][0]["functionDeclarations"] == [
        {"name": "f", "behavior": "NON_BLOCKING", "responseJsonSchema": {"type": "object"}}
    ]
    assert not list(losses)


def test_custom_tools_are_functions_of_one_string() -> None:
    """Issue 7, point 5: the description contains the grammar."""
    grammar = CustomTool(name="p", description="Patches.", format=GrammarFormat(syntax="lark", definition="start: x"))
    bare = CustomTool(name="q", format=GrammarFormat(syntax="regex", definition="x+"))
    plain = CustomTool(name="r", format=TextFormatOfTool())
    for wire in (GeminiWire(), OLD):
        declarations = offered(grammar, bare, plain, wire=wire)["tools"][0]["functionDeclarations"]
        assert declarations[0]["description"] == "Patches.\n\nThe input must match this lark grammar:\nstart: x"
        assert declarations[1]["description"].startswith("The input must match this regex grammar:")
        assert "description" not in declarations[2]
        assert losses_of(grammar, bare, plain, wire=wire) == ["tools[0].format", "tools[1].format"]


def test_namespaces_are_flattened_and_names_valid() -> None:
    """Issue 7, point 5; a name may not start with a digit or a dash."""
    space = NamespaceTool(
        name="files", description="Files.", tools=[FunctionToolParam(name="read"), CustomTool(name="edit")]
    )
    names = offered(space, FunctionToolParam(name="2fast"), FunctionToolParam(name="-x"))["tools"][0][
        "functionDeclarations"
    ]
    assert [one["name"] for one in names] == ["files__read", "files__edit", "_2fast", "_-x"]
    assert losses_of(space) == ["tools[0].description"]
    assert losses_of(NamespaceTool(name="n", tools=[FunctionToolParam(name="read")])) == []


def test_additional_tools_are_offered_and_the_last_counts() -> None:
    items: list[ItemParam] = [
        MessageParam(role="user", content="hi"),
        AdditionalTools(tools=[FunctionToolParam(name="one")]),
    ]
    request = Request(model="m", input=items, tools=[ONE])
    assert judged(send(request)[0])["tools"] == [{"functionDeclarations": [{"name": "one"}]}]
    assert lost(request) == ["tools[0]"]


def test_native_tools_pass_and_others_are_losses() -> None:
    """Issue 7, point 5."""
    own = UnknownTool(kind="gemini:googleSearch", raw=Raw(b'{"type":"gemini:googleSearch","googleSearch":{}}'))
    body, losses = send(Request(model="m", input="hi", tools=[own, WebSearchTool()], tool_choice="auto"))
    assert body["tools"] == [{"googleSearch": {}}]
    assert "toolConfig" not in body
    assert [loss.path for loss in losses] == ["tools[1]"]


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        (SpecificFunction(name="one"), {"mode": "ANY", "allowedFunctionNames": ["one"]}),
        (SpecificCustom(name="two"), {"mode": "ANY", "allowedFunctionNames": ["two"]}),
        (
            AllowedToolsParam(tools=[SpecificFunction(name="one")], mode="required"),
            {"mode": "ANY", "allowedFunctionNames": ["one"]},
        ),
        (AllowedToolsParam(tools=[SpecificFunction(name="one")]), {"mode": "AUTO"}),
    ],
)
def test_tool_choice_becomes_a_mode_of_the_api(choice: Any, config: dict[str, Any]) -> None:
    """TOOL-2, TOOL-3."""
    assert offered(ONE, TWO, tool_choice=choice)["toolConfig"] == {"functionCallingConfig": config}
    assert losses_of(ONE, TWO, tool_choice=choice) == []


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ([], "required"),
        ([ONE], SpecificFunction(name="other")),
        ([ONE], UnknownToolChoice(kind="web_search", raw=Raw(b'{"type":"web_search"}'))),
        (
            [ONE],
            AllowedToolsParam(
                tools=[UnknownToolChoice(kind="web_search", raw=Raw(b'{"type":"web_search"}'))], mode="required"
            ),
        ),
    ],
)
def test_unsupported_tool_choice_is_a_loss(tools: list[ToolParam], choice: Any) -> None:
    """TOOL-2, F-4."""
    assert "toolConfig" not in offered(*tools, tool_choice=choice)
    assert losses_of(*tools, tool_choice=choice) == ["tool_choice"]


def test_native_tool_config_wins_over_the_tool_choice() -> None:
    """REQ-7: the hub has no value for `VALIDATED`."""
    raw = b'{"functionCallingConfig":{"mode":"VALIDATED","allowedFunctionNames":["one"]}}'
    body = offered(ONE, tool_choice="auto", extra={"gemini:toolConfig": Raw(raw)})
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": "VALIDATED", "allowedFunctionNames": ["one"]}


def test_shared_tools_are_translated_the_same_for_each_wire() -> None:
    """Shared tools are translated once for each wire, with the same result as tools that are not shared."""
    tools: list[ToolParam] = [ONE, TWO, WebSearchTool()]
    shared = ToolList(tools)
    for wire in (GeminiWire(), OLD, GeminiWire(), OLD, GeminiWire(schemas="openapi")):
        body, losses = send(Request(model="m", input="hi", tools=shared), wire)
        fresh, fresh_losses = send(Request(model="m", input="hi", tools=tools), wire)
        assert (body, list(losses)) == (fresh, list(fresh_losses))


def test_parallel_tool_calls_false_is_a_loss() -> None:
    """TOOL-4: the policy enforces it, and the loss is named."""
    assert losses_of(ONE, parallel_tool_calls=False) == ["parallel_tool_calls"]
    assert losses_of(parallel_tool_calls=False) == []


def test_keywords_that_constrain_nothing_are_no_parameters() -> None:
    nothing = {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "t",
        "description": "d",
    }
    for name in (*nothing, ""):
        parameters = {keyword: value for keyword, value in nothing.items() if keyword != name}
        assert offered(FunctionToolParam(name="f", parameters=parameters))["tools"] == [
            {"functionDeclarations": [{"name": "f"}]}
        ]
