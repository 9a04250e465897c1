"""Plain answers of a Messages server. The recordings show that they equal streams."""

from __future__ import annotations

import pytest
from tests.dialects.messages.reading import read_whole, summary_of

from antiphon.errors import ApiError, UpstreamFault


def test_answer_without_a_stop_reason_is_complete() -> None:
    response, losses = read_whole({"content": [{"type": "text", "text": "x"}]})
    assert summary_of(response) == ["OutputText: x", "completed"]
    assert not list(losses)


def test_repaired_answer_reports_losses() -> None:
    """F-4."""
    response, losses = read_whole(b'{"content":[{"type":"text","text":"a\\ud83d"}],"usage":{"input_tokens":"3"}}')
    assert summary_of(response) == ["OutputText: a\ufffd", "completed"]
    assert response.usage is not None
    assert response.usage.input_tokens == 3
    assert [loss.path for loss in losses] == ["stream"]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"type":"message"}', b'{"content":"text"}'])
def test_body_that_is_not_a_message_is_an_upstream_fault(body: bytes) -> None:
    """ERR-4."""
    with pytest.raises(UpstreamFault) as raised:
        read_whole(body)
    assert raised.value.code == "upstream_invalid_response"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, 503, "overloaded"),
        ("everything is broken", 502, "upstream_error"),
        ({"type": "billing_error", "message": "Your credit is too low"}, 502, "upstream_auth_failed"),
    ],
)
def test_error_in_place_of_an_answer_is_raised(error: object, status: int, code: str) -> None:
    """ERR-4."""
    with pytest.raises(ApiError) as raised:
        read_whole({"type": "error", "error": error})
    assert (raised.value.status, raised.value.code) == (status, code)
