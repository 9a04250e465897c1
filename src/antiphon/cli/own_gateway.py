"""Starts a gateway for one command, and stops it with the command. The gateway ends if the command is killed, too.

The gateway is `python -m antiphon.cli.own_gateway`: `antiphon serve` on a free port. Its stdin stays open while the
command lives, and the gateway stops when it closes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

from antiphon.cli.exits import CommandFailed
from antiphon.cli.stop_signals import StopSignals

START_LIMIT: Final = 120.0  # seconds; the embedded model takes a few of them
STOP_LIMIT: Final = 20.0  # seconds
POLL_INTERVAL: Final = 0.05  # seconds
MAX_LOG: Final = 2000  # characters of the gateway's log in an error
LISTENS: Final = re.compile(r"listens on (\S+)/v1")


@contextmanager
def own_gateway(environ: Mapping[str, str], signals: StopSignals) -> Iterator[str]:
    """Run a gateway in a session of its own, so that Ctrl-C in the agent does not stop it. Yield its URL."""
    with tempfile.NamedTemporaryFile(prefix="antiphon-", suffix=".log") as log:
        process: subprocess.Popen[bytes] | None = None
        try:
            with signals.deferred():
                process = subprocess.Popen(
                    [sys.executable, "-m", "antiphon.cli.own_gateway"],
                    env=dict(environ),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            yield _wait_for_url(process, Path(log.name))
        finally:
            if process is not None:
                stop_process(process, signal.SIGTERM, STOP_LIMIT)


def stop_process(process: subprocess.Popen[bytes], number: int, limit: float) -> None:
    """Send a signal, and kill the process if it still runs after the limit in seconds."""
    process.send_signal(number)
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin:
        process.stdin.close()


def _wait_for_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        has_ended = process.poll() is not None
        text = log.read_text(encoding="utf-8", errors="replace")
        if match := LISTENS.search(text):
            return match.group(1)
        if has_ended:
            raise CommandFailed(f"the gateway did not start:\n{text[-MAX_LOG:].strip()}")
        time.sleep(POLL_INTERVAL)
    raise CommandFailed(f"the gateway did not start within {START_LIMIT:g} s")


def _stop_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    from antiphon.cli.entry import main

    Thread(target=_stop_with_parent, daemon=True).start()
    sys.exit(main(["serve", "--port", "0"]))
