"""The headers that tell SDKs whether and when to retry, in every client dialect (ERR-2); and errors that say what to do."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace
from openai import AuthenticationError, OpenAI
from tests.api.askers import ASKERS, Asker
from tests.api.stateful import Full, lab
from tests.running import one_upstream, running

from antiphon import testing
from antiphon.config import Config, ServerConfig, Timeouts, UpstreamConfig
from antiphon.testing import SSE_HEAD, ChatServer, Reply, ResponsesServer, exactly, turn
from antiphon.testing import error as chat_error

pytestmark = pytest.mark.io
each = pytest.mark.parametrize("asker", ASKERS, ids=lambda asker: asker.dialect)
HEADERS = ("retry-after", "retry-after-ms", "x-should-retry")


def retry_headers(answer: Any) -> tuple[str | None, ...]:
    return tuple(answer.headers.get(name) for name in HEADERS)


@each
@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (429, {"retry-after-ms": "1500"}, ("2", "1500", "true")),
        (429, {}, ("1", "1000", "true")),
        (503, {"retry-after": "7"}, ("7", "7000", "true")),
        (503, {}, (None, None, "true")),
        (504, {"retry-after": "0.25"}, ("1", "250", "true")),
        (400, {}, (None, None, "false")),
        (500, {}, (None, None, None)),
    ],
)
def test_error_says_whether_and_when_to_retry(asker: Asker, status: int, headers: Any, expected: Any) -> None:
    """ERR-2: before any content; other errors of the client's request are never retried."""
    with (
        ChatServer(lambda _: chat_error(status, "no", headers=headers), strict=False) as upstream,
        running(one_upstream(upstream.base_url)) as gateway,
    ):
        assert retry_headers(asker.ask(gateway)) == expected
        assert retry_headers(gateway.get("/v1/nothing")) == (None, None, "false")


@each
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("is_after_content", "temporary"), [(False, "true"), (True, "false")], ids=["before-content", "after-content"]
)
def test_every_status_of_an_upstream_has_its_retry_header(
    asker: Asker, is_stream: bool, is_after_content: bool, temporary: str
) -> None:
    """ERR-2: as a status, or as an event in a stream of which the client has received nothing yet."""
    unknown = "false" if is_after_content else None  # SDKs decide by the status
    expected = {
        **dict.fromkeys((400, 404, 413, 422), "false"),
        **dict.fromkeys((408, 429, 503, 504, 529), temporary),
        **dict.fromkeys((401, 402, 403, 409, 410, 425, 500, 501, 502, 520), unknown),
    }
    replies: list[Reply] = []
    with (
        ChatServer(lambda _: replies[0], strict=False) as upstream,
        running(one_upstream(upstream.base_url)) as gateway,
    ):
        for status in expected:
            replies[:] = [error_after_content(status) if is_after_content else chat_error(status, "no")]
            answer = asker.stream(gateway) if is_stream else asker.ask(gateway)
            assert answer.status_code >= 400
            assert retry_headers(answer)[2] == expected[status], f"upstream {status}: {answer.status_code}"


def error_after_content(status: int) -> Reply:
    events = [{"choices": [{"index": 0, "delta": {"content": "Half"}}]}, {"error": {"code": status, "message": "no"}}]
    return exactly(SSE_HEAD + b"".join(b"data: %b\n\n" % json.encode(event) for event in events), testing.end("fin"))


def test_sdk_retries_after_the_milliseconds_of_the_upstream() -> None:
    """ERR-2: the SDK reads them; with retries it succeeds, without it raises."""
    replies: list[Reply] = [chat_error(429, "slow down", headers={"retry-after-ms": "5"}), turn(testing.text("Hello."))]
    with ChatServer(replies, strict=False) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        with OpenAI(base_url=gateway.url + "/v1", api_key="any", max_retries=1) as client:
            assert client.responses.create(model="m", input="Hi").output_text == "Hello."
        assert len(upstream.received) == 2


def test_error_after_the_model_was_paid_is_not_retried() -> None:
    """ERR-2: the answer could not be stored, or broke off in the middle. Without any content it is not known."""
    with lab(wrap=Full) as here:
        answer = here.ask("Hi")
        assert (answer.status_code, retry_headers(answer)[2]) == (503, "false")
    events = b'data: {"choices":[{"index":0,"delta":{"content":"Half"}}]}\n\n'
    for content, expected in ((events, "false"), (b"", None)):
        cut = exactly(SSE_HEAD + content, testing.end("fin"))
        with ChatServer([cut] * 9, strict=False) as upstream, running(one_upstream(upstream.base_url)) as gateway:
            answer = gateway.post({"model": "m", "input": "Hi"})
            assert (answer.status_code, retry_headers(answer)[2]) == (502, expected)


