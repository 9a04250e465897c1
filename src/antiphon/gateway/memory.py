"""Gives memory that the interpreter has freed back to the operating system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def release_free_memory() -> None:
    """Gives free memory of the C heap back. Without it, the process keeps what a large request needed. Does nothing
    where the C library cannot."""
    trim = _find_trim()
    if trim is not None:
        trim(0)


@cache
def _find_trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
