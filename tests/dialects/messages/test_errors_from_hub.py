"""Errors in the form of Messages clients."""

from __future__ import annotations

import json

import pytest

from antiphon.dialects.messages.errors import error_event_data, error_from_hub
from antiphon.errors import ApiError, ClientFault, InvalidValue, StorageUnavailable, UnsupportedParameter, UpstreamFault
from antiphon.protocol.errors import Error, ErrorPayload


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


def test_thread_that_is_not_served_has_the_details_of_this_api() -> None:
    """Its SDKs recognise by this that they have to send whole conversations."""
    status, body = error_from_hub(UnsupportedParameter("no", param="thread"))
    error = json.loads(body)["error"]
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


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
    body = json.loads(error_event_data(error))
    assert body["type"] == "error"
    assert body["error"]["type"] == type
