"""Gives memory that the interpreter has freed back to the operating system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final


def release_free_memory() -> None:
    """Gives free memory of the C heap back. Without it, the process keeps what a large request needed. Does nothing
    where the C library cannot."""
    trim = _find_trim()
    if trim is not None:
        trim(0)


def return_large_blocks() -> None:
    """Makes the C library give large blocks of memory back when they are freed. By default it keeps ever larger ones,
    once one was freed. Does nothing where the C library cannot."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(M_MMAP_THRESHOLD, LARGE_BLOCK)


@cache
def _find_trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


M_MMAP_THRESHOLD: Final = -3  # of `malloc.h`
LARGE_BLOCK: Final = 512 * 1024  # bytes
