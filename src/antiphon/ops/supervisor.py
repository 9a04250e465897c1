"""The server of one process, and the supervisor of several worker processes.

The first stop signal starts the grace period. The second one ends every request at once, each stream with its last
event. Workers may get a stop signal from a service manager and from the supervisor, so only the supervisor counts them:
it forces its workers to end with `FORCE_SIGNAL`. Workers end when their supervisor dies, however it dies. SIGHUP ends
no process.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from types import FrameType
from typing import Final

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

LOG: Final = logging.getLogger("antiphon.ops")
FORCE_SIGNAL: Final = signal.SIGUSR1
FORCE_TIMEOUT: Final = 5.0  # seconds from a forced shutdown until the supervisor kills a worker
SHUTDOWN_TICK: Final = 0.1  # seconds between two looks for a forced shutdown
ORPHAN_TIMEOUT: Final = 0.7  # seconds that a worker has to end its streams after the death of its supervisor


class GatewayServer(uvicorn.Server):
    """uvicorn with a callback when it listens, and a forced shutdown at the second signal."""

    def __init__(
        self, config: uvicorn.Config, on_start: Callable[[], None] | None = None, *, is_worker: bool = False
    ) -> None:
        super().__init__(config)
        self._on_start = on_start
        self._is_worker = is_worker

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_start is not None:
            self._on_start()

    async def main_loop(self) -> None:
        """Serves until a stop signal, and for the shutdown delay after it."""
        await super().main_loop()
        app = self.config.loaded_app
        stop_being_ready = getattr(app, "stop_being_ready", None)
        if stop_being_ready is not None:
            stop_being_ready()
        end = time.monotonic() + getattr(app, "shutdown_delay", 0.0)
        while time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(SHUTDOWN_TICK)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and not self._is_worker:
            self.force_shutdown()
        super().handle_exit(sig, frame)

    def force_shutdown(self) -> None:
        """Ends the grace period, or stops without one."""
        self.should_exit = self.force_exit = True
        if self.started:
            self.config.loaded_app.force_shutdown()


class WorkerProcess(Process):
    """One worker process."""

    @property
    def server(self) -> GatewayServer:
        if not isinstance(self._server, GatewayServer):
            self._server = GatewayServer(self.config, is_worker=True)
        return self._server

    def start(self) -> None:
        with _blocked_hangup():  # the new process inherits this, until it can handle the signal
            super().start()

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Runs in the worker process."""
        # uvicorn raises the stop signal again at its end. The default action would cut requests that still end.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(FORCE_SIGNAL, lambda *_: self.server.force_shutdown())
        ignore_hangup()
        threading.Thread(target=_end_with_parent, name="antiphon-parent-watcher", daemon=True).start()
        super().target(sockets)

    def force_shutdown(self) -> None:
        """Called by the supervisor."""
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, FORCE_SIGNAL)


class WorkerSupervisor(Multiprocess):
    """uvicorn's supervisor, with the signals and workers described above."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        self._stop_count = 0

    def init_processes(self) -> None:
        self.processes += [self._start_worker() for _ in range(self.processes_num)]

    def keep_subprocess_alive(self) -> None:
        for index, worker in enumerate(self.processes):
            if self.should_exit.is_set() or worker.is_alive(timeout=self.config.timeout_worker_healthcheck):
                continue
            worker.kill()
            worker.process.join()
            if worker.exitcode == STARTUP_FAILURE:  # it would fail again
                LOG.error("a worker failed to start; the gateway stops", extra={"fields": {"pid": worker.pid}})
                self.should_exit.set()
            elif not self.should_exit.is_set():
                LOG.warning("a worker died; another one starts", extra={"fields": {"pid": worker.pid}})
                self.processes[index] = self._start_worker()

    def handle_int(self) -> None:
        self._stop_count += 1
        super().handle_int()

    def handle_term(self) -> None:
        self._stop_count += 1
        super().handle_term()

    def handle_hup(self) -> None:
        _log_hangup()

    def handle_ttin(self) -> None:
        """The number of workers is a setting."""

    def handle_ttou(self) -> None:
        """The same."""

    def terminate_all(self) -> None:
        for listener in self.sockets:
            listener.close()  # else new connections would wait without an answer
        super().terminate_all()

    def join_all(self) -> None:
        """Waits for the workers; at the second stop signal, forces them to end."""
        kill_at: float | None = None
        while any(worker.process.is_alive() for worker in self.processes):
            self.handle_signals()
            if kill_at is None and self._stop_count > 1:
                kill_at = time.monotonic() + FORCE_TIMEOUT
                for worker in self.processes:
                    if isinstance(worker, WorkerProcess):
                        worker.force_shutdown()
            if kill_at is not None and time.monotonic() > kill_at:
                for worker in self.processes:
                    worker.process.kill()
            wait([worker.process.sentinel for worker in self.processes if worker.process.is_alive()], timeout=0.1)
        for worker in self.processes:
            worker.process.join()

    def _start_worker(self) -> WorkerProcess:
        worker = WorkerProcess(self.config, self.sockets)
        worker.start()
        return worker


def ignore_hangup() -> None:
    """SIGHUP does not end this process. Does nothing outside of the main thread, which alone can set this."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, lambda *_: _log_hangup())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


@contextmanager
def _blocked_hangup() -> Iterator[None]:
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _log_hangup() -> None:
    LOG.warning("SIGHUP was ignored; SIGTERM stops the gateway")


def _end_with_parent() -> None:
    """Ends this worker after the death of its supervisor: its streams with their last events, then the process."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # a worker has one
    wait([parent.sentinel])
    LOG.error("the supervisor died; this worker ends")
    os.kill(os.getpid(), FORCE_SIGNAL)
    time.sleep(ORPHAN_TIMEOUT)
    os._exit(1)
