"""`http/asgi` without sockets: the ASGI contract, and what an application may not do. Over sockets:
test_connection.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from antiphon.http.asgi import BODY_HIGH, DIRECT, LARGE_PIECE, Headers, RequestCycle, encode_head

pytestmark = pytest.mark.without_coverage


class Sluice:
    """The flow of a connection."""

    def __init__(self) -> None:
        self.write_paused = False
        self.read_paused = False
        self.opened = asyncio.Event()

    async def drain(self) -> None:
        await self.opened.wait()

    def pause_reading(self) -> None:
        self.read_paused = True

    def resume_reading(self) -> None:
        self.read_paused = False

    def choke(self) -> None:
        self.write_paused = True
        self.opened.clear()

    def open(self) -> None:
        self.write_paused = False
        self.opened.set()


class Pipe(asyncio.Transport):
    """Stores each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.pieces: list[bytes | bytearray | memoryview[int]] = []  # of the last `writelines`

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[int]]) -> None:
        self.pieces = list(list_of_data)
        self.write(b"".join(self.pieces))

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False


class Connection:
    """A connection without a socket."""

    default_headers: Headers = []  # noqa: RUF012

    def __init__(self) -> None:
        self.wire = Pipe()
        self.transport: asyncio.Transport = self.wire
        self.flow = Sluice()
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[None]] = set()
        self.closed = 0
        self.complete = 0

    def close(self) -> None:
        self.closed += 1

    def on_response_complete(self) -> None:
        self.complete += 1

    def cycle(self, method: str = "GET", *, expects_continue: bool = False) -> RequestCycle:
        scope = {"method": method, "path": "/x"}
        return RequestCycle(self, scope, keep_alive=True, expects_continue=expects_continue)


START = {"type": "http.response.start", "status": 200, "headers": []}
LENGTH_2 = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def on_a_line(work: Callable[[Connection], Any]) -> None:
    async def run() -> None:
        await work(Connection())

    asyncio.run(run())


def test_head_and_first_bytes_are_one_write() -> None:
    async def work(line: Connection) -> None:
        cycle = line.cycle()
        cycle.end_body()
        cycle.send_now(dict(START))
        assert cycle.write_now(b"ab")
        assert cycle.write_now(b"c")
        cycle.send_now(body(b""))
        assert line.wire.writes == [
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
            b"1\r\nc\r\n",
            b"0\r\n\r\n",
        ]
        assert (line.complete, line.closed) == (1, 0)

    on_a_line(work)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_large_answer_is_written_without_a_copy(method: str) -> None:
    content = bytes(LARGE_PIECE + 1)

    async def work(line: Connection) -> None:
        cycle = line.cycle(method)
        cycle.end_body()
        cycle.respond_now(200, [], content)
        head = b"HTTP/1.1 200 OK\r\n\r\n"
        assert b"".join(line.wire.writes) == head + (content if method == "GET" else b"")
        assert any(piece is content for piece in line.wire.pieces) is (method == "GET")

    on_a_line(work)


def test_head_without_body_is_sent_in_the_next_step() -> None:
    async def work(line: Connection) -> None:
        cycle = line.cycle()
        cycle.end_body()
        await cycle.send(dict(LENGTH_2))
        assert line.wire.writes == []
        await asyncio.sleep(0)
        assert line.wire.writes == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"]
        assert cycle.write_now(b"ok")  # with a length there are no chunks
        cycle.send_now(body(b""))
        assert line.wire.writes[1:] == [b"ok", b""]

    on_a_line(work)


def test_answer_before_the_end_of_the_request_closes() -> None:
    async def work(line: Connection) -> None:
        cycle = line.cycle("POST")
        await cycle.send(dict(LENGTH_2))
        await cycle.send(body(b"ok"))
        assert b"connection: close\r\n" in line.wire.writes[0]
        assert (line.complete, line.closed) == (1, 1)

    on_a_line(work)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204)])
def test_answers_to_head_and_empty_statuses_have_no_body(method: str, status: int) -> None:
    async def work(line: Connection) -> None:
        cycle = line.cycle(method)
        cycle.end_body()
        await cycle.send({"type": "http.response.start", "status": status})
        await cycle.send({"type": "http.response.body"})
        assert b"".join(line.wire.writes).endswith(b"\r\n\r\n")
        assert b"chunked" not in b"".join(line.wire.writes)
        assert line.complete == 1

    on_a_line(work)


def test_send_waits_for_a_client_that_does_not_read() -> None:
    async def work(line: Connection) -> None:
        cycle = line.cycle()
        cycle.end_body()
        cycle.send_now(dict(START))
        cycle.write_now(b"a")
        line.flow.choke()
        assert cycle.is_write_paused
        assert not cycle.write_now(b"b")
        sending = asyncio.ensure_future(cycle.send(body(b"b", more=True)))
        await asyncio.sleep(0)
        assert len(line.wire.writes) == 1
        line.flow.open()
        await sending
        assert line.wire.writes[1:] == [b"1\r\nb\r\n"]

    on_a_line(work)


