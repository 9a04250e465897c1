"""`mask_keys` and `sanitize_text` remove keys from text."""

from __future__ import annotations

import pytest

from antiphon.redaction import mask_keys


@pytest.mark.parametrize(
    "text",
    ["Authorization: Basic dXNlcjpwYXNz", '"authorization": "Basic dXNlcjpwYXNz"', "authorization=basic dXNlcjpwYXNz"],
)
def test_mask_keys_masks_basic_credentials(text: str) -> None:
    assert "dXNlcjpwYXNz" not in mask_keys(text)


def test_mask_keys_leaves_words_after_basic() -> None:
    assert mask_keys("basic understanding of authorization: none") == "basic understanding of authorization: none"
