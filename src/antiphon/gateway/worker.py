"""A worker process: runs jobs for the gateway that started it, one at a time, and ends with it.

    python -m antiphon.gateway.worker FILE_DESCRIPTOR

A job is a coroutine function and its arguments. The function's first argument asks the gateway for something and waits
for the answer, so the coroutine itself never waits. Messages are pickled tuples on a socket that only the two processes
have.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from antiphon.errors import AntiphonError
from antiphon.gateway.client_body import InvalidMessage
from antiphon.gateway.memory import release_free_memory

Message = tuple[Any, ...]
#: Exceptions that are part of the result of a job. All others are faults of the gateway.
EXPECTED_ERRORS: Final = (AntiphonError, InvalidMessage)


class MessageChannel:
    """Messages on a socket. Large byte strings are neither copied nor framed again: `pickle` writes and reads them in
    place, without the interpreter lock."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rb")
        self.write = connection.sendall

    def send(self, message: Message) -> None:
        pickle.Pickler(self, PICKLE_PROTOCOL).dump(message)

    def receive(self) -> Message:
        """The next message. Raises `EOFError` or `OSError` if the other process is gone."""
        message: Message = pickle.Unpickler(self._file).load()
        return message

    def disconnect(self) -> None:
        """Ends both directions, also of a `receive` that waits in another thread."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._file.close()
        self._connection.close()


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits for an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("a job in a worker waited for an event loop")


class Worker:
    """The worker's side of the channel. Input is read in a thread, so that the end of the gateway is noticed during a
    job."""

    def __init__(self, channel: MessageChannel, on_gateway_gone: Callable[[], None]) -> None:
        self._channel = channel
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._on_gateway_gone = on_gateway_gone

    def run(self) -> None:
        threading.Thread(target=self._read_messages, daemon=True).start()
        while True:
            self._run_job(*self._messages.get())
            gc.collect()
            release_free_memory()

    def ask(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Asks the gateway, and waits for the answer. An error of the gateway is raised here."""
        self._channel.send(("ask", name, arguments, options))
        kind, value = self._messages.get()
        if kind == "error":
            raise value
        return value

    def _run_job(self, job: Callable[..., Coroutine[Any, Any, Any]], arguments: tuple[Any, ...]) -> None:
        try:
            result: Message = ("result", run_coroutine(job(self.ask, *arguments)))
        except EXPECTED_ERRORS as error:
            result = ("error", error)
        except Exception:
            result = ("fault", traceback.format_exc())
        del arguments
        self._channel.send(result)

    def _read_messages(self) -> None:
        try:
            while True:
                self._messages.put(self._channel.receive())
        except (EOFError, OSError):
            self._on_gateway_gone()


def main(file_descriptor: int) -> None:
    for stop_signal in (signal.SIGINT, signal.SIGTERM):  # the gateway ends its workers when its own work is done
        signal.signal(stop_signal, signal.SIG_IGN)
    channel = MessageChannel(socket.socket(fileno=file_descriptor))
    gc.freeze()
    channel.send(("ready",))
    Worker(channel, on_gateway_gone=lambda: os._exit(0)).run()


PICKLE_PROTOCOL: Final = 5

if __name__ == "__main__":
    main(int(sys.argv[1]))
