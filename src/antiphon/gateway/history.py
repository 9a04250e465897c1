"""What a turn stands on: the responses it continues, the items it refers to, and the calls that its tool outputs answer.

The upstream remembers nothing, so a continued conversation is sent to it whole: what each earlier response was asked and what it
said, the oldest first, then what is new (PREV-1). Settings of earlier turns do not come along (PREV-2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.errors import ClientFault, OrphanToolOutput
from antiphon.gateway.keeping import id_of
from antiphon.protocol import codec
from antiphon.protocol.content import ToolUse
from antiphon.protocol.items import (
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
Remembered = Callable[[str], list[Turn] | None]


class Ground(Struct, frozen=True, kw_only=True):
    """A request with all that it stands on."""

    request: Request  # its input is the whole conversation
    own: list[ItemParam]  # the part of it that is new
    turns: list[Turn]  # the part that is not
    losses: Losses


class Archive(Struct, frozen=True, kw_only=True):
    """Where earlier turns are looked up: what a connection remembers, then what the store has of this owner."""

    owner: str
    store: Store | None
    remembered: Remembered | None = None

    async def chain(self, id: str) -> list[Turn]:
        """PREV-3: one answer for an id that never was, one that is gone, and one that is somebody else's."""
        turns = self.remembered(id) if self.remembered is not None else None
        if turns is None and self.store is not None:
            turns = await self.store.chain(self.owner, id)
        if turns is None:
            raise ClientFault(
                f"no response with the id {id[:100]!r} is kept here",
                code="previous_response_not_found",
                param="previous_response_id",
            )
        return turns

    async def item(self, id: str) -> ItemParam | None:
        turn = await self.store.with_item(self.owner, id) if self.store is not None else None
        return next((item for item in items_of([turn]) if id_of(item) == id), None) if turn is not None else None

    async def call(self, call_id: str) -> Call | None:
        """D-3: the call of this id, if there is exactly one: some servers count their calls from 0 in every answer."""
        turns = await self.store.with_call(self.owner, call_id) if self.store is not None else []
        calls = [item for item in items_of(turns) if isinstance(item, CALLS) and item.call_id == call_id]
        return calls[0] if len(calls) == 1 else None


def stands_alone(request: Request) -> bool:
    """Whether a request has everything it needs in itself, which is quick to see for most."""
    if request.previous_response_id:
        return False
    items = request.input
    if type(items) is not list:
        return True
    made: set[str] = set()
    for item in items:
        kind = type(item)  # `isinstance` costs ten times as much, and this is asked of every item of every request
        if kind in CALL_KINDS:
            made.add(item.call_id)  # type: ignore[union-attr, arg-type]
        elif kind in LEANING and getattr(item, "call_id", None) not in made:
            return False
    return True


async def ground(request: Request, archive: Archive, *, allow_orphans: bool = False) -> Ground:
    """Looks up all that a request stands on, and says what of it cannot be found."""
    losses = Losses()
    own = input_items(request)
    previous = request.previous_response_id
    turns = await archive.chain(previous) if previous else []
    before = _without_unfinished_calls(items_of(turns), losses)
    own = await _resolved(own, before, archive)
    own = await _with_their_calls(own, before, archive, can_look_further=not previous, allow_orphans=allow_orphans)
    return Ground(request=replace(request, input=before + own), own=own, turns=turns, losses=losses)


def items_of(turns: Iterable[Turn]) -> list[ItemParam]:
    """The conversation of a chain, read in one go."""
    arrays = [array[1:-1] for turn in turns for array in (turn.input, turn.output) if len(array) > 2]
    items: list[ItemParam] = codec.decode_as(b"[" + b",".join(arrays) + b"]", list[ItemParam]) if arrays else []
    return items


def _without_unfinished_calls(items: list[ItemParam], losses: Losses) -> list[ItemParam]:
    """A call that was cut off in the middle was never made: nobody can answer it, and no server takes half its arguments."""
    kept: list[ItemParam] = []
    for item in items:
        if isinstance(item, CALLS) and item.status == ItemStatus.INCOMPLETE:
            losses.add("previous_response_id", f"the call {item.call_id} of an earlier response", "it was cut off in the middle")
        else:
            kept.append(item)
    return kept


async def _resolved(own: list[ItemParam], before: list[ItemParam], archive: Archive) -> list[ItemParam]:
    """ITEM-6: items instead of references to them."""
    if not any(type(item) is ItemReference for item in own):
        return own
    known = {id: item for item in before if (id := id_of(item)) is not None}
    found: list[ItemParam] = []
    for at, item in enumerate(own):
        if isinstance(item, ItemReference):
            referred = known.get(item.id) or await archive.item(item.id)
            if referred is None:
                raise ClientFault(f"input[{at}].id: no item with the id {item.id[:100]!r} is kept here", param=f"input[{at}].id")
            found.append(referred)
        else:
            found.append(item)
    return found


async def _with_their_calls(
    own: list[ItemParam], before: list[ItemParam], archive: Archive, *, can_look_further: bool, allow_orphans: bool
) -> list[ItemParam]:
    """D-3: outputs whose calls the client left out get them back, before the first output of their group. In a chain the calls must
    be in the chain; without one they may be anywhere in the owner's store."""
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


CALLS: Final = (FunctionCallParam, CustomToolCallParam)
OUTPUTS: Final = (FunctionCallOutputParam, CustomToolCallOutputParam)
CALL_KINDS: Final[frozenset[type]] = frozenset(CALLS)
LEANING: Final[frozenset[type]] = frozenset({ItemReference, *OUTPUTS})
