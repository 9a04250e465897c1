"""Errors of a Messages server, by their meaning (ERR-4)."""

from __future__ import annotations

import json

import pytest

from antiphon.dialects.messages import error_to_hub
from antiphon.errors import ClientFault, UpstreamFault


def body(type: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": type, "message": message}, "request_id": "req_1"}).encode()


@pytest.mark.parametrize(
    ("status", "type", "message", "meaning"),
    [
        (400, "invalid_request_error", "messages.0: bad", (400, "invalid_value")),
        (
            400,
            "invalid_request_error",
            "prompt is too long: 200251 tokens > 200000 maximum",
            (400, "context_length_exceeded"),
        ),
        (401, "authentication_error", "invalid x-api-key", (502, "upstream_auth_failed")),
        (402, "billing_error", "Your credit balance is too low", (502, "upstream_auth_failed")),
        (403, "permission_error", "not for you", (502, "upstream_auth_failed")),
        (404, "not_found_error", "model: claude-9", (404, "model_not_found")),
        (413, "request_too_large", "Request exceeds the maximum size", (413, "request_too_large")),
        (429, "rate_limit_error", "slow down", (429, "rate_limit_exceeded")),
        (500, "api_error", "Internal server error", (502, "upstream_error")),
        (504, "timeout_error", "took too long", (504, "upstream_timeout")),
        (529, "overloaded_error", "Overloaded", (503, "overloaded")),
    ],
)
def test_server_errors_are_translated_by_meaning_ERR4(
    status: int, type: str, message: str, meaning: tuple[int, str]
) -> None:
    error = error_to_hub(status, {}, body(type, message))
    assert (error.status, error.code) == meaning


def test_retry_after_is_passed_on() -> None:
    """ERR-4."""
    assert error_to_hub(429, {"retry-after": "7"}, body("rate_limit_error", "slow")).retry_after == 7


@pytest.mark.parametrize("page", [b"<html>no</html>", b'{"detail":"Not Found"}', b"[]", b"not here"])
def test_url_without_this_dialect_is_an_upstream_fault(page: bytes) -> None:
    """ERR-4."""
    assert isinstance(error_to_hub(404, {}, page), UpstreamFault)


@pytest.mark.parametrize("given", [b'{"error":"no such field"}', b'{"message":"no such field"}', b"no such field"])
def test_errors_of_other_forms_are_decoded(given: bytes) -> None:
    """ERR-4."""
    error = error_to_hub(400, {}, given)
    assert isinstance(error, ClientFault)
    assert error.message == "no such field"


def test_html_page_of_a_proxy_is_not_passed_on() -> None:
    """ERR-5."""
    assert "<" not in error_to_hub(502, {}, b"<html>nginx 1.2 at 10.0.0.1</html>").message


def test_code_of_another_antiphon_gateway_is_kept() -> None:
    """ERR-4."""
    error_body = {
        "error": {
            "type": "invalid_request_error",
            "message": "m",
            "code": "missing_required_parameter",
            "param": "model",
        }
    }
    error = error_to_hub(400, {}, json.dumps(error_body).encode())
    assert (error.code, error.param) == ("missing_required_parameter", "model")
