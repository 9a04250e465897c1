"""Work that is counted, where a time would depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(action: Callable[[], object]) -> int:
    """How many functions `action` calls, those written in C included; what it raises is raised after the count has
    ended."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def lines_of(action: Callable[[], object]) -> int:
    """How many lines of Python run in the functions that `action` calls, each pass of a loop included."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        action()
    finally:
        sys.settrace(before)
    return count
