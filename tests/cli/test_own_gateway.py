"""A gateway that a command starts for itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.cli.own_gateway import own_gateway, stop_process
from antiphon.cli.stop_signals import StopRequest, StopSignals

pytestmark = pytest.mark.io
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


def test_process_that_ignores_the_signal_is_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    stop_process(process, signal.SIGTERM, 0.01)
    assert process.returncode == -signal.SIGKILL
    process.stdout.close()


def test_stop_signal_during_the_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def start(signals: StopSignals) -> None:
        with signals.deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            with own_gateway(dict(os.environ), signals):
                pytest.fail("the gateway was used")

    with StopSignals() as signals, pytest.raises(StopRequest):
        start(signals)
    assert list(tmp_path.iterdir()) == []
