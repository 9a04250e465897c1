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


def refused_transition(status: ItemStatus | ResponseStatus, target: ItemStatus | ResponseStatus) -> InvalidTransition:
    """The error for a status that cannot follow another."""
    subject = "an item" if isinstance(status, ItemStatus) else "a response"
    allowed = ITEM_TRANSITIONS[status] if isinstance(status, ItemStatus) else RESPONSE_TRANSITIONS[status]
    hint = "allowed: " + ", ".join(allowed) if allowed else "the status is final"
    return InvalidTransition(f"{subject} cannot go from {status.value} to {target.value}; {hint}")


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
