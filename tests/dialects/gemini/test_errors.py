"""Errors of a gemini server, and errors for a gemini client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.dialects.gemini import error_from_hub, error_to_hub
from antiphon.dialects.gemini.errors import error_frame_data, error_in_answer
from antiphon.errors import ApiError, InvalidValue, UpstreamFault
from antiphon.protocol.errors import Error, ErrorPayload


def translate(status: int, word: str, message: str = "no", **members: Any) -> ApiError:
    return error_to_hub(
        status, {}, json.dumps({"error": {"code": status, "message": message, "status": word, **members}}).encode()
    )


@pytest.mark.parametrize(
    ("status", "word", "message", "expected"),
    [
        (400, "INVALID_ARGUMENT", "Invalid value at 'contents'", (400, "invalid_value")),
        (
            400,
            "INVALID_ARGUMENT",
            "The input token count (9) exceeds the maximum number of tokens",
            (400, "context_length_exceeded"),
        ),
        (401, "UNAUTHENTICATED", "Request had invalid credentials", (502, "upstream_auth_failed")),
        (403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers", (502, "upstream_auth_failed")),
        (400, "FAILED_PRECONDITION", "User location is not supported for the API use.", (502, "upstream_auth_failed")),
        (404, "NOT_FOUND", "models/x is not found for API version v1beta", (404, "model_not_found")),
        (404, "NOT_FOUND", "Requested entity was not found.", (404, "not_found")),
        (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota", (429, "rate_limit_exceeded")),
        (500, "INTERNAL", "An internal error has occurred", (502, "upstream_error")),
        (503, "UNAVAILABLE", "The model is overloaded", (503, "overloaded")),
        (504, "DEADLINE_EXCEEDED", "Deadline expired", (504, "upstream_timeout")),
    ],
)
def test_server_errors_are_translated_by_meaning(
    status: int, word: str, message: str, expected: tuple[int, str]
) -> None:
    """ERR-4: the same before a stream and inside it."""
    error = translate(status, word, message)
    assert (error.status, error.code) == expected
    inside = error_in_answer({"message": message, "status": word})
    assert (inside.status, inside.code) == expected


def test_bad_key_is_a_gateway_error_and_is_not_shown() -> None:
    """ERR-4, ERR-5: the API answers 400 to it."""
    details = [{"@type": "x/ErrorInfo", "reason": "API_KEY_INVALID", "domain": "d"}]
    error = translate(
        400,
        "INVALID_ARGUMENT",
        "API key not valid. Please pass a valid API key: AIzaSyD1234567890abcdef",
        details=details,
    )
    assert (error.status, error.code) == (502, "upstream_auth_failed")
    assert "AIza" not in error.message


@pytest.mark.parametrize(("headers", "wait"), [({}, 34.5), ({"retry-after": "7"}, 7.0)])
def test_retry_delay_is_read_from_details_or_header(headers: dict[str, str], wait: float) -> None:
    """ERR-2."""
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow", "details": [{}, {"retryDelay": "34.5s"}]}
    assert error_to_hub(429, headers, json.dumps({"error": error}).encode()).retry_after == wait


def test_field_violation_becomes_the_param() -> None:
    """ERR-3."""
    violations = [{"field": "contents[0].parts", "description": "empty"}]
    assert translate(400, "INVALID_ARGUMENT", details=[{"fieldViolations": violations}]).param == "contents[0].parts"


def test_error_inside_a_list_is_read() -> None:
    """A stream that is no SSE is a list, and so is its error."""
    body = json.dumps([{"error": {"code": 503, "message": "later", "status": "UNAVAILABLE"}}]).encode()
    assert error_to_hub(503, {}, body).message == "later"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>bad gateway</html>", "the upstream failed with status 502"),
        (b"upstream gone", "upstream gone"),
        (b"[1]", "the upstream failed with status 502"),
        (b'{"error": "plainly so"}', "plainly so"),
        (b'{"error": 7}', "the upstream failed with status 502"),
        (b'{"error": {"message": 7, "status": 8, "code": "x", "details": {}}}', "the upstream failed with status 502"),
    ],
)
def test_error_body_of_another_form_is_read_leniently(body: bytes, message: str) -> None:
    assert error_to_hub(502, {}, body).message == message


def test_url_without_this_dialect_is_an_upstream_fault() -> None:
    error = error_to_hub(404, {}, b"404 page not found")
    assert (error.status, error.code) == (502, "upstream_error")


def test_error_inside_an_answer_may_have_only_a_code() -> None:
    """ERR-4."""
    assert error_in_answer({"code": 429, "message": "slow"}).status == 429
    assert error_in_answer("broken").message == "broken"


@pytest.mark.parametrize(("code", "same_as"), [(399, 500), (400, 400), (599, 599), (600, 500), ("429", 500)])
def test_code_of_an_error_inside_an_answer_is_a_status_of_an_error(code: Any, same_as: int) -> None:
    error, expected = error_in_answer({"code": code, "message": "no"}), error_to_hub(same_as, {}, b"")
    assert (error.status, error.code) == (expected.status, expected.code)


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
