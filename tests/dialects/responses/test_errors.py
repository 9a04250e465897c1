"""Errors of this API, both ways."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dialects.responses.upstreams import recording

from antiphon.dialects.responses import error_from_hub, error_to_hub
from antiphon.errors import ApiError, ClientFault, UpstreamFault


def test_llama_cpp_context_overflow_is_mapped() -> None:
    """ERR-4"""
    error = error_to_hub(400, {}, recording("llama_cpp_error_context_overflow.json"))
    assert (error.status, error.code) == (400, "context_length_exceeded")
    assert "1055 tokens" in error.message


def test_llama_cpp_refusal_keeps_its_message() -> None:
    error = error_to_hub(400, {}, recording("llama_cpp_error_bad_request.json"))
    assert (error.status, error.code, error.message) == (
        400,
        "invalid_value",
        "'input' must be a string or array of objects",
    )


@pytest.mark.parametrize(
    ("body", "message", "code", "param"),
    [
        (
            b'{"error":{"message":"no","type":"invalid_request_error","code":"bad_thing","param":"tools[0]"}}',
            "no",
            "bad_thing",
            "tools[0]",
        ),
        (b'{"error":"no"}', "no", "invalid_value", None),
        (b'{"detail":"no"}', "no", "invalid_value", None),
        (
            b'{"detail":[{"loc":["body"],"msg":"Field required"}]}',
            '[{"loc":["body"],"msg":"Field required"}]',
            "invalid_value",
            None,
        ),
        (b'{"object":"error","message":"no","type":"BadRequestError","code":400}', "no", "invalid_value", None),
        (b'{"error":null,"message":"no"}', "no", "invalid_value", None),
        (
            b'{"error":{"message":7,"code":["x"]}}',
            "the upstream refused the request with status 400",
            "invalid_value",
            None,
        ),
        (b"no", "no", "invalid_value", None),
        (b"[1]", "the upstream refused the request with status 400", "invalid_value", None),
        (b"<html>no</html>", "the upstream refused the request with status 400", "invalid_value", None),
        (b"", "the upstream refused the request with status 400", "invalid_value", None),
        (b"\xff\xfe", "\ufffd\ufffd", "invalid_value", None),
    ],
)
def test_error_is_decoded_from_any_place(body: bytes, message: str, code: str, param: str | None) -> None:
    error = error_to_hub(400, {}, body)
    assert (error.message, error.code, error.param) == (message, code, param)


def test_rate_limit_has_retry_after() -> None:
    """ERR-2, ERR-4"""
    error = error_to_hub(429, {"retry-after": "3"}, b"{}")
    assert (error.status, error.code, error.retry_after) == (429, "rate_limit_exceeded", 3.0)


def test_error_body_has_type_code_message_and_param() -> None:
    """ERR-1, B-6"""
    status, body = error_from_hub(ClientFault("no", code="invalid_value", param="input[3]"))
    assert status == 400
    assert json.loads(body) == {
        "error": {"type": "invalid_request", "code": "invalid_value", "message": "no", "param": "input[3]"}
    }


def test_api_keys_are_masked_in_client_errors() -> None:
    """ERR-5"""
    _, body = error_from_hub(UpstreamFault("refused: sk-0123456789abcdef"))
    assert b"sk-0123456789" not in body


@given(
    st.sampled_from(["invalid_request", "not_found", "too_many_requests", "server_error", "model_error"]),
    st.text(min_size=1, max_size=40),
    st.none() | st.text(max_size=9),
)
def test_error_from_hub_is_read_back_by_error_to_hub(kind: str, message: str, param: str | None) -> None:
    error = ApiError(message, type=kind, param=param)  # type: ignore[arg-type]
    status, body = error_from_hub(error)
    again = error_to_hub(status, {}, body)
    assert again.status == (502 if status == 500 else status)
    assert again.param == (param if status == 400 or status == 404 else None)
