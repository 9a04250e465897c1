"""The status values of items and responses, and the allowed transitions as tables (B-1, B-4, ITEM-2)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from antiphon.errors import InvalidTransition


class ItemStatus(StrEnum):
    """The status of an item. Only extension items may be `failed` (ITEM-2)."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        return not ITEM_TRANSITIONS[self]

    @property
    def is_success(self) -> bool:
        return self is ItemStatus.COMPLETED

    def transition_to(self, target: ItemStatus) -> ItemStatus:
        """Returns `target`, or raises InvalidTransition if it cannot follow this status."""
        if target not in ITEM_TRANSITIONS[self]:
            raise InvalidTransition(
                f"an item cannot go from {self.value} to {target.value}; "
                f"{_describe_transitions(ITEM_TRANSITIONS[self])}"
            )
        return target


class ResponseStatus(StrEnum):
    """The status of a response."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return not RESPONSE_TRANSITIONS[self]

    @property
    def is_success(self) -> bool:
        return self is ResponseStatus.COMPLETED

    def transition_to(self, target: ResponseStatus) -> ResponseStatus:
        """Returns `target`, or raises InvalidTransition if it cannot follow this status."""
        if target not in RESPONSE_TRANSITIONS[self]:
            raise InvalidTransition(
                f"a response cannot go from {self.value} to {target.value}; "
                f"{_describe_transitions(RESPONSE_TRANSITIONS[self])}"
            )
        return target


def _describe_transitions(transitions: tuple[StrEnum, ...]) -> str:
    return "allowed: " + ", ".join(transitions) if transitions else "the status is final"


ITEM_TRANSITIONS: Final[dict[ItemStatus, tuple[ItemStatus, ...]]] = {
    ItemStatus.IN_PROGRESS: (ItemStatus.COMPLETED, ItemStatus.INCOMPLETE, ItemStatus.FAILED),
    ItemStatus.COMPLETED: (),
    ItemStatus.INCOMPLETE: (),
    ItemStatus.FAILED: (),
}

RESPONSE_TRANSITIONS: Final[dict[ResponseStatus, tuple[ResponseStatus, ...]]] = {
    ResponseStatus.QUEUED: (ResponseStatus.IN_PROGRESS, ResponseStatus.FAILED, ResponseStatus.CANCELLED),
    ResponseStatus.IN_PROGRESS: (
        ResponseStatus.COMPLETED,
        ResponseStatus.INCOMPLETE,
        ResponseStatus.FAILED,
        ResponseStatus.CANCELLED,
    ),
    ResponseStatus.COMPLETED: (),
    ResponseStatus.INCOMPLETE: (),
    ResponseStatus.FAILED: (),
    ResponseStatus.CANCELLED: (),
}
