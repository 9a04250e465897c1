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
    """Makes the C library give large blocks of memory back when they are freed, and keep some memory beyond them. By
    default it keeps ever larger blocks, once one was freed. With a fixed limit for blocks, it would give back all but
    128 KiB, and get it again for the next batch of writes. Does nothing where the C library cannot."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(M_MMAP_THRESHOLD, LARGE_BLOCK)
        set_option(M_TRIM_THRESHOLD, KEPT_MEMORY)


@cache
def _find_trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


M_MMAP_THRESHOLD: Final = -3  # of `malloc.h`
M_TRIM_THRESHOLD: Final = -1
LARGE_BLOCK: Final = 512 * 1024  # bytes
KEPT_MEMORY: Final = 8 * 1024 * 1024  # bytes
