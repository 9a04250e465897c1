"""Thread events: the JSON lines in which command-line agents report their work (B-5).

A thread has turns, a turn has items. An item is sent as a snapshot when it starts, changes and ends. Several agents use
this format, each with its own items and fields; unknown ones are kept and never refused.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from antiphon.protocol.codec import decode_json, with_nesting_limit

JsonObject = dict[str, Any]


class ThreadWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The slug of the agent's extensions, and which parts of its work are delivered (B-8)."""

    slug: str
    include_extensions: bool = True
    map_tool_calls: bool = True
    include_reasoning: bool = True


class AgentUsage(Struct, frozen=True, kw_only=True):
    """The token counts of an agent (B-7). Input includes cached tokens, output includes reasoning tokens."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0


class ThreadItem(Struct, frozen=True, kw_only=True):
    """Base class of items: the agent's id of the item, and its unknown fields."""

    id: str
    extra_members: JsonObject = {}


class AgentMessageItem(ThreadItem, frozen=True, kw_only=True, tag="agent_message"):
    """A message of the agent."""

    text: str = ""


class ReasoningItem(ThreadItem, frozen=True, kw_only=True, tag="reasoning"):
    """Reasoning of the agent."""

    text: str = ""


class ToolInvocationItem(ThreadItem, frozen=True, kw_only=True, tag="tool_invocation"):
    """A call of a tool by the agent."""

    tool_name: str
    arguments: Any = None
    tool_call_id: str | None = None
    status: str | None = None


class ToolOutputItem(ThreadItem, frozen=True, kw_only=True, tag="tool_output"):
    """The output of a tool call."""

    call_id: str  # the id of the invocation's item
    tool_call_id: str | None = None
    output: str = ""
    status: str | None = None


class McpToolCallItem(ThreadItem, frozen=True, kw_only=True, tag="mcp_tool_call"):
    """One agent sends only the tool name, another sends server and tool separately."""

    tool_name: str | None = None
    server: str | None = None
    tool: str | None = None
    arguments: Any = None
    result: Any = None
    error: Any = None
    status: str | None = None

    @property
    def name(self) -> str:
        return self.tool_name or "__".join(filter(None, (self.server, self.tool)))


class CommandExecutionItem(ThreadItem, frozen=True, kw_only=True, tag="command_execution"):
    """A command that the agent runs."""

    command: str
    aggregated_output: str = ""
    exit_code: int | None = None
    status: str = "completed"


class FileChangeItem(ThreadItem, frozen=True, kw_only=True, tag="file_change"):
    """Changes of files by the agent."""

    changes: list[JsonObject]  # of path and kind
    status: str = "completed"


class WebSearchItem(ThreadItem, frozen=True, kw_only=True, tag="web_search"):
    """A web search of the agent."""

    query: str


class ErrorItem(ThreadItem, frozen=True, kw_only=True, tag="error"):
    """An error that the agent reports."""

    message: str


class OtherItem(ThreadItem, frozen=True, kw_only=True):
    """An item of unknown kind, with all its members in `extra_members`."""

    kind: str


class ThreadStarted(Struct, frozen=True, kw_only=True, tag="thread.started"):
    """A thread begins."""

    thread_id: str = ""


class TurnStarted(Struct, frozen=True, tag="turn.started"):
    """A turn begins."""


class TurnCompleted(Struct, frozen=True, kw_only=True, tag="turn.completed"):
    """A turn is complete."""

    usage: AgentUsage | None = None


class TurnError(Struct, frozen=True, kw_only=True):
    message: str = ""


class TurnFailed(Struct, frozen=True, kw_only=True, tag="turn.failed"):
    """One agent sends the reason in `message`, another in `error`."""

    message: str = ""
    error: TurnError | None = None
    usage: AgentUsage | None = None

    @property
    def why(self) -> str:
        return (
            self.message
            or (self.error.message if self.error else "")
            or "the turn of the agent failed without a reason"
        )


class ItemStarted(Struct, frozen=True, kw_only=True, tag="item.started"):
    """An item begins."""

    item: ThreadItem


class ItemUpdated(Struct, frozen=True, kw_only=True, tag="item.updated"):
    """An item has changed."""

    item: ThreadItem


class ItemCompleted(Struct, frozen=True, kw_only=True, tag="item.completed"):
    """An item is complete."""

    item: ThreadItem


class ThreadError(Struct, frozen=True, kw_only=True, tag="error"):
    """An error. The turn may continue, because agents retry."""

    message: str = ""