def test_disconnect_stops_writes_and_calls_the_callback() -> None:
    async def work(line: Connection) -> None:
        cycle = line.cycle()
        calls: list[str] = []
        cycle.call_on_disconnect(lambda: calls.append("at once"))
        line.flow.choke()
        cycle.on_disconnect()
        assert calls == ["at once"]
        cycle.call_on_disconnect(lambda: calls.append("late"))
        assert calls == ["at once", "late"]
        assert not cycle.is_write_paused
        assert cycle.write_now(b"a")
        await cycle.send(dict(START))
        assert line.wire.writes == []
        assert await cycle.receive() == {"type": "http.disconnect"}

    on_a_line(work)


def test_request_body_is_delivered_with_back_pressure() -> None:
    async def work(line: Connection) -> None:
        cycle = line.cycle("POST", expects_continue=True)
        cycle.add_body(b"a")
        cycle.add_body(b"b")
        assert await cycle.receive() == {"type": "http.request", "body": b"ab", "more_body": True}
        assert line.wire.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]
        for data in (b"c", bytes(BODY_HIGH + 1)):
            waiting = asyncio.ensure_future(cycle.receive())
            await asyncio.sleep(0)
            assert not waiting.done()
            cycle.add_body(data)
            assert line.flow.read_paused == (len(data) > BODY_HIGH)
            assert (await waiting)["body"] == data
        cycle.end_body()
        assert await cycle.receive() == {"type": "http.request", "body": b"", "more_body": False}
        assert not line.flow.read_paused

    on_a_line(work)


MISUSES: dict[str, list[dict[str, Any]]] = {
    "a body before its head": [body(b"")],
    "two heads": [START, START],
    "something after the end": [START, body(b""), body(b"")],
    "a message that does not exist": [{"type": "http.response.debug"}],
    "longer than it said": [LENGTH_2, body(b"abc")],
    "shorter than it said": [LENGTH_2, body(b"a")],
    "a header with a line break": [
        {"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\r\nset-cookie: b")]}
    ],
    "a header with a NUL": [{"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\x00")]}],
}


@pytest.mark.parametrize("messages", MISUSES.values(), ids=MISUSES)
def test_invalid_response_is_an_application_error(messages: list[dict[str, Any]]) -> None:
    async def work(line: Connection) -> None:
        cycle = line.cycle()
        cycle.end_body()
        *proper, last = messages
        for message in proper:
            await cycle.send(dict(message))
        with pytest.raises(RuntimeError):
            await cycle.send(dict(last))

    on_a_line(work)


def test_finished_application_leaves_no_references() -> None:
    async def work(line: Connection) -> None:
        cycle = line.cycle()
        cycle.end_body()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            assert scope[DIRECT] is cycle
            assert (await receive())["type"] == "http.request"
            await send(dict(LENGTH_2))
            await send(body(b"ok"))
            assert await receive() == {"type": "http.disconnect"}

        cycle.start(app)
        await end_of(cycle)
        assert line.tasks == set()
        assert cycle.task is None
        assert DIRECT not in cycle.scope
        await cycle.send(body(b"more"))  # by a task that it left behind
        assert line.wire.writes == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"]

    on_a_line(work)


@pytest.mark.parametrize("error", [ZeroDivisionError("a secret"), asyncio.CancelledError()], ids=repr)
def test_failed_application_is_answered_even_if_the_client_reads_nothing(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is written at once: nothing may wait in the callback of a task that has ended."""

    async def work(line: Connection) -> None:
        cycle = line.cycle()
        cycle.end_body()
        line.flow.choke()

        async def app(*_: Any) -> None:
            raise error

        cycle.start(app)
        await end_of(cycle)
        is_shutdown = isinstance(error, asyncio.CancelledError)
        [written] = line.wire.writes
        assert written.startswith(b"HTTP/1.1 503 " if is_shutdown else b"HTTP/1.1 500 ")
        assert b"secret" not in written
        assert (line.complete, line.closed) == (1, 1)
        [record] = caplog.records
        assert bool(record.exc_info) is not is_shutdown
        assert record.fields["request_id"].encode() in written  # type: ignore[attr-defined]

    on_a_line(work)


async def end_of(cycle: RequestCycle) -> None:
    """Waits for the application of a cycle, and for the callback after it."""
    assert cycle.task is not None
    await asyncio.wait([cycle.task])
    await asyncio.sleep(0)


def test_every_status_has_its_status_line() -> None:
    assert encode_head(426, [(b"a", b"b")]) == b"HTTP/1.1 426 Upgrade Required\r\na: b\r\n"
    assert encode_head(529, []) == b"HTTP/1.1 529 \r\n"  # only one API uses it
