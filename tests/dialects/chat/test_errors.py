"""Chat errors, both ways: any server's body by its meaning, ours in the one form that clients parse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.dialects.chat import error_from_hub, error_to_hub
from antiphon.dialects.chat.errors import error_frame_data, error_in_answer
from antiphon.errors import ApiError, ClientFault, InvalidValue, UpstreamFault
from antiphon.protocol.errors import ErrorPayload

# Any JSON, made of the words of error bodies.
WORDS = st.sampled_from(["error", "detail", "message", "code", "type", "loc", "msg", "metadata", "raw"])
JSON_BODIES = st.recursive(
    st.none() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner),
    max_leaves=6,
).map(lambda value: json.dumps(value).encode())
KEY = "sk-proj-abcdef1234567890"


def of(status: int, body: Any, **headers: str) -> ApiError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_to_hub(status, {name.replace("_", "-"): value for name, value in headers.items()}, raw)


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        ({"error": {"message": "no", "type": "invalid_request_error", "param": "top_p", "code": None}}, "no", "top_p"),
        ({"error": "no"}, "no", None),
        ({"error": ["no"]}, "no", None),
        ({"message": "no"}, "no", None),
        ({"object": "error", "message": "no", "type": "BadRequestError", "param": None, "code": 400}, "no", None),
        ({"detail": "no"}, "no", None),
        ({"detail": {"msg": "no"}}, "no", None),
        (
            {"detail": [{"type": "missing", "loc": ["body", "messages", 0, "role"], "msg": "no", "input": {}}]},
            "no",
            "messages[0].role",
        ),
        ({"detail": [{"loc": ["query", "x"], "msg": "no"}]}, "no", "query.x"),
        ([{"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}}], "no", None),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": "no"}}},
            "Provider returned error: no",
            None,
        ),
        ({"error": {"message": "no", "metadata": {"raw": ""}}}, "no", None),
        (
            {"error": {"error": {"error": {"error": {"error": {"message": "no"}}}}}},
            "the upstream refused the request with status 400",
            None,
        ),
        ("no", "no", None),
        (b"no", "no", None),
        (b"<html><body>nginx</body></html>", "the upstream refused the request with status 400", None),
        (b"", "the upstream refused the request with status 400", None),
        (b"null", "the upstream refused the request with status 400", None),
        ({}, "the upstream refused the request with status 400", None),
        ({"error": {"message": 3}}, "the upstream refused the request with status 400", None),
        (b"[" * 100_000, None, None),
    ],
)
def test_error_bodies_of_every_form_are_decoded(body: Any, message: str | None, param: str | None) -> None:
    """ERR-4: the message and its param are kept."""
    error = of(400, body)
    assert isinstance(error, ClientFault)
    assert (error.status, error.type) == (400, "invalid_request")
    assert message is None or error.message == message
    assert error.param == param


@pytest.mark.parametrize(
    ("status", "body", "wanted"),
    [
        (400, {"error": {"message": "x", "code": "context_length_exceeded"}}, (400, "context_length_exceeded")),
        (
            400,
            {"error": {"message": "This model's maximum context length is 8192 tokens."}},
            (400, "context_length_exceeded"),
        ),
        (500, {"error": {"message": "prompt is too long for the context size"}}, (400, "context_length_exceeded")),
        (
            400,
            {"error": {"message": "x", "type": "exceed_context_size_error", "code": 400}},
            (400, "context_length_exceeded"),
        ),
        (401, {"error": {"message": "Incorrect API key"}}, (502, "upstream_auth_failed")),
        (403, {"error": {"message": "not yours"}}, (502, "upstream_auth_failed")),
        (
            404,
            {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}},
            (404, "model_not_found"),
        ),
        (404, {"error": {"message": 'model "x" not found, try pulling it first'}}, (404, "model_not_found")),
        (404, {"detail": "Not Found"}, (502, "upstream_error")),
        (404, b"404 page not found", (502, "upstream_error")),
        (405, {"detail": "Method Not Allowed"}, (502, "upstream_error")),
        (413, b"", (413, "request_too_large")),
        (429, {"error": {"message": "slow down"}}, (429, "rate_limit_exceeded")),
        (408, b"", (504, "upstream_timeout")),
        (504, b"<html>", (504, "upstream_timeout")),
        (500, {"error": {"message": "x"}}, (502, "upstream_error")),
        (502, b"", (502, "upstream_error")),
        (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, (503, "overloaded")),
        (529, b"", (503, "overloaded")),
    ],
)
def test_upstream_error_is_mapped_by_its_meaning(status: int, body: Any, wanted: tuple[int, str]) -> None:
    """ERR-4."""
    error = of(status, body)
    assert (error.status, error.code) == wanted


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429, 500, 503])
@pytest.mark.parametrize(
    "body", [{"error": {"message": f"bad key {KEY}"}}, {"detail": f"Bearer {KEY}"}, f"api_key={KEY}".encode()]
)
def test_api_keys_are_masked_in_errors(status: int, body: Any) -> None:
    """ERR-4, ERR-5."""
    assert KEY not in of(status, body).message
    assert "abcdef" not in of(status, body).message


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "1500", "retry_after": "7"}, 1.5),
        ({"retry_after": "Mon, 17 Nov 2025 10:00:20 GMT", "date": "Mon, 17 Nov 2025 10:00:00 GMT"}, 20.0),
        ({"retry_after": "Mon, 17 Nov 2025 10:00:20 GMT"}, None),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], wanted: float | None) -> None:
    """ERR-2, ERR-4: 429 stays 429."""
    error = of(429, b"", **headers)
    assert (error.status, error.type, error.retry_after) == (429, "too_many_requests", wanted)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        ({"message": "x", "code": 429}, (429, "rate_limit_exceeded")),
        ({"message": "x", "code": "429"}, (429, "rate_limit_exceeded")),
        ({"message": "x", "code": "strange", "type": "overloaded_error"}, (503, "overloaded")),
        ({"message": "x", "type": "invalid_request_error", "code": True}, (400, "invalid_value")),
        ({"message": "x", "code": 42}, (502, "upstream_error")),
        ("x", (502, "upstream_error")),
        (["x"], (502, "upstream_error")),
        (7, (502, "upstream_error")),
    ],
)
def test_error_inside_a_200_gets_its_usual_status(error: Any, wanted: tuple[int, str]) -> None:
    mapped = error_in_answer(error)
    assert (mapped.status, mapped.code) == wanted


@given(st.integers(100, 599), st.binary(max_size=40) | JSON_BODIES)
def test_any_error_body_gives_an_error(status: int, body: bytes) -> None:
    error = error_to_hub(status, {}, body)
    assert 400 <= error.status < 600
    assert error.message


# From the hub


@pytest.mark.parametrize(
    ("error", "status", "type"),
    [
        (InvalidValue("bad", param="messages[0]"), 400, "invalid_request_error"),
        (ClientFault("no key", code="invalid_api_key", status=401), 401, "authentication_error"),
        (ClientFault("no", code="forbidden_origin", status=403), 403, "permission_error"),
        (ApiError("no", type="not_found", code="model_not_found"), 404, "invalid_request_error"),
        (ApiError("slow", type="too_many_requests", code="rate_limit_exceeded"), 429, "rate_limit_error"),
        (UpstreamFault("down"), 502, "server_error"),
        (ApiError("no", type="model_error", code="tool_not_allowed"), 500, "server_error"),
    ],
)
def test_error_from_hub_has_the_form_that_clients_parse(error: ApiError, status: int, type: str) -> None:
    """ERR-1, ERR-2, B-6."""
    sent_status, body = error_from_hub(error)
    assert sent_status == status
    assert json.loads(body) == {
        "error": {"message": error.message, "type": type, "param": error.param, "code": error.code}
    }


def test_error_frame_has_the_same_form() -> None:
    payload = ErrorPayload(type="too_many_requests", code="rate_limit_exceeded", message="slow", param=None)
    assert json.loads(error_frame_data(payload))["error"]["type"] == "rate_limit_error"
    odd = ErrorPayload(type="acme", code=None, message="odd", param="x")
    assert json.loads(error_frame_data(odd)) == {
        "error": {"message": "odd", "type": "server_error", "param": "x", "code": None}
    }
    assert json.loads(error_frame_data(None))["error"]["code"] == "internal_error"
