"""Names of tools on servers that know only flat functions: custom tools and namespaces go out under one name each, and come back.

`ToolNames.of(request)` is a pure function of the hub's request: the half that sends a request and the half that reads the answer
each make their own, and agree.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal, NamedTuple

from antiphon.protocol.items import AdditionalTools
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.tools import CustomTool, FunctionToolParam, NamespaceTool, ToolParam

SEPARATOR: Final = "__"
MAX_LENGTH: Final = 64
NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")


class ToolRef(NamedTuple):
    """A tool as the hub knows it."""

    kind: Literal["function", "custom"]
    name: str
    namespace: str | None = None


class ToolNames:
    """Both directions of the map between a hub's tools and a flat server's function names."""

    def __init__(self) -> None:
        self._sent: dict[ToolRef, str] = {}
        self._refs: dict[str, ToolRef] = {}

    @classmethod
    def of(cls, request: Request) -> ToolNames:
        """The map for every tool that the request offers, at its top or in `additional_tools` items."""
        names = cls()
        for tool in offered_tools(request):
            names._learn(tool)
        return names

    def sent(self, ref: ToolRef) -> str:
        """The name under which a tool goes out; a tool that is not offered (an old call's) keeps its own, made legal."""
        return self._sent.get(ref) or _flat(ref)

    def original(self, sent_name: str) -> ToolRef:
        """The tool behind a name that came back; a name nobody offered is a function of that name."""
        return self._refs.get(sent_name) or ToolRef("function", sent_name)

    def _learn(self, tool: ToolParam) -> None:
        match tool:
            case FunctionToolParam():
                self._add(ToolRef("function", tool.name))
            case CustomTool():
                self._add(ToolRef("custom", tool.name))
            case NamespaceTool():
                for member in tool.tools:
                    if isinstance(member, FunctionToolParam | CustomTool):
                        kind: Literal["function", "custom"] = "custom" if isinstance(member, CustomTool) else "function"
                        self._add(ToolRef(kind, member.name, tool.name))

    def _add(self, ref: ToolRef) -> None:
        name = _flat(ref)
        if self._refs.get(name, ref) != ref:
            name = _shortened(name, repr(ref))  # two tools, one flat name
        self._sent[ref] = name
        self._refs[name] = ref


def offered_tools(request: Request) -> list[ToolParam]:
    """The tools of a request, those in its `additional_tools` items included, in order."""
    tools = list(request.tools or ())
    for item in input_items(request):
        if isinstance(item, AdditionalTools):
            tools += item.tools
    return tools


def _flat(ref: ToolRef) -> str:
    whole = f"{ref.namespace}{SEPARATOR}{ref.name}" if ref.namespace else ref.name
    legal = NOT_IN_NAMES.sub("_", whole)
    return legal if len(legal) <= MAX_LENGTH and legal == whole else _shortened(legal, whole)


def _shortened(name: str, whole: str) -> str:
    mark = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{name[: MAX_LENGTH - 9]}_{mark}"
