"""Ends a test that runs longer than its time limit: 120 seconds, or what `--time-limit` or the marker `time_limit`
says.

An alarm raises `TimeLimitExceeded` in the main thread, which fails the test with the stacks of all threads and tasks. The
run goes on with the next test. If the test still does not end, the process ends with its stacks on standard error;
pytest-xdist then reports the test as crashed and goes on in a new process. The thread that does so is started for several
short tests together: to start and stop it for each of 23,000 took milliseconds on a busy machine.
"""

from __future__ import annotations

import asyncio
import faulthandler
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Generator
from types import FrameType
from typing import Final

import pytest

SECONDS: Final = 120.0
#: In multiples of the limit: after which time the alarm comes again, and after which the process ends.
REPEAT: Final = 0.25
EXIT: Final = 3.25
#: In multiples of the limit: tests that start within this time have one end of the process.
SHARED: Final = 0.01
IDLE: Final = 5.0  # seconds without a test, after which the process is not ended
MAX_FRAMES: Final = 20


class TimeLimitExceeded(BaseException):
    """The test took too long. No `Exception`, so that neither tested code nor Hypothesis catches it and goes on."""


class TimeLimit:
    """Applies the limit to setup, call and teardown of each test, separately."""

    def __init__(self, default: float, stderr: int) -> None:
        self._default = default
        self._stderr = stderr  # of the process, not that of the test
        self._seconds = default
        self._is_exceeded = False
        self._exit_limit = 0.0  # the limit of the test for which the end of the process was set; 0 if it is not set
        self._exit_set_at = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        signal.setitimer(signal.ITIMER_REAL, 0)
        limit = self._limit_of(item)
        if limit != self._exit_limit or time.monotonic() - self._exit_set_at > limit * SHARED:
            faulthandler.dump_traceback_later(limit * EXIT, exit=True, file=self._stderr)
            self._exit_limit, self._exit_set_at = limit, time.monotonic()
        try:
            return (yield)
        finally:  # a worker may wait long for the next test
            signal.signal(signal.SIGALRM, self._cancel_exit)
            signal.setitimer(signal.ITIMER_REAL, IDLE)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._cancel_exit()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        yield from self._limit(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        yield from self._limit(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        yield from self._limit(item)

    def pytest_enter_pdb(self) -> None:
        self._cancel_exit()

    def _cancel_exit(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        self._exit_limit = 0.0

    def _limit_of(self, item: pytest.Item) -> float:
        marker = item.get_closest_marker("time_limit")
        return max(self._default, marker.args[0]) if marker else self._default

    def _limit(self, item: pytest.Item) -> Generator[None]:
        self._seconds = self._limit_of(item)
        signal.signal(signal.SIGALRM, self._stop)
        signal.setitimer(signal.ITIMER_REAL, self._seconds, self._seconds * REPEAT)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            is_exceeded, self._is_exceeded = self._is_exceeded, False
            if is_exceeded:  # also where another exception followed, such as that of a stopped event loop
                raise self._exception()

    def _stop(self, _signal: int, frame: FrameType | None) -> None:
        self._is_exceeded = True
        print(_stacks(frame), file=sys.stderr)
        if loop := _running_loop():  # uvloop does not pass on exceptions of signal handlers
            loop.call_soon_threadsafe(loop.stop)
        raise self._exception()

    def _exception(self) -> TimeLimitExceeded:
        return TimeLimitExceeded(f"the test exceeded its time limit of {self._seconds:g} s; its stderr has the stacks")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--time-limit", type=float, default=SECONDS, metavar="SECONDS", help=f"for each test; {SECONDS:g} by default"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TimeLimit(config.getoption("--time-limit"), os.dup(sys.stderr.fileno())))


def _stacks(frame: FrameType | None) -> str:
    """The stacks of all threads, then of the tasks of the running event loop."""
    out = io.StringIO()
    frames = sys._current_frames() | {threading.main_thread().ident: frame}
    for thread in threading.enumerate():
        print(f"\nthread {thread.name}:", file=out)
        traceback.print_stack(frames.get(thread.ident), limit=MAX_FRAMES, file=out)
    loop = _running_loop()
    for task in asyncio.all_tasks(loop) if loop else ():
        print(file=out)
        task.print_stack(file=out)
    return out.getvalue()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
