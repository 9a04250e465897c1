"""docs/errors.md, "Upstream": faults of a server, over sockets, in both dialects, for streaming and plain clients.

The tests of the pure packages try every byte offset; these try every boundary of frames, and a sample of the offsets
inside them."""

from __future__ import annotations

import gzip
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from tests.api.probing import UPSTREAM_KEY, canary
from tests.faults.invariants import CHUNKED_HEAD, HELLO, Lab, Told, chunked, json_answer, laboratory

from antiphon import testing
from antiphon.config import Timeouts, UpstreamConfig
from antiphon.sse import MAX_EVENT_LENGTH
from antiphon.testing import SSE_HEAD, Gate, Reply, end, exactly, faults, turn
from antiphon.testing.script import PlainReply, RawReply, ScriptedTurn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
CALLS = turn(testing.text("Wéll… 😀"), testing.tool_call("c1", "f", '{"a":', "1}"), testing.usage(7, 9))


def whole_answer(lab: Lab, reply: ScriptedTurn, *, stream: bool) -> bytes:
    """The exact answer of this upstream, head included."""
    lab.ask(stream=stream)
    pieces = lab.wire(reply, stream=stream)
    return CHUNKED_HEAD + chunked(pieces) if stream else json_answer(pieces[0])


# Unreachable upstreams


@contextmanager
def silent_port() -> Iterator[int]:
    """A port whose connections the kernel accepts and no process answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@contextmanager
def full_queue() -> Iterator[int]:
    """A port with a full backlog; the next connection gets no reply."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        port = listening.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for caller in waiting:
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
        try:
            yield port
        finally:
            for caller in waiting:
                caller.close()


@contextmanager
def tls_server(context: ssl.SSLContext) -> Iterator[int]:
    """A server that completes the TLS handshake with every client that accepts its certificate."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    caller, _ = listening.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(caller, server_side=True).close()
                except OSError:
                    caller.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@pytest.fixture(scope="module")
def unreachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab with unreachable upstreams, each named by its fault."""
    authority, stranger = trustme.CA(), trustme.CA()
    trusted: Path = tmp_path_factory.mktemp("tls") / "authority.pem"
    authority.cert_pem.write_to_path(trusted)
    wrong_name, unknown = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in range(2))
    authority.issue_cert("other.example").configure_cert(wrong_name)
    stranger.issue_cert("127.0.0.1").configure_cert(unknown)
    patch = pytest.MonkeyPatch()
    patch.setenv("SSL_CERT_FILE", str(trusted))
    with (
        silent_port() as silent,
        full_queue() as full,
        tls_server(wrong_name) as named,
        tls_server(unknown) as strange,
    ):
        urls = {
            "refused": "http://127.0.0.1:1/v1",
            "no-name": "http://no-such-host.invalid/v1",
            "odd-name": "http://a..b/v1",
            "other-name": f"https://127.0.0.1:{named}/v1",
            "stranger": f"https://127.0.0.1:{strange}/v1",
            "silent-tls": f"https://127.0.0.1:{silent}/v1",
            "no-room": f"http://127.0.0.1:{full}/v1",
        }
        others = [
            UpstreamConfig(name=name, dialect="chat", base_url=url, models=[name], timeouts=Timeouts(connect=0.5))
            for name, url in urls.items()
        ]
        with laboratory("chat", *others) as lab:
            yield lab
    patch.undo()


@pytest.mark.parametrize(
    ("model", "code", "status"),
    [
        ("refused", "upstream_unavailable", 502),
        ("no-name", "upstream_unavailable", 502),
        ("odd-name", "upstream_unavailable", 502),
        ("other-name", "upstream_unavailable", 502),
        ("stranger", "upstream_unavailable", 502),
        ("silent-tls", "upstream_timeout", 504),
        ("no-room", "upstream_timeout", 504),
    ],
)
def test_unreachable_upstream_is_refused_with_its_code(
    unreachable: Lab, stream: bool, model: str, code: str, status: int
) -> None:
    """Refused, DNS, TLS: 502 at once, without a 200 before; a connect timeout only for silence."""
    answer = unreachable.ask(stream=stream, model=model)
    answer.tells(status, code)
    assert not re.search(rb"127\.0\.0\.1|invalid|other\.example", answer.body)
    unreachable.settle()


