"""What a server says, made into what a good server would have said: `ResponseNormalizer` drives the hub's writer.

Items are announced once they can be, in the server's order; what `done` events and the terminal event hold beyond the deltas
becomes a last delta if it goes on where they ended. If it contradicts them the deltas count, since a client has them already, and
the contradiction is a loss. How events are spelled and framed is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, assert_never, cast

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.common.freeform_tools import FreeformInput
from antiphon.dialects.common.tool_names import ToolNames, ToolRef
from antiphon.dialects.responses.errors import decode_error, error_in_answer
from antiphon.dialects.responses.server_shapes import (
    ABSENT_JSON,
    ServerItem,
    ServerLogProb,
    ServerPart,
    ServerResponse,
    annotation_to_hub,
    decode_parts,
    decode_struct,
    decode_value,
    item_to_hub,
    logprobs_to_hub,
    text_or_json,
    usage_to_hub,
)
from antiphon.dialects.responses.upstream_items import (
    FinalForm,
    ItemKind,
    ItemTracker,
    TextKind,
    UpstreamItem,
    UpstreamPart,
    item_kind,
)
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.base import Shape
from antiphon.protocol.content import OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.events import ItemAdded, StreamEvent
from antiphon.protocol.grammar_tables import IMMUTABLE_FIELDS
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, Phase, Reasoning
from antiphon.protocol.losses import Losses
from antiphon.protocol.open_items import PartKind, id_of, may_fail, status_of, with_id_and_status
from antiphon.protocol.output_limits import PART_OVERHEAD, UNLIMITED, OutputLimitExceeded
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, Usage
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ItemStatus, ResponseStatus
from antiphon.protocol.writer import ResponseWriter


class ResponseNormalizer:
    """One answer, told by a server in any state of repair, on its way into the hub."""

    def __init__(self, request: Request, opening: Response, stamps: Stamps, wire: ResponsesWire) -> None:
        self.losses = Losses()
        self.error: ApiError | None = None  # what the response failed with
        self.events: list[StreamEvent] = []
        self.tracker = ItemTracker()
        self.writer = ResponseWriter(opening, self.events.append, stamps)
        self._new_id = stamps.new_id
        self._wire = wire
        self._limit = request.max_output_tokens or None
        self._names = ToolNames.for_request(request) if wire.extension_tools == "flatten" else None
        self._waiting: list[UpstreamItem] = []
        self._unsettled: list[UpstreamItem] = []

    # Beginning

    def on_created(self, response: ServerResponse) -> None:
        """STR-1: once, however often the server says so."""
        if response.service_tier:
            self.writer.update(service_tier=response.service_tier)
        if response.status == ResponseStatus.QUEUED:
            self.on_queued()
        elif not self.writer.has_started or self.writer.response.status == ResponseStatus.QUEUED:
            self.writer.start()

    def on_queued(self) -> None:
        if not self.writer.has_started:
            self.writer.queue()

    # Items

    def on_item_added(self, raw: Raw, index: int | None) -> None:
        """The server announces an item; we do, if nothing was said of it before and its name is whole."""
        told = decode_struct(raw, ServerItem)
        kind = "whole" if _must_be_carried(told) else item_kind(told)
        if kind is None:
            self.losses.add("output", "an item without a type", "nothing can be made of it")
            return
        item = self.tracker.find_announced(kind, told.id, index) or self._new(kind, told, index)
        item.announced_by_server = True
        self._learn(item, told)
        if kind == "whole" and not item.announced_to_client and not item.pending_actions:
            item.pending_actions.append((self._add, (raw,)))
        if kind == "reasoning" and told.encrypted_content:
            self.run_when_announced(item, self._encrypted, told.encrypted_content)
        self._release()

    def on_item_done(self, raw: Raw, index: int | None) -> None:
        """STR-4: the server gives an item's final form."""
        told = decode_struct(raw, ServerItem)
        kind = item_kind(told)
        if kind is None:
            self.losses.add("output", "an item without a type", "nothing can be made of it")
            return
        final = _final_form(kind, told, index)
        item = self.tracker.find_for_final_form(final)
        if item is None:
            item = self._new(final.kinds[-1], told, index)
        elif item.finished_by_server:
            return
        self._end(item, told, raw)

    def item_for_delta(self, kind: ItemKind, id: str | None, index: int | None) -> UpstreamItem | None:
        """The item that a delta belongs to, made up if it was never announced; None if it is over."""
        item = self.tracker.find_for_delta(kind, id, index)
        if item is None:
            item = self.tracker.add(kind, TYPE_OF_KIND[kind], id, index)
            item.has_confirmed_id = id is not None
            self._waiting.append(item)
            self._release()
        elif item.finished_by_server:
            self._lost(item, "", "what came after the item was done", "ITEM-4")
            return None
        return item

    def run_when_announced(self, item: UpstreamItem, act: Callable[..., None], *what: Any) -> None:
        """Does it now, or once the item is announced."""
        if item.announced_to_client:
            act(item, *what)
        else:
            self.writer.count(PART_OVERHEAD + sum(len(each) for each in what if isinstance(each, str | Raw)))
            item.pending_actions.append((act, what))

    def on_call_name(self, item: UpstreamItem, name: str | None) -> None:
        """A call's name that is told late."""
        if name:
            item.name = item.name or name
            self._release()

    # Parts

    def on_part_added(self, item: UpstreamItem, text_kind: TextKind, index: int | None) -> None:
        """STR-3, also where every part is the first for the server."""
        part = item.part_at(text_kind, index) if index is not None else None
        if part is None or part.is_closed:
            part = item.add_part(text_kind, index)
        self._write(item, part, "")

    def on_delta(
        self, item: UpstreamItem, text_kind: TextKind, index: int | None, text: str, logprobs: list[ServerLogProb] | None = None
    ) -> None:
        part = item.part_at(text_kind, index)
        if part.is_closed:
            self._lost(item, _path_of(part), "what came after the part was done", "STR-3")
            return
        self._write(item, part, text, logprobs)

    def on_text_done(self, item: UpstreamItem, text_kind: TextKind, index: int | None, told: ServerPart) -> None:
        """STR-6: the whole text of a part, as `done` events and final forms tell it."""
        self._complete_part(item, item.part_at(text_kind, index), told)

    def on_part_done(self, item: UpstreamItem, text_kind: TextKind, index: int | None, told: ServerPart) -> None:
        part = item.part_at(text_kind, index)
        self._complete_part(item, part, told)
        if not part.is_closed:
            self.writer.end_part(item.key, PART_CLASS_OF_TEXT[text_kind], part.key)
            part.is_closed = True

    def on_annotation(self, item: UpstreamItem, index: int | None, raw: Raw) -> None:
        """A citation (STR-11)."""
        part = item.part_at("text", index)
        if part.is_closed:
            self._lost(item, _path_of(part), "a citation that came after the part was done", "STR-3")
        else:
            self._cite(item, part, raw)

    # Calls

    def on_arguments_delta(self, item: UpstreamItem, delta: str) -> None:
        item.pieces.append(delta)
        if item.freeform_input is not None:
            self.writer.count(len(delta))
            self.writer.custom_input(item.key, item.freeform_input.feed(delta))
        elif item.kind == "custom":
            self.writer.custom_input(item.key, delta)
        else:
            self.writer.arguments(item.key, delta)

    def on_arguments_done(self, item: UpstreamItem, whole: str | None) -> None:
        """STR-9, STR-6: the rest of a call's arguments or input."""
        have = "".join(item.pieces)
        if not whole or whole == have:
            return
        if item.has_final_form or not whole.startswith(have):
            self._lost(item, ".arguments", f"{len(whole)} characters that contradict what was streamed", "STR-6")
        else:
            self.on_arguments_delta(item, whole[len(have) :])

    # Everything else

    def on_unknown_event(self, kind: str, members: dict[str, Any], id: str | None, index: int | None) -> None:
        """ITEM-5: an event of unknown type, under our numbers and our ids."""
        item = self.tracker.find_of_any_kind(id, index)
        if item is None:
            self.writer.unknown_event(kind, members)
        else:
            self.run_when_announced(item, self._carry, kind, members)

    # Ending

    def on_response_ended(self, response: ServerResponse, status: str, error: ApiError | None = None) -> None:
        """The terminal event, or a whole answer that was never streamed; `error` is what was told before."""
        told = decode_error(response.error)
        if error is None and told is not None and status != ResponseStatus.INCOMPLETE:
            error = error_in_answer(told)
        if error is None and status in FAILED:
            error = UpstreamFault(f"the upstream's response is {status}")
        self._list(response.output or [])
        if response.service_tier:
            self.writer.update(service_tier=response.service_tier)
        usage = usage_to_hub(response.usage)
        if error is not None:
            self.fail(error, usage)
        elif status == ResponseStatus.INCOMPLETE or self._is_cut(usage):
            reason = response.incomplete_details.reason if response.incomplete_details else None
            self._settle_all(ItemStatus.INCOMPLETE)
            self.writer.incomplete(reason or "max_output_tokens", usage)
        else:
            self.complete(usage)

    def complete(self, usage: Usage | None = None) -> None:
        self._settle_all(ItemStatus.COMPLETED)
        self.writer.complete(usage)

    def fail(self, error: ApiError, usage: Usage | None = None) -> None:
        self.error = error.without_traceback()
        self._settle_all(ItemStatus.FAILED)
        self.writer.fail(error, usage)

    def cut_off(self, reason: str) -> None:
        """The answer is larger than its bound: it ends as incomplete, without what was held back."""
        with suppress(OutputLimitExceeded):
            self._settle_all(ItemStatus.INCOMPLETE)
        self.writer.limits = UNLIMITED
        self.writer.incomplete(reason)

    @property
    def has_only_finished_items(self) -> bool:
        """Whether there is something, and nothing that the server left unfinished."""
        return bool(self.tracker.items) and all(item.finished_by_server for item in self.tracker.items)

    # Announcing

    def _new(self, kind: ItemKind, told: ServerItem, index: int | None) -> UpstreamItem:
        item = self.tracker.add(kind, told.type or TYPE_OF_KIND[kind], told.id, index)
        self._waiting.append(item)
        return item

    def _learn(self, item: UpstreamItem, told: ServerItem) -> None:
        item.id = item.id or told.id
        item.name = item.name or told.name
        item.call_id = item.call_id or told.call_id
        item.namespace = item.namespace or told.namespace
        item.phase = self._phase(told) or item.phase
        if item.name and told.name and told.name != item.name:
            self._lost(item, ".name", f"the name {told.name!r}: the call was announced as {item.name!r}", "STR-2")

    def _phase(self, told: ServerItem) -> Phase | None:
        match told.phase:
            case "commentary" | "final_answer" | None as phase:
                return phase
            case unknown:
                self.losses.add("output", f"the phase {unknown!r}", "it is neither commentary nor final_answer (ITEM-7)")
                return None

    def _release(self) -> None:
        """Announces items in the server's order, as far as they can be: a call needs its name and call id (TOOL-3)."""
        while self._waiting:
            item = self._waiting[0]
            if item.kind in ("call", "custom") and not (item.name and item.call_id):
                return
            self._announce(self._waiting.pop(0))

    def _release_all(self) -> None:
        """Nothing more will be told: a call without a call id gets one, one without a name cannot be delivered."""
        waiting, self._waiting = self._waiting, []
        for item in waiting:
            if item.kind in ("call", "custom"):
                item.call_id = item.call_id or item.id or self._new_id("call")
                if not item.name:
                    self.losses.add("output", "a call that was never given a name", "nobody could run it (TOOL-3)")
                    continue
            self._announce(item)

    def _announce(self, item: UpstreamItem) -> None:
        if self._wire.cut == "by_usage":
            self._settle(ItemStatus.COMPLETED)  # the one before was not the last, so it was not cut
        if item.kind == "message":
            self.writer.message(item.key, id=item.id, phase=item.phase or UNSET)
        elif item.kind == "reasoning":
            self.writer.reasoning_item(item.key, id=item.id)
        elif item.kind != "whole":
            self._announce_call(item)
        if item.kind != "whole":
            self._note_place(item)
        item.announced_to_client = True
        held, item.pending_actions = item.pending_actions, []
        for act, what in held:
            act(item, *what)

    def _announce_call(self, item: UpstreamItem) -> None:
        called = ToolRef("custom" if item.kind == "custom" else "function", item.name or "", item.namespace)
        if self._names is not None and item.kind == "call":
            called = self._names.original_tool(called.name)
            item.freeform_input = FreeformInput() if called.kind == "custom" else None
        announce = self.writer.custom_call if called.kind == "custom" else self.writer.call
        announce(item.key, name=called.name, namespace=called.namespace, call_id=item.call_id or "", id=item.id)

    def _note_place(self, item: UpstreamItem) -> None:
        """Where the item that was just announced stands in our own output."""
        added = self.events[-1]
        assert isinstance(added, ItemAdded)
        assert added.item is not None
        item.hub_id, item.hub_index = id_of(added.item) or "", added.output_index

    def _add(self, item: UpstreamItem, raw: Raw) -> None:
        item.announced_form = self._whole(item, raw)
        self.writer.add_item(item.key, item.announced_form)
        self._note_place(item)

    def _whole(self, item: UpstreamItem, raw: Raw) -> Item:
        whole = item_to_hub(raw, item.type, item.hub_id or item.id or self._new_id("item"))
        if isinstance(whole, Reasoning) and whole.encrypted_content:
            return replace(whole, encrypted_content=self._sealed(item, whole.encrypted_content))
        return whole

    # Text

    def _write(self, item: UpstreamItem, part: UpstreamPart, text: str, logprobs: list[ServerLogProb] | None = None) -> None:
        part.pieces.append(text)
        key = item.key
        match part.kind:
            case "text":
                part.has_logprobs = part.has_logprobs or bool(logprobs)
                self.writer.text(key, text, part=part.key, logprobs=logprobs_to_hub(logprobs) or None)
            case "refusal":
                self.writer.refusal(key, text, part=part.key)
            case "reasoning":
                self.writer.reasoning(key, text, part=part.key)
            case "summary":
                self.writer.summary(key, text, part=part.key)
            case _ as never:
                assert_never(never)

    def _complete_part(self, item: UpstreamItem, part: UpstreamPart, told: ServerPart) -> None:
        whole = (told.refusal if part.kind == "refusal" else told.text) or ""
        have = part.text
        over = part.is_closed or item.has_final_form
        more = whole[len(have) :] if whole.startswith(have) else ""
        if whole and whole != have and (over or not more):
            self._lost(item, _path_of(part), f"{len(whole)} characters that contradict what was streamed", "STR-6")
            more = ""
        if over:
            return
        logprobs = told.logprobs if not part.has_logprobs else None
        if more or logprobs or not have:
            self._write(item, part, more, logprobs)
        if part.kind == "text":
            for raw in (told.annotations or [])[part.annotation_count :]:
                self._cite(item, part, raw)

    def _cite(self, item: UpstreamItem, part: UpstreamPart, raw: Raw) -> None:
        annotation = annotation_to_hub(raw)
        if annotation is not None:
            part.annotation_count += 1
            self.writer.annotation(item.key, annotation, part=part.key)

    # The ends of items

    def _end(self, item: UpstreamItem, told: ServerItem, raw: Raw) -> None:
        self._learn(item, told)
        item.finished_by_server = True
        if item.kind in ("call", "custom") and item.name:
            item.call_id = item.call_id or item.id or self._new_id("call")
        self.run_when_announced(item, self._finish, told, raw)
        self._release()

    def _finish(self, item: UpstreamItem, told: ServerItem, raw: Raw) -> None:
        """What the final form holds beyond what was streamed, and the item's end."""
        if item.kind == "whole":
            if not self.writer.is_open(item.key):
                self._add(item, raw)
            item.final_form = self._whole(item, self._as_announced(item, raw))
        else:
            self._compare(item, told)
            self._end_input(item)
            self._keep(item, raw)
        item.has_final_form = True
        if told.status == ItemStatus.INCOMPLETE or self._wire.cut == "by_usage":
            self._unsettled.append(item)  # ITEM-3: how the response ends decides whether it is incomplete
        else:
            self._close(item, ItemStatus.COMPLETED)

    def _as_announced(self, item: UpstreamItem, raw: Raw) -> Raw:
        """STR-4: what names an item that is carried whole is what it was announced with."""
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        names = {
            name: Raw(msgspec.json.encode(told)) for name in IMMUTABLE_FIELDS if (told := getattr(item.announced_form, name, None))
        }
        changed = {name: told for name, told in names.items() if decode_value(members.get(name, ABSENT_JSON)) != decode_value(told)}
        for name, told in changed.items():
            came = decode_value(members.get(name, ABSENT_JSON))
            self._lost(item, f".{name}", f"{came!r}: it was announced as {decode_value(told)!r}", "STR-4")
        return Raw(msgspec.json.encode(members | changed)) if changed else raw

    def _keep(self, item: UpstreamItem, raw: Raw) -> None:
        """What the final form tells besides its contents (ITEM-5, ITEM-7)."""
        if item.kind == "message" and item.phase:
            self.writer.set_phase(item.key, item.phase)
        known = MEMBERS_OF_KIND[item.kind]
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        unknown = {name: member for name, member in members.items() if name not in known}
        if unknown:
            self.writer.set_extra_fields(item.key, unknown)
        for where in ("content", "summary"):
            self._lose_unknown_fields(item, where, members.get(where, Raw(b"null")))

    def _lose_unknown_fields(self, item: UpstreamItem, where: str, raw: Raw) -> None:
        """A part that is written piece by piece has no place for fields that nobody knows."""
        try:
            parts = msgspec.json.decode(raw, type=list[dict[str, Raw]])
        except msgspec.ValidationError:
            return  # a string, or nothing
        for at, part in enumerate(parts):
            for name in part.keys() - FIELDS_OF_PART:
                self._lost(item, f".{where}[{at}].{name}", "is left out", "a part that is streamed has no place for it")

    def _end_input(self, item: UpstreamItem) -> None:
        """The end of a custom tool's one string."""
        if item.freeform_input is not None and not item.has_final_form:
            self.writer.custom_input(item.key, item.freeform_input.finish())
            if item.freeform_input.left_over:
                self._lost(
                    item, ".input", f"{item.freeform_input.left_over!r} besides the one string", "a custom tool takes one text"
                )

    def _compare(self, item: UpstreamItem, told: ServerItem) -> None:
        """STR-6: the final form against what was streamed."""
        if item.kind == "message":
            self._compare_parts(item, decode_parts(told.content), TEXT_KINDS_IN_MESSAGE)
        elif item.kind == "reasoning":
            self._compare_parts(item, decode_parts(told.summary), TEXT_KINDS_IN_SUMMARY)
            self._compare_parts(item, decode_parts(told.content), TEXT_KINDS_IN_REASONING)
            if told.encrypted_content:
                self._encrypted(item, told.encrypted_content)
        elif item.kind == "call":
            self.on_arguments_done(item, text_or_json(told.arguments))
        else:
            self.on_arguments_done(item, text_or_json(told.input))

    def _compare_parts(self, item: UpstreamItem, told: list[ServerPart], text_kinds: dict[str | None, TextKind]) -> None:
        counts: dict[TextKind, int] = {}
        for index, part in enumerate(told):
            text_kind = text_kinds.get(part.type)
            if text_kind is None:
                self._lost(item, f".content[{index}]", f"a part of type {part.type!r}", "an item of this type cannot hold it")
                continue
            nth = counts.get(text_kind, 0)
            counts[text_kind] = nth + 1
            self._complete_part(item, item.part_for_final_form(text_kind, index, nth), part)

    def _encrypted(self, item: UpstreamItem, content: str) -> None:
        """The sealed form of reasoning (RSN-1)."""
        if not item.has_final_form:
            item.encrypted_content = content
            self.writer.encrypted_content(item.key, self._sealed(item, content))
        elif content != item.encrypted_content:
            self._lost(item, ".encrypted_content", "what came after the item was done", "ITEM-4")

    def _sealed(self, item: UpstreamItem, content: str) -> str:
        """RSN-2: it goes back to its maker under the id it was made for, which is sealed into it."""
        return seal_reasoning(self._wire.maker, {"encrypted_content": content} | ({"id": item.id} if item.id else {}))

    def _settle(self, status: ItemStatus) -> None:
        """Closes items whose end was left open; where the response does not end well, the writer closes them (ITEM-3)."""
        unsettled, self._unsettled = self._unsettled, []
        for item in unsettled:
            self._close(item, status)

    def _close(self, item: UpstreamItem, status: ItemStatus) -> None:
        if item.final_form is not None:
            self._close_whole(item, item.final_form, status)
        elif status is ItemStatus.COMPLETED:
            self.writer.close(item.key)

    def _close_whole(self, item: UpstreamItem, final: Item, status: ItemStatus) -> None:
        """An item that is carried whole keeps the end it names, as far as it can have it."""
        told = status_of(final)
        last = item.hub_index == self.writer.item_count - 1
        fits = status is ItemStatus.FAILED or (status is ItemStatus.INCOMPLETE and last)
        if (told == ItemStatus.INCOMPLETE and not fits) or (told == ItemStatus.FAILED and not may_fail(final)):
            self._lost(item, ".status", f"the status {told!r}", "the response goes on after such an item (ITEM-2, ITEM-3)")
            told = ItemStatus.COMPLETED
        self.writer.finish_item(item.key, with_id_and_status(final, item.hub_id, told))

    def _settle_all(self, status: ItemStatus) -> None:
        self._release_all()
        for item in self.tracker.items:
            self._end_input(item)
        self._settle(status)

    def _list(self, output: list[Raw]) -> None:
        """The items of the terminal event: those that were never streamed, and what others have beyond what was."""
        told = [
            (raw, item, kind)
            for raw in output
            for item in (decode_struct(raw, ServerItem),)
            if (kind := item_kind(item)) is not None
        ]
        if len(told) < len(output):
            self.losses.add("output", "an item without a type", "nothing can be made of it")
        finals = [_final_form(kind, item, index) for index, (_, item, kind) in enumerate(told)]
        for (raw, last, _), final, known in zip(told, finals, self.tracker.match_final_forms(finals), strict=True):
            if known is None or not known.finished_by_server:
                self._end(known or self._new(final.kinds[-1], last, None), last, raw)
            elif known.kind != "whole":
                self.run_when_announced(known, self._compare, last)

    def _is_cut(self, usage: Usage | None) -> bool:
        """REQ-3, for servers that call an answer complete though they cut it."""
        told = self._wire.cut == "told" or self._limit is None or usage is None
        return not told and usage is not None and usage.output_tokens >= (self._limit or 0)

    def _carry(self, item: UpstreamItem, kind: str, members: dict[str, Any]) -> None:
        self.writer.unknown_event(kind, {**members, "item_id": item.hub_id, "output_index": item.hub_index})

    def _lost(self, item: UpstreamItem, where: str, what: str, why: str) -> None:
        path = f"output[{item.hub_index}]" if item.hub_index >= 0 else "output"
        self.losses.add(path + where, what, why)


