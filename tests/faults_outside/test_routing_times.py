"""The time that a refused first target adds to a turn, and from a change of the configuration until it is in use. Both
are goals of a quiet machine, so the bounds are wider."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from tests.faults.routing_lab import REFUSED_URL
from tests.running import BOUND, running, until

from antiphon import testing
from antiphon.config import Config, HealthConfig, ModelConfig, TargetConfig, UpstreamConfig
from antiphon.testing import ChatServer, turn

pytestmark = pytest.mark.timed
FACTOR = 3  # between the goal and the bound
REFUSED_GOAL = 0.005  # seconds
RELOAD_GOAL = 1.0  # seconds
ROUNDS = 60
ANSWER = turn(testing.text("Hello."))
FILE = """
[server]
port = 0
workers = {workers}
watch = true
[store]
url = "off"
[[upstreams]]
name = "lab"
dialect = "chat"
base_url = "http://127.0.0.1:1/v1"
models = ["m"]
[[keys]]
name = "alice"
env = "ALICE_KEY"
"""
BOB = '[[keys]]\nname = "bob"\nenv = "BOB_KEY"\n'


def test_refused_first_target_adds_little() -> None:
    """The difference of two medians; the turns alternate, because other processes share the machine."""
    with ChatServer(lambda _: ANSWER) as server:
        upstreams = [
            UpstreamConfig(name=name, dialect="chat", base_url=url, models=[name])
            for name, url in (("refused", REFUSED_URL), ("working", server.base_url))
        ]
        working = TargetConfig(upstream="working", model="m", priority=2)
        targets = {"lone": [working], "two": [TargetConfig(upstream="refused", model="m"), working]}
        models = [ModelConfig(name=name, targets=list_of_targets) for name, list_of_targets in targets.items()]
        config = Config(upstreams=upstreams, models=models, health=HealthConfig(min_requests=10_000))
        with running(config) as gateway, httpx2.Client(timeout=BOUND) as client:
            times: dict[str, list[float]] = {"lone": [], "two": []}
            for number in range(ROUNDS):
                for name, measured in times.items():
                    started_at = time.perf_counter()
                    body = {"model": name, "input": f"Hi {number}."}
                    answer = client.post(f"{gateway.url}/v1/responses", json=body)
                    measured.append(time.perf_counter() - started_at)
                    assert answer.headers["antiphon-attempts"] == {"lone": "1", "two": "2"}[name]
    added = statistics.median(times["two"]) - statistics.median(times["lone"])
    assert added < FACTOR * REFUSED_GOAL, f"{added * 1000:.1f} ms"


@contextmanager
def watching_gateway(file: Path) -> Iterator[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(file.parent), "ALICE_KEY": "alice-key", "BOB_KEY": "bob-key"}
    command = [sys.executable, "-m", "antiphon", "serve", "--config", str(file)]
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().rpartition(" ")[2]
        finally:
            process.terminate()
            process.wait(BOUND)


@pytest.mark.parametrize("workers", [1, 2])
def test_key_that_leaves_the_file_is_refused_within_a_second(workers: int, tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    text = FILE.format(workers=workers)
    file.write_text(text + BOB)

    def status(url: str) -> int:
        return httpx2.get(f"{url}/models", headers={"authorization": "Bearer bob-key"}, timeout=BOUND).status_code

    with watching_gateway(file) as url:
        until(lambda: [status(url) for _ in range(10)] == [200] * 10)
        file.write_text(text)
        started_at = time.monotonic()
        until(lambda: [status(url) for _ in range(10)] == [401] * 10)
        seconds = time.monotonic() - started_at
    assert seconds < FACTOR * RELOAD_GOAL, f"{seconds:.2f} s"
