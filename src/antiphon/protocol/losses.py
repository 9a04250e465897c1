"""What a translation could not carry: path, what, why (F-4, REQ-6). Nothing is lost in silence."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct


class Loss(Struct, frozen=True):
    """One thing that did not survive a translation."""

    path: str
    what: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" + (f" ({self.why})" if self.why else "")


class Losses:
    """Collects losses; equal ones are kept once, since a stream would repeat them with every chunk."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Loss, None] = {}

    def add(self, path: str, what: str, why: str = "") -> None:
        self._found[Loss(path, what, why)] = None

    def extend(self, others: Losses) -> None:
        self._found.update(others._found)

    def __iter__(self) -> Iterator[Loss]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"Losses({list(self._found)!r})"
