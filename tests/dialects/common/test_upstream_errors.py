"""ERR-4, ERR-5: the meaning of a server's refusal for our client, and which part of its message may be shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generate.events import counting_stamps
from tests.test_redaction import KEYS

from antiphon import sse
from antiphon.dialects.common.upstream_errors import error_text, retry_after, status_from_codes, upstream_error
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.protocol.fold import fold_events
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.redaction import MAX_SEARCHED_LENGTH, truncate_text

NOW = "Sun, 15 Nov 2026 10:00:00 GMT"


def mapped(status: int, code: str | None = None, message: str | None = None) -> tuple[int, str, str]:
    error = upstream_error(status, {}, code, message, None)
    return error.status, error.type, error.code


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, None, (400, "invalid_request", "invalid_value")),
        (400, "invalid_request_error", (400, "invalid_request", "invalid_value")),
        (400, "400", (400, "invalid_request", "invalid_value")),
        (400, "unsupported_parameter", (400, "invalid_request", "unsupported_parameter")),
        (422, None, (400, "invalid_request", "invalid_value")),
        (404, None, (404, "not_found", "not_found")),
        (404, "model_not_found", (404, "not_found", "model_not_found")),
        (413, None, (413, "invalid_request", "request_too_large")),
        (429, "insufficient_quota", (429, "too_many_requests", "rate_limit_exceeded")),
        (408, None, (504, "server_error", "upstream_timeout")),
        (504, None, (504, "server_error", "upstream_timeout")),
        (503, None, (503, "server_error", "overloaded")),
        (529, "overloaded_error", (503, "server_error", "overloaded")),
        (500, "server_error", (502, "server_error", "upstream_error")),
        (418, None, (502, "server_error", "upstream_error")),
        (502, "upstream_disconnected", (502, "server_error", "upstream_disconnected")),
    ],
)
def test_statuses_are_mapped_by_meaning(status: int, code: str | None, expected: tuple[int, str, str]) -> None:
    """ERR-4"""
    assert mapped(status, code) == expected
    assert upstream_error(status, {}, code, None, None).message  # there is always a message


@pytest.mark.parametrize("status", [401, 402, 403])
def test_upstream_auth_error_is_never_reported_as_the_clients(status: int) -> None:
    """ERR-4: and none of the upstream's message is passed on."""
    error = upstream_error(status, {}, "invalid_api_key", "Incorrect API key provided: sk-abc***xyz", "key")
    assert (error.status, error.code, error.param) == (502, "upstream_auth_failed", None)
    assert "key" not in error.message


@pytest.mark.parametrize("status", [200, 400, 413, 422, 500])
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("context_length_exceeded", None),
        ("exceed_context_size_error", "request (1055 tokens) exceeds the available context size (512 tokens)"),
        (None, "This model's maximum context length is 8192 tokens"),
        (None, "prompt is too long: 210000 tokens > 200000 maximum"),
        (None, "The input token count (1048577) exceeds the maximum number of tokens allowed"),
        # Recorded errors of Perplexity, Cohere, Amazon Bedrock, Ollama and OpenAI.
        ("too_many_prompt_tokens", "The total length of all messages is too long."),
        (None, "The total length of all messages is too long."),
        (None, "too many tokens: size limit exceeded by 25836 tokens. Try using shorter or fewer inputs."),
        (None, "The model returned the following errors: Input Tokens Exceeded: Number of input tokens exceeds"),
        (None, "prompt too long; exceeded max context length by 1119046 tokens (ref: 96164522)"),
        (None, "Your input exceeds the context window of this model. Please adjust your input and try again."),
        (None, "Context size has been exceeded."),  # of llama.cpp, with 500
    ],
)
def test_context_overflow_is_400_for_any_status(status: int, code: str | None, message: str | None) -> None:
    """ERR-4"""
    assert mapped(status, code, message) == (400, "invalid_request", "context_length_exceeded")


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory: cannot allocate the KV cache for context size 131072",
        "internal error while preparing the context window; please try again",
        "failed to load model: context length 131072 needs 40 GiB",
    ],
)
def test_failure_of_a_server_that_mentions_the_context_is_no_overflow(message: str) -> None:
    """ERR-4: another target may answer."""
    assert mapped(500, None, message) == (502, "server_error", "upstream_error")


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    "message",
    [
        "Incorrect API key provided. You can obtain an API key from https://console.x.ai.",
        "Incorrect%20API%20key%20provided:%20ba***na.",
        "API key not valid. Please pass a valid API key.",
        "Invalid API Key",
    ],
)
def test_refused_key_of_the_gateway_is_not_the_fault_of_the_client(status: int, message: str) -> None:
    """ERR-4: xAI and Google refuse a wrong key with status 400."""
    assert mapped(status, "invalid-argument", message) == (502, "server_error", "upstream_auth_failed")


