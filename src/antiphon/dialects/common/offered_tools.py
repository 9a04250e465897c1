"""Iterates over the tools of a request with their paths. Tools of namespaces are flattened.

Each dialect translates the tools itself. Tools that many requests share are translated once for each kind of server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

from antiphon.dialects.common.tool_names import has_additional_tools
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.protocol.items import AdditionalTools
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.tools import NamespaceTool, ToolList, ToolParam

PlacedTool = tuple[str, ToolParam, str | None]  # path, tool, namespace

Names = TypeVar("Names")
Wire = TypeVar("Wire")
Translated = TypeVar("Translated")


class ToolsByName(Generic[Translated]):
    """Translated tools by the names that the server gets. The last definition of a name is used."""

    def __init__(self, losses: Losses) -> None:
        self.by_name: dict[str, Translated] = {}
        self._losses = losses
        self._paths: dict[str, str] = {}

    def add(self, name: str, tool: Translated, path: str) -> None:
        """Add a tool. Another definition of the same name before it is a loss."""
        if self.by_name.get(name, tool) != tool:
            self._losses.add(
                self._paths[name],
                f"an earlier definition of {name!r}",
                "each tool is offered once; the last definition is used",
            )
        self.by_name[name], self._paths[name] = tool, path


def tools_with_paths(request: Request, losses: Losses, loss_reason: str) -> Iterator[PlacedTool]:
    """All tools, also those of `additional_tools` items. `loss_reason` is the reason why namespace descriptions are
    lost."""
    yield from flatten_tools(request.tools or (), "tools", losses, loss_reason)
    for index, item in enumerate(input_items(request)):
        if type(item) is AdditionalTools:
            yield from flatten_tools(item.tools, f"input[{index}].tools", losses, loss_reason)


def flatten_tools(tools: Collection[ToolParam], path: str, losses: Losses, loss_reason: str) -> Iterator[PlacedTool]:
    """The tools of the list at `path`."""
    for index, tool in enumerate(tools):
        tool_path = f"{path}[{index}]"
        if type(tool) is not NamespaceTool:
            yield tool_path, tool, None
            continue
        report_unknown_fields(tool, tool_path, losses)
        if tool.description:
            losses.add(f"{tool_path}.description", f"the description of the namespace {tool.name!r}", loss_reason)
        for member_index, member in enumerate(tool.tools):
            yield f"{tool_path}.tools[{member_index}]", member, tool.name


def translate_tools_once(
    translate: Callable[[Request, Names, Wire], Translated], request: Request, names: Names, wire: Wire
) -> Translated:
    """Translates the tools of a request for one kind of server. `translate` must read only the tools of the request."""
    tools = request.tools
    if type(tools) is not ToolList or has_additional_tools(request):
        return translate(request, names, wire)
    # The value keeps the wire alive, so that no other wire can get the same id.
    _, translated = tools.derive_once((translate, id(wire)), lambda: (wire, translate(request, names, wire)))
    return translated