def test_plain_text_server_behind_https_is_502(stream: bool) -> None:
    """TLS: no request is sent to a server that answers in plain text."""
    with testing.ChatServer() as plain:
        url = plain.base_url.replace("http:", "https:")
        with laboratory("chat", UpstreamConfig(name="plain", dialect="chat", base_url=url, models=["plain"])) as lab:
            lab.ask(stream=stream, model="plain").tells(502, "upstream_unavailable")
            lab.settle()
        assert plain.received == []


# Refusals

NOW = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, "7"),
        ({"retry-after": "0"}, "1"),
        ({"retry-after": "1.5"}, "2"),
        ({"retry-after-ms": "1500"}, "2"),
        ({"retry-after-ms": "20", "retry-after": "9"}, "1"),
        ({"date": NOW, "retry-after": "Sun, 06 Nov 1994 08:50:07 GMT"}, "30"),
        ({"date": NOW, "retry-after": "Sun, 06 Nov 1994 08:00:00 GMT"}, "1"),
        ({"retry-after": "Sun, 06 Nov 1994 08:50:07 GMT"}, "1"),
        ({"retry-after": "soon"}, "1"),
        ({"retry-after": ""}, "1"),
        ({"retry-after": "-5"}, "1"),
        ({"retry-after": "nan"}, "1"),
        ({"retry-after": "inf"}, "1"),
        ({"retry-after": "1" * 400}, "1"),
        ({"retry-after": "1" * 30}, "86400"),
        ({"retry-after": "9" * 12}, "86400"),
        ({}, "1"),
    ],
)
def test_retry_after_of_the_upstream_is_normalized(lab: Lab, stream: bool, headers: dict[str, str], wait: str) -> None:
    """ERR-2: 429 stays 429, and the gateway does not retry."""
    lab.says = testing.error(429, "slow down", headers=headers)
    answer = lab.ask(stream=stream)
    answer.tells(429, "rate_limit_exceeded")
    assert (answer.error["type"], answer.headers["retry-after"]) == ("too_many_requests", wait)
    assert len(lab.upstream.received) == 1


@pytest.mark.parametrize(
    ("theirs", "status", "code"),
    [
        (500, 502, "upstream_error"),
        (502, 502, "upstream_error"),
        (503, 503, "overloaded"),
        (504, 504, "upstream_timeout"),
        (529, 503, "overloaded"),
        (599, 502, "upstream_error"),
        (401, 502, "upstream_auth_failed"),
        (403, 502, "upstream_auth_failed"),
        (204, 502, "upstream_invalid_response"),
    ],
)
def test_upstream_refusal_is_mapped_to_a_code_and_shows_no_key(
    lab: Lab, stream: bool, theirs: int, status: int, code: str
) -> None:
    """ERR-4, ERR-5: never a 401 to the client, although the upstream's message contains the key. One upstream call."""
    message = f"Incorrect API key provided: {UPSTREAM_KEY} at http://127.0.0.1:9/v1"
    lab.says = PlainReply(status=204, body=b"") if theirs == 204 else testing.error(theirs, message)
    answer = lab.ask(stream=stream)
    answer.tells(status, code)
    assert b"127.0.0.1" not in answer.body
    assert len(lab.upstream.received) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_not_followed(lab: Lab, stream: bool, status: int) -> None:
    """No key is sent to the address that an upstream redirects to."""
    with canary() as bird:
        lab.says = faults.redirect(f"http://127.0.0.1:{bird.port}/v1", status)
        answer = lab.ask(stream=stream)
    answer.tells(502, "upstream_invalid_response")
    assert str(bird.port).encode() not in answer.body


