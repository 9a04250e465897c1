"""`dialects/chat/tools_in`: tools and tool choices of a chat client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw
from tests.dialects.chat.test_tools_out import PATCH, SCHEMA, SEARCH, Json

from antiphon.dialects.chat.request_in import request_to_hub
from antiphon.errors import ApiError, InvalidValue, MissingField
from antiphon.protocol.request import Request
from antiphon.protocol.tools import (
    AllowedToolsParam,
    CustomTool,
    FunctionToolParam,
    SpecificCustom,
    SpecificFunction,
    TextFormatOfTool,
    UnknownTool,
    UnknownToolChoice,
    WebSearchTool,
)


def taken(**fields: Any) -> tuple[Request, list[str]]:
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    request, losses = request_to_hub(json.dumps(body).encode())
    return request, [loss.path for loss in losses]


def test_nested_functions_are_flat_in_the_hub_C3() -> None:
    function = {"name": "search", "description": "finds", "parameters": SCHEMA, "strict": True}
    request, losses = taken(
        tools=[{"type": "function", "function": function}, {"type": "function", "function": {"name": "f"}}]
    )
    assert request.tools == [SEARCH, FunctionToolParam(name="f", strict=False)]
    assert not losses


def test_flat_functions_are_decoded_C3() -> None:
    request, _ = taken(
        tools=[{"type": "function", "name": "search", "description": "finds", "parameters": SCHEMA, "strict": True}]
    )
    assert request.tools == [SEARCH]


@pytest.mark.parametrize("type", [{}, {"type": None}])
def test_nested_function_without_a_type_is_decoded(type: Json) -> None:
    """C-3."""
    request, losses = taken(tools=[{**type, "function": {"name": "f"}}, {"type": "web_search"}])
    assert request.tools == [FunctionToolParam(name="f", strict=False), WebSearchTool()]
    assert not losses


def test_custom_tools_are_decoded_in_both_forms() -> None:
    nested = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}}
    flat = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
    request, losses = taken(
        tools=[
            {"type": "custom", "custom": {"name": "patch", "description": "patches", "format": nested}},
            {"type": "custom", "name": "patch", "description": "patches", "format": flat},
            {"type": "custom", "custom": {"name": "any", "format": {"type": "text"}}},
        ]
    )
    assert request.tools == [PATCH, PATCH, CustomTool(name="any", format=TextFormatOfTool())]
    assert not losses


def test_other_tools_are_kept_ITEM5() -> None:
    request, losses = taken(tools=[{"type": "web_search"}, {"type": "acme:tool", "x": 1}])
    assert request.tools == [WebSearchTool(), UnknownTool(kind="acme:tool", raw=Raw(b'{"type": "acme:tool", "x": 1}'))]
    assert not losses


def test_legacy_functions_become_tools() -> None:
    request, losses = taken(functions=[{"name": "search"}], function_call={"name": "search"})
    assert request.tools == [FunctionToolParam(name="search", strict=False)]
    assert request.tool_choice == SpecificFunction(name="search")
    assert not losses
    assert taken(functions=[{"name": "f"}], function_call="none")[0].tool_choice == "none"


def test_empty_tool_list_is_unset() -> None:
    assert taken(tools=[])[0].tools is UNSET
    assert taken(tools=None)[0].tools is UNSET


def test_cache_control_of_tools_becomes_a_mark_E4() -> None:
    cache = {"cache_control": {"type": "ephemeral"}}
    tools = [
        {"type": "function", "function": {"name": "f"}, **cache},
        {"type": "function", "function": {"name": "g", **cache}},
        {"type": "custom", "custom": {"name": "c"}, **cache},
        {"type": "custom", "custom": {"name": "d", **cache}},
        {"type": "function", "function": {"name": "h", "cache_control": 1}},
    ]
    request, losses = taken(tools=tools)
    mark = {"prompt_cache_breakpoint": Raw(b'{"mode":"explicit","cache_control":{"type":"ephemeral"}}')}
    assert request.tools == [
        FunctionToolParam(name="f", strict=False, extra=mark),
        FunctionToolParam(name="g", strict=False, extra=mark),
        CustomTool(name="c", extra=mark),
        CustomTool(name="d", extra=mark),
        FunctionToolParam(name="h", strict=False),
    ]
    assert losses == ["tools[4].function.cache_control"]


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("any", "required"),
        (None, UNSET),
        ({"type": "function", "function": {"name": "f"}}, SpecificFunction(name="f")),
        ({"function": {"name": "f"}}, SpecificFunction(name="f")),
        ({"type": "function", "name": "f"}, SpecificFunction(name="f")),
        ({"type": "custom", "custom": {"name": "c"}}, SpecificCustom(name="c")),
        ({"type": "custom", "name": "c"}, SpecificCustom(name="c")),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [
                        {"type": "function", "function": {"name": "f"}},
                        {"type": "custom", "custom": {"name": "c"}},
                        {"type": "web_search"},
                    ],
                },
            },
            AllowedToolsParam(
                tools=[
                    SpecificFunction(name="f"),
                    SpecificCustom(name="c"),
                    UnknownToolChoice(kind="web_search", raw=Raw(b'{"type": "web_search"}')),
                ],
                mode="required",
            ),
        ),
        ({"type": "web_search"}, UnknownToolChoice(kind="web_search", raw=Raw(b'{"type": "web_search"}'))),
    ],
)
def test_every_tool_choice_is_decoded_TOOL2(given: Any, made: Any) -> None:
    assert taken(tool_choice=given)[0].tool_choice == made


def test_unknown_fields_of_client_choices_and_formats_are_losses() -> None:
    x = {"x": 1}
    function = {"type": "function", "function": {"name": "f", **x}, **x}
    assert taken(tool_choice=function)[1] == ["tool_choice.x", "tool_choice.function.x"]
    allowed = {"type": "allowed_tools", "allowed_tools": {"tools": [function], **x}, **x}
    inner = "tool_choice.allowed_tools.tools[0]"
    assert taken(tool_choice=allowed)[1] == [
        "tool_choice.x",
        "tool_choice.allowed_tools.x",
        f"{inner}.x",
        f"{inner}.function.x",
    ]
    assert taken(function_call={"name": "f", **x})[1] == ["function_call.x"]
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x", **x}, **x}
    custom = {"type": "custom", "custom": {"name": "c", "format": grammar}}
    assert taken(tools=[custom])[1] == ["tools[0].custom.format.x", "tools[0].custom.format.grammar.x"]


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"tools": [{"type": "function"}]}, MissingField, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, MissingField, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, InvalidValue, "tools[0].function.name"),
        ({"tools": [{"type": "custom"}]}, MissingField, "tools[0].custom"),
        ({"tools": [{"name": "f"}]}, MissingField, "tools[0].type"),
        ({"tools": [{"function": {}}]}, MissingField, "tools[0].function.name"),
        ({"tool_choice": {"name": "f"}}, MissingField, "tool_choice.type"),
        ({"tool_choice": {"type": "function"}}, MissingField, "tool_choice.function"),
        ({"tool_choice": {"type": "custom"}}, MissingField, "tool_choice.custom"),
        ({"tool_choice": "sometimes"}, InvalidValue, "tool_choice"),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "function"}]}}},
            MissingField,
            "tool_choice.allowed_tools.tools[0].function",
        ),
    ],
)
def test_errors_name_the_path_and_the_expected_value_ERR3(fields: Json, kind: type[ApiError], param: str) -> None:
    with pytest.raises(kind) as caught:
        taken(**fields)
    assert caught.value.param == param
    assert "expected" in caught.value.message
