"""Answers of 60 MiB: how much memory they take while they pass, whether it is given back, and whether other requests are
served meanwhile. Measured from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from tests.faults_outside.endless_upstream import endless_upstream
from tests.faults_outside.gateway_process import LOAD_FACTOR, GatewayProcess, gateway_process, health_prober
from tests.faults_outside.test_endless_streams import FRAMES
from tests.running import until
from tests.store import postgres_server

pytestmark = pytest.mark.timed

ANSWER = "max_answer_mib = 60"
HEALTH = 0.1  # seconds that `/health` may take meanwhile
PEAK = 300  # MiB above the idle gateway while the answer passes
SETTLED = 64  # MiB above it, 30 s later
SETTLE = 30.0  # seconds
END = 200.0  # seconds in which an answer of 60 MiB ends on any machine


@contextmanager
def peak_is_bounded(gateway: GatewayProcess, peak_mib: float) -> Iterator[None]:
    time.sleep(1.0)  # it is idle
    before = gateway.resident_mib()
    gateway.reset_peak()
    yield
    peak = gateway.peak_resident_mib() - before
    ended_at = time.monotonic()
    until(lambda: gateway.resident_mib() - before <= SETTLED, LOAD_FACTOR * SETTLE)
    print(f"peak {peak:.0f} MiB above idle, given back after {time.monotonic() - ended_at:.1f} s")
    assert peak < LOAD_FACTOR * peak_mib


def run_in_background(gateway: GatewayProcess) -> str:
    id: str = gateway.post({"model": "m", "input": "Hi", "background": True}).json()["id"]
    until(lambda: '"method":"BACKGROUND"' in gateway.log.read_text(), END)
    return id


@pytest.mark.parametrize("dialect", FRAMES)
def test_memory_of_a_large_background_answer_is_bounded(dialect: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/antiphon.db"
    with (
        endless_upstream(*FRAMES[dialect]) as url,
        gateway_process(tmp_path, url, dialect=dialect, store=store, server=ANSWER) as gateway,
    ):
        with peak_is_bounded(gateway, PEAK), health_prober(gateway) as health:
            id = run_in_background(gateway)
        print(f"{dialect}: {health}")
        assert health.failures == 0
        assert health.worst_seconds < LOAD_FACTOR * HEALTH
        response = gateway.get(f"/v1/responses/{id}").json()
    assert response["incomplete_details"] == {"reason": "max_output_bytes"}
    assert len(response["output"][0]["content"][0]["text"]) > 59 << 20


def test_memory_of_a_large_background_answer_is_bounded_on_postgres(tmp_path: Path) -> None:
    with (
        endless_upstream(*FRAMES["chat"]) as url,
        gateway_process(tmp_path, url, store=postgres_server.fresh_url(), server=ANSWER) as gateway,
        peak_is_bounded(gateway, PEAK),
    ):
        run_in_background(gateway)


@pytest.mark.parametrize("dialect", FRAMES)
def test_memory_of_a_large_stream_is_bounded(dialect: str, tmp_path: Path) -> None:
    body = {"model": "m", "input": "Hi", "stream": True, "store": False}
    with (
        endless_upstream(*FRAMES[dialect]) as url,
        gateway_process(tmp_path, url, dialect=dialect, server=ANSWER) as gateway,
        peak_is_bounded(gateway, 1.5 * PEAK),
        httpx2.Client(timeout=END) as client,
        client.stream("POST", gateway.url + "/v1/responses", json=body) as answer,
    ):
        assert sum(map(len, answer.iter_raw())) > 5 * 59 << 20  # the text, and the four events that repeat it


def test_memory_of_a_large_stored_answer_is_given_back(tmp_path: Path) -> None:
    """Read whole and as a stream; the peak of reading it is not bounded."""
    store = f"sqlite:///{tmp_path}/antiphon.db"
    with (
        endless_upstream(*FRAMES["chat"]) as url,
        gateway_process(tmp_path, url, store=store, server=ANSWER) as gateway,
    ):
        id = run_in_background(gateway)
        until(lambda: gateway.resident_mib() < 150, LOAD_FACTOR * SETTLE)
        with peak_is_bounded(gateway, 3 * PEAK):
            assert gateway.get(f"/v1/responses/{id}").status_code == 200
            assert b"response.incomplete" in gateway.get(f"/v1/responses/{id}?stream=true").content[-70 << 20 :]
