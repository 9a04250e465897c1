"""`Client`: the blocking form of `AsyncClient`. One thread runs an event loop for all calling threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import uvloop

from antiphon.client.asynchronous import AsyncClient
from antiphon.client.functions import Function
from antiphon.client.model_list import Model
from antiphon.client.retries import Retries
from antiphon.client.sockets import ResponseSocket
from antiphon.client.stream import OnLosses, ResponseStream
from antiphon.client.tool_loop import ToolRun
from antiphon.config import Timeouts
from antiphon.dialects.dialect import ServerDialectName
from antiphon.errors import ApiError
from antiphon.profiles import Profile
from antiphon.protocol.events import OutputTextDelta, StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.request_fields import Input, RequestFields, ToolRunFields
from antiphon.protocol.response import Response

T = TypeVar("T")


class Client:
    """Calls one server, as `AsyncClient` does, with the same settings. It may be used from any number of threads.

    Example:
        with Client(model="mock-1") as client:
            response = client.create("What is the capital of Peru?")
        print(response.output_text)
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        model: str | None = None,
        dialect: ServerDialectName | None = None,
        profile: str | Profile | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        on_losses: OnLosses | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._client = AsyncClient(
            url,
            key,
            model=model,
            dialect=dialect,
            profile=profile,
            headers=headers,
            timeouts=timeouts,
            retries=retries,
            on_losses=on_losses,
            environ=environ,
        )
        self._loop = _LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections. `with` does this too. May be called twice.

        Example:
            client = Client(model="mock-1")
            client.close()
        """
        self._loop.stop(self._client.close)

    def create(self, input: Input = None, **fields: Unpack[RequestFields]) -> Response:
        """Creates a response. `fields` are request fields, named as in the specification (`instructions`, `tools`, …).

        Example:
            response = client.create("What is 2+2?", instructions="Answer with a number.", max_output_tokens=100)
            print(response.output_text, response.usage)
            follow_up = client.create([*response.output, {"role": "user", "content": "Why?"}])
        """
        return self._loop.run(self._client.create(input, **fields))

    def stream(self, input: Input = None, **fields: Unpack[RequestFields]) -> BlockingStream:
        """Streams a response. With `background=True` a broken connection is replaced without missing an event.

        Example:
            with client.stream("Tell me a story.") as stream:
                for piece in stream.texts():
                    print(piece, end="")
        """
        return BlockingStream(self._loop, self._client.stream(input, **fields))

    def models(self) -> list[Model]:
        """Lists the models of the server.

        Example:
            for model in client.models():
                print(model.id, model.owned_by)
        """
        return self._loop.run(self._client.models())

    def retrieve(self, id: str) -> Response:
        """Returns a stored response, whatever its status.

        Example:
            response = client.create("Hello.")
            stored = client.retrieve(response.id)
            assert stored.output_text == response.output_text
        """
        return self._loop.run(self._client.retrieve(id))

    def resume(self, id: str, after: int | None = None) -> BlockingStream:
        """Streams a stored response: the events after number `after`, or all. A broken connection is replaced without
        missing an event. The snapshot is always complete: events up to `after` are read, but not yielded.

        Example:
            response = client.stream("Write a long story.", background=True).final()
            with client.resume(response.id, after=2) as stream:
                for event in stream:
                    print(event.sequence_number)
        """
        return BlockingStream(self._loop, self._client.resume(id, after))

    def cancel(self, id: str) -> Response:
        """Cancels a background response. One that has ended is returned unchanged.

        Example:
            response = client.create("Write a long story.", background=True)
            print(client.cancel(response.id).status)
        """
        return self._loop.run(self._client.cancel(id))

    def delete(self, id: str) -> None:
        """Deletes a stored response.

        Example:
            response = client.create("Hello.")
            client.delete(response.id)
        """
        self._loop.run(self._client.delete(id))

    def run_tools(
        self,
        input: Input,
        functions: Sequence[Function],
        *,
        max_tool_calls: int = 32,
        on_event: Callable[[StreamEvent], None] | None = None,
        **fields: Unpack[ToolRunFields],
    ) -> ToolRun:
        """Repeats turns, calling these functions for the model, until it answers without a call. The calls of one
        response run concurrently; an exception is sent to the model. `on_event` gets every event of every turn.

        Example:
            def weather(city: str) -> str:
                "Return the weather in a city."
                return f"It is sunny in {city}."

            run = client.run_tools("What is the weather in Lima?", [weather])
            print(run.response.output_text, [call.output for call in run.calls])
        """
        run = self._client.run_tools(input, functions, max_tool_calls=max_tool_calls, on_event=on_event, **fields)
        return self._loop.run(run)

    def connect(self) -> BlockingSocket:
        """Opens a WebSocket for turns. The server remembers the newest response of the connection.

        Example:
            with client.connect() as socket:
                first = socket.create("My name is Ada.", store=False)
                socket.create("Who am I?", previous_response_id=first.id, store=False)
        """
        return BlockingSocket(self._loop, self._client.connect())


class BlockingStream:
    """The blocking form of `ResponseStream`.

    Example:
        with client.stream("Tell me a story.") as stream:
            for event in stream:
                print(event.sequence_number, type(event).__name__)
        print(stream.response.status, len(stream.text))
    """

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
        while events := self.next_events():
            yield from events

    def texts(self) -> Iterator[str]:
        """Yields the pieces of the output text. Raises if the response failed.

        Example:
            print("".join(client.stream("Hello.").texts()))
        """
        for event in self:
            if type(event) is OutputTextDelta:
                yield event.delta
        self.raise_failure()

    def next_events(self) -> list[StreamEvent]:
        """Returns the next events, as many as arrived together; empty at the end.

        Example:
            stream = client.stream("Hello.")
            while events := stream.next_events():
                print(len(events))
        """
        return self._loop.run(self._stream.next_events())

    def final(self) -> Response:
        """Reads to the end and returns the final response. Raises if the response failed.

        Example:
            print(client.stream("Hello.").final().output_text)
        """
        return self._loop.run(self._stream.final())

    def raise_failure(self) -> None:
        """Raises the error of a failed response, or an error if the stream was not read to its end.

        Example:
            stream = client.stream("Hello.")
            for event in stream:
                print(type(event).__name__)
            stream.raise_failure()
        """
        self._stream.raise_failure()

    def close(self) -> None:
        """Closes the connection. May be called at any time; `with` does this too.

        Example:
            stream = client.stream("Hello.")
            stream.close()
        """
        self._loop.call(self._stream.close)

    @property
    def response(self) -> Response:
        """The response so far, unfinished items included. It is computed on access."""
        return self._stream.response

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return self._stream.text

    @property
    def error(self) -> ApiError | None:
        """The error of a failed response, else None."""
        return self._stream.error

    @property
    def request_id(self) -> str | None:
        """The id that the server gave to the request. With it the request can be found in the log of the server."""
        return self._stream.request_id

    @property
    def losses(self) -> Losses:
        """What could not be translated, in the request or in the answer (F-4)."""
        return self._stream.losses


class BlockingSocket:
    """The blocking form of `ResponseSocket`.

    Example:
        with client.connect() as socket:
            print(socket.create("Hello.").output_text)
    """

    def __init__(self, loop: _LoopThread, socket: ResponseSocket) -> None:
        self._loop = loop
        self._socket = socket

    def __enter__(self) -> Self:
        self._loop.run(self._socket.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(self, input: Input = None, **fields: Unpack[RequestFields]) -> Response:
        """Sends one turn and waits for the response.

        Example:
            with client.connect() as socket:
                print(socket.create("Hello.").output_text)
        """
        return self._loop.run(self._socket.create(input, **fields))

    def stream(self, input: Input = None, **fields: Unpack[RequestFields]) -> BlockingStream:
        """Sends one turn and streams the response.

        Example:
            with client.connect() as socket:
                print("".join(socket.stream("Hello.").texts()))
        """
        return BlockingStream(self._loop, self._socket.stream(input, **fields))

    def close(self) -> None:
        """Closes the connection. `with` does this too.

        Example:
            with client.connect() as socket:
                socket.close()
        """
        self._loop.call(self._socket.close)


class _LoopThread:
    """An event loop in its own thread, started by the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns the result of `coroutine`. An interrupt (Ctrl-C) cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], None]) -> None:
        """Calls a function in the loop's thread."""

        async def call_function() -> None:
            function()

        self.run(call_function())

    def stop(self, close_client: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `close_client`, then ends the thread."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(close_client(), loop).result()
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
