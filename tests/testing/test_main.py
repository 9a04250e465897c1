from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from antiphon.testing import ChatServer
from antiphon.testing.__main__ import main

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
COMMAND = [sys.executable, "-m", "antiphon.testing"]
SRC = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("dialect", ["chat", "gemini", "messages", "responses"])
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_server_runs_by_hand_until_it_is_told_to_stop(dialect: str, stop: signal.Signals) -> None:
    command = [*COMMAND, dialect, "--model", "one", "--model", "two"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(SRC)}
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with urllib.request.urlopen(f"{url}/models", timeout=60) as answer:
                assert b'"one"' in answer.read()
            process.send_signal(stop)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_port_in_use_is_told_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    with ChatServer() as server:
        assert main(["chat", "--port", str(server.port)]) == 1
    assert capsys.readouterr().err.startswith(f"cannot listen on port {server.port}: ")


def test_help_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "call NAME {json}" in " ".join(capsys.readouterr().out.split())
