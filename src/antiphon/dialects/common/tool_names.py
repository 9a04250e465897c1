"""Maps custom tools and tools of namespaces to flat function names, for servers that support only functions, and back.

`ToolNames.for_request(request)` is a pure function of the hub's request. The code that sends the request and the code
that reads the answer compute it separately, with the same result. `SendableCalls` makes the names and ids of received
calls valid for sending them back (REQ-8).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection
from typing import Final, Literal, NamedTuple

from antiphon.protocol.items import AdditionalTools, CustomToolCallParam, FunctionCallParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.tools import (
    CustomTool,
    FunctionToolParam,
    NamespaceTool,
    SpecificCustom,
    SpecificFunction,
    ToolList,
    ToolParam,
)

NAMESPACE_SEPARATOR: Final = "__"
MAX_NAME_LENGTH: Final = 64
MAX_CALL_ID: Final = 64
LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ILLEGAL_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_-]")


ToolKind = Literal["function", "custom"]
ToolKey = tuple[ToolKind, str, str | None]  # the fields of a `ToolRef` as a tuple, which is faster


class ToolRef(NamedTuple):
    """A tool of the hub."""

    kind: ToolKind
    name: str
    namespace: str | None = None

    @classmethod
    def from_choice(cls, choice: SpecificFunction | SpecificCustom) -> ToolRef:
        """The tool that a choice names."""
        return cls("custom" if type(choice) is SpecificCustom else "function", choice.name, choice.namespace or None)


class ToolNames:
    """The map between tools of the hub and flat function names, in both directions."""

    def __init__(self) -> None:
        self._wire_names: dict[ToolKey, str] = {}
        self._key_of_name: dict[str, ToolKey] = {}

    @classmethod
    def for_request(cls, request: Request) -> ToolNames:
        """The map for all tools of the request, in `tools` or in `additional_tools` items."""
        tools = request.tools
        if type(tools) is not ToolList or has_additional_tools(request):
            return cls._for_tools(tools_of_request(request))
        return tools.derive_once(cls, lambda: cls._for_tools(tools))

    @classmethod
    def _for_tools(cls, tools: list[ToolParam]) -> ToolNames:
        names = cls()
        illegal_or_taken: list[ToolKey] = []
        for key in [key for tool in tools for key in _keys_of(tool)]:
            _, name, namespace = key
            if namespace is None and LEGAL_NAME.fullmatch(name) and names._key_of_name.setdefault(name, key) == key:
                names._wire_names[key] = name
            else:
                illegal_or_taken.append(key)
        for key in illegal_or_taken:  # last, so that tools with legal names keep them
            names._add_flat_name(key)
        return names

    def wire_name(self, ref: ToolRef | ToolKey) -> str:
        """The name sent for a tool. A tool that is not offered (of an old call) keeps its own name, made legal."""
        return self._wire_names.get(ref) or _flat_name(ref)

    @property
    def wire_names(self) -> Collection[str]:
        """All names sent for offered tools."""
        return self._key_of_name.keys()

    def original_tool(self, sent_name: str) -> ToolRef:
        """The tool for a name in an answer. A name that was not offered is a function of that name."""
        key = self._key_of_name.get(sent_name)
        return ToolRef(*key) if key else ToolRef("function", sent_name)

    def _add_flat_name(self, key: ToolKey) -> None:
        name, mark = _flat_name(key), repr(key)
        while self._key_of_name.setdefault(name, key) != key:  # two tools, one flat name
            name, mark = _shorten_name(name, mark), mark + "'"
        self._wire_names[key] = name


def key_of_call(call: FunctionCallParam | CustomToolCallParam) -> ToolKey:
    """The tool that a call names."""
    return "custom" if isinstance(call, CustomToolCallParam) else "function", call.name, call.namespace or None


class SendableCalls:
    """The calls of one answer, with legal names and a unique id for each. Each replacement is a loss; `place` is the
    path of a call in the dialect."""

    def __init__(self, place: str, losses: Losses, new_id: Callable[[str], str]) -> None:
        self._place = place
        self._losses = losses
        self._new_id = new_id
        self._ids: set[str] = set()

    def name(self, called: ToolRef) -> str:
        """A legal name of a called tool. Only the name of a tool that was not offered can be illegal."""
        if called.kind == "custom" or LEGAL_NAME.fullmatch(called.name):
            return called.name
        name = ILLEGAL_CHARACTERS.sub("_", called.name)[:MAX_NAME_LENGTH]
        self._losses.add(
            f"{self._place}.name", f"the tool name {called.name[:80]!r}", f"it is not a valid name; {name!r} is used"
        )
        return name

    def id(self, id: str) -> str:
        """The id of a call. A missing, duplicate or too long id is replaced by a new one."""
        if id in self._ids:
            self._losses.add(f"{self._place}.id", f"the id {id!r}", "two calls have it; the second call gets a new id")
            id = ""
        if len(id) > MAX_CALL_ID:
            self._losses.add(
                f"{self._place}.id", f"an id of {len(id)} characters", f"the maximum is {MAX_CALL_ID}; a new id is used"
            )
            id = ""
        id = id or self._new_id("call")
        self._ids.add(id)
        return id


def has_additional_tools(request: Request) -> bool:
    """Whether the history contains `additional_tools` items."""
    return type(request.input) is list and AdditionalTools in map(type, request.input)


def tools_of_request(request: Request) -> list[ToolParam]:
    """The tools of a request, those in its `additional_tools` items included, in order."""
    tools = list(request.tools or ())
    for item in input_items(request):
        if type(item) is AdditionalTools:
            tools += item.tools
    return tools


def _keys_of(tool: ToolParam) -> list[ToolKey]:
    """The keys of all tools that can be called if `tool` is offered."""
    match tool:
        case FunctionToolParam():
            return [("function", tool.name, None)]
        case CustomTool():
            return [("custom", tool.name, None)]
        case NamespaceTool():
            return [(kind, name, tool.name) for member in tool.tools for kind, name, _ in _keys_of(member)]
        case _:
            return []


def _flat_name(key: ToolKey) -> str:
    _, name, namespace = key
    full_name = f"{namespace}{NAMESPACE_SEPARATOR}{name}" if namespace else name
    return (
        full_name
        if LEGAL_NAME.fullmatch(full_name)
        else _shorten_name(ILLEGAL_CHARACTERS.sub("_", full_name), full_name)
    )


def _shorten_name(name: str, full_name: str) -> str:
    mark = hashlib.sha256(full_name.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_LENGTH - 9]}_{mark}"
