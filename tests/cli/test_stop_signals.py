"""SIGTERM and SIGHUP as an exception."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from antiphon.cli.stop_signals import StopRequest, StopSignals


@pytest.fixture(autouse=True)
def default_hangup() -> Iterator[None]:
    """Tests may run under `nohup`, which ignores SIGHUP."""
    handler = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_stop_signal_is_raised_once(number: signal.Signals) -> None:
    handlers = [signal.getsignal(other) for other in (signal.SIGTERM, signal.SIGHUP)]
    with StopSignals():
        with pytest.raises(StopRequest) as raised:
            os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # interrupts no clean-up
    assert (raised.value.number, raised.value.code) == (number, 128 + number)
    assert [signal.getsignal(other) for other in (signal.SIGTERM, signal.SIGHUP)] == handlers


def test_stop_signal_is_raised_after_a_block_that_defers_it() -> None:
    steps: list[str] = []

    def start(signals: StopSignals) -> None:
        with signals.deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            steps.append("started")
        steps.append("not reached")

    with StopSignals() as signals, pytest.raises(StopRequest):
        start(signals)
    assert steps == ["started"]


def test_stop_signal_leaves_an_event_loop() -> None:
    async def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    with StopSignals(), pytest.raises(StopRequest):
        asyncio.run(stop())


def test_ignored_signal_stays_ignored() -> None:
    previous_handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, previous_handler)
