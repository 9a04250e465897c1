"""Background work that one replica has queued starts on another one at once. Measured from outside."""

from __future__ import annotations

import time

import pytest
from tests.faults_outside.gateway_process import LOAD_FACTOR
from tests.gateway.in_background import laboratory
from tests.running import BOUND
from tests.store import postgres_server

from antiphon import testing
from antiphon.config import BackgroundConfig
from antiphon.testing import Gate, Reply, turn

pytestmark = pytest.mark.timed

START = 0.1  # seconds from the answer to the client until the other replica's upstream has the request
JOBS = 20


def test_work_queued_by_another_replica_starts_within_100_ms() -> None:
    url = postgres_server.fresh_url()
    gate = Gate()
    replies: dict[str, Reply] = {"slow": turn(testing.wait(gate), testing.text("Hello."))}
    busy = {"background": BackgroundConfig(running=1, waiting=JOBS + 10)}
    delays: list[float] = []
    with laboratory(url, says=replies, config=busy) as first, laboratory(url, upstream=first.upstream, says=replies):
        first.begin(input="slow")
        gate.wait_reached()
        for number in range(JOBS):
            first.begin(input=f"quick {number}")
            queued_at = time.monotonic()
            while not first.asked(f"quick {number}"):
                assert time.monotonic() - queued_at < BOUND
                time.sleep(0.001)
            delays.append(time.monotonic() - queued_at)
        gate.open()
    print(f"work of another replica started after {max(delays) * 1000:.0f} ms at most")
    assert max(delays) < START * LOAD_FACTOR
