"""Resolves what a request refers to: the responses or the conversation that it continues, referenced items, the calls
that its tool outputs answer, and the reasoning that led to these calls.

Upstreams are stateless, so a continued conversation is sent in full: the input and the output of each earlier response,
the oldest first, then the new items (PREV-1). Settings of earlier turns are not carried over (PREV-2).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from antiphon.errors import ClientFault, OrphanToolOutput, UnsupportedParameter
from antiphon.gateway.compaction import CompactionOpener, open_compactions
from antiphon.gateway.history_budget import HistoryBudget
from antiphon.gateway.ids import id_of
from antiphon.gateway.restore_reasoning import find_missing_reasoning, restore_reasoning
from antiphon.gateway.stored_items import StoredItems, check_local_size
from antiphon.protocol import codec
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
    ToolSearchCall,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, conversation_id_of, input_items
from antiphon.protocol.status import ItemStatus
from antiphon.store.interface import Excerpt, HistoryStore, StoredTurn

PastTurns = list[bytes]  # JSON arrays of items, the oldest first; one element may hold several, joined with commas
FindLocalTurns = Callable[[str], PastTurns | None]


class ResolvedRequest(Struct, frozen=True, kw_only=True):
    """A request with its resolved history."""

    request: Request  # its input is the whole conversation
    new_items: list[ItemParam]  # the items that this request adds
    past_turns: PastTurns  # the items of earlier turns
    sealed_items: list[ItemParam]  # the whole conversation, compactions still sealed
    losses: Losses


class _Continued(Struct, frozen=True, kw_only=True):
    """The chain or the conversation that a request continues."""

    excerpt: Excerpt
    path: str  # the request field that names it
    description: str


class HistorySource(Struct, frozen=True, kw_only=True):
    """Looks up earlier turns: first on the connection (`find_local_turns`), then in the store of this owner. One
    request resolves at most `limit` bytes of JSON. A history above `max_local_bytes` is a `LargeHistory`, because it
    would block this process."""

    owner: str
    store: HistoryStore | None
    limit: int
    find_local_turns: FindLocalTurns | None = None
    max_local_bytes: int | None = None

    async def load_continued(self, request: Request, *, drops_oldest: bool) -> _Continued:
        """Loads the chain or the conversation that a request continues."""
        continued = await self._load_continued(request, drops_oldest=drops_oldest)
        check_local_size(len(continued.excerpt.content), self.max_local_bytes)
        return continued

    async def _load_continued(self, request: Request, *, drops_oldest: bool) -> _Continued:
        conversation_id, previous_id = conversation_id_of(request), request.previous_response_id
        if conversation_id is not None:
            excerpt = await self.load_conversation(conversation_id, drops_oldest=drops_oldest)
            return _Continued(
                excerpt=excerpt, path="conversation", description=f"the conversation {conversation_id[:100]!r}"
            )
        if not previous_id:
            return NOTHING_CONTINUED
        description = f"the chain of {previous_id[:100]!r}"
        local_turns = self.find_local_turns(previous_id) if self.find_local_turns is not None else None
        if local_turns is not None:
            content = b",".join(local_turns)
            return _Continued(
                excerpt=Excerpt(content=content, size=len(content)),
                path="previous_response_id",
                description=description,
            )
        excerpt = await self.load_chain(previous_id, drops_oldest=drops_oldest)
        return _Continued(excerpt=excerpt, path="previous_response_id", description=description)

    async def load_chain(self, id: str, *, drops_oldest: bool) -> Excerpt:
        """PREV-3: an id that never existed, a deleted one and one of another owner give the same error."""
        store = self.store
        excerpt = (
            await store.get_chain(self.owner, id, self.limit, drops_oldest=drops_oldest) if store is not None else None
        )
        if excerpt is None:
            raise ClientFault(
                f"no response with the id {id[:100]!r} is stored here",
                code="previous_response_not_found",
                param="previous_response_id",
            )
        if excerpt.content.endswith(EMPTY_OUTPUT):
            await self._refuse_unfinished(id)
        return excerpt

    async def _refuse_unfinished(self, id: str) -> None:
        """API-2: refuses a response that is still queued or running in the background. Only such a response has an
        empty output for longer than a moment."""
        record = await self.store.get(self.owner, id) if self.store is not None else None
        if record is not None and record.status in UNFINISHED_STATUSES:
            raise ClientFault(
                f"previous_response_id: the response {id[:100]!r} is {record.status}: wait until it has ended, "
                "then continue it",
                param="previous_response_id",
            )

    async def load_conversation(self, id: str, *, drops_oldest: bool) -> Excerpt:
        """API-4: the items of a conversation. As for responses, all missing ids give the same error."""
        if self.store is None:
            message = "conversation: this gateway stores no conversations: see [store] in its configuration"
            raise UnsupportedParameter(message, param="conversation")
        excerpt = await self.store.read_all_entries(self.owner, id, self.limit, drops_oldest=drops_oldest)
        if excerpt is None:
            raise conversation_not_found(id, "conversation")
        return excerpt

    def stored_items(self, ids: list[str]) -> StoredItems:
        """ITEM-6: the items of these ids."""
        return StoredItems(self.store, self.owner, "item", ids, self.limit, self.max_local_bytes)

    def stored_calls(self, call_ids: list[str]) -> StoredItems:
        """D-3: the calls of these ids that are unique: some servers count call ids from 0 in every answer."""
        return StoredItems(self.store, self.owner, "call", call_ids, self.limit, self.max_local_bytes)

    async def restore_reasoning(self, items: list[ItemParam], maker: str, budget: HistoryBudget) -> list[ItemParam]:
        """RSN-2: the history with the reasoning of this maker that the client left out, as far as it was stored and
        fits."""
        missing = find_missing_reasoning(items)
        if self.store is None or not any(missing):
            return items
        outputs = await self.store.find_outputs(self.owner, *missing, budget.remaining)
        check_local_size(sum(map(len, outputs)), self.max_local_bytes)
        return restore_reasoning(items, [decode_past_turns([output]) for output in outputs], maker)


async def resolve_history(
    request: Request,
    archive: HistorySource,
    *,
    allow_orphans: bool = False,
    opener: CompactionOpener | None = None,
    maker: str | None = None,
) -> ResolvedRequest:
    """Resolves the history of a request, and raises for anything that does not exist. With `opener`, compactions are
    opened; with `maker`, the reasoning of that maker is restored."""
    losses = Losses()
    budget = HistoryBudget(archive.limit, drops_oldest=request.truncation == "auto")
    new_items = input_items(request)
    continued = await archive.load_continued(request, drops_oldest=budget.drops_oldest)
    if not budget.drops_oldest:
        budget.take(continued.excerpt.size, continued.path, continued.description)
    past_items = _without_unfinished_calls(_decode_arrays(continued.excerpt.content), losses, continued.path)
    new_items = await resolve_references(new_items, past_items, archive, budget)
    content = continued.excerpt.content
    if budget.drops_oldest:  # referenced items are newer than the continued turns, so they were counted first
        if continued.excerpt.size > budget.remaining:
            content = _drop_oldest(continued, budget)
            past_items = _without_lone_outputs(
                _without_unfinished_calls(_decode_arrays(content), losses, continued.path)
            )
        budget.take(len(content), continued.path, continued.description)
    if request.conversation:
        new_items = _items_not_in(past_items, new_items)
    sealed_items = past_items + new_items
    opened_items = _open_items(sealed_items, len(past_items), opener, continued.path, budget)
    may_search_store = not (request.previous_response_id or request.conversation)
    complete_items = await _add_missing_calls(
        new_items, opened_items, archive, budget, may_search_store=may_search_store, allow_orphans=allow_orphans
    )
    if maker is not None:
        complete_items = await archive.restore_reasoning(complete_items, maker, budget)
    if complete_items is not new_items:
        new_items, sealed_items = complete_items, past_items + complete_items
        opened_items = _open_items(sealed_items, len(past_items), opener, continued.path, budget)
    request = replace(request, input=opened_items)
    losses.extend(budget.losses)
    return ResolvedRequest(
        request=request,
        new_items=new_items,
        past_turns=[content] if content else [],
        sealed_items=sealed_items,
        losses=losses,
    )


def _drop_oldest(continued: _Continued, budget: HistoryBudget) -> bytes:
    """The continued turns without the oldest items that do not fit. Does not decode items."""
    budget.drop(continued.path, "the oldest part of the conversation")
    content = continued.excerpt.content
    if len(content) <= budget.remaining:  # the store has dropped the oldest part already
        return content
    arrays = msgspec.json.decode(b"[%b]" % content, type=list[list[Raw]])
    raw_items = [bytes(raw_item) for array in arrays for raw_item in array]
    start_index = len(raw_items)
    free_bytes = budget.remaining - len(b"[]")
    while start_index and (free_bytes := free_bytes - len(raw_items[start_index - 1]) - 1) >= 0:
        start_index -= 1
    return b"[%b]" % b",".join(raw_items[start_index:]) if start_index < len(raw_items) else b""


def past_turns_of(turn: StoredTurn) -> PastTurns:
    """The input and the output of a stored turn."""
    return [turn.input, turn.output]


def decode_past_turns(past_turns: PastTurns) -> list[ItemParam]:
    """Decodes past turns to items."""
    return _decode_arrays(b",".join(past_turns))


def _decode_arrays(content: bytes) -> list[ItemParam]:
    """Decodes comma-separated arrays of items in one typed decode."""
    arrays: list[list[ItemParam]] = codec.decode_stored(b"[%b]" % content, list[list[ItemParam]])
    return list(chain.from_iterable(arrays))


async def resolve_references(
    new_items: list[ItemParam],
    past_items: list[ItemParam],
    archive: HistorySource,
    budget: HistoryBudget,
    field: str = "input",
) -> list[ItemParam]:
    """ITEM-6: replaces references with the items. Each item counts against the budget as often as it is referenced.
    `field` is the request field that holds `new_items`."""
    references = [(index, item.id) for index, item in enumerate(new_items) if isinstance(item, ItemReference)]
    if not references:
        return new_items
    if budget.drops_oldest:
        references.reverse()  # the newest take their room first
    earlier_items = {id: item for item in past_items if (id := id_of(item)) is not None}
    sizes: dict[str, int] = {}
    stored = archive.stored_items([id for _, id in references if id not in earlier_items])
    fitting_references: dict[int, str] = {}
    for index, id in references:
        path = f"{field}[{index}].id"
        size = sizes.get(id)
        if size is None:
            size = len(codec.encode(earlier_items[id])) if id in earlier_items else await stored.size_of(id)
            if size is None:
                raise _item_not_found(id, path)
            sizes[id] = size
        if not budget.take(size, path, f"the item {id[:100]!r}"):
            budget.drop(path, f"this reference and those before it, {len(references) - len(fitting_references)} in all")
            break
        fitting_references[index] = id
    items_by_id = earlier_items | await stored.items(
        {id for id in fitting_references.values() if id not in earlier_items}
    )
    complete_items: list[ItemParam] = []
    for index, item in enumerate(new_items):
        if not isinstance(item, ItemReference):
            complete_items.append(item)
        elif index in fitting_references:
            if item.id not in items_by_id:  # deleted since its size was read
                raise _item_not_found(item.id, f"{field}[{index}].id")
            complete_items.append(items_by_id[item.id])
    return complete_items


def _item_not_found(id: str, path: str) -> ClientFault:
    return ClientFault(f"{path}: no item with the id {id[:100]!r} is stored here", param=path)


def conversation_not_found(id: str, param: str) -> ClientFault:
    """The error for a conversation that never existed, was deleted, or has another owner."""
    return ClientFault(
        f"no conversation with the id {id[:100]!r} is stored here", type="not_found", code="not_found", param=param
    )


def _items_not_in(past_items: list[ItemParam], new_items: list[ItemParam]) -> list[ItemParam]:
    """Drops items that are in the conversation already: many clients resend everything."""
    earlier_ids = {id for item in past_items if (id := id_of(item)) is not None}
    return [item for item in new_items if id_of(item) not in earlier_ids]


def _without_unfinished_calls(items: list[ItemParam], losses: Losses, continued_path: str) -> list[ItemParam]:
    """Drops calls that were cut off: they cannot be answered, and no server accepts incomplete arguments."""
    if set(map(type, items)).isdisjoint(CALLS):
        return items
    finished_items: list[ItemParam] = []
    for item in items:
        if isinstance(item, CALLS) and item.status == ItemStatus.INCOMPLETE:
            losses.add(continued_path, f"the call {item.call_id} of an earlier response", "it was cut off")
        else:
            finished_items.append(item)
    return finished_items


def _without_lone_outputs(items: list[ItemParam]) -> list[ItemParam]:
    """Drops outputs whose calls were dropped with the oldest part of the conversation."""
    call_ids = {call_id for item in items for call_id in _call_ids_in(item)}
    return [item for item in items if not isinstance(item, OUTPUTS) or item.call_id in call_ids]


def _open_items(
    sealed_items: list[ItemParam],
    past_count: int,
    opener: CompactionOpener | None,
    continued_path: str,
    budget: HistoryBudget,
) -> list[ItemParam]:
    """The conversation with its compactions opened. The first `past_count` items come from earlier turns."""
    if opener is None or set(map(type, sealed_items)).isdisjoint(COMPACTION_KINDS):
        return sealed_items

    def path_of(index: int) -> str:
        return continued_path if index < past_count else f"input[{index - past_count}].encrypted_content"

    return open_compactions(sealed_items, opener, path_of, budget)


async def _add_missing_calls(
    new_items: list[ItemParam],
    past_items: list[ItemParam],
    archive: HistorySource,
    budget: HistoryBudget,
    *,
    may_search_store: bool,
    allow_orphans: bool,
) -> list[ItemParam]:
    """D-3: adds stored calls for outputs that came without them, before the first output of their group. In a chain,
    the calls must be in the chain; otherwise they may be anywhere in the owner's store."""
    if set(map(type, new_items)).isdisjoint(OUTPUTS):
        return new_items
    call_ids = {call_id for item in (*past_items, *new_items) for call_id in _call_ids_in(item)}
    missing: dict[str, int] = {}  # call id → index of the first output that answers it
    for index, item in enumerate(new_items):
        if isinstance(item, OUTPUTS) and item.call_id not in call_ids:
            missing.setdefault(item.call_id, index)
    if not missing:
        return new_items
    calls = await _load_calls(missing, archive, budget) if may_search_store else {}
    completed: list[ItemParam] = []
    group_start = 0  # start of the current run of outputs
    for index, item in enumerate(new_items):
        if not isinstance(item, OUTPUTS):
            completed.append(item)
            group_start = len(completed)
            continue
        if item.call_id not in call_ids:
            call = calls.get(item.call_id)
            if call is not None:
                call_ids.add(item.call_id)
                completed.insert(group_start, call)
                group_start += 1
            elif not allow_orphans:
                raise OrphanToolOutput(
                    f"input[{index}].call_id: there is no call with the id {item.call_id!r} for this output",
                    param=f"input[{index}].call_id",
                )
        completed.append(item)
    return completed


