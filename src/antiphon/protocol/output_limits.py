"""Limits on the size of one answer, so that an endless stream cannot fill the memory.

The writer counts stored content: text, arguments, reasoning, data, log probabilities. It does not count bytes on the
wire.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

MIB: Final = 1024 * 1024
BYTES_REASON: Final = "max_output_bytes"  # `incomplete_details.reason`
ITEMS_REASON: Final = "max_output_items"
PART_OVERHEAD_BYTES: Final = 256  # the counted bytes of an empty part, annotation or waiting call


class OutputLimits(Struct, frozen=True, kw_only=True):
    """The limits of one answer."""

    max_bytes: int = 64 * MIB
    max_items: int = 1000


UNLIMITED: Final = OutputLimits(max_bytes=1 << 62, max_items=1 << 62)


class OutputLimitExceeded(Exception):
    """The next content exceeds the limits. `reason` is the value for `incomplete_details.reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
