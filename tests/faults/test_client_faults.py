"""docs/errors.md, "Client": clients that disconnect, do not read, send slowly or much at once; over sockets, in both
dialects."""

from __future__ import annotations

import gc
import itertools
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from tests.faults.invariants import HELLO, SETTLING, Lab, Told, laboratory, request
from tests.running import BOUND, read_all, until

from antiphon import testing
from antiphon.config import UpstreamConfig
from antiphon.http.connection import HttpProtocol
from antiphon.testing import SSE_HEAD, Gate, ReceivedRequest, Reply, exactly, turn
from antiphon.testing.script import RawReply

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
KIB = 1024
NO_LINGER = struct.pack("ii", 1, 0)
LATE = (408, "invalid_request", "request_timeout")


def close(client: socket.socket) -> None:
    client.close()


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    client.close()


def close_half(client: socket.socket) -> None:
    """A half-closed client counts as disconnected (docs/decisions/0005): the gateway closes the other half too."""
    client.shutdown(socket.SHUT_WR)
    read_all(client)
    client.close()


@pytest.fixture(params=[close, reset, close_half])
def leave(request: pytest.FixtureRequest) -> Callable[[socket.socket], None]:
    """The ways to disconnect."""
    way: Callable[[socket.socket], None] = request.param
    return way


def asking(lab: Lab, **settings: Any) -> socket.socket:
    """A client that has sent its request and reads nothing yet."""
    client = lab.gateway.connect()
    client.sendall(request(**settings))
    return client


def read_until(client: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        piece = client.recv(65536)
        assert piece, data
        data += piece
    return data


def left(lab: Lab) -> int:
    """The number of recorded client disconnects."""
    return lab.gateway.written.count('"client_left":true')


def expect_cancelled(lab: Lab, abandoned: int, disconnects: int, count: int = 1) -> None:
    """Within a second on an idle machine: without any timeout of the upstream."""
    lab.upstream.wait_disconnected(abandoned + count, BOUND)
    until(lambda: left(lab) == disconnects + count)


# Disconnects


def test_disconnect_before_the_first_byte_cancels_the_upstream(
    lab: Lab, stream: bool, leave: Callable[[socket.socket], None]
) -> None:
    gate = Gate()
    lab.says = turn(testing.wait(gate), testing.text("Never."))
    abandoned, disconnects = lab.upstream.abandoned, left(lab)
    client = asking(lab, stream=stream)
    gate.wait_reached(BOUND)
    leave(client)
    expect_cancelled(lab, abandoned, disconnects)


@pytest.mark.parametrize(
    ("element", "seen"),
    [
        (testing.text("Hel"), b"response.output_text.delta"),
        (testing.reasoning("Hm"), b"response.reasoning_text.delta"),
        (testing.tool_call("c1", "f", '{"a":'), b"response.function_call_arguments.delta"),
    ],
    ids=["text", "reasoning", "arguments"],
)
def test_disconnect_during_the_answer_cancels_the_upstream(
    lab: Lab, stream: bool, leave: Callable[[socket.socket], None], element: Any, seen: bytes
) -> None:
    """Also a client that waits for a plain answer while the upstream streams."""
    gate = Gate()
    lab.says = turn(element, testing.wait(gate), testing.text("never"), stream=True)
    abandoned, disconnects = lab.upstream.abandoned, left(lab)
    client = asking(lab, stream=stream)
    gate.wait_reached(BOUND)
    if stream:
        read_until(client, seen)
    leave(client)
    expect_cancelled(lab, abandoned, disconnects)


@pytest.mark.parametrize(
    "beginning",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
        b"HTTP/1.1 500 Oh\r\ncontent-length: 99\r\n\r\n{",
        b"HTTP/1.1 200",
        SSE_HEAD,
    ],
)
def test_disconnect_cancels_the_upstream_at_any_point_of_its_answer(lab: Lab, stream: bool, beginning: bytes) -> None:
    gate = Gate()
    lab.says = exactly(beginning, testing.wait(gate))
    abandoned, disconnects = lab.upstream.abandoned, left(lab)
    client = asking(lab, stream=stream)
    gate.wait_reached(BOUND)
    client.close()
    expect_cancelled(lab, abandoned, disconnects)