@pytest.mark.parametrize(
    "message", ["invalid key 'api' in tools[0]", "metadata.api_key: extra inputs are not permitted"]
)
def test_refused_field_with_a_similar_name_is_the_fault_of_the_client(message: str) -> None:
    assert mapped(400, None, message) == (400, "invalid_request", "invalid_value")


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages", "gemini"])
@pytest.mark.parametrize(
    "line",
    [
        b'error: {"code":500,"message":"the slot is busy","type":"server_error"}\n\n',
        b'error: {"error":{"code":500,"message":"the slot is busy"}}\n\n',
        b"error: the slot is busy\n\n",
        b"error: the slot is busy",
    ],
)
def test_error_line_of_a_stream_keeps_its_message(dialect: Any, line: bytes) -> None:
    """Servers of llama.cpp send such lines."""
    server, request, decoder = SERVER_DIALECTS[dialect], Request(model="m"), sse.Decoder()
    initial = make_initial_response(request, id="resp_1", created_at=1)
    reader = server.events_to_hub(request, initial, counting_stamps(), server.wire_type())
    frames = decoder.feed(line) + decoder.finish()
    response = fold_events([event for frame in frames for event in reader.feed(frame)] + reader.finish())
    assert response.error
    assert (response.status, response.error.code, response.error.message) == (
        "failed",
        "upstream_error",
        "the slot is busy",
    )


@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_error_event_with_a_text_keeps_it(dialect: Any) -> None:
    server, request = SERVER_DIALECTS[dialect], Request(model="m")
    initial = make_initial_response(request, id="resp_1", created_at=1)
    reader = server.events_to_hub(request, initial, counting_stamps(), server.wire_type())
    response = fold_events([*reader.feed(sse.Frame("error", b"the slot is busy")), *reader.finish()])
    assert response.error
    assert response.error.message == "the slot is busy"


@pytest.mark.parametrize("status", [400, 422, 500])
def test_unsupported_image_input_is_400_for_any_status(status: int) -> None:
    """ERR-4: the exact message that llama.cpp sends with 500."""
    message = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
    assert mapped(status, None, message) == (400, "invalid_request", "unsupported_parameter")
    assert upstream_error(status, {}, None, message, None).param == "input"
    assert mapped(status, None, "the file input.txt is broken")[2] != "unsupported_parameter"


def test_param_of_a_client_error_is_kept() -> None:
    assert upstream_error(400, {}, None, "bad", "temperature").param == "temperature"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("rate_limit_exceeded",), 429),
        ((None, "overloaded_error"), 503),
        (("no such word", "invalid_request_error"), 400),
        (("429",), 429),
        (("4290",), 500),
        (("200",), 500),
        ((None,), 500),
    ],
)
def test_status_of_an_error_inside_a_200_comes_from_its_codes(words: tuple[str | None, ...], status: int) -> None:
    assert status_from_codes(*words) == status
    assert mapped(200, "rate_limit_exceeded")[0] == 429


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:30 GMT", "date": NOW}, 30.0),
        ({"retry-after": "Sun, 15 Nov 2026 09:00:00 GMT", "date": NOW}, 0.0),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:30 GMT"}, None),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:30", "date": NOW}, 30.0),
        ({"retry-after": "Sun, 15 Nov 99999 10:00:30 GMT", "date": NOW}, None),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "1e9"}, 86_400.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    """ERR-2: a date counts from the upstream's own clock."""
    assert retry_after(headers) == seconds
    assert upstream_error(429, headers, None, None, None).retry_after == seconds


def test_key_split_by_truncation_is_in_no_error() -> None:
    """ERR-5: also in the text of an unrecognised body."""
    for size in (3_990, 1_990, 990):
        for message in ("x " * (size // 2) + KEYS[0] + " x" * 4_000, "я " * (size // 2) + KEYS[0] + " я" * 9_000):
            for text in (message, error_text(message.encode())):
                shown = upstream_error(400, {}, None, text, None).message
                assert "sk-" not in shown


@given(st.text(max_size=300), st.sampled_from(KEYS), st.text(max_size=30), st.integers(0, 599))
def test_errors_never_contain_a_key(before: str, key: str, after: str, status: int) -> None:
    """ERR-5, for any status."""
    assert key not in upstream_error(status, {}, None, f"{before} {key} {after}", None).message


@pytest.mark.parametrize(("body", "words"), [(b" no \xff\n", "no \ufffd"), (b"", ""), (b" <html>busy</html>", None)])
def test_error_text_keeps_plain_text_and_drops_pages(body: bytes, words: str | None) -> None:
    """ERR-5."""
    assert error_text(body) == words


@pytest.mark.parametrize(("code", "status"), [("399", 500), ("400", 400), ("599", 599), ("600", 500)])
def test_code_that_is_a_number_is_a_status_of_an_error(code: str, status: int) -> None:
    assert status_from_codes(code) == status


def test_text_of_an_error_that_is_too_long_is_marked() -> None:
    """Also if each character has four bytes."""
    text = error_text(("😀" * (MAX_SEARCHED_LENGTH + 1)).encode())
    assert text is not None
    assert truncate_text(text).endswith("…")
