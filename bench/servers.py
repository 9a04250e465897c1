"""Servers under measurement: started on one core, with the mock and the load generator on another, and stopped again."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bench.processes import free_ports, is_listening, tree
from bench.targets import BIN, Target
from msgspec import Struct

FIRST_PORT = 27300


class Cores(Struct, frozen=True):
    """One for what is measured, one for everything else; the same one if there is no other."""

    server: int
    load: int

    @classmethod
    def here(cls) -> Cores:
        allowed = sorted(os.sched_getaffinity(0))
        return cls(allowed[0], allowed[-1])


class Server:
    """A target that runs."""

    def __init__(self, target: Target, port: int, upstream: int, cores: Cores, folder: Path) -> None:
        self.target = target
        self.port = port
        self.cores = cores
        self.folder = folder / target.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.key = secrets.token_hex(24)
        self._values = {"port": str(port), "upstream": str(upstream), "folder": str(self.folder), "key": self.key}
        for name, text in target.files.items():
            (self.folder / name).write_text(self._filled(text))
        environ = os.environ | {name: self._filled(value) for name, value in target.environ.items()}
        with (self.folder / "output.log").open("wb") as log:
            command = [self._filled(word) for word in target.command]
            where = [cores.server] if target.workers == 1 else [cores.server, cores.load]
            self._process = pinned(command, *where, stdout=log, stderr=log, cwd=self.folder, env=environ)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_it_listens(self) -> bool:
        """False if it ended, or did not get there in time; its folder has what it said."""
        end = time.monotonic() + self.target.patience
        while time.monotonic() < end and self._process.poll() is None:
            if is_listening(self.pid, self.port):
                return True
            time.sleep(0.1)
        return False

    def stop(self) -> None:
        members = tree(self.pid)
        for how in (signal.SIGTERM, signal.SIGKILL):
            for member in reversed(members):
                with suppress(ProcessLookupError):
                    os.kill(member, how)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
                return

    def _filled(self, text: str) -> str:
        for name, value in self._values.items():
            text = text.replace(f"{{{name}}}", value)
        return text


@contextmanager
def running(targets: list[Target], folder: Path) -> Iterator[list[Server]]:
    """The mock, and every target in front of it. Whether they listen is for the caller to find out."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nothing that was started here outlives us
    cores = Cores.here()
    upstream, *ports = free_ports(FIRST_PORT, len(targets) + 1)
    mock = pinned([str(BIN / "mock_upstream"), str(upstream)], cores.load)
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


def pinned(
    command: list[str],
    *cores: int,
    stdin: int | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """A process on these cores and no other."""
    return subprocess.Popen(
        ["taskset", "-c", ",".join(map(str, cores)), *command],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=env,
    )
