"""Remembers which parts an upstream refused for a model, so that later requests leave them out.

The memory is per process: at most `MAX_MODELS` models of an upstream, each for an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.dialects.registry import Wire

MAX_MODELS: Final = 1024  # models of one upstream; the oldest is evicted
MAX_MODEL_NAME: Final = 256  # characters; longer names are not remembered: patterns accept any names
LIFETIME: Final = 3600.0  # seconds


class RememberedRefusals(Struct, frozen=True):
    """The parts refused for one model, and the wire options without them."""

    refused: tuple[RefusedPart, ...]
    wire: Wire
    expires_at: float


class RefusalMemory:
    """The refusals of one upstream."""

    __slots__ = ("_by_model", "_now")

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._by_model: dict[str, RememberedRefusals] = {}
        self._now = now

    def find(self, model: str) -> RememberedRefusals | None:
        """The refusals of a model; None if there are none or they have expired."""
        entry = self._by_model.get(model)
        if entry is None or self._now() < entry.expires_at:
            return entry
        del self._by_model[model]
        return None

    def remember(self, model: str, refused: RefusedPart, wire: Wire) -> None:
        """Remembers that the upstream accepted a request for this model without `refused`, written with `wire`."""
        if len(model) > MAX_MODEL_NAME:
            return
        remembered = self.find(model)
        self._by_model.pop(model, None)
        if len(self._by_model) >= MAX_MODELS:
            del self._by_model[next(iter(self._by_model))]
        earlier_parts = tuple(part for part in remembered.refused if part != refused) if remembered is not None else ()
        self._by_model[model] = RememberedRefusals((*earlier_parts, refused), wire, self._now() + LIFETIME)