async def _load_calls(missing: dict[str, int], archive: HistorySource, budget: HistoryBudget) -> dict[str, ItemParam]:
    """Loads the stored calls of these ids. The values of `missing` are the indexes of the first outputs."""
    stored = archive.stored_calls(list(missing))
    fitting_ids: list[str] = []
    for call_id, index in missing.items():
        size = await stored.size_of(call_id)
        if size is not None and budget.take(size, f"input[{index}].call_id", f"the call {call_id[:100]!r}"):
            fitting_ids.append(call_id)
    return await stored.items(fitting_ids)


def _call_ids_in(item: ItemParam) -> list[str]:
    """The ids of the calls in an item."""
    if isinstance(item, CALLS):
        return [item.call_id]
    if isinstance(item, ToolSearchCall):  # clients answer it with a function call output too
        return [item.call_id] if item.call_id else []
    if type(item) is MessageParam and type(item.content) is list:
        return [part.id for part in item.content if isinstance(part, ToolUse)]
    return []


NOTHING_CONTINUED: Final = _Continued(excerpt=Excerpt(content=b"", size=0), path="previous_response_id", description="")
EMPTY_OUTPUT: Final = b",[]"  # the end of a chain whose last turn has no output yet
UNFINISHED_STATUSES: Final = ("queued", "in_progress")
CALLS: Final = (FunctionCallParam, CustomToolCallParam)
OUTPUTS: Final = (FunctionCallOutputParam, CustomToolCallOutputParam)
COMPACTION_KINDS: Final = (CompactionParam, CompactionTrigger)
