"""How many tokens a model takes in, as servers say it in their lists of models, each in its own words. Pure."""

from __future__ import annotations

from typing import Any, Final


def context_size_in(row: dict[str, Any]) -> int | None:
    """The size that a row of `/models` tells; None if it tells none."""
    for path in PLACES:
        value: Any = row
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


# What a server runs with says more than what its model was made for, so that comes last.
PLACES: Final[tuple[tuple[str, ...], ...]] = (
    ("meta", "n_ctx"),
    ("max_model_len",),
    ("context_length",),
    ("context_window",),
    ("max_context_length",),
    ("max_input_tokens",),
    ("inputTokenLimit",),
    ("meta", "n_ctx_train"),
)