def _final_form(kind: ItemKind, told: ServerItem, index: int | None) -> FinalForm:
    kinds: tuple[ItemKind, ...] = (kind, "whole") if _must_be_carried(told) else (kind,)
    return FinalForm(kinds, told.id, index, lambda item: _agrees(item, told))


def _must_be_carried(told: ServerItem) -> bool:
    """Whether an item that comes whole holds what cannot be written piece by piece (ITEM-5)."""
    match item_kind(told):
        case "message":
            foreign = {part.type for part in decode_parts(told.content)} - TEXT_KINDS_IN_MESSAGE.keys()
            return bool(foreign) or told.role not in (None, "assistant")
        case "reasoning":
            foreign = {part.type for part in decode_parts(told.content)} - TEXT_KINDS_IN_REASONING.keys()
            return bool(foreign or {part.type for part in decode_parts(told.summary)} - TEXT_KINDS_IN_SUMMARY.keys())
        case _:
            return False


def _agrees(item: UpstreamItem, told: ServerItem) -> bool:
    """Whether this can be the final form of an item that was streamed under another id."""
    match item.kind:
        case "message":
            return _goes_on(item, decode_parts(told.content), "text", "refusal")
        case "reasoning":
            content, summary = decode_parts(told.content), decode_parts(told.summary)
            return _goes_on(item, content, "reasoning") and _goes_on(item, summary, "summary")
        case "call" | "custom":
            if item.call_id and told.call_id:
                return item.call_id == told.call_id
            whole = text_or_json(told.arguments if item.kind == "call" else told.input) or ""
            return item.name in (None, told.name) and whole.startswith("".join(item.pieces))
        case "whole":
            return item.type == told.type
        case _ as never:
            assert_never(never)