class ThreadCompleted(Struct, frozen=True, kw_only=True, tag="thread.completed"):
    """Sent after the last turn. Its content was usually sent before."""

    subtype: str = ""
    usage: AgentUsage | None = None


class OtherEvent(Struct, frozen=True, kw_only=True):
    """An event of unknown kind."""

    kind: str
    members: JsonObject


ItemEvent = ItemStarted | ItemUpdated | ItemCompleted
ThreadEvent = (
    ThreadStarted | TurnStarted | TurnCompleted | TurnFailed | ItemEvent | ThreadError | ThreadCompleted | OtherEvent
)


def decode_thread_event(line: bytes | str) -> ThreadEvent | None:
    """Decodes one line; None if it is not an event but other output of the agent."""
    try:  # most lines are snapshots of a growing text
        text_event = _decode_text(line)
        item = text_event.item
        return ITEM_EVENTS[text_event.type](item=TEXT_ITEMS[item.type](id=item.id, text=item.text))
    except DECODE_ERRORS:
        pass
    try:
        members = decode_json(line)
    except DECODE_ERRORS:
        return None
    if isinstance(members, dict) and isinstance(members.get("event"), dict):  # in an envelope with a version
        members = members["event"]
    if not isinstance(members, dict) or not isinstance(kind := members.get("type"), str):
        return None
    try:
        if kind in ITEM_EVENTS:
            return ITEM_EVENTS[kind](item=_decode_item(members["item"]))
        if kind in EVENTS:
            event: ThreadEvent = msgspec.convert(members, type=EVENTS[kind])
            return event
    except (KeyError, msgspec.ValidationError):  # kept as an unknown event
        pass
    return OtherEvent(kind=kind, members=members)


def item_members(item: ThreadItem) -> JsonObject:
    """The members of the item as the agent wrote them, without id and type."""
    typed: JsonObject = msgspec.to_builtins(item)
    extra_members = typed.pop("extra_members")
    for name in ("id", "type", "kind"):
        typed.pop(name, None)
    return {**typed, **extra_members}


def item_kind(item: ThreadItem) -> str:
    """The item's type as the agent wrote it."""
    return item.kind if isinstance(item, OtherItem) else str(item.__struct_config__.tag)


def _decode_item(members: JsonObject) -> ThreadItem:
    identity = msgspec.convert(members, type=_Identity)
    shape = ITEMS.get(identity.type)
    if shape is not None:
        field_names = {*shape.__struct_fields__, "type"} - {"extra_members"}
        extra_members = {name: value for name, value in members.items() if name not in field_names}
        typed = {name: value for name, value in members.items() if name in field_names}
        try:
            item: ThreadItem = msgspec.convert({**typed, "extra_members": extra_members}, type=shape)
            return item
        except msgspec.ValidationError:
            pass
    extra_members = {name: value for name, value in members.items() if name not in ("id", "type")}
    return OtherItem(id=identity.id, kind=identity.type, extra_members=extra_members)


class _Identity(Struct, frozen=True, kw_only=True):
    id: str
    type: str


class _TextItem(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    type: Literal["agent_message", "reasoning"]
    text: str


class _TextEvent(Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["item.started", "item.updated", "item.completed"]
    item: _TextItem


_decode_text: Final = with_nesting_limit(msgspec.json.Decoder(_TextEvent).decode)
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError)
TEXT_ITEMS: Final[dict[str, type[AgentMessageItem] | type[ReasoningItem]]] = {
    "agent_message": AgentMessageItem,
    "reasoning": ReasoningItem,
}
ITEM_EVENTS: Final[dict[str, type[ItemStarted] | type[ItemUpdated] | type[ItemCompleted]]] = {
    str(event.__struct_config__.tag): event for event in (ItemStarted, ItemUpdated, ItemCompleted)
}
EVENTS: Final[dict[str, Any]] = {
    str(event.__struct_config__.tag): event
    for event in (ThreadStarted, TurnStarted, TurnCompleted, TurnFailed, ThreadError, ThreadCompleted)
}
ITEMS: Final[dict[str, Any]] = {
    str(item.__struct_config__.tag): item
    for item in (
        AgentMessageItem,
        ReasoningItem,
        ToolInvocationItem,
        ToolOutputItem,
        McpToolCallItem,
        CommandExecutionItem,
        FileChangeItem,
        WebSearchItem,
        ErrorItem,
    )
}