USAGE = {"prompt_tokens": 70, "completion_tokens": 1, "total_tokens": 71}
WHOLE = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}'
WHOLE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def whole_answer(body: bytes) -> bytes:
    return WHOLE_HEAD % len(body) + body


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        pytest.param(exactly(whole_answer(WHOLE)[:-9], testing.end("fin")), (502, "false"), id="cut"),
        pytest.param(exactly(whole_answer(WHOLE)[:-9], testing.end("hang")), (504, "false"), id="stalled"),
        pytest.param(exactly(WHOLE_HEAD % 9, testing.end("hang")), (504, "true"), id="stalled before the body"),
        pytest.param(exactly(whole_answer(WHOLE[:-9])), (502, "false"), id="invalid"),
        pytest.param(
            exactly(whole_answer(b'{"choices":[{"message":{"content":"%b"}}]}' % (b"x" * 2**20))),
            (502, "false"),
            id="larger than the gateway allows",
        ),
        pytest.param(
            testing.whole({"error": {"message": "no", "code": 503}, "usage": USAGE}), (503, "false"), id="error, usage"
        ),
        pytest.param(testing.whole({"error": {"message": "no", "code": 503}}), (503, "true"), id="error"),
    ],
)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
def test_error_in_a_whole_answer_says_that_the_model_was_paid(
    reply: Reply, expected: tuple[int, str], streams: bool
) -> None:
    """ERR-2: a part of the answer arrived, or its usage."""
    with ChatServer(lambda _: reply, strict=False) as upstream:
        config = replace(
            one_upstream(upstream.base_url), timeouts=Timeouts(idle=0.1), server=ServerConfig(max_answer_mib=1)
        )
        with running(config) as gateway:
            answer = gateway.post({"model": "m", "input": "Hi", "stream": streams})
    assert (answer.status_code, retry_headers(answer)[2]) == expected


def test_failed_response_with_output_says_that_the_model_was_paid() -> None:
    """ERR-2."""
    failed = {
        "id": "resp_1",
        "object": "response",
        "status": "failed",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Half"}]}],
        "error": {"code": "server_error", "message": "no"},
    }
    with (
        ResponsesServer(lambda _: testing.whole(failed), strict=False) as upstream,
        running(one_upstream(upstream.base_url, dialect="responses")) as gateway,
    ):
        answer = gateway.post({"model": "m", "input": "Hi"})
    assert (answer.status_code, retry_headers(answer)[2]) == (502, "false")


def test_missing_key_and_wrong_key_say_different_things() -> None:
    """HTTP-6."""
    with lab() as here:
        none, wrong = (here.gateway.post({"model": "mock-1", "input": "Hi"}, **headers) for headers in ({}, WRONG))
        assert none.status_code == wrong.status_code == 401
        assert none.json()["error"]["message"].startswith("no key: send a key")
        assert wrong.json()["error"]["message"].startswith("invalid key: this gateway does not know it")
        with OpenAI(base_url=here.url + "/v1", api_key="wrong", max_retries=3) as client:
            with pytest.raises(AuthenticationError, match="invalid key"):
                client.responses.create(model="mock-1", input="Hi")


WRONG = {"authorization": "Bearer nobody-knows-this-key"}


@each
def test_unreachable_upstream_is_named(asker: Asker) -> None:
    """ERR-4, ERR-5: by its name, not by its address."""
    upstream = UpstreamConfig(name="cellar", dialect="chat", base_url="http://127.0.0.1:1/v1", models=["*"])
    with running(Config(upstreams=[upstream])) as gateway:
        answer = asker.ask(gateway)
        assert answer.status_code == 502
        assert "the upstream 'cellar' cannot be reached" in answer.text
        assert "127.0.0.1" not in answer.text


def test_unknown_model_lists_names_and_patterns() -> None:
    """ERR-3."""
    models = [*(f"name-{number}" for number in range(7)), "qwen*"]
    with ChatServer() as server, running(one_upstream(server.base_url, models=models)) as gateway:
        message = gateway.post({"model": "gpt-9", "input": "Hi"}).json()["error"]["message"]
    assert "'name-4', … or one that matches 'qwen*'" in message
