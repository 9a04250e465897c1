"""Suggestions at the end of errors about unknown names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggest_names(name: str, candidates: Iterable[str]) -> str:
    """Suggest the closest valid name, or list all valid names."""
    names = sorted(candidates)
    return did_you_mean(name, names) or (f"; available: {', '.join(names)}" if names else "")


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Suggest the closest valid name; empty if none is close."""
    close = get_close_matches(name, list(candidates), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
