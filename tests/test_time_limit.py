"""The plugin `tests/time_limit.py`, in a run of pytest on tests that never end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.inner_pytest import run_pytest

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]

HANGING = """
import asyncio, signal, threading, time
import pytest, uvloop
from hypothesis import given, strategies

def test_before(): pass

def test_lock(): threading.Lock().acquire() and threading.Event().wait()

def test_loop():
    while True:
        pass

async def wait_for_nothing():
    await asyncio.Event().wait()

async def catch_everything():
    while True:
        try:
            await asyncio.sleep(3600)
        except Exception:
            pass

@pytest.mark.parametrize("work", [wait_for_nothing, catch_everything])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_event_loop(loop, work):
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work())

@given(strategies.integers())
def test_hypothesis(number):
    time.sleep(3600)

@pytest.fixture
def hanging():
    yield
    time.sleep(3600)

def test_teardown(hanging): pass

def test_other_thread():
    thread = threading.Thread(target=time.sleep, args=(3600,), daemon=True, name="sleeper")
    thread.start()
    thread.join()

def test_after(): pass
"""
UNINTERRUPTIBLE = """
import signal, time

def test_before(): pass

def test_blocked():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(3600)

def test_after(): pass
"""
MARKED = """
import time
import pytest

@pytest.mark.time_limit(60)
def test_marked(): time.sleep(0.3)

def test_unmarked(): time.sleep(3600)
"""


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_hanging_tests_fail_and_the_run_goes_on(workers: str, tmp_path: Path) -> None:
    status, output = run_pytest(
        tmp_path, workers, "--time-limit", "0.5", plugin="tests.time_limit", files={"test_hanging.py": HANGING}
    )
    assert status == 1, output
    functions = set(re.findall(r"^def (test_\w+)", HANGING, flags=re.MULTILINE))
    failed = re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)\S* - \S+\.(\w+): .* limit of 0.5 s;", output, flags=re.MULTILINE)
    assert {name for name, _ in failed} == functions - {"test_before", "test_after"}
    assert len(failed) == len(functions) - 2 + 3
    assert {exception for _, exception in failed} == {"TimeLimitExceeded"}
    assert "3 passed" in output
    assert "thread sleeper:" in output
    assert re.search(r"Stack for <Task pending .*wait_for_nothing", output), output


def test_process_ends_if_the_test_cannot_be_interrupted_and_the_run_goes_on(tmp_path: Path) -> None:
    status, output = run_pytest(
        tmp_path, "-n1", "--time-limit", "0.5", plugin="tests.time_limit", files={"test_blocked.py": UNINTERRUPTIBLE}
    )
    assert status == 1, output
    assert re.search(r"worker 'gw0' crashed while running '\S+::test_blocked'", output)
    assert re.search(r'File "\S+test_blocked.py", line \d+ in test_blocked', output)
    assert "1 failed, 2 passed" in output


def test_marker_raises_the_limit_of_one_test(tmp_path: Path) -> None:
    status, output = run_pytest(
        tmp_path, "--time-limit", "0.1", plugin="tests.time_limit", files={"test_marked.py": MARKED}
    )
    assert status == 1, output
    assert "1 failed, 1 passed" in output
    assert "TimeLimitExceeded: the test exceeded its time limit of 0.1 s" in output
