"""The writer's state of an item that is not done: its id, its parts, the received text, and the item built from them.

Only the writer opens items and decides when they are emitted. The functions on any item, typed or unknown (`id_of`,
`status_of`, `type_of`, `may_fail`), are used by the grammar too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.errors import InvalidTransition
from antiphon.protocol.content import Annotation, Content, LogProb, OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.items import (
    Compaction,
    CustomToolCall,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCall,
    FunctionCallOutputParam,
    FunctionCallParam,
    Item,
    Message,
    MessageParam,
    Phase,
    Reasoning,
    ReasoningParam,
    UnknownItem,
)
from antiphon.protocol.status import ItemStatus

StreamedPart = OutputText | Refusal | ReasoningText | SummaryText
PartKind = type[OutputText] | type[Refusal] | type[ReasoningText] | type[SummaryText]
MAX_UNJOINED_PIECES: Final = 4096  # pieces
LONG_PIECE: Final = 4096  # characters
MAX_LONG_PIECES: Final = 64  # pieces; freed strings of their joined size are returned to the operating system


_append: Final = list.append  # `super()` takes twice as long, and this runs for every delta


class TextPieces(list[str]):
    """A list of strings that joins short ones, because each string has an overhead of about fifty bytes. Only
    `append` may be used to add to it."""

    __slots__ = ("_joined_count",)

    def __init__(self) -> None:
        super().__init__()
        self._joined_count = 0  # the number of joined strings at the beginning

    def append(self, piece: str) -> None:
        _append(self, piece)
        count = len(self) - self._joined_count
        if count >= MAX_LONG_PIECES and (count >= MAX_UNJOINED_PIECES or len(piece) >= LONG_PIECE):
            self[self._joined_count :] = ["".join(self[self._joined_count :])]
            self._joined_count += 1

    def join(self) -> str:
        """The whole text. It replaces the pieces, so that no other copy of it is held."""
        text = "".join(self)
        if len(self) > 1:
            self[:] = [text]
            self._joined_count = 1
        return text


class OpenPart:
    """A content part that is being written."""

    __slots__ = ("annotations", "index", "key", "kind", "logprobs", "pieces")

    def __init__(self, kind: PartKind, key: Hashable, index: int) -> None:
        self.kind: PartKind = kind
        self.key = key
        self.index = index
        self.pieces = TextPieces()
        self.annotations: list[Annotation] = []
        self.logprobs: list[LogProb] = []

    def build(self) -> StreamedPart:
        """Builds the part from what was received so far."""
        text = self.pieces.join()
        if self.kind is OutputText:
            return OutputText(text=text, annotations=list(self.annotations), logprobs=list(self.logprobs))
        if self.kind is Refusal:
            return Refusal(refusal=text)
        if self.kind is ReasoningText:
            return ReasoningText(text=text)
        return SummaryText(text=text)


class OpenItem:
    """An item between `output_item.added` and `output_item.done`. It is no `ABC`: with one, `isinstance` is a call."""

    __slots__ = ("current_part", "extra", "id", "index", "parts")

    name = "item"

    def __init__(self, id: str) -> None:
        self.id = id
        self.index = -1
        self.parts: dict[Hashable, OpenPart] = {}
        self.current_part: OpenPart | None = None
        self.extra: dict[str, Raw] | UnsetType = UNSET  # unknown fields of an item that is streamed in parts

    @property
    def may_fail(self) -> bool:
        """Whether this item can end with the status `failed` (ITEM-2)."""
        return False

    def parts_of_kind(self, kind: PartKind) -> list[Content | None]:
        """The list that takes finished parts of this kind."""
        raise InvalidTransition(f"a {self.name} holds no part of the type {kind.__struct_config__.tag} (STR-3)")

    @abstractmethod
    def build(self, status: ItemStatus) -> Item:
        """Builds the item from what was received so far, with this status."""


class OpenMessage(OpenItem):
    __slots__ = ("contents", "phase")

    name = "message"

    def __init__(self, id: str, phase: Phase | UnsetType) -> None:
        super().__init__(id)
        self.phase = phase
        self.contents: list[Content | None] = []

    def parts_of_kind(self, kind: PartKind) -> list[Content | None]:
        return self.contents if kind in (OutputText, Refusal) else super().parts_of_kind(kind)

    def build(self, status: ItemStatus) -> Message:
        content = [part for part in self.contents if part is not None]
        return Message(id=self.id, status=status, role="assistant", content=content, phase=self.phase, extra=self.extra)


class OpenReasoning(OpenItem):
    __slots__ = ("contents", "encrypted_content", "summaries")

    name = "reasoning item"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.contents: list[Content | None] = []
        self.summaries: list[Content | None] = []
        self.encrypted_content: str | UnsetType = UNSET

    def parts_of_kind(self, kind: PartKind) -> list[Content | None]:
        if kind is SummaryText:
            return self.summaries
        return self.contents if kind is ReasoningText else super().parts_of_kind(kind)

    def build(self, status: ItemStatus) -> Reasoning:
        content = [part for part in self.contents if part is not None]
        return Reasoning(
            id=self.id,
            status=status,
            summary=[part for part in self.summaries if part is not None],
            content=content or UNSET,
            encrypted_content=self.encrypted_content,
            extra=self.extra,
        )


class OpenToolCall(OpenItem):
    """Base class of function calls and custom tool calls."""

    __slots__ = ("call_id", "namespace", "pieces", "tool_name")

    def __init__(self, id: str, tool_name: str, call_id: str, namespace: str | None) -> None:
        super().__init__(id)
        self.tool_name = tool_name
        self.call_id = call_id
        self.namespace: str | UnsetType = namespace if namespace is not None else UNSET
        self.pieces = TextPieces()


class OpenFunctionCall(OpenToolCall):
    __slots__ = ()

    name = "function call"

    def build(self, status: ItemStatus) -> FunctionCall:
        return FunctionCall(
            id=self.id,
            call_id=self.call_id,
            name=self.tool_name,
            arguments=self.pieces.join(),
            status=status,
            namespace=self.namespace,
            extra=self.extra,
        )


class OpenCustomCall(OpenToolCall):
    __slots__ = ()

    name = "custom tool call"

    def build(self, status: ItemStatus) -> CustomToolCall:
        return CustomToolCall(
            id=self.id,
            call_id=self.call_id,
            name=self.tool_name,
            input=self.pieces.join(),
            status=status,
            namespace=self.namespace,
            extra=self.extra,
        )


class OpenWholeItem(OpenItem):
    """An item that is not streamed in parts: an extension, a call of a hosted tool, a compaction."""

    __slots__ = ("is_finished", "item", "size")

    name = "whole item"

    def __init__(self, id: str, item: Item) -> None:
        super().__init__(id)
        self.item = item
        self.is_finished = False
        self.size = 0  # bytes that the writer has counted for it

    @property
    def may_fail(self) -> bool:
        return may_fail(self.item)

    def finish(self, item: Item) -> None:
        """Sets the final item. Its type must be the announced type, and its status must be allowed for that type."""
        if type_of(item) != type_of(self.item):
            raise InvalidTransition(
                f"the item {self.id} was announced as {type_of(self.item)} and cannot end as {type_of(item)} (STR-4)"
            )
        if status_of(item) == ItemStatus.FAILED and not may_fail(item):
            raise InvalidTransition(
                f"a {type_of(item)} cannot fail, only extension items can; it is completed or incomplete (ITEM-2)"
            )
        self.item = item
        self.is_finished = True

    def build(self, status: ItemStatus) -> Item:
        own_status = status_of(self.item)
        # A final item keeps its own final status: a hosted tool may fail while the response continues.
        keeps_own_status = self.is_finished and status is ItemStatus.COMPLETED and has_final_status(self.item)
        return with_id_and_status(self.item, self.id, own_status if keeps_own_status else status)


def type_of(item: Item) -> str:
    """The item's type as written on the wire."""
    return item.kind if isinstance(item, UnknownItem) else str(item.__struct_config__.tag)


