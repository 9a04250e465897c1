"""What a turn stands on: the responses it continues or the conversation it is in, the items it refers to, the calls that its tool
outputs answer, and the reasoning that led to them.

The upstream remembers nothing, so a continued conversation is sent to it whole: what each earlier response was asked and what it
said, the oldest first, then what is new (PREV-1). Settings of earlier turns do not come along (PREV-2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.errors import ClientFault, OrphanToolOutput, UnsupportedParameter
from antiphon.gateway.compaction import Unsealing, opened
from antiphon.gateway.conversation import array_of, conversation_of
from antiphon.gateway.naming import group_of, id_of
from antiphon.gateway.recall import Recall, Recalled, items_in
from antiphon.gateway.restoring import missing_in, restored
from antiphon.protocol.content import ToolUse
from antiphon.protocol.items import (
    CompactionParam,
    CompactionTrigger,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    ItemReference,
    MessageParam,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.status import ItemStatus
from antiphon.store.interface import Store, Turn

Call = FunctionCallParam | CustomToolCallParam
Output = FunctionCallOutputParam | CustomToolCallOutputParam
Past = list[bytes]  # arrays of items, the oldest first; more than one may stand in a piece, with commas between them
Remembered = Callable[[str], Past | None]


class Ground(Struct, frozen=True, kw_only=True):
    """A request with all that it stands on."""

    request: Request  # its input is the whole conversation
    own: list[ItemParam]  # the part of it that is new
    past: Past  # the part that is not
    raw: list[ItemParam]  # the whole conversation with its compactions sealed
    losses: Losses
    recalled: Recalled | None = None  # what is known of the request, if it stands on what is remembered


class Archive(Struct, frozen=True, kw_only=True):
    """Where earlier turns are looked up: what a connection remembers, then what the store has of this owner. With `recall` a
    conversation that was read before is not read again."""

    owner: str
    store: Store | None
    remembered: Remembered | None = None
    recall: Recall | None = None

    async def chain(self, id: str) -> Past:
        """PREV-3: one answer for an id that never was, one that is gone, and one that is somebody else's."""
        remembered = self.remembered(id) if self.remembered is not None else None
        if remembered is not None:
            return remembered
        kept = await self.store.chain(self.owner, id) if self.store is not None else None
        if kept is None:
            raise ClientFault(
                f"no response with the id {id[:100]!r} is kept here",
                code="previous_response_not_found",
                param="previous_response_id",
            )
        if kept.endswith(NOTHING_SAID):
            await self._refuse_unended(id)
        return [kept]

    async def _refuse_unended(self, id: str) -> None:
        """API-2: what is still made in the background has nothing to go on from; nobody else says nothing at all for long."""
        record = await self.store.get(self.owner, id) if self.store is not None else None
        if record is not None and record.status in UNDER_WAY:
            raise ClientFault(
                f"previous_response_id: the response {id[:100]!r} is {record.status}: wait until it has ended, then continue it",
                param="previous_response_id",
            )

    async def conversation(self, id: str) -> Past:
        """API-4: the items of a conversation; one answer for all that are not there, as for responses."""
        if self.store is None:
            said = "conversation: this gateway keeps no conversations: see [store] in its configuration"
            raise UnsupportedParameter(said, param="conversation")
        page = await self.store.list_entries(self.owner, id, after=None, order="asc", limit=None)
        if page is None:
            raise no_conversation(id, "conversation")
        return [array_of(page.entries)]

    async def item(self, id: str) -> ItemParam | None:
        if self.store is None:
            return None
        turn = await self.store.with_item(self.owner, id) or await self.store.with_item(self.owner, group_of(id))
        return next((item for item in items_of(past_of(turn)) if id_of(item) == id), None) if turn is not None else None

    async def call(self, call_id: str) -> Call | None:
        """D-3: the call of this id, if there is exactly one: some servers count their calls from 0 in every answer."""
        turns = await self.store.with_call(self.owner, call_id) if self.store is not None else []
        past = [array for turn in turns for array in past_of(turn)]
        calls = [item for item in items_of(past) if isinstance(item, CALLS) and item.call_id == call_id]
        return calls[0] if len(calls) == 1 else None

    async def with_reasoning(self, items: list[ItemParam], maker: str) -> list[ItemParam]:
        """RSN-2: a history with the reasoning of this maker that its client left out, as far as it was kept."""
        missing = missing_in(items)
        if self.store is None or not any(missing):
            return items
        outputs = await self.store.outputs_with(self.owner, *missing)
        return restored(items, [items_of([output]) for output in outputs], maker)


