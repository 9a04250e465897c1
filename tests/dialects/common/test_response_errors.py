"""The error of a failed response, as an exception."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from antiphon.dialects.common.response_errors import error_of_event, error_of_response, raise_unless_ended
from antiphon.errors import ApiError
from antiphon.protocol.errors import Error, ErrorPayload
from antiphon.protocol.request import Request
from antiphon.protocol.response import initial_response
from antiphon.protocol.status import ResponseStatus


@pytest.mark.parametrize(
    ("code", "status", "type"),
    [
        ("context_length_exceeded", 400, "invalid_request"),
        ("rate_limit_exceeded", 429, "too_many_requests"),
        ("upstream_timeout", 504, "server_error"),
        ("upstream_disconnected", 502, "server_error"),
        ("some_other_failure", 500, "server_error"),
    ],
)
def test_error_code_has_a_status_and_a_type(code: str, status: int, type: str) -> None:
    """ERR-2."""
    error = error_of_response(Error(code=code, message="so"))
    assert (error.code, error.status, error.type, error.message) == (code, status, type, "so")


def test_response_without_error_is_an_internal_error() -> None:
    error = error_of_response(None, "cancelled")
    assert (error.status, error.code) == (500, "internal_error")
    assert "cancelled" in error.message


@pytest.mark.parametrize(
    ("type", "code", "status"),
    [
        ("too_many_requests", "rate_limit_exceeded", 429),
        ("invalid_request", "odd", 400),
        ("model_error", "upstream_error", 502),
        ("nobodys", "odd", 500),
        ("server_error", None, 500),
    ],
)
def test_status_of_an_error_event_comes_from_code_then_type(type: str, code: str | None, status: int) -> None:
    """ERR-2, ERR-3: and it keeps the field it names."""
    error = error_of_event(ErrorPayload(type=type, code=code, message="so", param="input"))
    assert (error.status, error.code, error.param) == (status, code or "internal_error", "input")


def test_unfinished_and_failed_responses_raise() -> None:
    """STR-14: an incomplete response is one, too."""
    opening = initial_response(Request(model="m"), id="resp_1", created_at=1)
    for status in (ResponseStatus.COMPLETED, ResponseStatus.INCOMPLETE):
        raise_unless_ended(replace(opening, status=status))
    with pytest.raises(ApiError, match="the response is in_progress"):
        raise_unless_ended(replace(opening, status=ResponseStatus.IN_PROGRESS))
    with pytest.raises(ApiError, match="slow down"):
        raise_unless_ended(
            replace(opening, status=ResponseStatus.FAILED, error=Error(code="rate_limit_exceeded", message="slow down"))
        )
