"""The source of ids and time. Pure packages get it as an argument, so that tests can use counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Stamps(NamedTuple):
    """`new_id("msg")` returns an id with that prefix; `now()` returns the time in whole seconds."""

    new_id: Callable[[str], str]
    now: Callable[[], int]
