"""Runs `antiphon` in a pseudo-terminal, as a user would."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 60.0  # seconds
# Makes standard input the terminal of a new session, so that Ctrl-C sends SIGINT to it, and runs Python.
ATTACH_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class PseudoTerminal:
    """An `antiphon` command in a pseudo-terminal."""

    def __init__(self, *words: str, url: str, home: Path) -> None:
        self._terminal, slave = pty.openpty()
        self._text = ""
        environment = {**os.environ, "ANTIPHON_URL": url, "HOME": str(home), "TERM": "xterm", "ANTIPHON_API_KEY": "k"}
        command = [sys.executable, "-c", ATTACH_TERMINAL, "-m", "antiphon", *words]
        self._process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)

    def write(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def wait_for(self, text: str) -> None:
        """Waits for a text on the screen after those of earlier calls."""
        deadline = time.monotonic() + LIMIT
        while text not in self._text:
            ready = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))[0]
            assert ready, f"no {text!r} within {LIMIT} s, but {self._text!r}"
            self._text += os.read(self._terminal, 4096).decode(errors="replace")
        self._text = self._text.partition(text)[2]

    def press_until(self, keys: bytes, text: str) -> None:
        """Presses keys until a text appears, once every ten seconds: an interrupt that arrives while Python finalizes an
        object is ignored, and a person would press again."""
        for _ in range(6):
            self.write(keys)
            deadline = time.monotonic() + 10.0
            while text not in self._text and time.monotonic() < deadline:
                if select.select([self._terminal], [], [], 0.1)[0]:
                    self._text += os.read(self._terminal, 4096).decode(errors="replace")
            if text in self._text:
                break
        self.wait_for(text)

    def wait(self) -> int:
        return self._process.wait(LIMIT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(LIMIT)
        os.close(self._terminal)
