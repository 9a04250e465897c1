"""A list of text deltas that uses little memory."""

from __future__ import annotations

from typing import Final

JOIN_AT: Final = 4096  # pieces


class TextPieces(list[str]):
    """A list of strings that joins short ones, because each string has an overhead of about fifty bytes. Only
    `append` may be used to add to it."""

    __slots__ = ("_joined",)

    def __init__(self) -> None:
        super().__init__()
        self._joined = 0  # the number of joined strings at the beginning

    def append(self, piece: str) -> None:
        super().append(piece)
        if len(self) - self._joined >= JOIN_AT:
            self[self._joined :] = ["".join(self[self._joined :])]
            self._joined += 1
