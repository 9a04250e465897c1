"""A list of text deltas that uses little memory."""

from __future__ import annotations

from typing import Final

MAX_UNJOINED_PIECES: Final = 4096  # pieces


class TextPieces(list[str]):
    """A list of strings that joins short ones, because each string has an overhead of about fifty bytes. Only
    `append` may be used to add to it."""

    __slots__ = ("_joined_count",)

    def __init__(self) -> None:
        super().__init__()
        self._joined_count = 0  # the number of joined strings at the beginning

    def append(self, piece: str) -> None:
        super().append(piece)
        if len(self) - self._joined_count >= MAX_UNJOINED_PIECES:
            self[self._joined_count :] = ["".join(self[self._joined_count :])]
            self._joined_count += 1
