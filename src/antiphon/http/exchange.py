"""One request and its response: what every endpoint uses, and what the log and the trace record.

A request body is JSON, complete, and within the size limit (HTTP-1). A response is sent in one piece, or as an event
stream (HTTP-7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from antiphon.dialects.common.error_members import keep_error_members
from antiphon.dialects.dialect import KEEPALIVE_COMMENT, ClientDialect
from antiphon.dialects.responses.stream_out import SelectableEventStyle
from antiphon.errors import ApiError, ClientDisconnected, ClientFault
from antiphon.gateway.prepare_turn import PreparedTurn
from antiphon.gateway.request_scope import RequestLog, RequestScope, shutdown_error
from antiphon.gateway.routed_request import RoutedRequest
from antiphon.gateway.routing.attempts import TurnAttempts
from antiphon.http.asgi import (
    DIRECT,
    Headers,
    Message,
    Receive,
    RequestCycle,
    Scope,
    Send,
    error_headers,
    headers_of,
    send_response,
)
from antiphon.http.body_budget import BodyBudget
from antiphon.ops.services import FIRST_BYTE_TIMEOUT, KEEPALIVE_INTERVAL
from antiphon.protocol.losses import Losses
from antiphon.trace.writer import Trace

MAX_LOSSES_HEADER = 512
NO_VALUES: Final = [b""]  # of a header that is absent
PRINTABLE_ASCII = bytes(byte if 32 <= byte < 127 else 63 for byte in range(256))
SSE_HEADERS: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # keeps proxies from buffering events
]


class Exchange:
    """Endpoints respond through this object. It adds the request id to every response, and records it in the trace."""

    def __init__(
        self,
        id: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        dialect: ClientDialect,
        extra_headers: Headers,
        trace: Trace | None = None,
        body_budget: BodyBudget | None = None,
    ) -> None:
        self.id = id
        self.scope = scope
        self.receive = receive
        self.dialect = dialect  # of the client
        self.log_entry = RequestLog(request_id=id, method=scope["method"], path=scope["path"])
        self.key_style: SelectableEventStyle | None = None  # API-6: configured for the client's key
        self.has_metrics_key = False  # whether the client may see the names of models in the metrics
        self.trace = trace
        self.request_scope = RequestScope(self.log_entry, trace)
        self.answer_headers: Callable[[], Headers] | None = None  # known when the answer begins
        self.path_parameters: list[str] = []  # ids in the path
        self.is_disconnected = False  # the client disconnected
        self.is_complete = False  # the last byte of the response was written
        self._body_budget = body_budget  # None: bodies are not counted
        self._budgeted_bytes = 0  # of the body, while it is held
        self._send = send
        self._direct: RequestCycle | None = scope.get(DIRECT)
        self._common_headers = [(b"x-request-id", id.encode()), *extra_headers]
        if dialect.request_id_header:
            self._common_headers.append((dialect.request_id_header, id.encode()))
        self._disconnect_watcher: asyncio.Task[None] | None = None
        self._watched_task: asyncio.Task[None] | None = None  # cancelled when the client disconnects

    @property
    def path_parameter(self) -> str:
        """The first id in the path."""
        return self.path_parameters[0]

    @property
    def owner(self) -> str:
        """The owner of the key; only on routes that require one."""
        assert self.log_entry.owner is not None
        return self.log_entry.owner

    async def read_body(self, limit: int) -> bytes:
        """Reads the whole body and records it in the trace."""
        check_body_headers(self.scope, limit)
        body = None if self._direct is None else self._direct.take_arrived_body()
        if body is None:
            body = await read_body(self.receive, limit, self._take_body_bytes)
        elif len(body) > limit:
            raise _too_large(limit)
        if self.trace is not None:
            self.trace.record_client_request("POST", self.scope["path"], self.scope["headers"], body)
        return body

    async def _take_body_bytes(self, size: int) -> None:
        if self._body_budget is not None:
            await self._body_budget.take(size)
            self._budgeted_bytes += size

    def release_body(self) -> None:
        """The body is not held any more. Can be called several times."""
        if self._body_budget is not None and self._budgeted_bytes:
            self._body_budget.release(self._budgeted_bytes)
            self._budgeted_bytes = 0

    async def send(self, message: Message) -> None:
        """Sends a message; adds the common headers to a head."""
        if not self.send_now(message):
            self._record_message(message)
            await self._send(message)

    def send_now(self, message: Message) -> bool:
        """The same without waiting; False if that is not possible, and nothing was sent. The head and its first bytes
        go together."""
        if self._direct is None or self._direct.is_write_paused:
            return False
        self._record_message(message)
        self._direct.send_now(message)
        return True

    @property
    def write_now(self) -> Callable[[bytes], bool] | None:
        """The fastest way to write pieces after the head; None if each piece must be an awaited message."""
        return None if self._direct is None or self.trace is not None else self._direct.write_now

    async def respond(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        direct = self._direct
        if direct is None or self.trace is not None or direct.is_write_paused:
            await send_response(self.send, status, headers, body)
            return
        self.log_entry.status = status
        self.is_complete = True
        own_headers = [] if self.answer_headers is None else self.answer_headers()
        length = (b"content-length", b"%d" % len(body))
        direct.respond_now(status, [*headers, length, *own_headers, *self._common_headers], body)

    async def respond_with_error(self, error: ApiError) -> None:
        """ERR-1: sends the error in the form of the client's dialect."""
        self.log_entry.error = error.code
        if self.log_entry.status is not None:  # the head was sent already: only a disconnect is left
            if self._direct is not None:
                self._direct.abort_response()
            return
        status, body = self.dialect.error_from_hub(error)
        if error.original is not None and error.original.dialect == self.dialect.name:
            body = keep_error_members(error.original.body, body)
        await self.respond(status, error_headers(error), body)

    def note_losses(self, losses: Losses) -> None:
        self.log_entry.losses = len(losses)
        if self.trace is not None:
            self.trace.record_losses(losses)

    # Client disconnects

    def watch_disconnect(self) -> None:
        """From now on, a disconnect of the client cancels the task that serves it. The body must have been read."""
        task = (self._direct.task if self._direct is not None else None) or asyncio.current_task()
        assert task is not None
        self._watched_task = task
        if self._direct is not None:
            self._direct.call_on_disconnect(self._on_disconnect)
        else:  # a server other than ours
            self._disconnect_watcher = asyncio.get_running_loop().create_task(self._wait_for_disconnect())

    def unwatch_disconnect(self) -> None:
        self._watched_task = None
        if self._disconnect_watcher is not None:
            self._disconnect_watcher.cancel()
            self._disconnect_watcher = None

    def _on_disconnect(self) -> None:
        if self._watched_task is not None and not self.is_complete:
            self.is_disconnected = True
            self._watched_task.cancel()

    async def interruption_error(self) -> ApiError | None:
        """None if the task was cancelled because the client disconnected; otherwise the gateway is being stopped."""
        return None if self.is_disconnected else shutdown_error()

    def _record_message(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            own_headers = [] if self.answer_headers is None else self.answer_headers()
            message["headers"] = [*message["headers"], *own_headers, *self._common_headers]
            self.log_entry.status = message["status"]
            if self.trace is not None:
                self.trace.record_client_head(message["status"], message["headers"])
            return
        if self.trace is not None and message["body"]:
            self.trace.record_client_piece(message["body"])
        if not message.get("more_body"):
            self.is_complete = True

    async def _wait_for_disconnect(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass  # messages after the body are ignored
        self._on_disconnect()


class EventStream:
    """A server-sent event stream to one client: late head, keep-alive comments, one end (HTTP-7).

    The 200 is sent with the first bytes of the body. After `FIRST_BYTE_TIMEOUT` seconds without any, it is sent with a
    comment line. A comment is also sent after each `KEEPALIVE_INTERVAL` seconds without a write. One timer does both;
    it never interrupts a write. `try_write` is `write` for callers that cannot wait.
    """

    def __init__(
        self,
        send: Send,
        headers: Callable[[], Headers],
        first_byte_timeout: float = FIRST_BYTE_TIMEOUT,
        keepalive_interval: float = KEEPALIVE_INTERVAL,
        send_now: Callable[[Message], bool] = lambda _: False,
        write_now: Callable[[bytes], bool] | None = None,
        keepalive: bytes = KEEPALIVE_COMMENT,
    ) -> None:
        self._send = send
        self._send_now = send_now  # sends without waiting; False if that is not possible
        self._write_now = write_now  # writes a piece of the body without waiting, if available
        self._headers = headers
        self._keepalive = keepalive  # bytes that clients ignore
        self._keepalive_interval = keepalive_interval
        self._loop = asyncio.get_running_loop()
        self._last_write_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(first_byte_timeout, self._on_timer)
        self._keepalive_task: asyncio.Task[None] | None = None
        self.has_started = False
        self.has_ended = False

    async def write(self, data: bytes) -> None:
        """Writes data, after the head if it is the first."""
        if self._keepalive_task is not None:
            await self._keepalive_task
        if not self.has_started:
            await self._start()
        self._last_write_at = self._loop.time()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def try_write(self, data: bytes) -> bool:
        """Writes data without waiting; False if that is not possible, and nothing was written."""
        if self._write_now is None or self._keepalive_task is not None:
            return False
        if not self.has_started:
            if not self._send_now({"type": "http.response.start", "status": 200, "headers": self._headers()}):
                return False
            self.has_started = True
        self._last_write_at = self._loop.time()
        return self._write_now(data)

    async def end(self, data: bytes) -> None:
        """Writes the last bytes and ends the stream."""
        self.close()
        if self._keepalive_task is not None:
            await self._keepalive_task
        if not self.has_started:
            await self._start()
        self.has_ended = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    def close(self) -> None:
        """Stops keep-alive comments. Can be called at any time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _start(self) -> None:
        self.has_started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": self._headers()})

    def _on_timer(self) -> None:
        silent_seconds = self._loop.time() - self._last_write_at
        if self.has_started and silent_seconds < self._keepalive_interval:
            self._timer = self._loop.call_later(self._keepalive_interval - silent_seconds, self._on_timer)
            return
        self._timer = self._loop.call_later(self._keepalive_interval, self._on_timer)
        # A pending comment means that the client does not read.
        if self._keepalive_task is None and not self.try_write(self._keepalive):
            self._keepalive_task = self._loop.create_task(self._send_keepalive())

    async def _send_keepalive(self) -> None:
        """Sends the head if needed and a comment. After `close`, another answer may have begun: then nothing."""
        try:
            if not self.has_started and self._timer is not None:
                await self._start()
            if self._timer is not None:
                self._last_write_at = self._loop.time()
                await self._send({"type": "http.response.body", "body": self._keepalive, "more_body": True})
        finally:
            self._keepalive_task = None


def route_headers(routed: PreparedTurn | RoutedRequest) -> Headers:
    """The upstream that answers, and the number of attempts until then; nothing while another may still answer."""
    return [] if routed.is_held_back else attempt_headers(routed.attempts)


def attempt_headers(attempts: TurnAttempts) -> Headers:
    """The upstream of the last attempt, and the number of attempts. A target that was skipped was not asked."""
    records = attempts.records
    upstream = records[-1].upstream if records else attempts.current.target.target.upstream.name
    name = upstream.encode("ascii", "replace").translate(PRINTABLE_ASCII)
    return [(b"antiphon-upstream", name), (b"antiphon-attempts", b"%d" % len(attempts.records))]


def losses_header(losses: Losses) -> Headers:
    """REQ-6: a short summary of the losses; the trace has all of them."""
    return [(b"antiphon-losses", _summary_of(losses))] if len(losses) else []


def losses_comment(losses: Losses) -> bytes:
    """The same summary as a comment in an event stream, for losses after its head."""
    return b": antiphon-losses: %b\n\n" % _summary_of(losses)


def _summary_of(losses: Losses) -> bytes:
    paths = ", ".join(dict.fromkeys([loss.path for loss in losses]))
    value = f"{len(losses)}; {paths}".encode("ascii", "replace").translate(PRINTABLE_ASCII)
    return value if len(value) <= MAX_LOSSES_HEADER else value[: MAX_LOSSES_HEADER - 3] + b"..."


def check_body_headers(scope: Scope, limit: int) -> None:
    """Refuses a body by its headers, before any of it is read."""
    headers = headers_of(scope)
    if b"content-encoding" in headers:
        raise _unsupported("content-encoding: request bodies must not be encoded; send plain JSON")
    media_type = headers.get(b"content-type", NO_VALUES)[0]
    if media_type != b"application/json":  # the usual form
        _check_media_type(media_type)
    length = headers.get(b"content-length", NO_VALUES)[0]
    if length.isdigit() and int(length[:20]) > limit:
        raise _too_large(limit)


async def read_body(receive: Receive, limit: int, take_bytes: Callable[[int], Awaitable[None]] | None = None) -> bytes:
    """The whole body, of any number of pieces. If it has several, `take_bytes` waits for room for each."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):  # the usual case: one piece
        return _check_size(bytes(message.get("body", b"")), limit)
    pieces: list[bytes] = []
    size = 0
    while message["type"] == "http.request":
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        if take_bytes is not None:
            await take_bytes(len(piece))
        pieces.append(piece)
        if not message.get("more_body"):
            return b"".join(pieces)
        message = await receive()
    raise ClientDisconnected


def _check_media_type(value: bytes) -> None:
    media_type, _, parameters = value.partition(b";")
    if media_type.strip().lower() != b"application/json":
        shown_type = media_type.strip().decode("latin-1")[:100] or "nothing"
        raise _unsupported(f"content-type: expected 'application/json', got {shown_type!r}")
    charset = parameters.strip().lower().removeprefix(b"charset=").strip(b'"')
    if parameters.strip().lower().startswith(b"charset=") and charset not in (b"utf-8", b"utf8", b"us-ascii"):
        raise _unsupported("content-type: unsupported charset; expected UTF-8")


def _check_size(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> ClientFault:
    return ClientFault(f"the body is too large: expected at most {limit} bytes", code="request_too_large", status=413)


def _unsupported(message: str) -> ClientFault:
    return ClientFault(message, code="unsupported_media_type", status=415)
