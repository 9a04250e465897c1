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
#: The time limit of one program. It stops a program that hangs, also on a machine where much else runs.
SECONDS = 400


def installed(name: str) -> Path:
    """The program of this name."""
    program = CLIENTS / ".bin" / name
    if not program.exists():
        pytest.fail(f"{name} is not installed; run `make test-clients`")
    return program


def run(command: Sequence[str], workplace: Path, home: Path, environ: Mapping[str, str]) -> str:
    """The output of the program, which must exit with 0."""
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
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired as timeout:
            partial = (timeout.stdout or b"") + (timeout.stderr or b"")
            raise AssertionError(f"no end after {SECONDS} s: {partial.decode(errors='replace')}") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, (output + errors).decode()
    return output.decode()


NO_WAY_OUT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:1"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
}
