"""`gateway/memory`: free memory is given back where the C library can."""

from __future__ import annotations

import ctypes

import pytest

from antiphon.gateway import memory
from antiphon.gateway.memory import (
    KEPT_MEMORY,
    LARGE_BLOCK,
    M_MMAP_THRESHOLD,
    M_TRIM_THRESHOLD,
    release_free_memory,
    return_large_blocks,
)


def test_free_memory_is_given_back_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_bytes: list[int] = []
    monkeypatch.setattr(memory, "_find_trim", lambda: kept_bytes.append)
    release_free_memory()
    assert kept_bytes == [0]


def test_library_without_the_function_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_find_trim", lambda: None)
    release_free_memory()


def test_large_blocks_are_given_back_when_they_are_freed_and_some_memory_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: list[tuple[int, int]] = []

    class Library:
        def mallopt(self, option: int, value: int) -> None:
            options.append((option, value))

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    return_large_blocks()
    assert options == [(M_MMAP_THRESHOLD, LARGE_BLOCK), (M_TRIM_THRESHOLD, KEPT_MEMORY)]
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())  # a library without the function
    return_large_blocks()
    assert len(options) == 2


def test_function_of_the_library_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        malloc_trim = staticmethod(abs)

    for library, expected in ((Library(), abs), (object(), None)):
        monkeypatch.setattr(ctypes, "CDLL", lambda _, library=library: library)
        assert memory._find_trim.__wrapped__() is expected