def stands_alone(request: Request, recalled: Recalled | None = None) -> bool:
    """Whether a request has everything it needs in itself, which is quick to see for most. Of one that was recalled, only what is
    new is looked at."""
    if request.previous_response_id or request.conversation:
        return False
    items = request.input
    if type(items) is not list:
        return True
    if recalled is None or recalled.request is not request:
        return _calls_made(NO_CALLS, items) is not None
    return recalled.work_out(_calls_made, NO_CALLS, _calls_made) is not None


def _calls_made(before: frozenset[str], items: list[ItemParam]) -> frozenset[str] | None:
    """The calls of a conversation that goes on with these items; None if one of them leans on what is not there."""
    made: set[str] = set()
    for item in items:
        kind = type(item)  # `isinstance` costs ten times as much, and this is asked of every item of every request
        if kind in CALL_KINDS:
            made.add(item.call_id)  # type: ignore[union-attr, arg-type]
        elif kind in LEANING:
            call_id = getattr(item, "call_id", None)
            if call_id not in made and call_id not in before:
                return None
    return before | made if made else before


def lacks_reasoning(request: Request) -> bool:
    """Whether there is a call or a thought in the history whose sealed reasoning may be somewhere else."""
    return type(request.input) is list and any(missing_in(request.input))


async def ground(
    request: Request,
    archive: Archive,
    *,
    allow_orphans: bool = False,
    unsealing: Unsealing | None = None,
    maker: str | None = None,
) -> Ground:
    """Looks up all that a request stands on, and says what of it cannot be found. Compactions are opened if it is told how, and
    reasoning is put back if it is told whose."""
    losses = Losses()
    own = input_items(request)
    previous, conversation = request.previous_response_id, conversation_of(request)
    if conversation is not None:
        past, continued = await archive.conversation(conversation), "conversation"
    else:
        past, continued = await archive.chain(previous) if previous else [], "previous_response_id"
    kept = archive.recall.read_kept(archive.owner, past[0]) if archive.recall is not None and previous and len(past) == 1 else None
    items = items_of(past) if kept is None else kept.whole.items
    before = _without_unfinished_calls(items, losses, continued)
    own = await resolved(own, before, archive)
    if conversation is not None:
        own = _new_to(before, own)
    raw = before + own
    window = _opened(raw, len(before), unsealing, continued)
    whole = await _with_their_calls(
        own, window, archive, can_look_further=not (previous or conversation), allow_orphans=allow_orphans
    )
    if maker is not None:
        whole = await archive.with_reasoning(whole, maker)
    if whole is not own:
        own, raw = whole, before + whole
        window = _opened(raw, len(before), unsealing, continued)
    request = replace(request, input=window)
    recalled = kept.by(request) if kept is not None and before is items and window is raw else None
    return Ground(request=request, own=own, past=past, raw=raw, losses=losses, recalled=recalled)


def past_of(turn: Turn) -> Past:
    """What one turn leaves behind."""
    return [turn.input, turn.output]


def items_of(past: Past) -> list[ItemParam]:
    """The conversation so far."""
    return items_in(b",".join(past))


async def resolved(own: list[ItemParam], before: list[ItemParam], archive: Archive, at: str = "input") -> list[ItemParam]:
    """ITEM-6: items instead of references to them. `at` is where they stand in the body."""
    if not any(type(item) is ItemReference for item in own):
        return own
    known = {id: item for item in before if (id := id_of(item)) is not None}
    found: list[ItemParam] = []
    for number, item in enumerate(own):
        if isinstance(item, ItemReference):
            referred = known.get(item.id) or await archive.item(item.id)
            if referred is None:
                path = f"{at}[{number}].id"
                raise ClientFault(f"{path}: no item with the id {item.id[:100]!r} is kept here", param=path)
            found.append(referred)
        else:
            found.append(item)
    return found


