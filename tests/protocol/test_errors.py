"""Errors on the wire: the body of an answer and of an event (ERR-1, STR-8)."""

from __future__ import annotations

import json

from antiphon.errors import ApiError, InvalidValue
from antiphon.protocol.codec import encode
from antiphon.protocol.errors import ErrorBody, error_payload
from antiphon.protocol.events import ErrorEvent


def test_error_body_has_type_code_message_and_param() -> None:
    """ERR-1, B-6."""
    error = InvalidValue("model: expected a string, got 5", param="model")
    assert json.loads(encode(ErrorBody(error=error_payload(error)))) == {
        "error": {
            "type": "invalid_request",
            "code": "invalid_value",
            "message": "model: expected a string, got 5",
            "param": "model",
        }
    }


def test_unset_error_fields_are_null() -> None:
    """ERR-1."""
    assert json.loads(encode(error_payload(ApiError("broken"))))["param"] is None


def test_error_event_has_a_nested_error() -> None:
    """STR-8."""
    event = ErrorEvent(sequence_number=3, error=error_payload(ApiError("broken", code="c", param="p")))
    assert json.loads(encode(event)) == {
        "type": "error",
        "sequence_number": 3,
        "error": {"type": "server_error", "code": "c", "message": "broken", "param": "p"},
    }
