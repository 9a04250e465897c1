"""Errors of a Messages server by their meaning (ERR-4), and errors for a Messages client."""

from __future__ import annotations

import json

import pytest

from antiphon.dialects.messages import error_to_hub
from antiphon.dialects.messages.errors import error_frame_data, error_from_hub
from antiphon.errors import ApiError, ClientFault, InvalidValue, StorageUnavailable, UnsupportedParameter, UpstreamFault
from antiphon.protocol.errors import Error, ErrorPayload


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


@pytest.mark.parametrize(
    ("error", "status", "type"),
    [
        (InvalidValue("no"), 400, "invalid_request_error"),
        (ClientFault("no", status=401), 401, "authentication_error"),
        (ClientFault("no", status=402), 402, "billing_error"),
        (ClientFault("no", status=403), 403, "permission_error"),
        (ClientFault("no", type="not_found"), 404, "not_found_error"),
        (ClientFault("no", status=405), 405, "invalid_request_error"),
        (ClientFault("no", status=413), 413, "request_too_large"),
        (ApiError("no", type="too_many_requests"), 429, "rate_limit_error"),
        (ApiError("no"), 500, "api_error"),
        (UpstreamFault("no"), 502, "api_error"),
        (StorageUnavailable("no"), 503, "api_error"),
        (UpstreamFault("no", status=504), 504, "timeout_error"),
        (UpstreamFault("no", code="overloaded", status=503), 529, "overloaded_error"),
    ],
)
def test_errors_have_the_type_and_the_status_of_this_api(error: ApiError, status: int, type: str) -> None:
    """ERR-1."""
    sent_status, body = error_from_hub(error)
    assert sent_status == status
    assert json.loads(body) == {"type": "error", "error": {"type": type, "message": "no", "code": error.code}}


def test_error_names_its_param() -> None:
    """ERR-3."""
    body = json.loads(error_from_hub(InvalidValue("no", param="messages[0].role"))[1])
    assert body["error"]["param"] == "messages[0].role"


@pytest.mark.parametrize(
    "error",
    [UnsupportedParameter("no", param="thread"), ClientFault("no", code="previous_response_not_found", param="x")],
)
def test_thread_that_is_not_served_has_the_details_of_this_api(error: ApiError) -> None:
    """API-7: its SDKs recognise by this that they have to send whole conversations."""
    status, body = error_from_hub(error)
    sent = json.loads(body)["error"]
    assert (status, sent["type"]) == (400, "invalid_request_error")
    assert sent["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


@pytest.mark.parametrize("error", [UnsupportedParameter("no", param="n"), InvalidValue("no", param="thread")])
def test_other_errors_have_no_details(error: ApiError) -> None:
    assert "details" not in json.loads(error_from_hub(error)[1])["error"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("16385 tokens are too many", "prompt is too long: 16385 tokens are too many"),
        ("Prompt is too long: 9 > 8", "Prompt is too long: 9 > 8"),
    ],
)
def test_context_length_error_has_the_message_that_clients_recognize(message: str, expected: str) -> None:
    """Clients look for this text to shorten the conversation and continue."""
    body = json.loads(error_from_hub(ClientFault(message, code="context_length_exceeded"))[1])
    assert body["error"]["message"] == expected


@pytest.mark.parametrize(
    ("error", "type"),
    [
        (ErrorPayload(type="server_error", code="overloaded", message="m", param=None), "overloaded_error"),
        (ErrorPayload(type="too_many_requests", code=None, message="m", param=None), "rate_limit_error"),
        (ErrorPayload(type="model_error", code="tool_not_allowed", message="m", param=None), "api_error"),
        (Error(code="model_not_found", message="m"), "not_found_error"),
        (None, "api_error"),
    ],
)
def test_stream_error_has_the_same_form(error: Error | ErrorPayload | None, type: str) -> None:
    """STR-8."""
    body = json.loads(error_frame_data(error))
    assert body["type"] == "error"
    assert body["error"]["type"] == type