def test_disconnect_during_upstream_connect_abandons_the_connection(stream: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/v1"
        with laboratory("chat", UpstreamConfig(name="silent", dialect="chat", base_url=url, models=["silent"])) as lab:
            client = asking(lab, stream=stream, model="silent")
            caller, _ = silent.accept()
            caller.settimeout(SETTLING)
            client.close()
            read_all(caller)  # the pending connection is abandoned
            caller.close()
            until(lambda: left(lab) == 1)
            lab.settle()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_disconnect_during_the_request_makes_no_upstream_call(
    lab: Lab, share: float, leave: Callable[[socket.socket], None]
) -> None:
    """No upstream call is made."""
    data = request()
    client = lab.gateway.connect()
    client.sendall(data[: int(len(data) * share)])
    leave(client)
    lab.settle()
    assert len(lab.upstream.received) == 1  # the request after it


def test_disconnect_after_the_end_is_not_counted(lab: Lab, stream: bool) -> None:
    """A completed answer is not cancelled."""
    disconnects = left(lab)
    client = asking(lab, stream=stream, close=False)
    read_until(client, b"0\r\n\r\n" if stream else b'"usage"')
    reset(client)
    lab.settle()
    assert left(lab) == disconnects


def test_many_simultaneous_disconnects_cancel_their_upstreams(lab: Lab, stream: bool) -> None:
    gate = Gate()
    lab.says = turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."), stream=True)
    abandoned, disconnects = lab.upstream.abandoned, left(lab)
    clients = [asking(lab, stream=stream) for _ in range(40)]
    lab.upstream.wait_received(40, BOUND)
    until(lambda: lab.upstream.in_flight == 40)
    for number, client in enumerate(clients):
        (reset if number % 2 else close)(client)
    expect_cancelled(lab, abandoned, disconnects, 40)


# Clients that do not read


def flood(lab: Lab) -> tuple[bytes, bytes]:
    """The start of a turn, and a piece of it that can be repeated forever."""
    lab.ask(stream=True)
    frames = lab.wire(turn(testing.text("x" * 32 * KIB)), stream=True)
    at = next(at for at, frame in enumerate(frames) if b"xxxx" in frame)
    return SSE_HEAD + b"".join(frames[:at]), frames[at]


@contextmanager
def stalled_clients(lab: Lab, count: int) -> Iterator[None]:
    """This many clients, each of which receives an endless stream."""
    begin, piece = flood(lab)
    replies: list[RawReply] = []

    def script(_: ReceivedRequest) -> RawReply:
        replies.append(RawReply(steps=itertools.chain([begin], itertools.repeat(piece))))
        return replies[-1]

    lab.says = script
    with ExitStack() as open_until_then:
        clients = [open_until_then.enter_context(socket.socket()) for _ in range(count)]
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
            client.connect(("127.0.0.1", lab.gateway.port))
            client.sendall(request(stream=True))
        until(lambda: len(replies) == count)
        lab.says = HELLO
        yield


def connections_of_clients() -> list[HttpProtocol]:
    """The gateway's side of every connection."""
    candidate = [thing for thing in gc.get_objects() if isinstance(thing, HttpProtocol)]
    return [each for each in candidate if not each.transport.is_closing()]


STALLED = 200  # clients


def test_stalled_clients_use_bounded_memory_and_do_not_affect_others(lab: Lab) -> None:
    """At most 256 KiB for each in user space, however much the upstream sends; other clients are served meanwhile."""
    abandoned, disconnects = lab.upstream.abandoned, left(lab)
    with stalled_clients(lab, STALLED):
        theirs = lab.on_loop(connections_of_clients)
        until(lambda: sum(each.flow.write_paused for each in theirs) == STALLED)
        sizes = lab.on_loop(
            lambda: (
                max(each.transport.get_write_buffer_size() for each in theirs),
                max(answer.buffered_bytes for answer in lab.network.answers),
            )
        )
        assert 64 * KIB < sum(sizes) <= 256 * KIB
        assert lab.ask().text == lab.ask(stream=True).text == "Hello."
        until(lambda: lab.upstream.in_flight == STALLED)
        # No limit of the upstream stops them: it would continue forever.
        assert (lab.upstream.abandoned, left(lab)) == (abandoned, disconnects)
    expect_cancelled(lab, abandoned, disconnects, STALLED)


def test_stalled_clients_are_disconnected_after_the_stall_timeout(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpProtocol, "stall_timeout", 0.2)
    abandoned, disconnects = lab.upstream.abandoned, left(lab)
    with stalled_clients(lab, 5):
        expect_cancelled(lab, abandoned, disconnects, 5)
    assert lab.gateway.written.count("disconnected a client that reads nothing") >= 5


def test_slow_client_receives_the_whole_answer(lab: Lab) -> None:
    """A client that reads something now and then is not disconnected."""
    text = "x" * 64 * KIB
    lab.says = turn(*[testing.text(text)] * 5)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
    client.connect(("127.0.0.1", lab.gateway.port))
    client.sendall(request(stream=True))
    data = bytearray()
    while piece := client.recv(2000):
        data += piece
    client.close()
    assert Told(bytes(data)).text == text * 5


# Unusual ways of sending


def test_pipelined_requests_are_answered_in_order_despite_failures(lab: Lab) -> None:
    gone = exactly(testing.end("fin"))  # requested twice if the connection was pooled, so it comes last
    replies: Iterator[Reply] = iter([turn(testing.text("one")), testing.error(500), turn(testing.text("three"))])
    lab.says = lambda _: next(replies, gone)
    ask = [request(close=at == 3) for at in range(4)]
    with lab.gateway.connect() as client:
        client.sendall(b"".join(ask))
        answers = apart(read_all(client))
    assert [answer.status for answer in answers] == [200, 502, 200, 502]
    assert [answer.text for answer in answers if answer.status == 200] == ["one", "three"]
    assert [answer.error["code"] for answer in answers if answer.status != 200] == [
        "upstream_error",
        "upstream_disconnected",
    ]


def apart(data: bytes) -> list[Told]:
    """Answers of one piece, one after the other."""
    answers = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answers.append(Told(head + b"\r\n\r\n" + rest[:length]))
        data = rest[length:]
    return answers


def test_disconnect_drops_pipelined_requests_that_wait(lab: Lab, stream: bool) -> None:
    gate = Gate()
    lab.says = turn(testing.wait(gate), testing.text("Never."))
    abandoned, disconnects = lab.upstream.abandoned, left(lab)
    client = lab.gateway.connect()
    client.sendall(request(stream=stream, close=False) * 3)
    gate.wait_reached(BOUND)
    client.close()
    expect_cancelled(lab, abandoned, disconnects)
    lab.settle()
    assert len(lab.upstream.received) == 2  # the first of the three, and the one of `settle`


def test_request_sent_byte_by_byte_is_answered(lab: Lab, stream: bool) -> None:
    with lab.gateway.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = request(stream=stream)
        for at in range(len(data)):
            client.sendall(data[at : at + 1])
        assert Told(read_all(client)).text == "Hello."


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_unfinished_request_head_is_refused_after_the_timeout(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Slow senders: the connection is closed after a 408, and no upstream call is made."""
    monkeypatch.setattr(HttpProtocol, "head_timeout", 0.1)
    data = request()
    with lab.gateway.connect() as client:
        client.sendall(data[: int(len(data) * share)])
        answer = Told(read_all(client))
    assert (answer.status, answer.error["type"], answer.error["code"]) == LATE
    assert lab.upstream.received == []


def test_connection_without_any_byte_is_closed_silently_after_the_timeout(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpProtocol, "head_timeout", 0.1)
    with lab.gateway.connect() as client:
        assert read_all(client) == b""
    assert lab.upstream.received == []


def test_unfinished_request_body_is_refused_after_the_timeout(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow senders: a client that announces a body and stops sending it holds its connection only for a limited
    time."""
    monkeypatch.setattr(HttpProtocol, "body_timeout", 0.1)
    with lab.gateway.connect() as client:
        client.sendall(request()[:-1])
        answer = Told(read_all(client))
    assert (answer.status, answer.error["type"], answer.error["code"]) == LATE
    assert lab.upstream.received == []


def test_unfinished_second_body_does_not_affect_the_first_answer(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpProtocol, "body_timeout", 0.1)
    gate = Gate()
    lab.says = turn(testing.wait(gate), testing.text("one"))
    refused = lab.gateway.written.count("was not received")
    with lab.gateway.connect() as client:
        client.sendall(request(close=False) + request()[:-1])
        gate.wait_reached(BOUND)
        until(lambda: lab.gateway.written.count("was not received") == refused + 1)
        gate.open()
        first, second = apart(read_all(client))
    assert first.text == "one"
    assert (second.status, second.error["type"], second.error["code"]) == LATE
    assert len(lab.upstream.received) == 1


def test_slow_request_body_is_accepted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is limited, not the total time."""
    monkeypatch.setattr(HttpProtocol, "body_timeout", 1.0)
    head, _, body = request().partition(b"\r\n\r\n")
    with lab.gateway.connect() as client:
        client.sendall(head + b"\r\n\r\n")
        for at in range(0, len(body), 10):
            client.sendall(body[at : at + 10])
        assert Told(read_all(client)).text == "Hello."
