"""Errors in the form of clients of this dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.dialects.gemini import error_from_hub, error_to_hub
from antiphon.dialects.gemini.errors import error_frame_data
from antiphon.errors import ApiError, InvalidValue, UpstreamFault
from antiphon.protocol.errors import Error, ErrorPayload


def error_of(error: ApiError) -> Any:
    status, body = error_from_hub(error)
    decoded = json.loads(body)["error"]
    assert decoded["code"] == status
    return decoded


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (413, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (502, "INTERNAL"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ],
)
def test_errors_have_the_status_name_of_the_api(status: int, word: str) -> None:
    """ERR-2."""
    assert error_of(ApiError("no", status=status))["status"] == word


def test_error_details_have_code_field_and_retry_delay() -> None:
    """ERR-3, and Retry-After for readers of bodies."""
    error = UpstreamFault(
        "wait", code="rate_limit_exceeded", type="too_many_requests", param="contents[0]", retry_after=1.5
    )
    assert error_of(error) == {
        "code": 429,
        "message": "wait",
        "status": "RESOURCE_EXHAUSTED",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "rate_limit_exceeded",
                "domain": "antiphon",
                "metadata": {"param": "contents[0]"},
            },
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": "contents[0]", "description": "wait"}],
            },
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.5s"},
        ],
    }


def test_error_details_without_field_and_delay_have_only_the_code() -> None:
    assert error_of(ApiError("oh"))["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "internal_error",
            "domain": "antiphon",
            "metadata": {},
        }
    ]


@pytest.mark.parametrize(
    "error",
    [
        InvalidValue("wrong", param="contents[0].parts"),
        UpstreamFault("slow down", type="too_many_requests", code="rate_limit_exceeded", retry_after=7),
        UpstreamFault("late", code="upstream_timeout", status=504),
        UpstreamFault("busy", code="overloaded", status=503),
    ],
)
def test_errors_survive_hub_to_gemini_to_hub(error: ApiError) -> None:
    """Law (d), ERR-4: another gateway in front would report it alike."""
    status, body = error_from_hub(error)
    again = error_to_hub(status, {}, body)
    assert (again.status, again.type, again.code, again.message) == (
        error.status,
        error.type,
        error.code,
        error.message,
    )
    assert (again.param, again.retry_after) == (error.param, error.retry_after)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Error(code="context_length_exceeded", message="long"), 400),
        (ErrorPayload(type="server_error", code="overloaded", message="busy", param=None), 503),
        (None, 500),
    ],
)
def test_stream_error_has_the_same_shape(error: Error | ErrorPayload | None, code: int) -> None:
    """STR-8."""
    assert json.loads(error_frame_data(error))["error"]["code"] == code
