"""`gateway/context_size`: read from the model list of each server."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.gateway.context_size import context_size_in


@pytest.mark.parametrize(
    ("row", "size"),
    [
        ({"id": "m"}, None),
        ({"meta": {"n_ctx_train": 8192}}, 8192),
        ({"meta": {"n_ctx_train": 8192, "n_ctx": 2048}}, 2048),
        ({"max_model_len": 32768}, 32768),
        ({"context_length": 131072}, 131072),
        ({"context_window": 200_000, "meta": None}, 200_000),
        ({"max_context_length": 4096}, 4096),
        ({"max_input_tokens": 4096}, 4096),
        ({"context_length": "4096"}, None),
        ({"context_length": True}, None),
        ({"context_length": 0}, None),
        ({"context_length": None, "meta": [7]}, None),
    ],
)
def test_context_size_is_read_from_a_row_of_a_model_list(row: dict[str, Any], size: int | None) -> None:
    """REQ-2."""
    assert context_size_in(row) == size
