"""docs/errors.md, "Upstream", for servers of messages and gemini: the rows that depend on the form of the server's
answers.

Faults of connections and response heads are the same for all dialects, and tested in `test_upstream_faults`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.api.probing import UPSTREAM_KEY
from tests.faults import test_upstream_faults as upstream_faults
from tests.faults.invariants import CHUNKED_HEAD, HELLO, Lab, chunked, laboratory
from tests.faults.test_upstream_faults import CALLS, lab_frames, whole_answer

from antiphon import testing
from antiphon.testing import SSE_HEAD, end, exactly, gemini_error, messages_error, turn
from antiphon.testing.gemini.errors import error_frame, retry_info
from antiphon.testing.messages.errors import error_event
from antiphon.testing.script import PlainReply

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


@pytest.fixture(scope="module", params=["messages", "gemini"])
def shared_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with laboratory(request.param) as lab:
        yield lab


# The same tests for these servers.
test_invalid_frames_fail_the_response = upstream_faults.test_invalid_frames_fail_the_response
test_answer_in_single_bytes_gives_the_same_response = (
    upstream_faults.test_answer_in_single_bytes_gives_the_same_response
)
test_text_that_looks_like_frames_is_preserved = upstream_faults.test_text_that_looks_like_frames_is_preserved
test_requests_between_faults_get_their_own_answers = upstream_faults.test_requests_between_faults_get_their_own_answers


def refusal(lab: Lab, status: int, message: str) -> PlainReply:
    return messages_error(status, message) if lab.dialect == "messages" else gemini_error(status, message)


@pytest.mark.parametrize(
    ("theirs", "status", "code"),
    [
        (500, 502, "upstream_error"),
        (503, 503, "overloaded"),
        (529, 503, "overloaded"),
        (401, 502, "upstream_auth_failed"),
        (403, 502, "upstream_auth_failed"),
        (429, 429, "rate_limit_exceeded"),
    ],
)
def test_upstream_refusal_is_mapped_to_a_code_and_shows_no_key(
    lab: Lab, stream: bool, theirs: int, status: int, code: str
) -> None:
    """ERR-4, ERR-5: never a 401 to the client. One upstream call."""
    lab.says = refusal(lab, theirs, f"no luck with api_key={UPSTREAM_KEY} at http://127.0.0.1:9/v1")
    answer = lab.ask(stream=stream)
    answer.tells(status, code)
    assert b"127.0.0.1" not in answer.body
    assert len(lab.upstream.received) == 1


def test_retry_after_is_read_from_header_or_body(lab: Lab) -> None:
    """ERR-2: gemini sends it in the body only."""
    is_messages = lab.dialect == "messages"
    lab.says = (
        messages_error(429, headers={"retry-after": "30"})
        if is_messages
        else gemini_error(429, details=[retry_info(30)])
    )
    answer = lab.ask()
    answer.tells(429, "rate_limit_exceeded")
    assert answer.headers["retry-after"] == "30"


def test_stream_cut_at_any_frame_has_a_valid_outcome(lab: Lab) -> None:
    """STR-7, STR-8: before the first event a 502, after it `response.failed`, after the completing frame `completed`;
    inside frames too."""
    frames = lab_frames(lab, CALLS, True)
    whole = b"".join(frames)
    completing = [frame for frame in frames if b'"stop_reason":"' in frame or b'"finishReason":"' in frame][-1]
    last = whole.index(completing) + len(completing.rstrip(b"\r\n"))
    offsets = {sum(map(len, frames[:number])) for number in range(len(frames) + 1)} | set(range(0, len(whole), 97))
    for at in sorted(offsets):
        lab.says = exactly(SSE_HEAD, whole[:at], end("fin"))
        answer = lab.ask(stream=True)
        if at >= last:
            assert (answer.outcome, answer.text) == (("completed", None), "Wéll… 😀"), at
        else:
            assert answer.outcome == ("failed", "upstream_disconnected"), at
            assert answer.status == 502 or "Wéll… 😀".startswith(answer.text), at


def test_truncated_plain_answer_is_502(lab: Lab) -> None:
    whole = whole_answer(lab, CALLS, stream=False)
    for at in (1, len(whole) // 2, len(whole) - 1):
        lab.says = exactly(whole[:at], end("fin"))
        lab.ask().tells(502, "upstream_disconnected")


@pytest.mark.parametrize("how", [None, "fin", "hang"])
def test_stream_without_usage_or_end_mark_is_completed(lab: Lab, stream: bool, how: str | None) -> None:
    """Never a hang, even if the upstream keeps its connection open."""
    frames = lab_frames(lab, turn(testing.text("Hel", "lo."), omit=["done", "usage"]), True)
    lab.says = (
        exactly(CHUNKED_HEAD, chunked(frames)) if how is None else exactly(SSE_HEAD, b"".join(frames), end("hang"))
    )
    answer = lab.ask(stream=stream, model="hasty-1" if how else "mock-1")
    assert (answer.outcome, answer.text) == (("completed", None), "Hello.")


def test_timeout_after_the_first_event_fails_the_response(lab: Lab, stream: bool) -> None:
    """STR-8."""
    lab.says = exactly(SSE_HEAD, lab_frames(lab, turn(testing.text("Hel", "lo.")), True)[0], end("hang"))
    answer = lab.ask(stream=stream, model="hasty-1")
    assert answer.outcome == ("failed", "upstream_timeout")
    assert answer.status == (200 if stream else 504)


def test_output_cut_by_the_token_limit_is_incomplete(lab: Lab) -> None:
    """For dialects that send a call in pieces. Gemini sends it whole, so the text before it is cut."""
    called = [testing.tool_call("c1", "f", '{"a":')] if lab.dialect == "messages" else []
    lab.says = turn(testing.text("Well"), *called, testing.finish("length"))
    answer = lab.ask(stream=True)
    assert (answer.outcome, answer.text) == (("incomplete", None), "Well")
    last = msgspec.json.decode(msgspec.json.encode(answer.response.output[-1]))
    assert last["status"] == "incomplete"
    assert last.get("arguments") == ('{"a":' if called else None)


@pytest.mark.parametrize("spelling", ["crlf", "cr", "lines", "bom", "no line end", "comments", "no space"])
def test_every_sse_spelling_gives_the_same_events(lab: Lab, spelling: str) -> None:
    body = b"".join(lab_frames(lab, CALLS, True)).replace(b"\r\n", b"\n")
    lab.says = exactly(SSE_HEAD, body, end("fin"))
    want = lab.ask(stream=True).gist
    lab.says = exactly(SSE_HEAD, upstream_faults.respelled(body, spelling), end("fin"))
    assert lab.ask(stream=True).gist == want


@pytest.mark.parametrize("has_started", [False, True])
@pytest.mark.parametrize(
    ("code", "status"), [("overloaded", 503), ("rate_limit_exceeded", 429), ("upstream_error", 502)]
)
def test_error_inside_a_200_is_mapped_to_a_code(
    lab: Lab, stream: bool, has_started: bool, code: str, status: int
) -> None:
    """ERR-4: before the first event with its own status, after it in the stream."""
    types = {"overloaded": "overloaded_error", "rate_limit_exceeded": "rate_limit_error", "upstream_error": "api_error"}
    frame = (
        error_event(types[code], "x") if lab.dialect == "messages" else error_frame({502: 500}.get(status, status), "x")
    )
    before = b"".join(lab_frames(lab, HELLO, True)[:2]) if has_started else b""
    lab.says = exactly(SSE_HEAD, before + frame, end("fin"))
    answer = lab.ask(stream=stream)
    assert answer.outcome == ("failed", code)
    if not has_started or not stream:
        assert answer.status == status
