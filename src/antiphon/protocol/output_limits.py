"""Bounds on what one answer may hold, so that an endless stream ends instead of filling the memory.

The writer counts what is kept: text, arguments, reasoning, data, log probabilities. It does not count bytes on the wire.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

MIB: Final = 1024 * 1024
BYTES_REASON: Final = "max_output_bytes"  # `incomplete_details.reason`
ITEMS_REASON: Final = "max_output_items"
PART_OVERHEAD: Final = 256  # bytes that an empty part, annotation or waiting call is counted as


class OutputLimits(Struct, frozen=True, kw_only=True):
    """The largest answer that is kept."""

    max_bytes: int = 64 * MIB
    max_items: int = 1000


UNLIMITED: Final = OutputLimits(max_bytes=1 << 62, max_items=1 << 62)


class OutputLimitExceeded(Exception):
    """The next piece of the answer does not fit. `reason` is the value for `incomplete_details.reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def text_size(text: str) -> int:
    """The length of a text in UTF-8; a lone surrogate counts like any other character of the plane it is in."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
