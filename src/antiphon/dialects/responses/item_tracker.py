"""`ItemTracker` finds the item that an event belongs to: by id, by index, or by elimination.

Some servers omit the id, the index or both, give every item the index 0, or give an item a new id in each event. This
module writes no output; `answer_in` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, assert_never

from msgspec import Raw

from antiphon.dialects.common.freeform_tools import FreeformInput
from antiphon.dialects.responses.response_wire import ServerItem, ServerPart, decode_parts, text_or_json
from antiphon.protocol.items import Item, Phase
from antiphon.protocol.open_items import TextPieces

TextKind = Literal["text", "refusal", "reasoning", "summary"]
ItemKind = Literal["message", "reasoning", "call", "custom", "whole"]


class UpstreamPart:
    """A part of an item, and what was received of it so far."""

    __slots__ = ("annotation_count", "has_logprobs", "index", "is_closed", "key", "kind", "pieces")

    def __init__(self, key: int, text_kind: TextKind, index: int) -> None:
        self.key = key
        self.kind: TextKind = text_kind
        self.index = index  # the server's index
        self.pieces = TextPieces()  # those of the writer once the part is written
        self.annotation_count = 0
        self.has_logprobs = False
        self.is_closed = False

    @property
    def text(self) -> str:
        return self.pieces.join()


class UpstreamItem:
    """An item of the server, and what was received of it so far."""

    __slots__ = (
        "added_raw", "announced_by_server", "announced_form", "announced_to_client", "call_id", "content_is_summary",
        "done_raw", "final_form", "finished_by_server", "freeform_input", "has_changing_id",
        "has_confirmed_id", "has_final_form", "hub_id", "hub_index", "id", "key", "kind", "name", "namespace", "parts",
        "pending_actions", "phase", "pieces", "type",
    )  # fmt: skip

    def __init__(self, key: int, kind: ItemKind, type: str, id: str | None) -> None:
        self.key = key
        self.kind: ItemKind = kind
        self.type = type
        self.id = id
        # State at the server:
        self.announced_by_server = False  # `output_item.added` was received
        self.has_confirmed_id = False  # an event used the id of its announcement
        self.has_changing_id = False  # an event used another id
        self.finished_by_server = False  # its final form was received
        self.added_raw: Raw | None = None  # the item in `output_item.added`
        self.done_raw: Raw | None = None  # its final form
        self.name: str | None = None
        self.call_id: str | None = None
        self.namespace: str | None = None
        self.phase: Phase | None = None
        # State at the client:
        self.announced_to_client = False
        self.has_final_form = False  # its final form was applied
        self.announced_form: Item | None = None  # for an item that is carried whole
        self.final_form: Item | None = None  # for an item that is carried whole
        self.pending_actions: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # run once it is announced
        self.hub_id = ""
        self.hub_index = -1
        self.parts: list[UpstreamPart] = []
        self.content_is_summary = False  # the client gets its reasoning text as its summary
        self.pieces = TextPieces()  # arguments or input of a call; those of the writer, except for free-form input
        self.freeform_input: FreeformInput | None = None  # for a custom tool that is called as a function

    def parts_of_kind(self, *text_kinds: TextKind) -> list[UpstreamPart]:
        """Return the parts of these kinds, in the server's order."""
        return sorted((part for part in self.parts if part.kind in text_kinds), key=lambda part: part.index)

    def part_at(self, text_kind: TextKind, index: int | None) -> UpstreamPart:
        """Return the last part with the server's index, or the last open part if `index` is None. Added if missing."""
        for part in reversed(self.parts):
            if part.kind == text_kind and (part.index == index if index is not None else not part.is_closed):
                return part
        return self.add_part(text_kind, index)

    def add_part(self, text_kind: TextKind, index: int | None) -> UpstreamPart:
        """Add a part. Without an index it gets the next one."""
        if index is None:
            sibling_parts = (
                self.parts_of_kind("summary")
                if text_kind == "summary"
                else self.parts_of_kind("text", "refusal", "reasoning")
            )
            index = sibling_parts[-1].index + 1 if sibling_parts else 0
        part = UpstreamPart(len(self.parts), text_kind, index)
        self.parts.append(part)
        return part

    def part_for_final_form(self, text_kind: TextKind, index: int, nth: int) -> UpstreamPart:
        """Return the part for the one at `index` in a final form, where it is the nth of its kind."""
        streamed = self.parts_of_kind(text_kind)
        parts_at_index = [part for part in streamed if part.index == index]
        if len(parts_at_index) == 1:
            return parts_at_index[0]
        return streamed[nth] if nth < len(streamed) else self.add_part(text_kind, None)


