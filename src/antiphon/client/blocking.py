"""`Client`: the blocking form of `AsyncClient`. One thread runs an event loop for all calling threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack

import uvloop

from antiphon.client.asynchronous import AsyncClient, Input
from antiphon.client.functions import Function
from antiphon.client.retries import Retries
from antiphon.client.sockets import ResponseSocket
from antiphon.client.stream import OnLosses, ResponseStream
from antiphon.client.tool_loop import ToolRun
from antiphon.config import Timeouts
from antiphon.errors import ApiError
from antiphon.profiles import Dialect, Profile
from antiphon.protocol.events import OutputTextDelta, StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.response import Response

T = TypeVar("T")


class ClientSettings(TypedDict, total=False):
    """The settings of an `AsyncClient` besides address and key."""

    model: str | None
    dialect: Dialect | None
    profile: str | Profile | None
    headers: Mapping[str, str] | None
    timeouts: Timeouts | None
    retries: Retries | None
    on_losses: OnLosses | None
    environ: Mapping[str, str]


class Client:
    """Calls one server, as `AsyncClient` does, with the same settings. Close it, or use it as `with Client() as
    client`."""

    def __init__(self, url: str | None = None, key: str | None = None, **settings: Unpack[ClientSettings]) -> None:
        self._client = AsyncClient(url, key, **settings)
        self._loop = _LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections. May be called twice."""
        self._loop.stop(self._client.close)

    def create(self, input: Input = None, **settings: Any) -> Response:
        return self._loop.run(self._client.create(input, **settings))

    def stream(self, input: Input = None, **settings: Any) -> BlockingStream:
        return BlockingStream(self._loop, self._client.stream(input, **settings))

    def retrieve(self, id: str) -> Response:
        return self._loop.run(self._client.retrieve(id))

    def resume(self, id: str, after: int | None = None) -> BlockingStream:
        return BlockingStream(self._loop, self._client.resume(id, after))

    def cancel(self, id: str) -> Response:
        return self._loop.run(self._client.cancel(id))

    def delete(self, id: str) -> None:
        self._loop.run(self._client.delete(id))

    def run_tools(
        self,
        input: Input,
        functions: Sequence[Function],
        *,
        max_tool_calls: int = 32,
        on_event: Callable[[StreamEvent], None] | None = None,
        **settings: Any,
    ) -> ToolRun:
        run = self._client.run_tools(input, functions, max_tool_calls=max_tool_calls, on_event=on_event, **settings)
        return self._loop.run(run)

    def connect(self) -> BlockingSocket:
        return BlockingSocket(self._loop, self._client.connect())


class BlockingStream:
    """The blocking form of `ResponseStream`."""

    def __init__(self, loop: _LoopThread, stream: ResponseStream) -> None:
        self._loop = loop
        self._stream = stream

    def __enter__(self) -> Self:
        self._loop.run(self._stream.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamEvent]:
        while events := self._loop.run(self._stream.batch()):
            yield from events

    def texts(self) -> Iterator[str]:
        """Yields the pieces of the output text. Raises if the response failed."""
        for event in self:
            if type(event) is OutputTextDelta:
                yield event.delta
        self._stream.raise_failure()

    def final(self) -> Response:
        """Reads to the end and returns the final response. Raises if the response failed."""
        return self._loop.run(self._stream.final())

    def close(self) -> None:
        self._loop.call(self._stream.close)

    @property
    def response(self) -> Response:
        """The response so far."""
        return self._stream.response

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return self._stream.text

    @property
    def error(self) -> ApiError | None:
        return self._stream.error

    @property
    def losses(self) -> Losses:
        return self._stream.losses


class BlockingSocket:
    """The blocking form of `ResponseSocket`."""

    def __init__(self, loop: _LoopThread, socket: ResponseSocket) -> None:
        self._loop = loop
        self._socket = socket

    def __enter__(self) -> Self:
        self._loop.run(self._socket.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call(self._socket.close)

    def create(self, input: Input = None, **settings: Any) -> Response:
        return self._loop.run(self._socket.create(input, **settings))

    def stream(self, input: Input = None, **settings: Any) -> BlockingStream:
        return BlockingStream(self._loop, self._socket.stream(input, **settings))


class _LoopThread:
    """An event loop in its own thread, started by the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of `work`. An interrupt (Ctrl-C) cancels the work."""
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], None]) -> None:
        """Calls a function in the loop's thread."""

        async def work() -> None:
            function()

        self.run(work())

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `last`, then ends the thread."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(last(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = uvloop.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="antiphon-client", daemon=True)
                self._thread.start()
            return self._loop
