"""Runs the clients that `make test-clients` installs into `.clients`: with an environment of its own, no input, and a
time limit.

Each runs in a process group of its own, which is ended whatever happens. None of them has a way out of this machine: an address
that leads nowhere stands as their proxy, so a client that asks for more than the gateway is found out.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

CLIENTS = Path(__file__).parents[3] / ".clients" / "node_modules"
SECONDS = 120


def installed(name: str) -> Path:
    """The program of this name."""
    program = CLIENTS / ".bin" / name
    if not program.exists():
        pytest.fail(f"{name} is not installed; run `make test-clients`")
    return program


def run(command: Sequence[str], workplace: Path, home: Path, environ: Mapping[str, str]) -> str:
    """What it printed, once it ended well."""
    with subprocess.Popen(
        command,
        cwd=workplace,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **NO_WAY_OUT, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            told, complaints = process.communicate(timeout=SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, (told + complaints).decode()
    return told.decode()


NO_WAY_OUT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:1"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
}