class FinalForm(NamedTuple):
    """The final form of an item, from `output_item.done` or the terminal event."""

    kinds: tuple[ItemKind, ...]
    id: str | None
    output_index: int | None
    agrees_with: Callable[[UpstreamItem], bool]

    def fits_item(self, item: UpstreamItem) -> bool:
        """Whether the kinds are compatible. An item that is carried whole must keep its announced type (STR-4)."""
        return item.kind in self.kinds and (item.kind != "whole" or self.agrees_with(item))


class ItemTracker:
    """All items of one response, in the order in which the server first mentioned them."""

    def __init__(self) -> None:
        self.items: list[UpstreamItem] = []
        self._by_id: dict[str, UpstreamItem] = {}
        self._by_index: dict[int, UpstreamItem] = {}

    def add(self, kind: ItemKind, type: str, id: str | None, index: int | None) -> UpstreamItem:
        """Add a new item. Without an index it gets the next one."""
        item = UpstreamItem(len(self.items), kind, type, id)
        self.items.append(item)
        self._by_index[index if index is not None else item.key] = item
        if id is not None:
            self._by_id[id] = item
        return item

    def find_announced(self, kind: ItemKind, id: str | None, index: int | None) -> UpstreamItem | None:
        """Return the item of an announcement that is late or repeated. None if the item is new."""
        item = self._by_id.get(id or "")
        if item is None and index is not None:
            item = self._by_index.get(index)
            if item is not None and item.announced_by_server:
                item = None  # this server gives every item the same index
        return item if item is not None and item.kind == kind and not item.finished_by_server else None

    def find_for_delta(self, kind: ItemKind, id: str | None, index: int | None) -> UpstreamItem | None:
        """Return the item that a delta belongs to, finished or not. None if it was never announced."""
        item = self._by_id.get(id or "")
        if item is not None and item.kind == kind:
            item.has_confirmed_id = True
            return item
        if index is not None:
            item = self._by_index.get(index)
            if item is None or item.kind != kind or item.finished_by_server:
                return self._only_open_item(kind, id) if item is not None and item.kind != kind else None
        else:
            item = self._only_open_item(kind, id)
        if item is not None and id is not None:
            self._add_id(item, id)
        return item

    def find_of_any_kind(self, id: str | None, index: int | None) -> UpstreamItem | None:
        """Return the item that an event of unknown type refers to."""
        return self._by_id.get(id or "") or (self._by_index.get(index) if index is not None else None)

    def find_for_final_form(self, final: FinalForm) -> UpstreamItem | None:
        """Return the item that this final form belongs to. None if the item is new."""
        item = self._by_id.get(final.id or "")
        if item is not None and final.fits_item(item):
            return item
        item_at_index = self._by_index.get(final.output_index) if final.output_index is not None else None
        if (
            item_at_index is not None
            and final.fits_item(item_at_index)
            and (not item_at_index.finished_by_server or (final.id is None and final.agrees_with(item_at_index)))
        ):
            return item_at_index
        open_items = [item for item in self.items if final.fits_item(item) and not item.finished_by_server]
        agreeing_item = next((item for item in open_items if final.agrees_with(item)), None)
        if agreeing_item is None and open_items and (final.id is None or open_items[-1].id is None):
            agreeing_item = open_items[-1]
        return agreeing_item

    def match_final_forms(self, finals: list[FinalForm]) -> list[UpstreamItem | None]:
        """Return the item for each entry of the terminal event, None for a new one. Matches by id take precedence."""
        matched: list[UpstreamItem | None] = []
        for final in finals:
            item = self._by_id.get(final.id or "")
            is_match = item is not None and final.fits_item(item) and item not in matched
            matched.append(item if is_match else None)
        for index, final in enumerate(finals):
            if matched[index] is None:
                unmatched_items = [item for item in self.items if final.fits_item(item) and item not in matched]
                agreeing_item = next((item for item in unmatched_items if final.agrees_with(item)), None)
                # Contradicting content at the same index: one item and a loss is better than two items.
                matched[index] = agreeing_item or next(
                    (item for item in unmatched_items if item is self._by_index.get(index)), None
                )
        return matched

    def _only_open_item(self, kind: ItemKind, id: str | None) -> UpstreamItem | None:
        """Return the open item of this kind that an unknown id can refer to."""
        item = next((item for item in reversed(self.items) if item.kind == kind and not item.finished_by_server), None)
        if item is None or id is None or item.id is None or item.has_changing_id or not item.has_confirmed_id:
            return item
        return None

    def _add_id(self, item: UpstreamItem, id: str) -> None:
        item.has_changing_id = item.id is not None
        item.id = item.id or id
        self._by_id.setdefault(id, item)


