"""Tests of the measuring tools that `make test-faults` uses."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from tests.faults_outside.gateway_process import LOAD_FACTOR, gateway_process, health_prober

from antiphon.testing import ChatServer

pytestmark = pytest.mark.timed


def test_health_of_an_idle_gateway_is_answered_at_once(tmp_path: Path) -> None:
    with ChatServer() as upstream, gateway_process(tmp_path, upstream.base_url) as gateway:
        with health_prober(gateway) as health:
            for _ in range(20):
                assert gateway.post({"model": "mock-1", "input": "Hi"}).status_code == 200
    assert health.probes > 10
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * 0.1


def test_health_prober_measures_the_time_that_a_gateway_is_stopped(tmp_path: Path) -> None:
    with gateway_process(tmp_path, "http://127.0.0.1:1/v1") as gateway:
        with health_prober(gateway) as health:
            os.kill(gateway.pid, signal.SIGSTOP)
            threading.Timer(1.0, os.kill, (gateway.pid, signal.SIGCONT)).start()
            assert gateway.get("/health").status_code == 200
    assert health.worst_seconds > 0.9


def test_peak_memory_is_read_and_can_be_reset(tmp_path: Path) -> None:
    with gateway_process(tmp_path, "http://127.0.0.1:1/v1") as gateway:
        gateway.post({"model": "mock-1", "input": "x" * (20 << 20)})
        assert gateway.peak_resident_mib() >= gateway.resident_mib() + 10
        gateway.reset_peak()
        assert gateway.peak_resident_mib() < gateway.resident_mib() + 10
