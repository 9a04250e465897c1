"""Maps tools of the hub to function names that a server takes, and back (REQ-8).

Names that a server refuses are replaced, tools of namespaces get flat names, and custom tools become functions.
`ToolNames.for_request(request, name_rule)` is a pure function. The code that sends the request and the code that reads
the answer compute it separately, with the same result. `SendableCalls` makes the names and ids of received calls valid
for sending them back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

from antiphon.dialects.common.call_ids import MAX_CALL_ID_LENGTH
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


class NameRule(NamedTuple):
    """The function names that the servers of a dialect take."""

    legal_name: re.Pattern[str]
    illegal_characters: re.Pattern[str]
    max_length: int

    def is_legal(self, name: str) -> bool:
        """Whether the server takes a name as it is."""
        return len(name) <= self.max_length and self.legal_name.fullmatch(name) is not None

    def limited(self, max_length: int) -> NameRule:
        """The rule of a server that takes names of at most `max_length` characters."""
        return self if max_length >= self.max_length else self._replace(max_length=max_length)


#: Servers of Chat Completions and Responses.
PLAIN_NAMES: Final = NameRule(re.compile(r"[a-zA-Z0-9_-]{1,64}"), re.compile(r"[^a-zA-Z0-9_-]"), 64)
MESSAGES_NAMES: Final = NameRule(re.compile(r"[a-zA-Z0-9_-]{1,128}"), re.compile(r"[^a-zA-Z0-9_-]"), 128)
#: A name starts with a letter or an underscore. Newer servers take 128 characters.
GEMINI_NAMES: Final = NameRule(
    re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"), re.compile(r"^(?=[^a-zA-Z_])|[^a-zA-Z0-9_.:-]"), 64
)
#: Ollama takes any name.
OLLAMA_NAMES: Final = NameRule(re.compile(r"(?s:.+)"), re.compile(r"(?!)"), 1024)


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
    """The map between tools of the hub and the function names of a server, in both directions."""

    def __init__(self, tools: Iterable[ToolParam], rule: NameRule) -> None:
        self._rule = rule
        self._wire_names: dict[ToolKey, str] = {}
        self._key_of_name: dict[str, ToolKey] = {}
        illegal_or_taken: list[ToolKey] = []
        for key in [key for tool in tools for key in _keys_of(tool)]:
            _, name, namespace = key
            is_legal = namespace is None and rule.is_legal(name)
            if is_legal and self._key_of_name.setdefault(name, key) == key:
                self._wire_names[key] = name
            else:
                illegal_or_taken.append(key)
        for key in illegal_or_taken:  # last, so that tools with legal names keep them
            self._add_flat_name(key)

    @classmethod
    def for_request(cls, request: Request, rule: NameRule) -> ToolNames:
        """The map for all tools of the request, in `tools` or in `additional_tools` items."""
        tools = request.tools
        if type(tools) is not ToolList or has_additional_tools(request):
            return cls(tools_of_request(request), rule)
        return tools.derive_once(rule, lambda: cls(tools, rule))

    @property
    def is_identity(self) -> bool:
        """Whether every offered tool keeps its name."""
        return all(key[1] == name for key, name in self._wire_names.items())

    def wire_name(self, ref: ToolRef | ToolKey) -> str:
        """The name sent for a tool. A tool that is not offered (of an old call) keeps its own name, made legal."""
        return self._wire_names.get(ref) or _flat_name(ref, self._rule)

    def client_name(self, key: ToolKey) -> str:
        """The name for a client, which knows its tools by the names that it sent. A tool of a namespace has a flat
        name, because only Responses clients know namespaces."""
        return self.wire_name(key) if key[2] else key[1]

    def is_offered(self, sent_name: str) -> bool:
        """Whether a tool was offered under this name."""
        return sent_name in self._key_of_name

    def is_start_of_name(self, text: str) -> bool:
        """Whether the name of an offered tool starts with this text."""
        return any(name.startswith(text) for name in self._key_of_name)

    def original_tool(self, sent_name: str) -> ToolRef:
        """The tool for a name in an answer. A name that was not offered is a function of that name."""
        key = self._key_of_name.get(sent_name)
        return ToolRef(*key) if key else ToolRef("function", sent_name)

    def _add_flat_name(self, key: ToolKey) -> None:
        name, mark = _flat_name(key, self._rule), repr(key)
        while self._key_of_name.setdefault(name, key) != key:  # two tools, one flat name
            name, mark = _shorten_name(name, mark, self._rule), mark + "'"
        self._wire_names[key] = name


def key_of_call(call: FunctionCallParam | CustomToolCallParam) -> ToolKey:
    """The tool that a call names."""
    return "custom" if isinstance(call, CustomToolCallParam) else "function", call.name, call.namespace or None


class SendableCalls:
    """The calls of one answer, with the names of the hub and a unique id for each. Each replacement is a loss; `place`
    is the path of a call in the dialect."""

    def __init__(self, place: str, names: ToolNames, losses: Losses, new_id: Callable[[str], str]) -> None:
        self._place = place
        self._names = names
        self._losses = losses
        self._new_id = new_id
        self._ids: set[str] = set()

    def tool(self, sent_name: str) -> ToolRef:
        """The tool that a call names. The name of a tool that was not offered is made legal."""
        called = self._names.original_tool(sent_name)
        if self._names.is_offered(sent_name) or PLAIN_NAMES.is_legal(sent_name):
            return called
        name = PLAIN_NAMES.illegal_characters.sub("_", sent_name)[: PLAIN_NAMES.max_length]
        self._losses.add(
            f"{self._place}.name", f"the tool name {sent_name[:80]!r}", f"it is not a valid name; {name!r} is used"
        )
        return called._replace(name=name)

    def id(self, id: str) -> str:
        """The id of a call. A missing, duplicate or too long id is replaced by a new one."""
        if id in self._ids:
            self._losses.add(f"{self._place}.id", f"the id {id!r}", "two calls have it; the second call gets a new id")
            id = ""
        if len(id) > MAX_CALL_ID_LENGTH:
            self._losses.add(
                f"{self._place}.id",
                f"an id of {len(id)} characters",
                f"the maximum is {MAX_CALL_ID_LENGTH}; a new id is used",
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


def _flat_name(key: ToolKey, rule: NameRule) -> str:
    _, name, namespace = key
    full_name = f"{namespace}{NAMESPACE_SEPARATOR}{name}" if namespace else name
    if rule.is_legal(full_name):
        return full_name
    with_prefix = f"_{full_name}"  # for servers that refuse only the first character
    if rule.is_legal(with_prefix):
        return with_prefix
    return _shorten_name(rule.illegal_characters.sub("_", full_name), full_name, rule)


def _shorten_name(name: str, full_name: str, rule: NameRule) -> str:
    mark = hashlib.sha256(full_name.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{name[: rule.max_length - 9]}_{mark}"
