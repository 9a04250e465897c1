"""Matches model names against patterns. `*` matches any characters, also none, and is the only wildcard.

Matching takes linear time, because the name comes from the client.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

WILDCARD: Final = "*"


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether the name matches any of the patterns."""
    return any(matched_part(pattern, name) is not None for pattern in patterns)


def matched_part(pattern: str, name: str) -> str | None:
    """The text between the pattern's fixed beginning and end; None if the name does not match."""
    first, *rest = pattern.split(WILDCARD)
    if not rest:
        return "" if name == pattern else None
    *middle, last = rest
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return None
    between = name[len(first) : len(name) - len(last)]
    index = 0
    for part in middle:
        index = between.find(part, index)
        if index < 0:
            return None
        index += len(part)
    return between