def may_fail(item: Item) -> bool:
    """Whether this item can end with the status `failed`. Items of extensions and hosted tools can."""
    return not isinstance(item, NEVER_FAILED_TYPES)


def has_final_status(item: Item) -> bool:
    """Whether the item's status is final. An unknown item may use its own status values (ITEM-5)."""
    status = status_of(item)
    return status not in (None, ItemStatus.IN_PROGRESS) if isinstance(item, UnknownItem) else status in FINAL_STATUSES


def id_of(item: Item) -> str | None:
    """The item's id, None if it has none."""
    id = item.string_member("id") if isinstance(item, UnknownItem) else getattr(item, "id", None)
    return id if isinstance(id, str) else None


def status_of(item: Item) -> str | None:
    """The item's status, None if it has none."""
    status = item.string_member("status") if isinstance(item, UnknownItem) else getattr(item, "status", None)
    return status if isinstance(status, str) else None


def without_seal(item: Item) -> Item:
    """A copy of the item without its encrypted content."""
    match item:
        case Reasoning(encrypted_content=str()) | Compaction():
            return replace(item, encrypted_content="")
        case _:
            return item


def with_id_and_status(item: Item, id: str, status: str | None) -> Item:
    """A copy of the item with this id, and with this status if the item has that field."""
    if id_of(item) == id and status_of(item) == status:
        return item
    if isinstance(item, UnknownItem):
        members = item.raw_members()
        members["id"] = Raw(msgspec.json.encode(id))
        if "status" in members and status is not None:
            members["status"] = Raw(msgspec.json.encode(status))
        return UnknownItem(kind=item.kind, raw=Raw(msgspec.json.encode(members)))
    changes: dict[str, Any] = {"id": id}
    if getattr(item, "status", UNSET) is not UNSET and status is not None:
        changes["status"] = status
    return replace(item, **changes)


# ITEM-2
NEVER_FAILED_TYPES: Final = (
    MessageParam,
    ReasoningParam,
    FunctionCallParam,
    FunctionCallOutputParam,
    CustomToolCallParam,
    CustomToolCallOutputParam,
)
FINAL_STATUSES: Final = frozenset(status.value for status in ItemStatus if status.is_terminal)
