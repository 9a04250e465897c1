"""The death of a supervisor, timed: its workers end within a second, here with a factor of three."""

from __future__ import annotations

import time

import pytest
from tests.ops.served_process import START, gateway
from tests.ops.test_supervisor import is_running
from tests.running import one_upstream, until

from antiphon.testing import ChatServer

pytestmark = [pytest.mark.io, pytest.mark.timed]
BOUND = 3.0  # seconds; three times the documented second


def test_workers_end_within_a_second_of_their_supervisor() -> None:
    with ChatServer() as upstream, gateway(one_upstream(upstream.base_url), workers=3) as served:
        # Each process has its own connections, so this waits until all of them serve.
        until(lambda: served.post().status_code == 200 and upstream.open_connections == 3, START)
        workers = served.workers()
        served.process.kill()
        begin = time.monotonic()
        until(lambda: not any(is_running(pid) for pid in workers))
        took = time.monotonic() - begin
        print(f"the workers ended after {took:.2f} s")
        assert took < BOUND
