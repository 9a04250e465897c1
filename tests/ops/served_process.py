"""A gateway in a process of its own, as `antiphon serve` starts it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from tests.api.probing import ASKED
from tests.running import BOUND

from antiphon.config import Config

START = 60.0  # seconds; several processes start on a busy machine
# A program like `antiphon serve`: prints the address, logs to standard error, and unwinds at its end.
PROGRAM = """
import signal
import sys
import msgspec
from antiphon.config import Config
from antiphon.api.serve_api import serve_api

signal.signal(signal.SIGTERM, signal.default_int_handler)
config = msgspec.json.decode(sys.argv[1], type=Config)
try:
    serve_api(config, announce=lambda url: print(url, flush=True))
except KeyboardInterrupt:
    pass
print("over", flush=True)
"""


class Gateway:
    """A process that serves."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.url = process.stdout.readline().strip()
        self._log = io.StringIO()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(self.url + path, timeout=BOUND)

    def post(self, **members: Any) -> httpx2.Response:
        return httpx2.post(f"{self.url}/v1/responses", json={**ASKED, **members}, timeout=START)

    def children(self) -> set[int]:
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return {int(pid) for pid in text.split()}

    def workers(self) -> set[int]:
        """Its children, except the resource tracker of Python."""
        return {pid for pid in self.children() if b"spawn_main" in _command(pid)}

    def stop(self, how: signal.Signals = signal.SIGTERM) -> str:
        """Its output until its end."""
        assert self.process.stdout is not None
        self.process.send_signal(how)
        rest = self.process.stdout.read()
        self.process.wait(START)
        self._reader.join(BOUND)
        return rest

    @property
    def log(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self._log.getvalue().splitlines()]

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with suppress(ValueError):  # the process was killed, and its output is closed
            for line in self.process.stderr:
                self._log.write(line)


@contextmanager
def gateway(config: Config, **server: Any) -> Iterator[Gateway]:
    config = msgspec.structs.replace(
        config, server=msgspec.structs.replace(config.server, port=0, log="json", **server)
    )
    if config.store.url is None:  # never the user's own
        config = msgspec.structs.replace(config, store=msgspec.structs.replace(config.store, url="off"))
    command = [sys.executable, "-c", PROGRAM, msgspec.json.encode(config).decode()]
    environ = {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_PROXY", "_proxy"))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        try:
            yield Gateway(process)
        finally:
            process.kill()


def _command(pid: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
