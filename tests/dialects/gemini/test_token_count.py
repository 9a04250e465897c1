"""`dialects/gemini/token_count`: the turn in a count request, and the count request for a turn."""

import pytest

from antiphon.dialects import gemini


@pytest.mark.parametrize(
    ("body", "turn"),
    [
        (b'{"generateContentRequest":{"model":"models/m","contents":[]}}', b'{"contents":[]}'),
        (b'{"contents":[]}', b'{"contents":[]}'),
        (b"[]", b"[]"),
    ],
)
def test_turn_to_count_is_unwrapped(body: bytes, turn: bytes) -> None:
    assert gemini.turn_to_count(body) == turn


def test_count_request_wraps_the_turn_and_names_the_model() -> None:
    wrapped = b'{"generateContentRequest":{"model":"models/m","contents":[]}}'
    assert gemini.count_request(b'{"contents":[]}', "m") == wrapped
