"""The end of every complaint about an unknown name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion_or_known_names(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, or all that are known."""
    names = sorted(known)
    return did_you_mean(name, names) or (f"; known are {', '.join(names)}" if names else "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, if there is one."""
    close = get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