def item_kind(item: ServerItem) -> ItemKind | None:
    """Return the kind of an item, by its type or its members. None if it cannot be determined."""
    if item.type:
        return KIND_OF_TYPE.get(item.type, "whole")
    if item.role is not None:
        return "message"
    return "call" if item.name is not None and item.call_id is not None else None


def final_form(kind: ItemKind, server_item: ServerItem, index: int | None) -> FinalForm:
    """Return the final form of an item. An item that must be carried whole may have been announced as another kind."""
    kinds: tuple[ItemKind, ...] = (kind, "whole") if must_be_carried(server_item) else (kind,)
    return FinalForm(kinds, server_item.id, index, lambda item: _agrees_with_streamed(item, server_item))


def must_be_carried(server_item: ServerItem) -> bool:
    """Whether an item has content that cannot be streamed part by part (ITEM-5)."""
    match item_kind(server_item):
        case "message":
            foreign = {part.type for part in decode_parts(server_item.content)} - TEXT_KINDS_IN_MESSAGE.keys()
            return bool(foreign) or server_item.role not in (None, "assistant")
        case "reasoning":
            foreign = {part.type for part in decode_parts(server_item.content)} - TEXT_KINDS_IN_REASONING.keys()
            return bool(
                foreign or {part.type for part in decode_parts(server_item.summary)} - TEXT_KINDS_IN_SUMMARY.keys()
            )
        case _:
            return False


def _agrees_with_streamed(item: UpstreamItem, server_item: ServerItem) -> bool:
    """Whether `server_item` can be the final form of an item that was streamed under another id."""
    match item.kind:
        case "message":
            return _continues_streamed_parts(item, decode_parts(server_item.content), "text", "refusal")
        case "reasoning":
            content, summary = decode_parts(server_item.content), decode_parts(server_item.summary)
            return _continues_streamed_parts(item, content, "reasoning") and _continues_streamed_parts(
                item, summary, "summary"
            )
        case "call" | "custom":
            if item.call_id and server_item.call_id:
                return item.call_id == server_item.call_id
            whole = text_or_json(server_item.arguments if item.kind == "call" else server_item.input) or ""
            return item.name in (None, server_item.name) and whole.startswith(item.pieces.join())
        case "whole":
            return item.type == server_item.type
        case _ as never:
            assert_never(never)


def _continues_streamed_parts(item: UpstreamItem, server_parts: list[ServerPart], *text_kinds: TextKind) -> bool:
    streamed_texts = [part.text for part in item.parts_of_kind(*text_kinds)]
    final_texts = [part.text or part.refusal or "" for part in server_parts]
    return len(streamed_texts) <= len(final_texts) and all(
        final_text.startswith(streamed_text)
        for final_text, streamed_text in zip(final_texts, streamed_texts, strict=False)
    )


KIND_OF_TYPE: Final[dict[str, ItemKind]] = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "call",
    "custom_tool_call": "custom",
}
# Some servers omit the type, or use a related one.
TEXT_KINDS_IN_MESSAGE: Final[dict[str | None, TextKind]] = {
    None: "text",
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
}
TEXT_KINDS_IN_REASONING: Final[dict[str | None, TextKind]] = {
    None: "reasoning",
    "reasoning_text": "reasoning",
    "text": "reasoning",
    "output_text": "reasoning",
}
TEXT_KINDS_IN_SUMMARY: Final[dict[str | None, TextKind]] = {
    None: "summary",
    "summary_text": "summary",
    "text": "summary",
}
