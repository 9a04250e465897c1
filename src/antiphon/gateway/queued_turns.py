"""The prepared turns of background responses that this process has queued and not started yet. The process that queued
a response most often runs it too, and then need not read and prepare its request again. The store has every request,
so nothing is lost with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from msgspec import Struct

from antiphon.gateway.context import GatewayContext
from antiphon.gateway.prepare_turn import PreparedTurn
from antiphon.gateway.request_scope import RequestLog
from antiphon.gateway.turn import UpstreamTurn
from antiphon.protocol.response import Response


class QueuedTurn(Struct):
    """A turn that is ready to be sent, and its queued response."""

    services: GatewayContext  # of the configuration that it was prepared with
    prepared_turn: PreparedTurn
    response: Response
    input: bytes  # of the response
    log_entry: RequestLog  # of the request that queued it
    is_stored: bool = False

    @property
    def size(self) -> int:
        # The client's body, which a retry is prepared from, is about as large as the input.
        return 2 * len(self.input) + len(self.prepared_turn.turn.prepared.body) + BASE_SIZE


class QueuedTurns:
    """Prepared turns by the ids of their responses, oldest first. Once they are full, no more are added."""

    def __init__(self) -> None:
        self._turns: dict[str, QueuedTurn] = {}
        self._size = 0

    def add(self, turn: QueuedTurn) -> None:
        """Adds a turn, before its request is stored. Turns that have to be prepared when they start are not added."""
        if self._size + turn.size <= MAX_SIZE and can_wait(turn.services, turn.prepared_turn):
            self._turns[turn.response.id] = turn
            self._size += turn.size
            turn.log_entry.attempts = []  # they are attempts of the job

    def note_stored(self, id: str) -> None:
        if id in self._turns:
            self._turns[id].is_stored = True

    def discard(self, id: str) -> None:
        turn = self._turns.pop(id, None)
        if turn is not None:
            self._size -= turn.size

    def find_oldest(self, count: int, services: GatewayContext) -> dict[str, QueuedTurn]:
        """The oldest turns. Those of an earlier configuration, which are older than all others, are dropped."""
        while self._turns and (oldest := next(iter(self._turns.values()))).services is not services:
            self.discard(oldest.response.id)
        return dict(islice(self._turns.items(), count))

    def find(self, ids: Iterable[str], services: GatewayContext) -> dict[str, QueuedTurn]:
        """The turns with these ids. Those of an earlier configuration are left out."""
        turns = self._turns
        return {id: turns[id] for id in ids if id in turns and turns[id].services is services}

    def drop_claimed(self, oldest: Iterable[str], claimed: Collection[str]) -> None:
        """Drops turns after a claim that knew the `oldest` of them. Those that are older than a claimed one do not wait
        any more: the queue is in the same order, so another process has claimed them, or they were cancelled. If
        nothing was claimed, none of them waits."""
        for id in claimed:
            self.discard(id)
        is_newer = bool(claimed)
        for id in reversed(list(oldest)):
            is_newer = is_newer and id not in claimed
            turn = self._turns.get(id)
            if turn is not None and turn.is_stored and not is_newer:
                self.discard(id)


def can_wait(services: GatewayContext, prepared_turn: PreparedTurn) -> bool:
    """Whether a turn is the same if it starts later: it depends neither on the store nor on the state of its targets,
    and its job has no trace or telemetry of its own."""
    queued_request = prepared_turn.queued_request
    return (
        queued_request is not None
        and queued_request.is_self_contained
        and prepared_turn.preparer is None
        and type(prepared_turn.turn) is UpstreamTurn
        and services.telemetry is None
        and services.traces is None
    )


MAX_SIZE: Final = 32 * 1024 * 1024  # bytes
BASE_SIZE: Final = 8 * 1024  # bytes of a turn beside its contents, about
