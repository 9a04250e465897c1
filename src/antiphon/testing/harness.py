"""`FakeServer`: an HTTP/1.1 server on a loopback port, in its own thread, that follows a script byte by byte.

It knows no dialect: a `DialectBehavior` refuses requests and renders turns. Tests read the requests (`received`) and
the refusals (`refusals`), and wait for events of connections (`wait_disconnected`, `wait_closed`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Final, Protocol, Self, assert_never

import httptools

from antiphon.dialects.dialect import STREAM_TYPES, Framing
from antiphon.testing.script import (
    End,
    Pause,
    PlainReply,
    RawReply,
    ReceivedRequest,
    Reply,
    Script,
    ScriptedTurn,
    Step,
    Wait,
    error,
)


class DialectBehavior(Protocol):
    """The behaviour of a server of one dialect."""

    def answer_other_path(self, request: ReceivedRequest) -> PlainReply | None:
        """Answer requests to other paths (model lists, token counts, unknown paths); None for the path of turns."""

    def find_refusal(self, request: ReceivedRequest) -> PlainReply | None:
        """Return the error that a real server would send for this request; None if it would accept it."""

    def improvise(self, request: ReceivedRequest) -> ScriptedTurn:
        """Return an answer for a server without a script."""

    def wants_stream(self, request: ReceivedRequest) -> bool: ...

    def render_stream(self, turn: ScriptedTurn, request: ReceivedRequest) -> list[Step]:
        """Render the turn as the body of a stream."""

    def render_body(self, turn: ScriptedTurn, request: ReceivedRequest) -> bytes:
        """Render the turn as one body."""


class ScriptEnded(Exception):
    """The server received more requests than the script has replies."""


class FakeServer:
    """Use it as `with ChatServer(script) as server:`. On exit it stops, and raises any exception of the script."""

    def __init__(
        self,
        behavior: DialectBehavior,
        script: Script | None = None,
        *,
        port: int = 0,
        framing: Framing = "sse",
    ) -> None:
        self.received: list[ReceivedRequest] = []
        #: The refusals of the strict rules. A test of a correct client ends with `assert not server.refusals`.
        self.refusals: list[PlainReply] = []
        self.port = port
        self._behavior = behavior
        self._script = script
        self._stream_type = STREAM_TYPES[framing]
        self._reply_index = 0
        self._condition = threading.Condition()
        self._connections: set[_Connection] = set()
        self._in_flight_count = 0
        self._abandoned_count = 0
        self._failures: list[BaseException] = []
        self._thread: threading.Thread | None = None
        self._has_started = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stop_requested: asyncio.Event

    # Start and stop

    def start(self) -> Self:
        """Start the server in its own thread, and return it when it listens."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="antiphon-fake", daemon=True)
        self._thread.start()
        self._has_started.wait()
        if self._failures:
            self._thread.join()
            raise self._failures[0]
        return self

    def stop(self) -> None:
        """End every connection and the thread. May be called twice. Only the end of a `with` block raises exceptions of
        the script."""
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop_requested.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if not self._failures:
            return
        if raised is None:
            raise self._failures[0]
        raised.add_note(f"the script of the server failed too: {self._failures[0]!r}")

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, raised, trace)

    # Observations

    @property
    def origin(self) -> str:
        """The URL of the server without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """The URL to which clients append the path of an endpoint."""
        return f"{self.origin}/v1"

    @property
    def open_connections(self) -> int:
        """The number of connections that are open, including idle ones."""
        return len(self._connections)

    @property
    def in_flight(self) -> int:
        """The number of requests whose answer has not ended."""
        return self._in_flight_count

    @property
    def abandoned(self) -> int:
        """The number of answers that the client aborted by disconnecting."""
        return self._abandoned_count

    def wait_received(self, count: int, timeout: float = 60.0) -> None:
        """Wait until `count` requests were received."""
        self._wait_for(lambda: len(self.received) >= count, timeout, f"{count} requests")

    def wait_disconnected(self, count: int = 1, timeout: float = 60.0) -> None:
        """Wait until clients have disconnected during `count` answers."""
        self._wait_for(lambda: self._abandoned_count >= count, timeout, f"{count} clients to disconnect")

    def wait_idle(self, timeout: float = 60.0) -> None:
        """Wait until every answer has ended. The client may see the end slightly before the server does."""
        self._wait_for(lambda: not self._in_flight_count, timeout, "every answer to end")

    def wait_closed(self, timeout: float = 60.0) -> None:
        """Wait until no connection is open, including idle ones."""
        self._wait_for(lambda: not self._connections, timeout, "every connection to close")

    def _wait_for(self, condition: Callable[[], bool], timeout: float, description: str) -> None:
        with self._condition:
            if not self._condition.wait_for(condition, timeout):
                raise TimeoutError(
                    f"waited {timeout} s for {description}: {len(self.received)} requests received, "
                    f"{self._in_flight_count} in flight, {self._abandoned_count} clients disconnected, "
                    f"{len(self._connections)} connections open"
                )

    # Inside the thread

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop_requested = asyncio.Event()
        try:
            server = await self._loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)
        except OSError as failure:
            self._failures.append(failure)
            self._has_started.set()
            return
        self.port = server.sockets[0].getsockname()[1]
        self._has_started.set()
        await self._stop_requested.wait()
        server.close()
        for connection in list(self._connections):
            connection.drop()
        while self._connections:  # each leaves the set in `connection_lost`, one loop iteration later
            await asyncio.sleep(0)

    def on_connected(self, connection: _Connection) -> None:
        with self._condition:
            self._connections.add(connection)
            self._condition.notify_all()

    def on_disconnected(self, connection: _Connection, *, unanswered_count: int, is_by_client: bool) -> None:
        with self._condition:
            self._connections.discard(connection)
            self._in_flight_count -= unanswered_count
            self._abandoned_count += unanswered_count if is_by_client else 0
            self._condition.notify_all()

    def on_request(self, request: ReceivedRequest) -> None:
        with self._condition:
            self.received.append(request)
            self._in_flight_count += 1
            self._condition.notify_all()

    def on_answered(self) -> None:
        with self._condition:
            self._in_flight_count -= 1
            self._condition.notify_all()

    def on_script_error(self, failure: BaseException) -> None:
        """Keep an exception of the script for the thread of the test."""
        self._failures.append(failure)

    def steps_for(self, request: ReceivedRequest) -> Iterable[Step]:
        """Return the steps of the answer to this request."""
        return self._render_reply(
            self._behavior.answer_other_path(request) or self._record_refusal(request) or self._next_reply(request),
            request,
        )

    def _record_refusal(self, request: ReceivedRequest) -> PlainReply | None:
        refusal = self._behavior.find_refusal(request)
        if refusal is not None:
            self.refusals.append(refusal)
        return refusal

    def _next_reply(self, request: ReceivedRequest) -> Reply:
        if self._script is None:
            return self._behavior.improvise(request)
        if isinstance(self._script, Sequence):
            if self._reply_index == len(self._script):
                raise ScriptEnded(f"the script has {len(self._script)} replies, and one more request came")
            self._reply_index += 1
            return self._script[self._reply_index - 1]
        return self._script(request)

    def _render_reply(self, reply: Reply, request: ReceivedRequest) -> Iterable[Step]:
        match reply:
            case RawReply():
                return reply.steps
            case PlainReply():
                return [_encode_reply(reply)]
            case ScriptedTurn():
                is_stream = self._behavior.wants_stream(request) if reply.stream is None else reply.stream
                if is_stream:
                    return _stream_steps(reply, self._behavior.render_stream(reply, request), self._stream_type)
                body = self._behavior.render_body(reply, request)
                answer = PlainReply(
                    status=200, body=body, headers={"content-type": "application/json", **reply.headers}
                )
                return _body_steps(reply, _encode_reply(answer))
            case _ as never:
                assert_never(never)


class _Connection(asyncio.Protocol):
    """One client's connection: each request is answered before the next one is processed."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[ReceivedRequest] = deque()
        self._unanswered_count = 0
        self._answer_task: asyncio.Task[None] | None = None
        self._has_sent_bytes = False
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_ended_by_server = False
        self._transport: asyncio.Transport
        self._reset_request()

    def drop(self) -> None:
        self._is_ended_by_server = True
        self._transport.abort()

    def _reset(self) -> None:
        connection: socket.socket = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self.drop()

    def _close(self) -> None:
        """Close the connection after all written data is sent."""
        self._is_ended_by_server = True
        self._transport.close()

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=0)  # a write counts as done when the kernel has all of it
        self._transport = transport
        self._server.on_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._answer_task is not None:
            self._answer_task.cancel()
        self._server.on_disconnected(
            self, unanswered_count=self._unanswered_count, is_by_client=not self._is_ended_by_server
        )

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as failure:
            self._transport.write(_encode_reply(error(400, f"no HTTP: {failure}", headers={"connection": "close"})))
            self._close()

    # Callbacks of the parser

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode("ascii")
        path = self._url.decode("latin-1")
        request = ReceivedRequest(method=method, path=path, headers=self._headers, body=bytes(self._body))
        self._reset_request()
        self._requests.append(request)
        self._unanswered_count += 1
        self._server.on_request(request)
        if self._answer_task is None:
            self._answer_task = asyncio.get_running_loop().create_task(self._answer_requests())
            self._answer_task.add_done_callback(self._on_answer_task_done)

    def _reset_request(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    # Answers

    async def _answer_requests(self) -> None:
        while self._requests and not self._is_ended_by_server:
            request = self._requests.popleft()
            self._has_sent_bytes = False
            for step in self._server.steps_for(request):
                await self._run_step(step)
                if self._is_ended_by_server:
                    break
            self._unanswered_count -= 1
            self._server.on_answered()
            if request.headers.get("connection", "").lower() == "close":
                self._close()
        self._answer_task = None

    def _on_answer_task_done(self, task: asyncio.Task[None]) -> None:
        """End the connection after an exception of the script, with an error if the client has no answer yet."""
        failure = None if task.cancelled() else task.exception()
        if failure is None:
            return
        self._server.on_script_error(failure)
        if self._has_sent_bytes:
            self._reset()
        else:
            reply = error(500, f"the script failed: {failure!r}", type="server_error", headers={"connection": "close"})
            self._transport.write(_encode_reply(reply))
            self._close()

    async def _run_step(self, step: Step) -> None:
        match step:
            case bytes():
                self._has_sent_bytes = True
                self._transport.write(step)
                # Yield to the event loop even without a wait, so that an endless script can be stopped.
                await asyncio.sleep(0)
                await self._can_write.wait()
            case Pause():
                await asyncio.sleep(step.seconds)
            case Wait():
                await step.gate.wait_until_open()
            case End():
                await self._end_connection(step)
            case _ as never:
                assert_never(never)

    async def _end_connection(self, end: End) -> None:
        match end.how:
            case "hang":
                await asyncio.get_running_loop().create_future()  # until the client disconnects or the server stops
            case "rst":
                self._reset()
            case "fin" | "mid-chunk":
                self._close()
            case _ as never:
                assert_never(never)


def _encode_reply(reply: PlainReply) -> bytes:
    return _encode_head(reply.status, {**reply.headers, "content-length": str(len(reply.body))}) + reply.body


def _encode_head(status: int, headers: dict[str, str]) -> bytes:
    reason = HTTPStatus(status).phrase if status in STANDARD_STATUSES else "Status"
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _stream_steps(turn: ScriptedTurn, steps: list[Step], stream_type: str) -> Iterator[Step]:
    """Send frames as chunks of a chunked body. The head is sent with the first bytes."""
    head = _encode_head(200, {"content-type": stream_type, "transfer-encoding": "chunked", **turn.headers})
    for step in steps:
        match step:
            case bytes():
                yield head + (b"%x\r\n%b\r\n" % (len(step), step) if step else b"")
                head = b""
            case End(how="mid-chunk"):
                yield head + b"40\r\ndata: {"
                yield step
            case _:
                yield step
    yield head + b"0\r\n\r\n"


def _body_steps(turn: ScriptedTurn, answer: bytes) -> Iterator[Step]:
    """Apply pauses and ends to an answer of one piece: pauses come first, an end comes in the middle of the body."""
    for element in turn.elements:
        if isinstance(element, Pause | Wait):
            yield element
        elif isinstance(element, End):
            yield answer[: -max(1, len(answer) // 4)]
            yield element
    yield answer


STANDARD_STATUSES: Final = {status.value for status in HTTPStatus}
NO_LINGER: Final = struct.pack("ii", 1, 0)  # a close with linger time 0 sends a reset
