"""The time until a command shows a result, or a line that says what it does, on a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from antiphon.cli.entry import COMMANDS

pytestmark = pytest.mark.timed
LIMIT = 0.3  # seconds
ROUNDS = 3
#: Commands with arguments that make them work, and not only print an error.
ARGUMENTS = {
    "ask": ["hello"],
    "bridge": ["codex"],
    "check": ["http://127.0.0.1:9/v1"],
    "completion": ["bash"],
    "config": ["check"],
    "explain": ["/dev/null"],
    "init": ["--yes", "--print"],
    "probe": ["http://127.0.0.1:9/v1"],
    "route": ["x"],
    "run": ["claude"],
    "serve": ["--port", "0"],
    "setup": ["claude"],
    "trace": ["list"],
    "translate": ["--from", "chat", "--to", "responses", "/dev/null"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_first_output_comes_within_300_ms(command: str, tmp_path: Path) -> None:
    times = [seconds_to_first_output([command, *ARGUMENTS.get(command, [])], tmp_path) for _ in range(ROUNDS)]
    print(f"{command}: {min(times) * 1000:.0f} ms")
    assert min(times) < LIMIT


def seconds_to_first_output(words: list[str], home: Path) -> float:
    terminal, slave = pty.openpty()
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm"}
    command = [str(Path(sys.executable).with_name("antiphon")), *words]
    started = time.monotonic()
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environ, cwd=home)
    os.close(slave)
    try:
        assert select.select([terminal], [], [], 30)[0], "no output within 30 s"
        seconds = time.monotonic() - started
        assert os.read(terminal, 4096).strip()
        return seconds
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
