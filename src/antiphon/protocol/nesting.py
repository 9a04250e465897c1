"""The limit on nested JSON: at most `MAX_NESTING` levels of arrays and objects in JSON from outside.

The limit is checked on the text before decoding (`codec`), so Python's own recursion limit, which differs by version,
is never reached.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Final

import msgspec
from msgspec import Raw

MAX_NESTING: Final = 256

Json = bytes | str | Raw


class NestingError(msgspec.DecodeError):
    """JSON that is nested deeper than `MAX_NESTING` levels."""

    def __init__(self) -> None:
        super().__init__(f"JSON is nested too deeply: at most {MAX_NESTING} levels are allowed")


def is_too_deep(data: Json, max_levels: int = MAX_NESTING) -> bool:
    """Whether arrays and objects are nested more than `max_levels` deep; linear in the length of the text.

    Most texts are decided by the number of their opening brackets: `replace` counts a rare byte ten times faster than
    `count`.
    """
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
    max_count = max_levels + 1
    opening_count = 2 * len(text) - len(text.replace(b"{", b"", max_count)) - len(text.replace(b"[", b"", max_count))
    return opening_count > max_levels and _is_deeper(_extract_brackets(text), max_levels)


def has_many_values(text: bytes, max_count: int) -> bool:
    """Whether JSON has more than about `max_count` values; linear in its length. Every value but the first of an array
    or object has a comma, and every array and object a bracket."""
    if sum(map(text.count, (b",", b"{", b"["))) <= max_count:
        return False  # some of them may be in strings
    return len(_extract_marks(text, NON_VALUE_BYTES)) > max_count


def _extract_brackets(text: bytes) -> bytes:
    """The brackets of JSON outside its strings."""
    return _extract_marks(text, NON_MARK_BYTES)


def _extract_marks(text: bytes, other_bytes: bytes) -> bytes:
    """JSON without its strings and without some other bytes."""
    if b'\\"' in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = text.translate(None, other_bytes)
    # Whether a mark is inside a string depends only on whether the number of quotes before it is odd: pairs can go.
    marks = marks.replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def _is_deeper(brackets: bytes, max_levels: int) -> bool:
    # Each round removes at most two levels. What the rounds cannot decide is counted bracket by bracket.
    remaining = brackets
    for removed_levels in range(2, 2 * MAX_ROUNDS + 1, 2):
        previous, remaining = remaining, remaining.replace(b"{}", b"").replace(b"[]", b"")
        if len(remaining) + removed_levels <= max_levels:
            return False
        if len(remaining) == len(previous):
            break
    steps = brackets.translate(LEVEL_STEPS)
    level = 0
    for start in range(0, len(steps), CHUNK_SIZE):
        sums = list(accumulate(array("b", steps[start : start + CHUNK_SIZE]), initial=level))
        if max(sums) > max_levels:
            return True
        level = sums[-1]
    return False


MIN_TOO_DEEP_LENGTH: Final = 2 * (
    MAX_NESTING + 1
)  # the bytes of the shortest JSON that is nested too deeply: its brackets
MAX_ROUNDS: Final = 16
CHUNK_SIZE: Final = 64 * 1024
NON_MARK_BYTES: Final = bytes(set(range(256)) - set(b'[]{}"'))
NON_VALUE_BYTES: Final = bytes(set(range(256)) - set(b',[{"'))
LEVEL_STEPS: Final = bytes(1 if byte in b"[{" else 255 for byte in range(256))  # 255 is -1 in an array of signed bytes