def _goes_on(item: UpstreamItem, told: list[ServerPart], *text_kinds: TextKind) -> bool:
    have = [part.text for part in item.parts_of_kind(*text_kinds)]
    whole = [part.text or part.refusal or "" for part in told]
    return len(have) <= len(whole) and all(now.startswith(before) for now, before in zip(whole, have, strict=False))


def _path_of(part: UpstreamPart) -> str:
    return f".{'summary' if part.kind == 'summary' else 'content'}[{part.index}]"


TYPE_OF_KIND: Final[dict[ItemKind, str]] = {
    "message": "message",
    "reasoning": "reasoning",
    "call": "function_call",
    "custom": "custom_tool_call",
    "whole": "message",  # of all that has no type, only what has a role can be carried
}
MEMBERS_OF_KIND: Final[dict[ItemKind, frozenset[str]]] = {
    kind: frozenset({"type", *shape.__struct_encode_fields__})
    for kind, shape in cast(
        dict[ItemKind, type[Shape]],
        {"message": Message, "reasoning": Reasoning, "call": FunctionCall, "custom": CustomToolCall},
    ).items()
}
FIELDS_OF_PART: Final = frozenset({"type", "text", "refusal", "annotations", "logprobs"})
PART_CLASS_OF_TEXT: Final[dict[TextKind, PartKind]] = {
    "text": OutputText,
    "refusal": Refusal,
    "reasoning": ReasoningText,
    "summary": SummaryText,
}
# Poor servers leave the type out, or use that of a neighbour.
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
TEXT_KINDS_IN_SUMMARY: Final[dict[str | None, TextKind]] = {None: "summary", "summary_text": "summary", "text": "summary"}
FAILED: Final = frozenset({ResponseStatus.FAILED.value, ResponseStatus.CANCELLED.value})
