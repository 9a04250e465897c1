"""The model of commands that name none."""

from __future__ import annotations

import pytest

from antiphon.cli.first_model import first_model


@pytest.mark.parametrize(
    ("names", "model"),
    [
        (["local", "gpt-5.5", "other"], "gpt-5.5"),
        (["local-embedding", "local"], "local"),
        (["local-embedding"], None),
        ([], None),
    ],
)
def test_first_model_is_embedded_only_if_no_other_is_listed(names: list[str], model: str | None) -> None:
    assert first_model(names) == model
