"""Limits the JSON of the resolved history of one request: item references, chains, conversations and compactions
together.

Data is counted before it is decoded. A request beyond the limit is refused or, with `truncation: auto`, continues
without the oldest part of its history. Pure.
"""

from __future__ import annotations

from antiphon.errors import ClientFault
from antiphon.protocol.losses import Losses


class HistoryBudget:
    """The byte budget of one request; `losses` lists what was dropped."""

    def __init__(self, limit: int, *, drops_oldest: bool = False) -> None:
        self.drops_oldest = drops_oldest
        self.losses = Losses()
        self._limit = limit
        self._used = 0

    @property
    def remaining(self) -> int:
        return self._limit - self._used

    def take(self, size: int, path: str, description: str) -> bool:
        """Counts the bytes of something that the request names at `path`. If it does not fit, returns False when the
        oldest items may be dropped, and raises otherwise."""
        if size <= self.remaining:
            self._used += size
            return True
        if self.drops_oldest:
            return False
        raise ClientFault(
            f"{path}: {description} does not fit: with it the resolved conversation has {self._used + size} bytes of "
            f"JSON, expected at most {self._limit} (max_body_mib); compact the conversation, refer to fewer items, "
            "or set truncation to 'auto'",
            code="context_length_exceeded",
            param=path,
        )

    def drop(self, path: str, description: str) -> None:
        """Reports what did not fit."""
        self.losses.add(
            path,
            description,
            f"truncation is auto, and a resolved conversation has at most {self._limit} bytes of JSON",
        )

    def restart(self, size: int) -> None:
        """Everything counted so far was dropped, except `size` bytes."""
        self._used = size
