"""Patterns of model names. `*` stands for any characters, none included, and is the only wildcard: names contain all others.

Matching takes time in proportion to the name, which is the client's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

WILDCARD: Final = "*"


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether any of the patterns fits the name."""
    return any(matched_part(pattern, name) is not None for pattern in patterns)


def matched_part(pattern: str, name: str) -> str | None:
    """What stands between the fixed beginning and end of the pattern, None if the name does not fit."""
    first, *rest = pattern.split(WILDCARD)
    if not rest:
        return "" if name == pattern else None
    *middle, last = rest
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return None
    between = name[len(first) : len(name) - len(last)]
    at = 0
    for part in middle:
        at = between.find(part, at)
        if at < 0:
            return None
        at += len(part)
    return between
