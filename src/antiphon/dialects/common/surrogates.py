"""Joins surrogate pairs whose two halves arrive in two pieces of one text.

A first half at the end of a piece waits for the next piece of the same channel. A half without its other half becomes
U+FFFD; `lost_count` counts them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final


class SurrogateJoiner:
    """Takes pieces of text and returns complete characters, for any number of channels."""

    def __init__(self) -> None:
        self._pending: dict[Hashable, str] = {}
        self.lost_count = 0

    def join(self, channel: Hashable, piece: str) -> str:
        """The piece with the pending half before it, without a first half at its end."""
        piece = self._pending.pop(channel, "") + piece
        if FIRST_HALF_LAST.search(piece):
            self._pending[channel] = piece[-1]
            piece = piece[:-1]
        return self._whole(piece)

    def flush(self, channel: Hashable) -> str:
        """Ends the channel and returns U+FFFD for a pending half."""
        return self._whole(self._pending.pop(channel, ""))

    def _whole(self, text: str) -> str:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        whole, alone = SURROGATE.subn("\ufffd", joined)
        self.lost_count += alone
        return whole


SURROGATE_LOSS: Final = (
    "stream",
    "unpaired surrogates",
    "they are replaced by U+FFFD",
)
SURROGATE: Final = re.compile("[\ud800-\udfff]")
FIRST_HALF_LAST: Final = re.compile("[\ud800-\udbff]\\Z")