def no_conversation(id: str, param: str) -> ClientFault:
    """The same for one that never was, one that is gone, and one that is somebody else's."""
    return ClientFault(f"no conversation with the id {id[:100]!r} is kept here", type="not_found", code="not_found", param=param)


def _new_to(before: list[ItemParam], own: list[ItemParam]) -> list[ItemParam]:
    """What is in the conversation already is there once: many clients send everything that they know of, again and again."""
    known = {id for item in before if (id := id_of(item)) is not None}
    return [item for item in own if id_of(item) not in known]


def _without_unfinished_calls(items: list[ItemParam], losses: Losses, continued: str) -> list[ItemParam]:
    """A call that was cut off in the middle was never made: nobody can answer it, and no server takes half its arguments."""
    if set(map(type, items)).isdisjoint(CALLS):
        return items
    kept: list[ItemParam] = []
    for item in items:
        if isinstance(item, CALLS) and item.status == ItemStatus.INCOMPLETE:
            losses.add(continued, f"the call {item.call_id} of an earlier response", "it was cut off in the middle")
        else:
            kept.append(item)
    return kept


def _opened(raw: list[ItemParam], before: int, unsealing: Unsealing | None, continued: str) -> list[ItemParam]:
    """The conversation with what its compactions stand for; the first `before` items are not the request's own."""
    if unsealing is None or set(map(type, raw)).isdisjoint(SEALED):
        return raw

    def path_of(place: int) -> str:
        return continued if place < before else f"input[{place - before}].encrypted_content"

    return opened(raw, unsealing, path_of)


async def _with_their_calls(
    own: list[ItemParam], before: list[ItemParam], archive: Archive, *, can_look_further: bool, allow_orphans: bool
) -> list[ItemParam]:
    """D-3: outputs whose calls the client left out get them back, before the first output of their group. In a chain the calls must
    be in the chain; without one they may be anywhere in the owner's store."""
    if set(map(type, own)).isdisjoint(OUTPUTS):
        return own
    made = {call_id for item in (*before, *own) for call_id in _made_in(item)}
    if all(item.call_id in made for item in own if isinstance(item, OUTPUTS)):
        return own
    placed: list[ItemParam] = []
    group = 0  # where the outputs begin that stand together
    for at, item in enumerate(own):
        if not isinstance(item, OUTPUTS):
            placed.append(item)
            group = len(placed)
            continue
        if item.call_id not in made:
            call = await archive.call(item.call_id) if can_look_further else None
            if call is not None:
                made.add(item.call_id)
                placed.insert(group, call)
                group += 1
            elif not allow_orphans:
                raise OrphanToolOutput(
                    f"input[{at}].call_id: there is no call with the id {item.call_id!r} that this output could answer",
                    param=f"input[{at}].call_id",
                )
        placed.append(item)
    return placed


def _made_in(item: ItemParam) -> list[str]:
    """The ids of the calls that an item makes."""
    if isinstance(item, CALLS):
        return [item.call_id]
    if type(item) is MessageParam and type(item.content) is list:
        return [part.id for part in item.content if isinstance(part, ToolUse)]
    return []


NOTHING_SAID: Final = b",[]"  # how the last turn of a chain ends
UNDER_WAY: Final = ("queued", "in_progress")
CALLS: Final = (FunctionCallParam, CustomToolCallParam)
OUTPUTS: Final = (FunctionCallOutputParam, CustomToolCallOutputParam)
NO_CALLS: Final[frozenset[str]] = frozenset()
CALL_KINDS: Final[frozenset[type]] = frozenset(CALLS)
SEALED: Final = (CompactionParam, CompactionTrigger)
LEANING: Final[frozenset[type]] = frozenset({ItemReference, *SEALED, *OUTPUTS})