@pytest.mark.parametrize(
    ("status", "expected"), [(200, (502, "upstream_invalid_response")), (503, (503, "overloaded"))]
)
def test_html_page_is_an_upstream_error(lab: Lab, stream: bool, status: int, expected: tuple[int, str]) -> None:
    """The HTML of a proxy is not passed on."""
    lab.says = faults.page(status)
    answer = lab.ask(stream=stream)
    answer.tells(*expected)
    assert b"<" not in answer.body


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_compressed_answer_is_an_upstream_error(lab: Lab, stream: bool, status: int, kind: str) -> None:
    """The gateway requested no compression; it does not decompress, which could be a decompression bomb."""
    body = gzip.compress(b'{"error":{"message":"packed"}}')
    lab.says = PlainReply(status=status, body=body, headers={"content-type": kind, "content-encoding": "gzip"})
    answer = lab.ask(stream=stream)
    answer.tells(502, "upstream_invalid_response" if status == 200 else "upstream_error")
    assert answer.error["message"].isascii()


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage\r\n\r\n",
        b"\x00\xff\xfe" * 50,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: \x00\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 300 + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5000,
        b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 3000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nnothing\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\r\n[1]",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{'no': 1}",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 90000\r\n\r\n" + b"[" * 90_000,
    ],
    ids=range(18),
)
def test_invalid_http_answer_is_502(lab: Lab, stream: bool, garbage: bytes) -> None:
    """No HTTP, invalid HTTP, a flood of interim answers, invalid bodies."""
    lab.says = exactly(garbage)
    lab.ask(stream=stream).tells(502, "upstream_invalid_response")
    assert len(lab.upstream.received) == 1


@pytest.mark.parametrize(
    "data", [b"data: not json\n\n", b"data: \xff\xfe\n\n", b"data: " + b"[" * 5000 + b"\n\n"], ids=range(3)
)
def test_invalid_frames_fail_the_response(lab: Lab, stream: bool, data: bytes) -> None:
    lab.says = exactly(SSE_HEAD, data, end("fin"))
    assert lab.ask(stream=stream).outcome == ("failed", "upstream_invalid_response")


def test_stream_of_empty_frames_fails_the_response(lab: Lab, stream: bool) -> None:
    lab.says = exactly(SSE_HEAD, b"data: [1, 2]\n\ndata: 7\n\ndata: {}\n\ndata: null\n\n", end("fin"))
    assert lab.ask(stream=stream).outcome[0] == "failed"


def test_oversized_line_fails_the_response(lab: Lab, stream: bool) -> None:
    """More than a decoder accepts."""
    lab.says = faults.gigantic_line(MAX_EVENT_LENGTH + 1024 * 1024)
    assert lab.ask(stream=stream).outcome == ("failed", "upstream_invalid_response")


# Desync

FORGED = turn(testing.text("forged"))


@pytest.mark.parametrize("separate", [False, True])
def test_unrequested_second_answer_is_discarded(lab: Lab, stream: bool, separate: bool) -> None:
    """Response splitting: bytes after an answer, at once or a moment later, are not the answer to the next request."""
    first = whole_answer(lab, HELLO, stream=stream)
    second = whole_answer(lab, FORGED, stream=stream)
    gate = Gate()
    lab.says = exactly(first, testing.wait(gate), second) if separate else exactly(first + second)
    assert lab.ask(stream=stream).text == "Hello."
    if separate:
        gate.open()
        lab.upstream.wait_closed()  # unexpected bytes close the connection
    lab.says = HELLO
    for _ in range(3):
        assert lab.ask(stream=stream).text == "Hello."


def test_body_is_read_up_to_its_content_length(lab: Lab) -> None:
    answer = whole_answer(lab, HELLO, stream=False)
    lab.says = exactly(answer + b'{"forged":true}')
    assert lab.ask().text == "Hello."
    lab.says = HELLO
    assert lab.ask().text == "Hello."


def test_answer_with_two_lengths_is_refused(lab: Lab, stream: bool) -> None:
    """Chunks and a length together: two readers could see two ends."""
    body = chunked(lab_frames(lab, HELLO, stream))
    kind = b"text/event-stream" if stream else b"application/json"
    lab.says = exactly(
        b"HTTP/1.1 200 OK\r\ncontent-type: "
        + kind
        + b"\r\ncontent-length: 10\r\ntransfer-encoding: chunked\r\n\r\n"
        + body
    )
    assert lab.ask(stream=stream).outcome == ("failed", "upstream_invalid_response")


