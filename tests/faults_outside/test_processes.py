"""The death of a supervisor, timed: its workers end within a second, here with a factor of three."""

from __future__ import annotations

import time

import pytest
from tests.ops.served_process import START, gateway
from tests.ops.test_supervisor import is_running
from tests.running import one_upstream, until

pytestmark = [pytest.mark.io, pytest.mark.timed]
BOUND = 3.0  # seconds; three times the documented second


def test_workers_end_within_a_second_of_their_supervisor() -> None:
    with gateway(one_upstream("http://127.0.0.1:1/v1"), workers=3) as served:
        until(lambda: len(served.workers()) == 3 and served.get("/health").status_code == 200, START)
        workers = served.workers()
        served.process.kill()
        begin = time.monotonic()
        until(lambda: not any(is_running(pid) for pid in workers))
        assert time.monotonic() - begin < BOUND
