"""The prepared turns of queued responses: in order, bounded, and dropped when they cannot be used any more."""

from __future__ import annotations

from typing import Any

from antiphon.gateway import queued_turns
from antiphon.gateway.prepare_turn import PreparedTurn
from antiphon.gateway.queued_turns import QueuedTurn, QueuedTurns, can_wait
from antiphon.gateway.request_scope import RequestLog
from antiphon.gateway.turn import UpstreamTurn
from antiphon.gateway.turn_data import PreparedRequest, QueuedRequest
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response


class Context:
    """The services that a turn is prepared with, as far as they matter here."""

    telemetry: Any = None
    traces: Any = None


CONTEXT: Any = Context()


def prepared_turn(*, is_self_contained: bool = True, body: bytes = b"") -> PreparedTurn:
    turn: Any = UpstreamTurn.__new__(UpstreamTurn)
    unused: Any = None
    turn.prepared = PreparedRequest(
        plan=unused, request=Request(), upstream_request=Request(), body=body, losses=Losses()
    )
    turn.prepare_retry = None
    queued_request = QueuedRequest(content=b"{}", streams=False, is_self_contained=is_self_contained)
    return PreparedTurn(turn, None, [], queued_request, False, unused)


def queued_turn(id: str, *, services: Any = CONTEXT, size: int = 0) -> QueuedTurn:
    response = make_initial_response(Request(), id=id, created_at=0)
    log_entry = RequestLog(request_id="req", method="POST", path="/v1/responses")
    return QueuedTurn(services, prepared_turn(body=b"x" * size), response, b"[]", log_entry)


def turns_of(*ids: str, stored: bool = True) -> QueuedTurns:
    turns = QueuedTurns()
    for id in ids:
        turns.add(queued_turn(id))
        if stored:
            turns.note_stored(id)
    return turns


def ids_in(turns: QueuedTurns, services: Any = CONTEXT) -> list[str]:
    return list(turns.find_oldest(100, services))


def test_oldest_turns_come_first() -> None:
    turns = turns_of("a", "b", "c")
    assert list(turns.find_oldest(2, CONTEXT)) == ["a", "b"]


def test_claimed_turns_are_dropped_with_those_before_them() -> None:
    turns = turns_of("a", "b", "c", "d")
    turns.drop_claimed(["a", "b", "c", "d"], {"b", "other"})
    assert ids_in(turns) == ["c", "d"]
    turns.drop_claimed([], {"other"})
    assert ids_in(turns) == ["c", "d"]
    turns.drop_claimed([], {"d"})
    assert ids_in(turns) == ["c"]


def test_turns_are_found_by_id_unless_their_configuration_is_another() -> None:
    turns = turns_of("a", "b")
    assert list(turns.find({"b", "other"}, CONTEXT)) == ["b"]
    assert turns.find({"b"}, Context()) == {}  # type: ignore[arg-type]


def test_turns_that_no_claim_finds_are_dropped() -> None:
    turns = turns_of("a", "b")
    turns.drop_claimed(["a", "b"], set())
    assert ids_in(turns) == []


def test_turn_that_is_not_stored_yet_is_kept() -> None:
    turns = turns_of("a", "b", stored=False)
    turns.drop_claimed(["a", "b"], set())
    assert ids_in(turns) == ["a", "b"]
    turns.drop_claimed(["a", "b"], {"b"})
    assert ids_in(turns) == ["a"]


def test_turns_of_another_configuration_are_dropped() -> None:
    turns = turns_of("a")
    newer: Any = Context()
    turns.add(queued_turn("b", services=newer))
    assert ids_in(turns, newer) == ["b"]


def test_no_turn_is_added_beyond_the_limit() -> None:
    turns = QueuedTurns()
    half = queued_turns.MAX_SIZE // 2
    for id in "abc":
        turns.add(queued_turn(id, size=half - queued_turns.BASE_SIZE - 4))
    assert ids_in(turns) == ["a", "b"]
    turns.discard("a")
    turns.discard("a")
    turns.note_stored("a")
    turns.add(queued_turn("d", size=half - queued_turns.BASE_SIZE - 4))
    assert ids_in(turns) == ["b", "d"]


def test_turn_that_depends_on_the_store_is_not_added() -> None:
    assert can_wait(CONTEXT, prepared_turn())
    assert not can_wait(CONTEXT, prepared_turn(is_self_contained=False))


def test_turn_is_not_added_while_traces_or_telemetry_are_on() -> None:
    for name in ("telemetry", "traces"):
        services: Any = Context()
        setattr(services, name, object())
        assert not can_wait(services, prepared_turn())