def lab_frames(lab: Lab, reply: ScriptedTurn, stream: bool) -> list[bytes]:
    lab.ask(stream=stream)
    return lab.wire(reply, stream=stream)


# Truncated answers


def judge_cut(answer: Told, at: int, first: int, last: int, *, may_lose: bool) -> None:
    """The valid outcomes of an answer that was cut here: its first event ends at `first`, its completing frame at
    `last`.

    A reset may discard data that was sent before it (`may_lose`)."""
    status, code = answer.outcome
    note = (at, first, last, answer.status, status, code)
    if status == "completed":
        assert at >= last, note
        assert answer.text == "Wéll… 😀", note
        return
    assert (status, code) == ("failed", "upstream_disconnected"), note
    assert may_lose or at < last, note
    if answer.status == 200:
        assert at >= first, note
        assert "Wéll… 😀".startswith(answer.text), note
    elif not may_lose:
        assert at < first, note


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_stream_cut_at_any_byte_has_a_valid_outcome(lab: Lab, how: Any, framing: str) -> None:
    """STR-7, STR-8: before the first event a 502, after it `response.failed`; at every boundary, and inside frames and
    chunks."""
    frames = lab_frames(lab, CALLS, True)
    pieces = [b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames] if framing == "chunked" else frames
    start = CHUNKED_HEAD if framing == "chunked" else SSE_HEAD
    whole = start + b"".join(pieces) + (b"0\r\n\r\n" if framing == "chunked" else b"")
    completing = [
        frame for frame in frames if b'"finish_reason":"' in frame or b'"type":"response.completed"' in frame
    ][-1]
    last = whole.index(completing) + len(completing.rstrip(b"\n"))
    first = len(start) + len(pieces[0].rstrip(b"\r")) - (2 if framing == "chunked" else 0)
    offsets = {0, 1, len(start) - 1, len(start), len(whole) - 1}
    for number in range(len(pieces) + 1):
        offsets.add(len(start) + sum(map(len, pieces[:number])))
    offsets |= set(range(len(start), len(whole), max(1, len(whole) // 25)))
    for at in sorted(offsets):
        lab.says = exactly(whole[:at], end(how)) if at else exactly(end(how))
        judge_cut(lab.ask(stream=True), at, first, last, may_lose=how == "rst")
        lab.settle()


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_plain_answer_cut_at_any_byte_is_502(lab: Lab, how: Any) -> None:
    """502, without any of its content."""
    whole = whole_answer(lab, CALLS, stream=False)
    for at in sorted(
        {0, 1, whole.index(b"\r\n\r\n") + 4, len(whole) - 1, *range(0, len(whole), max(1, len(whole) // 25))}
    ):
        lab.says = exactly(whole[:at], end(how)) if at else exactly(end(how))
        lab.ask().tells(502, "upstream_disconnected")
        lab.settle()


def test_cut_stream_for_a_plain_request_is_502(lab: Lab) -> None:
    frames = lab_frames(lab, CALLS, True)
    for number in range(len(frames) - 3):
        lab.says = exactly(CHUNKED_HEAD + chunked(frames[:number])[:-5], end("fin"))
        lab.ask().tells(502, "upstream_disconnected")


def test_upstream_that_resets_before_the_first_byte_is_called_at_most_twice(lab: Lab, stream: bool) -> None:
    """No retry storm: one retry if the connection came from the pool, and no more."""
    lab.says = exactly(end("rst"))
    lab.ask(stream=stream).tells(502, "upstream_disconnected")
    assert len(lab.upstream.received) <= 2


@pytest.mark.parametrize("omit", [["done"], ["usage"], ["done", "usage"]])
@pytest.mark.parametrize("how", [None, "fin", "hang"])
def test_stream_without_end_mark_or_usage_is_completed(lab: Lab, stream: bool, omit: list[Any], how: Any) -> None:
    """Never a hang, even if the upstream keeps its connection open."""
    frames = lab_frames(lab, turn(testing.text("Hel", "lo."), omit=omit), True)
    lab.says = exactly(CHUNKED_HEAD, chunked(frames)) if how is None else exactly(SSE_HEAD + b"".join(frames), end(how))
    answer = lab.ask(stream=stream, model="hasty-1" if how == "hang" else "mock-1")
    assert (answer.outcome, answer.text) == (("completed", None), "Hello.")
    if "usage" in omit:
        assert answer.response.usage is None


def test_stream_without_finish_reason_is_complete_only_with_an_end_mark(lab: Lab, stream: bool) -> None:
    """Only chat streams have an end mark besides the reason. All others were cut."""
    lab.says = turn(testing.text("Hel", "lo."), omit=["finish"], stream=True)
    answer = lab.ask(stream=stream)
    if lab.dialect == "chat":
        assert (answer.outcome, answer.text) == (("completed", None), "Hello.")
        return
    assert answer.outcome == ("failed", "upstream_disconnected")
    assert answer.status in (
        (200, 502) if stream else (502,)
    )  # all of it may have arrived at once, before a 200 was sent


def test_call_cut_by_the_token_limit_is_incomplete(lab: Lab, stream: bool) -> None:
    """The response is incomplete, and so is its item."""
    lab.says = turn(testing.text("Well"), testing.tool_call("c1", "f", '{"a":'), testing.finish("length"))
    answer = lab.ask(stream=stream)
    assert answer.outcome == ("incomplete", None)
    call = msgspec.json.decode(msgspec.json.encode(answer.response.output[-1]))
    assert (call["type"], call["status"], call["arguments"]) == ("function_call", "incomplete", '{"a":')


# Timeouts


JSON_START = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
LATE: dict[str, tuple[str, Callable[[], Reply]]] = {
    "silence": ("hasty-1", lambda: exactly(end("hang"))),
    "half a head": ("hasty-1", lambda: exactly(SSE_HEAD[:20], end("hang"))),
    "a head": ("hasty-1", lambda: exactly(SSE_HEAD, end("hang"))),
    "half a frame": ("hasty-1", lambda: exactly(SSE_HEAD, b"data: {", end("hang"))),
    "half a body": ("hasty-1", lambda: exactly(JSON_START, end("hang"))),
    "silence, and no time": ("short-1", lambda: exactly(end("hang"))),
    "comments for ever": ("short-1", lambda: faults.endless(b": still here\n\n")),
    "blank lines for ever": ("short-1", lambda: faults.endless(b"\n")),
    "spaces for ever": (
        "short-1",
        lambda: faults.endless(b" ", before=JSON_START.replace(b"content-length: 99\r\n", b"")),
    ),
    "chunks for ever": ("short-1", lambda: faults.endless(b"2;x=y\r\n:\n\r\n", before=CHUNKED_HEAD)),
    "interim answers for ever": ("short-1", lambda: faults.endless(b"HTTP/1.1 100 Continue\r\n\r\n", before=b"")),
    "one byte at a time": ("short-1", lambda: faults.drip(SSE_HEAD + b": " + b"x" * 10_000, 0.01)),
}


@pytest.mark.parametrize("case", LATE)
def test_timeout_before_the_first_event_is_504(lab: Lab, stream: bool, case: str) -> None:
    """One byte now and then, silence, endless comments: the limits for the first byte, for silence and for the
    whole."""
    model, says = LATE[case]
    lab.says = says()
    lab.ask(stream=stream, model=model).tells(504, "upstream_timeout")


def test_error_without_a_body_is_mapped_by_its_status(lab: Lab, stream: bool) -> None:
    lab.says = exactly(b"HTTP/1.1 503 Busy\r\ncontent-length: 99\r\n\r\n{", end("hang"))
    lab.ask(stream=stream, model="hasty-1").tells(503, "overloaded")


@pytest.mark.parametrize("after", ["silence", "comments", "drip"])
def test_timeout_after_the_first_event_fails_the_response(lab: Lab, stream: bool, after: str) -> None:
    """STR-8."""
    start = SSE_HEAD + b"".join(lab_frames(lab, CALLS, True)[:-4])
    lab.says = {
        "silence": exactly(start, end("hang")),
        "comments": faults.endless(b": ping\n\n", before=start),
        "drip": RawReply(steps=[start, *faults.drip(b": " + b"x" * 1000, 0.01).steps]),
    }[after]
    answer = lab.ask(stream=stream, model="hasty-1" if after == "silence" else "short-1")
    assert answer.outcome == ("failed", "upstream_timeout")
    assert answer.status == (200 if stream else 504)


def test_answer_in_single_bytes_gives_the_same_response(lab: Lab, stream: bool) -> None:
    answer = whole_answer(lab, CALLS, stream=stream)
    lab.says = exactly(answer)
    want = lab.ask(stream=stream).gist
    lab.says = faults.drip(answer)
    assert lab.ask(stream=stream).gist == want


# Spellings of the wire format

ODD = (
    'é€😀 "\\ \u2028 \u2029 \x85 \x1c \x0b \n\ndata: [DONE]\n\nevent: response.completed\ndata: {}\n\n: end\r\n\r\n\0.'
)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
def test_characters_split_over_chunks_are_joined(lab: Lab, stream: bool, size: int) -> None:
    """STR-6: the same events as unsplit."""
    reply = turn(testing.reasoning("Hm… "), testing.text("é€", "😀 日本", "語"), testing.usage(3, 4))
    body = b"".join(lab_frames(lab, reply, True))
    lab.says = exactly(SSE_HEAD, body, end("fin"))
    want = lab.ask(stream=stream)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    lab.says = exactly(CHUNKED_HEAD, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n")
    got = lab.ask(stream=stream)
    assert got.gist == want.gist
    assert got.text == "é€😀 日本語"


@pytest.mark.parametrize(
    "spelling", ["crlf", "cr", "lines", "bom", "no blank line", "no line end", "comments", "no space"]
)
def test_every_sse_spelling_gives_the_same_events(lab: Lab, stream: bool, spelling: str) -> None:
    frames = lab_frames(lab, CALLS, True)
    body = b"".join(
        frames[1:] if lab.dialect == "chat" else frames
    )  # the first chat frame has no content and would not be missed
    lab.says = exactly(SSE_HEAD, body, end("fin"))
    want = lab.ask(stream=stream).gist
    lab.says = exactly(SSE_HEAD, respelled(body, spelling), end("fin"))
    assert lab.ask(stream=stream).gist == want


def respelled(body: bytes, spelling: str) -> bytes:
    match spelling:
        case "crlf":
            return body.replace(b"\n", b"\r\n")
        case "cr":
            return body.replace(b"\n", b"\r")
        case "lines":
            return re.sub(rb"data: (\{.*\})", lambda match: _on_lines(match[1]), body)
        case "bom":
            return b"\xef\xbb\xbf" + body
        case "no blank line":
            return body[:-1]
        case "no line end":
            return body.removesuffix(b"\n\n")
        case "comments":
            return body.replace(b"\n\n", b"\n\n: ping\n\nid: 7\nretry: 1\n\n")
        case _:
            return body.replace(b"data: ", b"data:")


def _on_lines(data: bytes) -> bytes:
    lines = msgspec.json.format(data, indent=1).split(b"\n")
    return b"\n".join(b"data: " + line for line in lines)


def test_text_that_looks_like_frames_is_preserved(lab: Lab, stream: bool) -> None:
    """U+2028, U+2029, U+0085 and forged end marks are preserved byte by byte, escaped or not."""
    lab.says = turn(testing.text(ODD, ODD), testing.tool_call("c1", "f", msgspec.json.encode({"a": ODD}).decode()))
    answer = lab.ask(stream=stream)
    assert (answer.outcome, answer.text) == (("completed", None), ODD + ODD)
    call = msgspec.json.decode(msgspec.json.encode(answer.response.output[-1]))
    assert msgspec.json.decode(call["arguments"]) == {"a": ODD}
    assert answer.body.count(b"\ndata: [DONE]") == (1 if stream else 0)


# An error inside a 200

ERRORS: dict[str, list[tuple[bytes, str, int]]] = {
    "chat": [
        (b'data: {"error":{"message":"slow down","code":429}}\n\n', "rate_limit_exceeded", 429),
        (
            b'data: {"error":{"message":"slow down","type":"rate_limit_error","code":null}}\n\n',
            "rate_limit_exceeded",
            429,
        ),
        (b'data: {"error":"boom"}\n\n', "upstream_error", 502),
        (b'event: error\ndata: {"message":"overloaded","type":"overloaded_error"}\n\n', "overloaded", 503),
        (b'data: {"object":"error","message":"boom","code":500}\n\n', "upstream_error", 502),
        (b'data: {"detail":"boom"}\n\n', "upstream_error", 502),
        (b'data: {"error":{"message":"no key","code":401}}\n\n', "upstream_auth_failed", 502),
        (
            b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}\n\ndata: [DONE]\n\n',
            "upstream_error",
            502,
        ),
    ],
    "responses": [
        (
            b'event: error\ndata: {"type":"error","error":{"code":"rate_limit_exceeded","message":"x"}}\n\n',
            "rate_limit_exceeded",
            429,
        ),
        (
            b'event: error\ndata: {"type":"error","code":"server_error","message":"x","param":null}\n\n',
            "upstream_error",
            502,
        ),
        (b'data: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n', "overloaded", 503),
        (b'data: {"error":{"message":"boom"}}\n\n', "upstream_error", 502),
        (b'data: {"type":"error","error":"boom"}\n\n', "upstream_error", 502),
        (
            b'data: {"type":"response.failed","response":{"status":"failed",'
            b'"error":{"code":"rate_limit_exceeded","message":"x"}}}\n\n',
            "rate_limit_exceeded",
            429,
        ),
        (b'data: {"type":"response.failed","response":{"status":"failed","error":null}}\n\n', "upstream_error", 502),
        (b'data: {"type":"response.error","error":{"code":"server_error","message":"x"}}\n\n', "upstream_error", 502),
    ],
}


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("has_started", [False, True])
def test_error_inside_a_200_is_mapped_to_a_code(lab: Lab, stream: bool, number: int, has_started: bool) -> None:
    """ERR-4: before the first event with its own status, after it in the stream."""
    frame, code, status = ERRORS[lab.dialect][number]
    before = b"".join(lab_frames(lab, HELLO, True)[:2]) if has_started else b""
    lab.says = exactly(SSE_HEAD, before + frame, end("fin"))
    answer = lab.ask(stream=stream)
    assert answer.outcome == ("failed", code)
    if not has_started or not stream:
        assert answer.status == status


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "rate_limit_exceeded", 429),
        ({"message": "boom", "type": "server_error"}, "upstream_error", 502),
        (
            {"message": f"Incorrect API key provided: {UPSTREAM_KEY}", "code": "invalid_api_key"},
            "upstream_auth_failed",
            502,
        ),
    ],
)
def test_error_in_place_of_a_plain_answer_fails_the_response(
    lab: Lab, stream: bool, error: dict[str, str], code: str, status: int
) -> None:
    answer_body = (
        {"error": error} if lab.dialect == "chat" else {"object": "response", "status": "failed", "error": error}
    )
    lab.says = testing.whole(answer_body)
    answer = lab.ask(stream=stream)
    assert answer.outcome == ("failed", code)
    if not stream:
        assert answer.status == status


def test_requests_between_faults_get_their_own_answers(lab: Lab, stream: bool) -> None:
    """Faults leave no state behind that affects a later request."""
    script: list[Reply] = [
        testing.error(500),
        exactly(end("rst")),
        turn(testing.text("a"), end("mid-chunk")),
        exactly(b"garbage\r\n\r\n"),
        faults.redirect("http://127.0.0.1:1/"),
    ]
    for number, reply in enumerate(script):
        lab.says = reply
        assert lab.ask(stream=stream).outcome[0] == "failed"
        lab.says = turn(testing.text(f"answer {number}"))
        assert lab.ask(stream=stream).text == f"answer {number}"
