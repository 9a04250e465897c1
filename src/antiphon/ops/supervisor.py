"""The server of one process, and the supervisor of several worker processes.

The first stop signal starts the grace period. The second one ends every request at once, each stream with its last
event. Workers may get a stop signal from a service manager and from the supervisor, so only the supervisor counts them:
it forces its workers to end with `FORCE_SIGNAL`. Workers end when their supervisor dies, however it dies. SIGHUP ends
no process. The supervisor sends a new configuration to its workers through pipes.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from antiphon.config import Config
from antiphon.errors import AntiphonError, ConfigError

AppFactory = Callable[[], Any]

LOG: Final = logging.getLogger("antiphon.ops")
FORCE_SIGNAL: Final = signal.SIGUSR1
FORCE_TIMEOUT: Final = 5.0  # seconds from a forced shutdown until the supervisor kills a worker
APPLY_TIMEOUT: Final = 10.0  # seconds in which a worker must use a new configuration
START_TIMEOUT: Final = 60.0  # seconds in which a worker must answer its first ping
START_TICK: Final = 0.05  # seconds between two looks whether a worker has started
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

    def apply_config(self, config: Config) -> None:
        """Serves new requests with another configuration. Called in another thread."""
        while not self.started and not self.should_exit:
            time.sleep(START_TICK)
        if self.should_exit:
            raise ConfigError("the gateway is stopping")
        self.config.loaded_app.apply_config(config)

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
        elif not self._is_worker and sys.stderr.isatty():
            self._announce_drain()
        super().handle_exit(sig, frame)

    def _announce_drain(self) -> None:
        """Say on a terminal why the gateway does not stop at once."""
        count = len(self.server_state.tasks)
        if count:
            requests = "1 request" if count == 1 else f"{count} requests"
            sys.stderr.write(f"\nfinishing {requests}; press Ctrl-C again to stop now\n")
            sys.stderr.flush()

    def force_shutdown(self) -> None:
        """Ends the grace period, or stops without one."""
        self.should_exit = self.force_exit = True
        if self.started:
            self.config.loaded_app.force_shutdown()


class WorkerProcess(Process):
    """One worker process."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        self._config_sender, self._config_receiver = multiprocessing.Pipe()
        self._start_deadline: float | None = None  # None: it has answered its first ping
        super().__init__(config, sockets)

    @property
    def server(self) -> GatewayServer:
        if not isinstance(self._server, GatewayServer):
            self._server = GatewayServer(self.config, is_worker=True)
        return self._server

    def start(self) -> None:
        with _blocked_hangup():  # the new process inherits this, until it can handle the signal
            super().start()
        self._start_deadline = time.monotonic() + START_TIMEOUT
        self.parent_conn.send(b"ping")

    def is_alive(self, timeout: float = 5) -> bool:
        """Whether it answers. A worker that starts has more time, since it imports its code first."""
        if self._start_deadline is None:
            return super().is_alive(timeout)
        if not self.process.is_alive():
            return False
        try:
            if not self.parent_conn.poll():
                return time.monotonic() < self._start_deadline
            self.parent_conn.recv()
        except (OSError, EOFError):  # it has just ended
            return False
        self._start_deadline = None
        return True

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Runs in the worker process."""
        # uvicorn raises the stop signal again at its end. The default action would cut requests that still end.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(FORCE_SIGNAL, lambda *_: self.server.force_shutdown())
        handle_hangup()
        threading.Thread(target=_end_with_parent, name="antiphon-parent-watcher", daemon=True).start()
        threading.Thread(target=self._receive_configs, name="antiphon-reload", daemon=True).start()
        super().target(sockets)

    def _receive_configs(self) -> None:
        """Applies each configuration that the supervisor sends, and answers with its number and the problem, if any."""
        while True:
            number, config = self._config_receiver.recv()
            problem = ""
            try:
                self.server.apply_config(config)
            except AntiphonError as error:
                problem = str(error)
            self._config_receiver.send((number, problem))

    def send_config(self, number: int, config: Config) -> None:
        """Called by the supervisor."""
        self._config_sender.send((number, config))

    def wait_for_config(self, number: int, seconds: float) -> str:
        """The problem of the worker with the configuration of this number; empty if it uses it."""
        end = time.monotonic() + seconds
        try:
            while self._config_sender.poll(max(0.0, end - time.monotonic())):
                answered_number, problem = self._config_sender.recv()
                if answered_number == number:
                    return str(problem)
        except (OSError, EOFError):  # it ended: the next worker starts with the new configuration
            return ""
        return f"the worker with the process id {self.pid} did not answer within {seconds:g} s"

    def force_shutdown(self) -> None:
        """Called by the supervisor."""
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, FORCE_SIGNAL)


class WorkerSupervisor(Multiprocess):
    """uvicorn's supervisor, with the signals and workers described above."""

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], make_factory: Callable[[Config], AppFactory]
    ) -> None:
        """`make_factory` returns the application factory of a configuration."""
        super().__init__(config, sockets)
        self._make_factory = make_factory
        self._stop_count = 0
        self._config_count = 0  # configurations that were applied
        self._workers_lock = threading.Lock()  # no worker starts while a configuration is sent

    def init_processes(self) -> None:
        with self._workers_lock:
            self.processes += [self._start_worker() for _ in range(self.processes_num)]

    def apply_config(self, config: Config) -> None:
        """Sends a configuration to all workers, and waits until they use it. Called in another thread. Workers that
        start later use it too."""
        with self._workers_lock:
            self.config.app = self._make_factory(config)
            self._config_count += 1
            number = self._config_count
            workers = [worker for worker in self.processes if isinstance(worker, WorkerProcess)]
            for worker in workers:
                with suppress(OSError):  # it ended
                    worker.send_config(number, config)
        problems = [worker.wait_for_config(number, APPLY_TIMEOUT) for worker in workers]
        if any(problems):
            raise ConfigError("\n".join(filter(None, dict.fromkeys(problems))))

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
                with self._workers_lock:
                    self.processes[index] = self._start_worker()

    def handle_int(self) -> None:
        self._stop_count += 1
        super().handle_int()

    def handle_term(self) -> None:
        self._stop_count += 1
        super().handle_term()

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


def handle_hangup(action: Callable[[], None] | None = None) -> None:
    """SIGHUP calls `action`, or is ignored, and does not end this process. Does nothing outside of the main thread,
    which alone can set this."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, lambda *_: (action or _log_hangup)())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


@contextmanager
def _blocked_hangup() -> Iterator[None]:
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _log_hangup() -> None:
    LOG.warning("SIGHUP was ignored: only the first process of `antiphon serve` reloads; SIGTERM stops the gateway")


def _end_with_parent() -> None:
    """Ends this worker after the death of its supervisor: its streams with their last events, then the process."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # a worker has one
    wait([parent.sentinel])
    LOG.error("the supervisor died; this worker ends")
    os.kill(os.getpid(), FORCE_SIGNAL)
    time.sleep(ORPHAN_TIMEOUT)
    os._exit(1)
