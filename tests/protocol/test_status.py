"""The two lifecycles: every pair of statuses, allowed or refused (B-1, B-4, ITEM-2)."""

from __future__ import annotations

from antiphon.protocol.status import (
    ITEM_TRANSITIONS,
    RESPONSE_TRANSITIONS,
    ItemStatus,
    ResponseStatus,
    refused_transition,
)

LEGAL_ITEM_MOVES = {("in_progress", "completed"), ("in_progress", "incomplete"), ("in_progress", "failed")}
LEGAL_RESPONSE_MOVES = {
    ("queued", "in_progress"),
    ("queued", "failed"),
    ("queued", "cancelled"),
    ("in_progress", "completed"),
    ("in_progress", "incomplete"),
    ("in_progress", "failed"),
    ("in_progress", "cancelled"),
}


def test_item_status_transitions_are_exactly_the_allowed_ones_B_1_ITEM_2() -> None:
    assert {(status, target) for status, targets in ITEM_TRANSITIONS.items() for target in targets} == LEGAL_ITEM_MOVES
    assert set(ITEM_TRANSITIONS) == set(ItemStatus)


def test_response_status_transitions_are_exactly_the_allowed_ones_B_4() -> None:
    moves = {(status, target) for status, targets in RESPONSE_TRANSITIONS.items() for target in targets}
    assert moves == LEGAL_RESPONSE_MOVES
    assert set(RESPONSE_TRANSITIONS) == set(ResponseStatus)


def test_terminal_and_successful_statuses_B_1() -> None:
    assert [status for status in ItemStatus if not status.is_terminal] == ["in_progress"]
    assert [status for status in ItemStatus if status.is_success] == ["completed"]
    assert [status for status in ResponseStatus if not status.is_terminal] == ["queued", "in_progress"]
    assert [status for status in ResponseStatus if status.is_success] == ["completed"]


def test_refused_transition_names_the_allowed_ones() -> None:
    queued = refused_transition(ResponseStatus.QUEUED, ResponseStatus.COMPLETED)
    assert queued.args == ("a response cannot go from queued to completed; allowed: in_progress, failed, cancelled",)
    completed = refused_transition(ItemStatus.COMPLETED, ItemStatus.IN_PROGRESS)
    assert completed.args == ("an item cannot go from completed to in_progress; the status is final",)
