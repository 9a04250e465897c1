"""A gemini client's tools, and their choice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.dialects.gemini.asking import ask

from antiphon.errors import InvalidValue
from antiphon.protocol.tools import AllowedToolsParam, FunctionToolParam, SpecificFunction, UnknownTool

NO_PARAMETERS = {"type": "object", "properties": {}}


def calling(**members: Any) -> dict[str, Any]:
    return {"functionCallingConfig": members}


def test_functions_are_decoded_with_either_kind_of_schema() -> None:
    """TOOL-1."""
    asked = ask(
        tools=[
            {
                "functionDeclarations": [
                    {
                        "name": "a",
                        "description": "A",
                        "parameters": {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}},
                    },
                    {"name": "b", "parametersJsonSchema": {"type": "object"}, "parameters": None},
                    {"name": "c.d:e"},
                ]
            }
        ]
    )
    assert asked.request.tools == [
        FunctionToolParam(
            name="a",
            description="A",
            parameters={"type": "object", "properties": {"x": {"type": "string"}}},
            strict=False,
        ),
        FunctionToolParam(name="b", parameters=NO_PARAMETERS, strict=False),
        FunctionToolParam(name="c.d:e", parameters=NO_PARAMETERS, strict=False),
    ]
    assert asked.lost == []


def test_native_tools_become_one_unknown_tool_each() -> None:
    """Servers of this dialect receive their kinds and members."""
    tools = ask(
        tools=[{"google_search": {}, "urlContext": {}}, {"codeExecution": {"a": 1}}, {"functionDeclarations": []}]
    ).request.tools
    assert tools
    assert [(tool.kind, json.loads(bytes(tool.raw))) for tool in tools if isinstance(tool, UnknownTool)] == [
        ("gemini:googleSearch", {"type": "gemini:googleSearch", "googleSearch": {}}),
        ("gemini:urlContext", {"type": "gemini:urlContext", "urlContext": {}}),
        ("gemini:codeExecution", {"type": "gemini:codeExecution", "codeExecution": {"a": 1}}),
    ]


def test_other_function_members_travel_in_extra() -> None:
    tools = ask(
        tools=[{"functionDeclarations": [{"name": "a", "behavior": "BLOCKING", "response": {"type": "STRING"}}]}]
    ).request.tools
    assert tools
    assert isinstance(tools[0], FunctionToolParam)
    extra = tools[0].extra
    assert extra
    assert {name: bytes(raw) for name, raw in extra.items()} == {
        "gemini:behavior": b'"BLOCKING"',
        "gemini:response": b'{"type": "STRING"}',
    }
    assert all(isinstance(raw, Raw) for raw in extra.values())


def test_empty_tool_list_sets_no_tools() -> None:
    assert not ask(tools=[]).request.tools


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        (calling(mode="AUTO"), "auto"),
        (calling(mode="auto", allowedFunctionNames=["a"]), "auto"),
        (calling(mode="ANY"), "required"),
        (calling(mode="NONE"), "none"),
        (calling(mode="ANY", allowedFunctionNames=["a"]), SpecificFunction(name="a")),
        (
            calling(mode="ANY", allowedFunctionNames=["a", "b"]),
            AllowedToolsParam(tools=[SpecificFunction(name="a"), SpecificFunction(name="b")], mode="required"),
        ),
    ],
)
def test_mode_and_names_become_the_tool_choice(config: dict[str, Any], choice: Any) -> None:
    """TOOL-2."""
    asked = ask(toolConfig=config)
    assert asked.request.tool_choice == choice
    assert asked.own == {}


@pytest.mark.parametrize("config", [{}, calling(), calling(mode="MODE_UNSPECIFIED"), None])
def test_missing_tool_config_sets_no_choice(config: Any) -> None:
    asked = ask(toolConfig=config)
    assert not asked.request.tool_choice
    assert asked.own == {}


@pytest.mark.parametrize(
    ("config", "choice"),
    [
        (calling(mode="VALIDATED"), "auto"),
        (
            calling(mode="VALIDATED", allowedFunctionNames=["a"]),
            AllowedToolsParam(tools=[SpecificFunction(name="a")], mode="auto"),
        ),
        (calling(mode="ANY", streamFunctionCallArguments=True), "required"),
        ({**calling(mode="ANY"), "retrievalConfig": {"languageCode": "en"}}, "required"),
    ],
)
def test_tool_config_beyond_a_choice_travels_unchanged(config: dict[str, Any], choice: Any) -> None:
    """REQ-7."""
    asked = ask(toolConfig=config)
    assert asked.request.tool_choice == choice
    assert asked.own == {"gemini:toolConfig": config}


def test_unknown_mode_is_refused_with_its_path() -> None:
    """ERR-3."""
    with pytest.raises(InvalidValue, match=r"expected .*ANY.*, got 'MAYBE'") as caught:
        ask(toolConfig=calling(mode="maybe"))
    assert caught.value.param == "toolConfig.functionCallingConfig.mode"


@pytest.mark.parametrize("schema", [{"type": "OBJECT", "properties": {}, "required": []}, {"type": "OBJECT"}])
def test_object_without_properties_means_the_same_as_no_parameters(schema: dict[str, Any]) -> None:
    tools = ask(tools=[{"functionDeclarations": [{"name": "f", "parameters": schema}]}]).request.tools
    assert tools == [FunctionToolParam(name="f", parameters=NO_PARAMETERS, strict=False)]
