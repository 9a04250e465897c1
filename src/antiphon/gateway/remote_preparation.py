"""Prepares the data of a turn in a worker process: the worker's side of `PreparationHost`, and the gateway's.

The worker computes; the gateway routes and reads the store. What the worker asks for crosses as data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.gateway.answer_settings import settings_for_answer
from antiphon.gateway.client_body import ClientBody
from antiphon.gateway.history import HistorySource, PastTurns
from antiphon.gateway.ids import new_id, now
from antiphon.gateway.routing.wishes import RoutingWishes
from antiphon.gateway.sealing import Seal
from antiphon.gateway.turn_data import (
    Directions,
    PreparationHost,
    RetryRequest,
    TurnData,
    TurnOutline,
    prepare_data,
    prepare_retry_data,
)
from antiphon.protocol.stamps import Stamps
from antiphon.store.interface import Excerpt, HistoryStore, ResponseRecord, StoredTurn

Ask = Callable[..., Any]  # asks the gateway: a name, then arguments; waits for the answer


async def prepare_data_remotely(ask: Ask, body: ClientBody) -> TurnData:
    """In a worker: prepares the data of a turn. The gateway keeps the body, so it is not sent back."""
    data = await prepare_data(body, RemoteHost(ask))
    prepared = data.prepared
    data.can_retry = prepared.release_retry_source()
    prepared.request, prepared.upstream_request = settings_for_answer(prepared.request, prepared.upstream_request)
    if data.context_plan is not None:
        data.context_plan = data.context_plan.encode()
    return data


async def prepare_retry_remotely(
    ask: Ask, body: ClientBody, refused_parts: Sequence[RefusedPart]
) -> RetryRequest | None:
    """In a worker: prepares a turn again without the parts that the upstream refused."""
    return await prepare_retry_data(body, RemoteHost(ask), refused_parts)


class RemoteHost:
    """The gateway as a worker sees it."""

    def __init__(self, ask: Ask) -> None:
        self.stamps = Stamps(new_id, now)
        self.seal = Seal(lambda: ask("sealing_keys"))
        self._ask = ask

    async def accepts_wishes(self, wishes: RoutingWishes) -> bool:
        is_accepted: bool = self._ask("accepts_wishes", wishes)
        return is_accepted

    async def direct(self, outline: TurnOutline) -> Directions | None:
        directions: Directions | None = self._ask("direct", outline)
        return directions

    async def history_source(self) -> HistorySource:
        return remote_history_source(self._ask)

    async def context_size(self) -> int | None:
        size: int | None = self._ask("context_size")
        return size


class SourceOutline(Struct, frozen=True):
    """A history source without its store."""

    owner: str
    limit: int
    has_store: bool
    has_local_turns: bool


def remote_history_source(ask: Ask) -> HistorySource:
    """The history source of the gateway, for a worker."""
    outline: SourceOutline = ask("history_source")

    def find_local_turns(id: str) -> PastTurns | None:
        turns: PastTurns | None = ask("find_local_turns", id)
        return turns

    return HistorySource(
        owner=outline.owner,
        store=RemoteStore(ask) if outline.has_store else None,
        limit=outline.limit,
        find_local_turns=find_local_turns if outline.has_local_turns else None,
    )


class RemoteStore:
    """The gateway's store, for a worker: reads only."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def get(self, owner: str, id: str) -> ResponseRecord | None:
        record: ResponseRecord | None = self._ask("get", owner, id)
        return record

    async def get_chain(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        excerpt: Excerpt | None = self._ask("get_chain", owner, id, limit, drops_oldest=drops_oldest)
        return excerpt

    async def read_all_entries(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        excerpt: Excerpt | None = self._ask("read_all_entries", owner, id, limit, drops_oldest=drops_oldest)
        return excerpt

    async def find_items(self, owner: str, item_ids: Sequence[str]) -> dict[str, int]:
        numbers: dict[str, int] = self._ask("find_items", owner, item_ids)
        return numbers

    async def find_calls(self, owner: str, call_ids: Sequence[str]) -> dict[str, int]:
        numbers: dict[str, int] = self._ask("find_calls", owner, call_ids)
        return numbers

    async def get_turn(self, owner: str, number: int) -> StoredTurn | None:
        turn: StoredTurn | None = self._ask("get_turn", owner, number)
        return turn

    async def find_outputs(
        self, owner: str, item_ids: Sequence[str], call_ids: Sequence[str], limit: int
    ) -> list[bytes]:
        outputs: list[bytes] = self._ask("find_outputs", owner, item_ids, call_ids, limit)
        return outputs


class SourceAnswers:
    """In the gateway: answers what a worker asks about a history source."""

    def __init__(self, source: Callable[[], HistorySource]) -> None:
        self._source = source

    async def answer(self, name: str, *arguments: Any, **options: Any) -> Any:
        source = self._source()
        match name:
            case "history_source":
                return SourceOutline(
                    owner=source.owner,
                    limit=source.limit,
                    has_store=source.store is not None,
                    has_local_turns=source.find_local_turns is not None,
                )
            case "find_local_turns":
                assert source.find_local_turns is not None  # the outline says so
                return source.find_local_turns(*arguments)
            case _ if name in READS and source.store is not None:
                return await getattr(source.store, name)(*arguments, **options)
            case _:
                raise LookupError(f"a worker asked for {name!r}")


class HostAnswers:
    """In the gateway: answers what a worker asks while it prepares a turn."""

    def __init__(self, host: PreparationHost, source: Callable[[], HistorySource]) -> None:
        self._host = host
        self._source_answers = SourceAnswers(source)

    async def answer(self, name: str, *arguments: Any, **options: Any) -> Any:
        match name:
            case "accepts_wishes":
                return await self._host.accepts_wishes(*arguments)
            case "direct":
                return await self._host.direct(*arguments)
            case "context_size":
                return await self._host.context_size()
            case "sealing_keys":
                return self._host.seal.load_keys()
            case _:
                return await self._source_answers.answer(name, *arguments, **options)


READS: Final = frozenset(name for name in vars(HistoryStore) if not name.startswith("_"))
