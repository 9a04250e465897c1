"""Where ids and time come from: they are given to the pure rooms, never taken (the laws give counters)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Stamps(NamedTuple):
    """`new_id("msg")` makes an id with that prefix, `now()` tells the time in whole seconds."""

    new_id: Callable[[str], str]
    now: Callable[[], int]
