"""The two lifecycles: every pair of statuses, allowed or refused (B-1, B-4, ITEM-2)."""

from __future__ import annotations

import pytest

from antiphon.errors import InvalidTransition
from antiphon.protocol.status import ItemStatus, ResponseStatus

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


@pytest.mark.parametrize("target", list(ItemStatus))
@pytest.mark.parametrize("status", list(ItemStatus))
def test_item_status_transitions_are_exactly_the_allowed_ones_B_1_ITEM_2(
    status: ItemStatus, target: ItemStatus
) -> None:
    if (status, target) in LEGAL_ITEM_MOVES:
        assert status.transition_to(target) is target
    else:
        with pytest.raises(InvalidTransition, match=f"an item cannot go from {status} to {target}; "):
            status.transition_to(target)


@pytest.mark.parametrize("target", list(ResponseStatus))
@pytest.mark.parametrize("status", list(ResponseStatus))
def test_response_status_transitions_are_exactly_the_allowed_ones_B_4(
    status: ResponseStatus, target: ResponseStatus
) -> None:
    if (status, target) in LEGAL_RESPONSE_MOVES:
        assert status.transition_to(target) is target
    else:
        with pytest.raises(InvalidTransition, match=f"a response cannot go from {status} to {target}; "):
            status.transition_to(target)


def test_terminal_and_successful_statuses_B_1() -> None:
    assert [status for status in ItemStatus if not status.is_terminal] == ["in_progress"]
    assert [status for status in ItemStatus if status.is_success] == ["completed"]
    assert [status for status in ResponseStatus if not status.is_terminal] == ["queued", "in_progress"]
    assert [status for status in ResponseStatus if status.is_success] == ["completed"]


def test_refused_transition_names_the_allowed_ones() -> None:
    with pytest.raises(InvalidTransition, match="allowed: in_progress, failed, cancelled"):
        ResponseStatus.QUEUED.transition_to(ResponseStatus.COMPLETED)
    with pytest.raises(InvalidTransition, match="the status is final"):
        ItemStatus.COMPLETED.transition_to(ItemStatus.IN_PROGRESS)
