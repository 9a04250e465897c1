"""The pieces of a text that arrives bit by bit, kept in little memory."""

from __future__ import annotations

from typing import Final

JOIN_AT: Final = 4096  # pieces


class TextPieces(list[str]):
    """A list of pieces that joins small ones: a short string takes about fifty bytes more than its characters. Only `append` may
    be used to add to it."""

    __slots__ = ("_joined",)

    def __init__(self) -> None:
        super().__init__()
        self._joined = 0  # pieces at the beginning that are joined already

    def append(self, piece: str) -> None:
        super().append(piece)
        if len(self) - self._joined >= JOIN_AT:
            self[self._joined :] = ["".join(self[self._joined :])]
            self._joined += 1
