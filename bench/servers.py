"""Starts and stops the measured servers on one core, and the mock upstream and the load generator on another core."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bench.processes import free_ports, is_listening, tree
from bench.targets import BIN, Target, fill_placeholders
from msgspec import Struct

FIRST_PORT = 27300


class Cores(Struct, frozen=True):
    """One core for the measured server and one for everything else; both are equal on a machine with one core."""

    server: int
    load: int

    @classmethod
    def available(cls) -> Cores:
        allowed = sorted(os.sched_getaffinity(0))
        return cls(allowed[0], allowed[-1])


class Server:
    """The running process of a target."""

    def __init__(self, target: Target, port: int, upstream: int, cores: Cores, folder: Path) -> None:
        self.target = target
        self.port = port
        self.cores = cores
        self.folder = folder / target.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.key = secrets.token_hex(24)
        self.log_path = self.folder / "output.log"
        values = {"port": str(port), "upstream": str(upstream), "folder": str(self.folder), "key": self.key}
        for name, text in target.files.items():
            (self.folder / name).write_text(fill_placeholders(text, values))
        environ = os.environ | {name: fill_placeholders(value, values) for name, value in target.environ.items()}
        with self.log_path.open("wb") as log:
            command = [fill_placeholders(word, values) for word in target.command]
            server_cores = [cores.server] if target.workers == 1 else [cores.server, cores.load]
            self._process = start_on_cores(command, *server_cores, stdout=log, stderr=log, cwd=self.folder, env=environ)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_listening(self) -> bool:
        """Returns False if the process ended or did not listen in time."""
        end = time.monotonic() + self.target.start_timeout
        while time.monotonic() < end and self._process.poll() is None:
            if is_listening(self.pid, self.port):
                return True
            time.sleep(0.1)
        return False

    def read_log(self) -> str:
        """Returns the output of the process."""
        return self.log_path.read_text(errors="replace")

    def stop(self) -> None:
        pids = tree(self.pid)
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for pid in reversed(pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal_number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
                return


@contextmanager
def running(
    targets: list[Target], folder: Path, mock_command: Sequence[str] = (str(BIN / "mock_upstream"),)
) -> Iterator[list[Server]]:
    """Starts the mock upstream and every target, and stops them at the end. Does not wait until they listen. The port
    is appended to the command of the mock."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` stops the servers
    cores = Cores.available()
    upstream, *ports = free_ports(FIRST_PORT, len(targets) + 1)
    mock = start_on_cores([*mock_command, str(upstream)], cores.load)
    servers: list[Server] = []
    try:
        for target, port in zip(targets, ports, strict=True):
            servers.append(Server(target, port, upstream, cores, folder))
        yield servers
    finally:
        for server in servers:
            server.stop()
        mock.kill()
        mock.wait()


def start_on_cores(
    command: list[str],
    *cores: int,
    stdin: int | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a process that runs only on the given cores."""
    return subprocess.Popen(
        ["taskset", "-c", ",".join(map(str, cores)), *command],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=env,
    )
