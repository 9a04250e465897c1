"""Upstream answers in every form: split anywhere, broken anywhere, slow on either side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.upstream.conftest import Run
from tests.upstream.scripted import (
    OK,
    Peer,
    TurnableClock,
    Wire,
    network,
    pass_time,
    post,
    serving,
    until,
    whole,
    with_turned_clock,
)

from antiphon.config import Timeouts
from antiphon.errors import UpstreamFault
from antiphon.upstream.http_response import MAX_HEADERS, HttpResponse, StaleConnection
from antiphon.upstream.transport import UpstreamResponse

pytestmark = pytest.mark.without_coverage
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n"
    b"5\r\ndata:\r\n6;name=value\r\n hello\r\n2\r\n\n\n\r\n0\r\nx-trailer: t\r\n\r\n"
)
WITH_LENGTH = (
    b"HTTP/1.1 100 Continue\r\nx-hint: 1\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 13\r\nx-a: 1\r\n\r\ndata: hello\n\n"
)
BODY = b"data: hello\n\n"


async def head_and_body(answer: HttpResponse) -> bytes:
    await answer.head
    return await whole(answer)


@pytest.mark.parametrize("raw", [CHUNKED, WITH_LENGTH])
def test_body_is_the_same_for_every_split(raw: bytes) -> None:
    async def read(parts: list[bytes]) -> None:
        wire = Wire()
        answer: HttpResponse = wire.answer()
        for part in parts:
            wire.deliver(part)
        await answer.head
        headers = {name: value for name, value in answer.headers.items() if name.startswith("x-")}
        assert (answer.status, headers, await whole(answer)) == (200, {"x-a": "1"}, BODY)
        assert wire.given_back == [wire.connection]

    async def work() -> None:
        for at in range(len(raw) + 1):
            await read([raw[:at], raw[at:]])
        await read([raw[at : at + 1] for at in range(len(raw))])

    asyncio.run(work())


@pytest.mark.parametrize("raw", [CHUNKED, WITH_LENGTH])
def test_truncation_at_any_byte_is_a_fault(raw: bytes) -> None:
    """Required by invariant 1: a truncated answer must never look complete."""

    async def work() -> None:
        for at in range(1, len(raw)):
            wire = Wire()
            answer = wire.answer()
            wire.deliver(raw[:at])
            wire.connection.eof_received()
            with pytest.raises(UpstreamFault, match="in the middle") as caught:
                await head_and_body(answer)
            assert caught.value.code == "upstream_disconnected"
            assert wire.aborted
            assert wire.given_back == []

    asyncio.run(work())


def test_end_before_the_first_byte_is_a_stale_connection() -> None:
    async def work() -> None:
        wire = Wire()
        answer = wire.answer()
        wire.connection.eof_received()
        with pytest.raises(StaleConnection):
            await answer.head

    asyncio.run(work())


@pytest.mark.io
def test_data_received_together_is_one_piece(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(CHUNKED)

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            answer: UpstreamResponse = await post(transport, place.url)
            assert [piece async for piece in answer.pieces()] == [BODY]

    run(work())


@pytest.mark.io
def test_pieces_are_delivered_as_they_arrive(run: Run) -> None:
    """HTTP-7: no piece waits for a following one."""
    taken = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(3):
            await peer.say(b"2\r\nab\r\n")
            await taken.wait()
            taken.clear()
        await peer.say(b"0\r\n\r\n")

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            count = 0
            async for piece in (await post(transport, place.url)).pieces():
                assert piece == b"ab"
                count += 1
                taken.set()
            assert count == 3

    run(work())


@pytest.mark.io
def test_body_without_length_ends_with_the_connection(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
        peer.shut()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            assert await whole(await post(transport, place.url)) == b"until the end"
            await until(lambda: transport.open_connections == 0)

    run(work())


@pytest.mark.io
def test_reset_during_a_body_without_length_is_a_fault(run: Run) -> None:
    read = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\nuntil")
        await read.wait()
        peer.reset()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            pieces = (await post(transport, place.url)).pieces()
            assert await anext(pieces) == b"until"
            read.set()
            with pytest.raises(UpstreamFault, match="in the middle") as caught:
                await anext(pieces)
            assert caught.value.code == "upstream_disconnected"

    run(work())


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"HTTP/1.1 204 No\r\n\r\n", b""),
        (b"HTTP/1.1 304 Same\r\ncontent-length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", b""),
        (b"HTTP/1.1 500 \r\ncontent-length: 1\r\n\r\nx", b"x"),
        (b"HTTP/1.1 103 Hints\r\nlink: a\r\n\r\nHTTP/1.1 102 Wait\r\n\r\n" + OK, b"ok"),
        (OK + b"\r\n", b"ok"),
    ],
)
def test_connection_is_reusable_after_complete_answers(raw: bytes, body: bytes) -> None:
    async def work() -> None:
        wire = Wire()
        answer = wire.answer()
        wire.deliver(raw)
        assert (await whole(answer), "link" in answer.headers) == (body, False)
        assert wire.given_back == [wire.connection]

    asyncio.run(work())


@pytest.mark.parametrize(
    "raw", [OK + b"H", OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), OK + b"\0\1", OK + OK]
)
def test_connection_is_not_reused_after_answers_that_forbid_it(raw: bytes) -> None:
    async def work() -> None:
        wire = Wire()
        answer = wire.answer()
        wire.deliver(raw)
        assert await whole(answer) == b"ok"
        assert wire.given_back == [] or wire.aborted

    asyncio.run(work())


def test_bytes_after_the_body_do_not_affect_the_answer() -> None:
    async def work() -> None:
        wire = Wire()
        answer = wire.answer()
        wire.deliver(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok more")
        assert await whole(answer) == b"ok"
        assert wire.aborted

    asyncio.run(work())


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-x\r\n",
        b"\x16\x03\x01\x00\x00",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 101 Switch\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 101 Switch\r\n\r\nx",
    ],
)
def test_invalid_response_is_a_fault(raw: bytes) -> None:
    """ERR-5: and no library is named."""

    async def work() -> None:
        wire = Wire()
        answer = wire.answer()
        wire.deliver(raw)
        with pytest.raises(UpstreamFault, match=r"the upstream('s answer is not valid HTTP| switched)") as caught:
            await head_and_body(answer)
        assert (caught.value.code, caught.value.status) == ("upstream_invalid_response", 502)
        assert wire.aborted

    asyncio.run(work())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\na: " + b"x" * 70_000, "bytes of headers"),
        (b"HTTP/1.1 103 Hints\r\n\r\n" * 4_000, "bytes of headers"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * (MAX_HEADERS + 2), "more than 256 headers"),
        (CHUNKED[:-2] + b"a: " + b"x" * 70_000, "bytes of headers"),
        (CHUNKED[:-2] + b"a: b\r\n" * (MAX_HEADERS + 2), "more than 256 headers"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;" + b"x" * 70_000, "bytes of headers"),
    ],
)
def test_heads_and_trailers_have_limits(raw: bytes, expected: str) -> None:
    async def work() -> None:
        wire = Wire()
        answer = wire.answer()
        wire.deliver(raw)
        with pytest.raises(UpstreamFault, match=expected) as caught:
            await head_and_body(answer)
        assert caught.value.code == "upstream_invalid_response"

    asyncio.run(work())


def test_large_head_is_accepted_and_repeated_headers_are_joined() -> None:
    async def work() -> None:
        wire = Wire()
        answer = wire.answer()
        wire.deliver(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 60_000 + b"\r\nb: \xe9\r\nB: 2\r\ncontent-length: 0\r\n\r\n")
        await answer.head
        assert len(answer.headers["a"]) == 60_000
        assert answer.headers["b"] == "é, 2"

    asyncio.run(work())


# Timeouts


def test_first_byte_timeout_is_enforced() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer(Timeouts(first_byte=20))
        await pass_time(19)
        assert not answer.head.done()
        await pass_time(2)
        with pytest.raises(UpstreamFault, match="did not answer within 20 s") as caught:
            await answer.head
        assert (caught.value.code, caught.value.status) == ("upstream_timeout", 504)
        assert wire.aborted

    with_turned_clock(work)


def test_idle_timeout_is_enforced_and_reset_by_any_byte() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer(Timeouts(first_byte=5, idle=20))
        for byte in CHUNKED[:60]:
            wire.deliver(bytes([byte]))
            await pass_time(9)
        await pass_time(12)
        with pytest.raises(UpstreamFault, match="sent nothing for 20 s") as caught:
            await whole(answer)
        assert (caught.value.code, caught.value.status) == ("upstream_timeout", 504)

    with_turned_clock(work)


def test_total_timeout_ends_an_endless_body() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer(Timeouts(total=100))
        wire.deliver(b"HTTP/1.1 200 OK\r\n\r\n")
        pieces = answer.pieces()
        for _ in range(9):
            wire.deliver(b": still here\n\n")
            assert await anext(pieces)
            await pass_time(10)
        wire.deliver(b": still here\n\n")
        await pass_time(11)
        assert await anext(pieces) == b": still here\n\n"  # data that arrived in time is still delivered
        with pytest.raises(UpstreamFault, match="took longer than 100 s") as caught:
            await anext(pieces)
        assert caught.value.code == "upstream_timeout"

    with_turned_clock(work)


def test_idle_timeout_does_not_count_the_time_of_a_slow_reader() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer(Timeouts(idle=10))
        wire.deliver(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(40_000))
        assert wire.paused
        await pass_time(60)
        pieces = answer.pieces()
        assert len(await anext(pieces)) == 40_000
        assert not wire.paused
        await pass_time(8)
        wire.deliver(b"x")
        assert await anext(pieces) == b"x"
        waiting = asyncio.ensure_future(anext(pieces))
        await pass_time(12)
        with pytest.raises(UpstreamFault, match="sent nothing for"):
            await waiting

    with_turned_clock(work)


def test_total_timeout_includes_the_time_of_a_slow_reader() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer(Timeouts(total=100))
        wire.deliver(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(40_000))
        await pass_time(50)
        assert not wire.aborted
        await pass_time(51)
        assert wire.aborted
        pieces = answer.pieces()
        assert len(await anext(pieces)) == 40_000
        with pytest.raises(UpstreamFault, match="took longer"):
            await anext(pieces)

    with_turned_clock(work)


def test_exchange_leaves_no_timer_behind() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        answer = (wire := Wire()).answer(Timeouts(idle=10))
        wire.deliver(OK)
        await pass_time(700)
        assert await whole(answer) == b"ok"
        assert not [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]

    with_turned_clock(work)


def test_timeout_reached_exactly_is_named_correctly() -> None:
    """Clocks are floats: the difference of two moments may be rounded to less than the amount that was added."""

    async def work() -> None:
        for tenths in range(1, 200):
            loop = asyncio.get_running_loop()
            assert isinstance(loop, TurnableClock)
            loop.stands_at = start = 1000 + tenths / 10
            answer = (wire := Wire()).answer(Timeouts(total=0.02))
            wire.deliver(b"HTTP/1.1 200 OK\r\n\r\n")
            loop.stands_at = start + 0.02
            answer._check_timeouts()
            with pytest.raises(UpstreamFault, match="took longer"):
                await whole(answer)

    with_turned_clock(work)


@pytest.mark.io
def test_timeouts_apply_to_real_sockets(run: Run) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\nx")
        await peer.gone()

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            with pytest.raises(UpstreamFault, match="sent nothing for"):
                await whole(await post(transport, place.url, timeouts=Timeouts(idle=0.02)))
            with pytest.raises(UpstreamFault, match="took longer"):
                await whole(await post(transport, place.url, timeouts=Timeouts(total=0.02)))
            await until(lambda: transport.open_connections == 0)

    run(work())


# Slow readers, and readers that leave


@pytest.mark.io
def test_slow_reader_pauses_the_upstream_and_gets_everything(run: Run) -> None:
    size, step = 64 * 1024 * 1024, 64 * 1024
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for number in range(size // step):
            await peer.say(bytes([number % 251]) * step)
            sent += step

    async def stalled() -> int:
        """The bytes sent when no more were accepted for a while."""
        before, still = -1, 0
        while still < 20:
            before, still = sent, still + 1 if before == sent else 0
            await asyncio.sleep(0.003)
        return sent

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            answer = await post(transport, place.url)
            assert await stalled() < size
            assert 32 * 1024 <= answer.buffered_bytes <= 96 * 1024
            received, most = 0, 0
            async for piece in answer.pieces():
                assert piece[0] == received // step % 251
                received += len(piece)
                most = max(most, len(piece))
            assert received == size
            assert most <= 96 * 1024

    run(work())


def test_answer_that_ends_while_paused_resumes_its_socket() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer()
        wire.deliver(b"HTTP/1.1 200 OK\r\ncontent-length: 40000\r\n\r\n" + bytes(39_999))
        assert wire.paused
        wire.deliver(b"x")  # a read that was in progress
        assert not wire.paused
        assert wire.given_back == [wire.connection]
        assert len(await whole(answer)) == 40_000

    asyncio.run(work())


@pytest.mark.io
def test_reader_that_stops_closes_the_connection(run: Run) -> None:
    left = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\nx")
        await peer.gone()
        left.set()

    async def leave_the_loop(answer: HttpResponse) -> None:
        async for _ in answer.pieces():
            break

    async def be_cancelled(answer: HttpResponse) -> None:
        reading = asyncio.create_task(whole(answer))
        await until(lambda: answer.buffered_bytes == 0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    async def abort_twice(answer: HttpResponse) -> None:
        answer.abort()
        answer.abort()

    async def abort_under_a_reader(answer: HttpResponse) -> None:
        reading = asyncio.create_task(whole(answer))
        await until(lambda: answer.buffered_bytes == 0)
        answer.abort()
        with pytest.raises(UpstreamFault, match="aborted the exchange"):
            await reading

    async def work() -> None:
        async with serving(script) as place, network() as transport:
            for leave in (leave_the_loop, be_cancelled, abort_twice, abort_under_a_reader):
                await leave(await post(transport, place.url))
                await asyncio.wait_for(left.wait(), 60)
                left.clear()
                await until(lambda: transport.open_connections == 0)

    run(work())


def test_abort_of_an_unread_answer_raises_and_of_a_read_one_does_not() -> None:
    async def work() -> None:
        read, unread = (wires := [Wire(), Wire()])[0].answer(), wires[1].answer()
        for wire in wires:
            wire.deliver(OK)
        assert await whole(read) == b"ok"
        read.abort()
        assert await whole(read) == b""
        unread.abort()
        with pytest.raises(UpstreamFault):
            await whole(unread)
        assert [wire.aborted for wire in wires] == [False, False]

    asyncio.run(work())


def test_data_for_cancelled_readers_is_ignored() -> None:
    async def work() -> None:
        for news in (OK, b"", b"\0"):
            wire = Wire()
            answer = wire.answer()
            answer.head.cancel()
            wire.deliver(news)
            wire.connection.eof_received()
        reading = asyncio.create_task(whole(answer := (wire := Wire()).answer()))
        await asyncio.sleep(0)
        reading.cancel()
        wire.deliver(OK)
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert answer.buffered_bytes == 0

    asyncio.run(work())


# Bodies delivered to a sink

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Basin:
    """A sink that stores what it gets, and refuses more after a number of pieces."""

    def __init__(self, wants: int = 1_000_000) -> None:
        self.pieces: list[bytes] = []
        self.wants = wants

    def __call__(self, piece: bytes) -> bool:
        self.pieces.append(piece)
        self.wants -= 1
        return self.wants > 0


async def flowing(answer: HttpResponse, sink: Callable[[bytes], bool]) -> asyncio.Future[bool]:
    """A flow that waits for each piece."""
    flow = asyncio.ensure_future(answer.flow(sink))
    await asyncio.sleep(0)
    return flow


def test_flow_delivers_each_piece_synchronously() -> None:
    """No step of the event loop, no task and no future lies between the socket and the sink; data read at once is one
    piece."""

    async def work() -> None:
        answer = (wire := Wire()).answer()
        wire.deliver(HEAD)
        flow = await flowing(answer, basin := Basin())
        wire.deliver(b"1\r\na\r\n1\r\nb\r\n")
        assert basin.pieces == [b"ab"]
        wire.deliver(b"1\r\nc\r\n")
        assert basin.pieces == [b"ab", b"c"]
        assert not flow.done()
        wire.deliver(b"0\r\n\r\n")
        assert await flow is True
        assert wire.given_back == [wire.connection]

    asyncio.run(work())


def test_flow_of_an_answer_in_one_read_completes() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer()
        wire.deliver(OK)
        assert await answer.flow(basin := Basin()) is True
        assert basin.pieces == [b"ok"]

    asyncio.run(work())


def test_flow_ends_after_the_last_piece_of_the_same_read() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer()
        wire.deliver(HEAD)
        flow = await flowing(answer, basin := Basin())
        wire.deliver(b"1\r\na\r\n0\r\n\r\n")
        assert basin.pieces == []  # it is for the task, which waits for the end as well
        assert await flow is True
        assert basin.pieces == [b"a"]

    asyncio.run(work())


def test_flow_pauses_the_socket_when_the_sink_stops() -> None:
    """Back-pressure: data that arrives meanwhile is buffered, and little of it."""

    async def work() -> None:
        answer = (wire := Wire()).answer()
        wire.deliver(b"HTTP/1.1 200 OK\r\n\r\n")
        flow = await flowing(answer, basin := Basin(wants=1))
        wire.deliver(b"a")
        wire.deliver(b"b")
        assert basin.pieces == [b"a"]
        assert await flow is False
        wire.deliver(bytes(40_000))
        assert wire.paused
        basin.wants = 1
        assert await answer.flow(basin) is False
        assert basin.pieces == [b"a", b"b" + bytes(40_000)]
        assert not wire.paused
        wire.deliver(b"c")
        assert [piece async for piece in _first(answer)] == [b"c"]  # and the rest may be read in another way

    async def _first(answer: HttpResponse) -> AsyncIterator[bytes]:
        async for piece in answer.pieces():
            yield piece
            return

    asyncio.run(work())


def test_flow_raises_a_fault_after_the_earlier_pieces() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer()
        wire.deliver(HEAD)
        flow = await flowing(answer, basin := Basin())
        wire.deliver(b"1\r\na\r\n")
        wire.connection.eof_received()
        with pytest.raises(UpstreamFault, match="in the middle"):
            await flow
        assert basin.pieces == [b"a"]

    asyncio.run(work())


def test_sink_errors_are_raised_in_flow_and_not_in_the_event_loop() -> None:
    async def work() -> None:
        def broken(piece: bytes) -> bool:
            raise ZeroDivisionError(piece)

        answer = (wire := Wire()).answer()
        wire.deliver(HEAD)
        flow = await flowing(answer, broken)
        wire.deliver(b"1\r\na\r\n")
        with pytest.raises(ZeroDivisionError):
            await flow
        answer.abort()
        assert wire.aborted

    asyncio.run(work())


def test_cancelled_flow_delivers_nothing_more() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer()
        wire.deliver(HEAD)
        flow = await flowing(answer, basin := Basin())
        flow.cancel()
        wire.deliver(b"1\r\na\r\n")  # before the cancelled task had its step
        with pytest.raises(asyncio.CancelledError):
            await flow
        wire.deliver(b"1\r\nb\r\n")
        assert basin.pieces == []
        assert answer.buffered_bytes == 2

    asyncio.run(work())


def test_flow_has_an_idle_timeout() -> None:
    async def work() -> None:
        answer = (wire := Wire()).answer(Timeouts(idle=10))
        wire.deliver(HEAD)
        flow = await flowing(answer, basin := Basin())
        await pass_time(8)
        wire.deliver(b"1\r\na\r\n")
        await pass_time(8)
        assert not flow.done()
        await pass_time(8)
        with pytest.raises(UpstreamFault, match="sent nothing for"):
            await flow
        assert basin.pieces == [b"a"]

    with_turned_clock(work)
