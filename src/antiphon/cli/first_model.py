"""The model of commands that name none. `serve` suggests it, so that this module imports nothing of the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

EMBEDDED_MODEL: Final = "local"
# Used only if nothing else is listed: the first is small, and the second answers no turns.
LAST_CHOICES: Final = (EMBEDDED_MODEL, "local-embedding")


def first_model(names: Sequence[str]) -> str | None:
    """Return the first model that is not embedded, else `local` if it is listed."""
    last_choice = EMBEDDED_MODEL if EMBEDDED_MODEL in names else None
    return next((name for name in names if name not in LAST_CHOICES), last_choice)
