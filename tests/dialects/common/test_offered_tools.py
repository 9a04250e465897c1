"""The tools that a request offers: each once, with its path and its namespace, and translated once."""

from __future__ import annotations

from msgspec import Raw

from antiphon.dialects.common.offered_tools import ToolsByName, tools_with_paths, translate_tools_once
from antiphon.protocol.items import AdditionalTools, MessageParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.tools import CustomTool, FunctionToolParam, NamespaceTool, ToolList, ToolParam

LOOK, PATCH = FunctionToolParam(name="look"), CustomTool(name="patch")
WHY = "there are no groups of tools"


def test_offered_tools_have_path_and_namespace() -> None:
    """TOOL-1: members of a namespace are inside it; tools that the history offers come last."""
    group = NamespaceTool(name="files", tools=[LOOK, PATCH])
    request = Request(
        tools=[PATCH, group], input=[MessageParam(role="user", content="hi"), AdditionalTools(tools=[LOOK])]
    )
    losses = Losses()
    assert list(tools_with_paths(request, losses, WHY)) == [
        ("tools[0]", PATCH, None),
        ("tools[1].tools[0]", LOOK, "files"),
        ("tools[1].tools[1]", PATCH, "files"),
        ("input[1].tools[0]", LOOK, None),
    ]
    assert not list(losses)


def test_description_of_a_namespace_is_a_loss() -> None:
    """F-4."""
    group = NamespaceTool(name="files", description="all files", tools=[LOOK], extra={"x": Raw(b"1")})
    losses = Losses()
    assert len(list(tools_with_paths(Request(tools=[group]), losses, WHY))) == 1
    assert [loss.path for loss in losses] == ["tools[0].x", "tools[0].description"]
    assert WHY in str(list(losses)[1])


class Wire:
    """One kind of server."""


class Maker:
    """Translates tools, and counts the calls."""

    def __init__(self) -> None:
        self.made = 0

    def make(self, request: Request, names: str, wire: Wire) -> int:
        del request, names, wire
        self.made += 1
        return self.made


def test_repeated_tools_are_translated_once_per_wire() -> None:
    shared: ToolList[ToolParam] = ToolList([LOOK])
    maker, wire = Maker(), Wire()
    make = maker.make
    assert [translate_tools_once(make, Request(tools=shared), "names", wire) for _ in range(2)] == [1, 1]
    assert translate_tools_once(make, Request(tools=shared), "names", Wire()) == 2


def test_tools_with_additional_tools_are_translated_each_time() -> None:
    maker, wire = Maker(), Wire()
    shared: ToolList[ToolParam] = ToolList([LOOK])
    added = Request(tools=shared, input=[AdditionalTools(tools=[PATCH])])
    assert [
        translate_tools_once(maker.make, request, "names", wire) for request in (added, added, Request(tools=[LOOK]))
    ] == [
        1,
        2,
        3,
    ]


def test_last_definition_of_a_tool_is_used_and_the_earlier_one_is_a_loss() -> None:
    losses = Losses()
    tools: ToolsByName[str] = ToolsByName(losses)
    for name, tool, path in (("a", "one", "tools[0]"), ("a", "one", "tools[1]"), ("a", "two", "input[0].tools[0]")):
        tools.add(name, tool, path)
    assert tools.by_name == {"a": "two"}
    assert [loss.path for loss in losses] == ["tools[1]"]
