"""`gateway/memory`: free memory is given back where the C library can."""

from __future__ import annotations

import pytest

from antiphon.gateway import memory
from antiphon.gateway.memory import release_free_memory


def test_free_memory_is_given_back_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_bytes: list[int] = []
    monkeypatch.setattr(memory, "_find_trim", lambda: kept_bytes.append)
    release_free_memory()
    assert kept_bytes == [0]


def test_library_without_the_function_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_find_trim", lambda: None)
    release_free_memory()
