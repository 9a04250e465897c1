"""Characters cut in two: the halves of a surrogate pair that arrive in two pieces of one text, put together again.

A first half at the end of a piece is held back until the next piece of the same channel. A half that never finds its other is no
character and becomes U+FFFD; `lost_count` counts them.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final


class SurrogateJoiner:
    """Pieces in, whole characters out, for any number of channels."""

    def __init__(self) -> None:
        self._pending: dict[Hashable, str] = {}
        self.lost_count = 0

    def join(self, channel: Hashable, piece: str) -> str:
        """The piece with what was held back before it, without what must be held back now."""
        piece = self._pending.pop(channel, "") + piece
        if FIRST_HALF_LAST.search(piece):
            self._pending[channel] = piece[-1]
            piece = piece[:-1]
        return self._whole(piece)

    def flush(self, channel: Hashable) -> str:
        """The channel is over: what stands for the half that is still held back."""
        return self._whole(self._pending.pop(channel, ""))

    def _whole(self, text: str) -> str:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        whole, alone = SURROGATE.subn("\ufffd", joined)
        self.lost_count += alone
        return whole


SURROGATE_LOSS: Final = ("stream", "halves of characters were replaced by U+FFFD", "their other halves never came")
SURROGATE: Final = re.compile("[\ud800-\udfff]")
FIRST_HALF_LAST: Final = re.compile("[\ud800-\udbff]\\Z")
