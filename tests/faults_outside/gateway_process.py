"""A gateway under attack, seen from outside: `antiphon serve` in a process of its own, its memory, and how long
`/health` takes.

    with gateway_process(tmp_path, upstream.base_url) as gateway, health_prober(gateway) as health:
        gateway.send(b"GET /... hostile bytes")
    assert health.worst_seconds < LOAD_FACTOR * 0.1

Tests that use this module are marked `timed` and are run by `make test-faults` only. Linux only.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
from bench.processes import PROC, rss_kib, tree
from msgspec import Struct
from tests.running import BOUND, read_all

LOAD_FACTOR: Final = 3.0  # a timed bound is this multiple of what is wanted on an idle machine
CONFIG: Final = """
[server]
port = 0
{server}
[store]
url = "{store}"
{tables}
[[upstreams]]
name = "lab"
dialect = "{dialect}"
base_url = "{base_url}"
models = ["*"]
{upstream}
"""


class GatewayProcess:
    """A running gateway; every call is made from the test's process."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.url = url
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def post(self, body: Mapping[str, Any] | bytes, path: str = "/v1/responses", **headers: str) -> httpx2.Response:
        """A request with a JSON body, and its whole answer."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        with httpx2.Client(timeout=BOUND) as client:
            return client.post(self.url + path, content=content, headers={"content-type": "application/json", **names})

    def get(self, path: str, **headers: str) -> httpx2.Response:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        with httpx2.Client(timeout=BOUND) as client:
            return client.get(self.url + path, headers=names)

    def send(self, data: bytes) -> bytes:
        """Bytes as they are, and the whole answer until the gateway closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=BOUND) as connection:
            connection.sendall(data)
            return read_all(connection)

    def resident_mib(self) -> float:
        """Resident memory now."""
        return rss_kib(self.pid) / 1024

    def peak_resident_mib(self) -> float:
        """The most resident memory since the start or since `reset_peak`."""
        return sum(_status_kib(pid, "VmHWM") for pid in tree(self.pid)) / 1024

    def reset_peak(self) -> None:
        """From here on `peak_resident_mib` counts anew."""
        for pid in tree(self.pid):
            (PROC / str(pid) / "clear_refs").write_text("5")


class Health(Struct):
    """What the prober measured; filled when it stops."""

    worst_seconds: float = math.inf
    worst_cpu_seconds: float = math.inf  # of the gateway during one probe; depends less on the machine's load
    probes: int = 0
    failures: int = 0  # probes that were not answered with 200

    def __str__(self) -> str:
        return f"/health at most {self.worst_seconds * 1000:.0f} ms, {self.worst_cpu_seconds * 1000:.0f} ms of CPU time"


@contextmanager
def gateway_process(
    folder: Path,
    base_url: str,
    *,
    dialect: str = "chat",
    store: str = "off",
    server: str = "",
    tables: str = "",
    upstream: str = "",
    memory_limit_mib: int | None = None,
) -> Iterator[GatewayProcess]:
    """A gateway with one upstream that serves every model. `server` and `upstream` are further lines of their tables,
    `tables` whole tables of the configuration; `memory_limit_mib` bounds its address space, so that a test cannot
    exhaust the machine."""
    config, log = folder / "antiphon.toml", folder / "gateway.log"
    config.write_text(
        CONFIG.format(server=server, store=store, tables=tables, dialect=dialect, base_url=base_url, upstream=upstream)
    )
    command = [sys.executable, "-m", "antiphon", "serve", "--config", str(config)]
    if memory_limit_mib is not None:
        command = ["prlimit", f"--as={memory_limit_mib << 20}", *command]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (
        log.open("wb") as lines,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=lines, env=environ) as process,
    ):
        try:
            yield GatewayProcess(process, _address(process, log), log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(BOUND)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def health_prober(gateway: GatewayProcess) -> Iterator[Health]:
    """Asks `/health` every 10 ms from a process of its own while the block runs and half a second longer; the result
    follows it.

    The gateway must still run when the block ends. A probe that waits then is counted to its end.
    """
    health = Health()
    command = [sys.executable, "-m", "tests.faults_outside.health_prober", str(gateway.port), str(gateway.pid)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", "the prober did not reach the gateway"
            yield health
            printed, _ = process.communicate(timeout=2 * BOUND)
            measured = msgspec.json.decode(printed, type=Health)
            for name in Health.__struct_fields__:
                setattr(health, name, getattr(measured, name))
        finally:
            process.kill()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        for word in line.decode().split():
            if word.startswith("http://127.0.0.1:"):
                return word.removesuffix("/v1")
    raise AssertionError(f"the gateway did not start: {log.read_text()[-2000:]}")


def _status_kib(pid: int, name: str) -> int:
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(name + ":"))
