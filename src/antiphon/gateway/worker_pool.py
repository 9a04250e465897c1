"""A small pool of worker processes for work that would block the event loop: large bodies.

Processes start when they are needed and end when they are idle. If one dies, its job runs once more in a new one. The
event loop neither decodes nor copies what crosses: a thread per worker does.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from antiphon.errors import ApiError
from antiphon.gateway.admission import FairSlots
from antiphon.gateway.worker import MessageChannel

Answer = Callable[..., Awaitable[Any]]  # answers what a worker asks: a name, then arguments
T = TypeVar("T")


class WorkerDied(Exception):
    """The process ended before the result of its job."""


class WorkerPool:
    """Runs jobs (`worker`) in at most `size` processes. Other jobs wait; their owners take turns."""

    def __init__(self, size: int, idle_seconds: float = 10.0) -> None:
        self._size = size
        self._idle_seconds = idle_seconds
        self._slots = FairSlots(size)
        self._threads: ThreadPoolExecutor | None = None  # started with the first worker
        self._idle_workers: list[WorkerProcess] = []
        self._busy_workers: set[WorkerProcess] = set()
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def process_ids(self) -> list[int]:
        """The processes that run now."""
        return [worker.process_id for worker in (*self._idle_workers, *self._busy_workers)]

    async def run(
        self,
        job: Callable[..., Coroutine[Any, Any, T]],
        *arguments: Any,
        answer: Answer | None = None,
        owner: str = "",
    ) -> T:
        """The result of a job, or its error. If the caller is cancelled, the job still runs to its end."""
        for _ in range(ATTEMPTS):
            try:
                result: T = await self._run_once(job, arguments, answer, owner)
            except WorkerDied:
                continue
            return result
        raise ApiError("the request could not be prepared: its worker process ended")

    async def call(self, size: int, function: Callable[..., T], *arguments: Any, owner: str = "") -> T:
        """Calls a pure function, in a worker if its input has more than `LARGE_INPUT` bytes."""
        if size <= LARGE_INPUT:
            return function(*arguments)
        return await self.run(call_function, function, arguments, owner=owner)

    async def close(self) -> None:
        """Ends all processes."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        workers = [*self._idle_workers, *self._busy_workers]
        self._idle_workers.clear()
        for worker in workers:
            worker.disconnect()
        for worker in workers:
            await asyncio.to_thread(worker.end)
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    async def _run_once(
        self, job: Callable[..., Any], arguments: tuple[Any, ...], answer: Answer | None, owner: str
    ) -> Any:
        await self._slots.acquire(owner)
        loop = asyncio.get_running_loop()
        worker = self._idle_workers.pop() if self._idle_workers else WorkerProcess()
        self._busy_workers.add(worker)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._size, thread_name_prefix="antiphon-workers")
        future = loop.run_in_executor(self._threads, worker.run_job, job, arguments, answer, loop)
        future.add_done_callback(lambda done: self._on_job_done(worker, done))
        try:
            return await asyncio.shield(future)
        finally:
            del future  # it has the error, whose traceback has this frame

    def _on_job_done(self, worker: WorkerProcess, future: asyncio.Future[Any]) -> None:
        self._slots.release()
        self._busy_workers.discard(worker)
        if future.cancelled() or isinstance(future.exception(), WorkerDied):
            worker.disconnect()
            threading.Thread(target=worker.end, daemon=True).start()
            return
        self._idle_workers.append(worker)
        self._restart_idle_timer()

    def _restart_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._end_idle_workers)

    def _end_idle_workers(self) -> None:
        self._idle_timer = None
        workers, self._idle_workers = self._idle_workers, []
        for worker in workers:
            worker.disconnect()
            threading.Thread(target=worker.end, daemon=True).start()


class WorkerProcess:
    """One worker process, started with its first job. Its methods block, except `disconnect`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: MessageChannel | None = None

    @property
    def process_id(self) -> int:
        return self._process.pid if self._process is not None else 0

    def run_job(
        self,
        job: Callable[..., Any],
        arguments: tuple[Any, ...],
        answer: Answer | None,
        loop: asyncio.AbstractEventLoop,
    ) -> Any:
        """Runs a job, and answers what it asks, in the event loop."""
        try:
            if self._channel is None:
                self._channel = self._start()
            channel = self._channel
            channel.send((job, arguments))
            del arguments
            while True:
                match channel.receive():
                    case ("ask", name, asked, options):
                        assert answer is not None  # a job that asks has somebody to ask
                        channel.send(_answer(answer(name, *asked, **options), loop))
                    case ("result", result):
                        return result
                    case ("error", error):
                        try:
                            raise error
                        finally:
                            del error  # its traceback has this frame
                    case ("fault", text):
                        raise RuntimeError(f"a worker process failed:\n{text}")
        except (EOFError, OSError):
            raise WorkerDied from None

    def disconnect(self) -> None:
        """The process ends when it notices; a job that waits for it fails."""
        if self._channel is not None:
            self._channel.disconnect()

    def end(self) -> None:
        """Waits for the end of the process, which `disconnect` has caused, and kills it if it takes long."""
        if self._process is not None:
            try:
                self._process.wait(END_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._channel is not None:
            self._channel.close()

    def _start(self) -> MessageChannel:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "antiphon.gateway.worker", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with suppress(OSError):
                ours.setsockopt(socket.SOL_SOCKET, size, SOCKET_BUFFER)
        channel = MessageChannel(ours)
        channel.receive()  # it is ready
        return channel


async def call_function(ask: Callable[..., Any], function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    """The job of `WorkerPool.call`."""
    del ask
    return function(*arguments)


def _answer(awaitable: Awaitable[Any], loop: asyncio.AbstractEventLoop) -> tuple[str, Any]:
    async def wait() -> Any:
        return await awaitable

    try:
        return "answer", asyncio.run_coroutine_threadsafe(wait(), loop).result()
    except ApiError as error:
        return "error", error


LARGE_INPUT: Final = 1024 * 1024  # bytes that are decoded in the event loop at most
ATTEMPTS: Final = 2  # of a job whose worker process ends
END_TIMEOUT: Final = 5.0  # seconds for a process to end
SOCKET_BUFFER: Final = 1024 * 1024
