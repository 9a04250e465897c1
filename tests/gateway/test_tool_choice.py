"""`gateway/tool_choice`: a choice of a tool that the request does not offer is refused before a model is asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.errors import InvalidValue, UnsupportedParameter
from antiphon.gateway.tool_choice import check_a_tool_is_left, check_tool_choice
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses

FUNCTION = {"type": "function", "name": "f"}
CUSTOM = {"type": "custom", "name": "c"}
NAMESPACE = {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read"}, CUSTOM]}


def check(choice: Any, *tools: dict[str, Any], items: Any = "Hi") -> None:
    body = {"model": "m", "input": items, "tools": list(tools), "tool_choice": choice}
    check_tool_choice(codec.decode_request(msgspec.json.encode(body)))


def allowed(*choices: dict[str, Any], mode: str = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": list(choices)}


@pytest.mark.parametrize(
    ("choice", "tools"),
    [
        (None, ()),
        ("auto", ()),
        ("none", ()),
        ("required", (FUNCTION,)),
        ("required", ({"type": "web_search"},)),
        (FUNCTION, (CUSTOM, FUNCTION)),
        (CUSTOM, (CUSTOM,)),
        ({**FUNCTION, "name": "read", "namespace": "files"}, (NAMESPACE,)),
        ({**CUSTOM, "namespace": "files"}, (NAMESPACE,)),
        (allowed(FUNCTION, CUSTOM), (FUNCTION, CUSTOM)),
        (allowed({"type": "namespace", "name": "files"}), (NAMESPACE,)),
        ({"type": "web_search"}, (FUNCTION, {"type": "web_search_preview"})),
        (allowed({"type": "image_generation"}), ({"type": "image_generation"},)),
        ({"type": "mcp", "server_label": "s"}, ({"type": "mcp", "server_label": "s"},)),
        (FUNCTION, ({"type": "mcp", "server_label": "s"},)),
        ({"type": "acme:choice"}, ()),
    ],
)
def test_choice_of_an_offered_tool_is_accepted(choice: Any, tools: tuple[Any, ...]) -> None:
    """TOOL-2. Only the upstream knows the tools of an MCP server, the names of hosted tools and unknown choices."""
    check(choice, *tools)


@pytest.mark.parametrize("kind", ["additional_tools", "tool_search_output"])
def test_tool_of_an_input_item_is_offered(kind: str) -> None:
    items = [{"type": "message", "role": "user", "content": "Hi"}, {"type": kind, "tools": [FUNCTION]}]
    check(FUNCTION, items=items)
    check("required", items=items)


@pytest.mark.parametrize(
    ("choice", "tools", "message"),
    [
        (
            "required",
            (),
            "tool_choice: a call is required, and the request offers no tools; expected at least one tool in `tools`",
        ),
        (FUNCTION, (), "tool_choice: the tool 'f' is not offered; the request offers no tool that has a name"),
        (FUNCTION, (CUSTOM,), "tool_choice: the tool 'f' is not offered; expected one of 'c'"),
        ({"type": "web_search"}, (FUNCTION,), "tool_choice: the tool 'web_search' is not offered; expected one of 'f'"),
        (
            {"type": "mcp", "server_label": "s"},
            (),
            "tool_choice: the tool 'mcp' is not offered; the request offers no tool that has a name",
        ),
        (
            {**FUNCTION, "name": "read"},
            (NAMESPACE,),
            "tool_choice: the tool 'read' is not offered; expected one of 'files', 'files.c', 'files.read'",
        ),
        (
            allowed(FUNCTION, CUSTOM),
            (FUNCTION,),
            "tool_choice.tools[1]: the tool 'c' is not offered; expected one of 'f'",
        ),
        (
            allowed({"type": "namespace", "name": "web"}, mode="required"),
            (NAMESPACE,),
            "tool_choice.tools[0]: the tool 'web' is not offered; expected one of 'files', 'files.c', 'files.read'",
        ),
    ],
)
def test_choice_of_another_tool_is_refused(choice: Any, tools: tuple[Any, ...], message: str) -> None:
    """TOOL-2: the message names the field, the tool and the offered tools."""
    with pytest.raises(InvalidValue) as refused:
        check(choice, *tools)
    error = refused.value
    assert (error.status, error.code, error.param) == (400, "invalid_value", "tool_choice")
    assert error.message == message


def test_long_names_and_lists_are_shortened_in_the_message() -> None:
    tools = [{"type": "function", "name": f"f{index:02}"} for index in range(11)]
    with pytest.raises(InvalidValue) as refused:
        check({"type": "custom", "name": "x" * 101}, *tools)
    assert refused.value.message.startswith(f"tool_choice: the tool '{'x' * 100}' is not offered; ")
    assert refused.value.message.endswith("'f09', …")


@pytest.mark.parametrize(
    ("tools", "lost", "is_refused"),
    [
        ([], [], False),
        ([FUNCTION], [], False),
        ([{"type": "web_search_20250305"}], [0], True),
        ([{"type": "web_search_20250305"}, {"type": "web_fetch_20250910"}], [0, 1], True),
        ([{"type": "web_search_20250305"}, {"type": "web_fetch_20250910"}], [0], False),
        ([{"type": "web_search_20250305"}, FUNCTION], [0], False),
    ],
)
def test_request_is_refused_if_all_its_tools_are_lost(tools: list[Any], lost: list[int], is_refused: bool) -> None:
    """REQ-6: the error names the types of the tools."""
    losses = Losses()
    for index in lost:
        losses.add(f"tools[{index}]", "the tool", "the server has none")
    request = codec.decode_request(msgspec.json.encode({"model": "m", "input": "Hi", "tools": tools}))
    if not is_refused:
        check_a_tool_is_left(request, losses, "lab")
        return
    with pytest.raises(
        UnsupportedParameter, match="'web_search_20250305' is unavailable: the upstream 'lab'"
    ) as caught:
        check_a_tool_is_left(request, losses, "lab")
    assert (caught.value.status, caught.value.param) == (400, "tools")
