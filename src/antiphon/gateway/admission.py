"""Admits turns: bounds the open turns of a process and of each key. What was admitted is never broken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from antiphon.errors import ApiError


class TurnAdmission:
    """Counts open turns. `max_turns_per_key` is None if there are no keys."""

    def __init__(self, max_turns: int, max_turns_per_key: int | None) -> None:
        self.open_turns = 0
        self._max_turns = max_turns
        self._max_turns_per_key = max_turns_per_key
        self._turns_of_owner: dict[str, int] = {}

    def set_limits(self, max_turns: int, max_turns_per_key: int | None) -> None:
        """Changes the limits. Turns that are open stay open."""
        self._max_turns, self._max_turns_per_key = max_turns, max_turns_per_key

    @contextmanager
    def admit(self, owner: str) -> Iterator[None]:
        """Counts a turn until the end of the block, or refuses it at once."""
        owned = self._turns_of_owner.get(owner, 0)
        if self._max_turns_per_key is not None and owned >= self._max_turns_per_key:
            raise ApiError(
                f"too many open turns of this key: expected at most {self._max_turns_per_key}; retry later",
                type="too_many_requests",
                code="rate_limit_exceeded",
                retry_after=RETRY_AFTER,
            )
        if self.open_turns >= self._max_turns:
            raise ApiError(
                f"too many open turns: this process serves at most {self._max_turns}; retry later",
                code="overloaded",
                status=503,
                retry_after=RETRY_AFTER,
            )
        self.open_turns += 1
        self._turns_of_owner[owner] = owned + 1
        try:
            yield
        finally:
            self.open_turns -= 1
            owned = self._turns_of_owner.pop(owner) - 1
            if owned:
                self._turns_of_owner[owner] = owned


RETRY_AFTER: Final = 1.0  # seconds
