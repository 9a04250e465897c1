"""Reads the context size of a model from a server's model list; each server has its own field. Pure."""

from __future__ import annotations

from typing import Any, Final


def context_size_in(row: dict[str, Any]) -> int | None:
    """The context size in a row of `/models`; None if it has none."""
    for path in CONTEXT_SIZE_PATHS:
        value: Any = row
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


# The size a server runs with comes before the size the model was trained for.
CONTEXT_SIZE_PATHS: Final[tuple[tuple[str, ...], ...]] = (
    ("meta", "n_ctx"),
    ("max_model_len",),
    ("context_length",),
    ("context_window",),
    ("max_context_length",),
    ("max_input_tokens",),
    ("inputTokenLimit",),
    ("meta", "n_ctx_train"),
)
