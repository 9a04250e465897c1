"""Several gateways on one store behave as one (API-2): on PostgreSQL across processes of any machine, on SQLite across
workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.gateway.in_background import Client, check, config_of, replicas, scripted, told_by
from tests.running import until
from tests.store import postgres_server

from antiphon import testing
from antiphon.config import BackgroundConfig
from antiphon.testing import Gate, Reply, turn

pytestmark = pytest.mark.io


def test_replicas_share_background_work_and_run_each_response_once() -> None:
    """Both run the migrations of an empty database at the same time."""
    with scripted({}) as upstream:
        config = config_of(postgres_server.fresh_url(), upstream.base_url, background=BackgroundConfig(running=4))
        with replicas(config, config) as both:
            ids = {f"work {n}": both[n % 2].begin(input=f"work {n}") for n in range(40)}
            ended = {text: both[n % 2].wait(id) for n, (text, id) in enumerate(ids.items(), start=1)}
        asked = [received.json["messages"][-1]["content"] for received in upstream.received]
    assert {response["status"] for response in ended.values()} == {"completed"}
    assert sorted(asked) == sorted(ids)


def test_response_of_one_replica_is_usable_on_the_other() -> None:
    gate = Gate()
    says: dict[str, Reply] = {
        "spoken": turn(testing.text("Hel"), testing.wait(gate), testing.text("lo.")),
        "silent": turn(testing.wait(gate), testing.text("Hello.")),
        "unwanted": turn(testing.text("Hel"), testing.wait(gate)),
    }
    with scripted(says) as upstream:
        config = config_of(postgres_server.fresh_url(), upstream.base_url)
        with replicas(config) as [one], ThreadPoolExecutor(2) as readers:
            ids = {text: one.begin(input=text) for text in says}
            until(lambda: len(upstream.received) == 3)
            first = one.post().json()["id"]
            with replicas(config) as [other]:
                asked = {"model": "mock-1", "input": "And?", "previous_response_id": first}
                assert other.ask("POST", "/v1/responses", json=asked).json()["status"] == "completed"
                with other.reading("GET", f"/v1/responses/{ids['spoken']}?stream=true") as events:
                    seen = [next(events), next(events)]

                cancelled = other.cancel(ids["unwanted"]).json()
                assert cancelled["status"] == "cancelled"
                upstream.wait_disconnected(1)
                assert one.get(ids["unwanted"]) == told_by(one.events(ids["unwanted"])) == cancelled

                reading = readers.submit(other.events, ids["spoken"], 1)
                one.kill()
                gate.open()
                spoke, silent = other.wait(ids["spoken"]), other.wait(ids["silent"])
                assert (spoke["status"], spoke["error"]["code"]) == ("failed", "server_restarted")
                assert silent["status"] == "completed"
                check(seen + reading.result())
                assert told_by(reading.result()) == spoke
                assert told_by(other.events(ids["silent"])) == silent


SERVE = """
[server]
port = 0
workers = 2
[store]
url = "sqlite:///{folder}/a.db"
[[upstreams]]
name = "lab"
dialect = "chat"
base_url = "{upstream}"
models = ["*"]
"""


@contextmanager
def workers(folder: Path, upstream: str) -> Iterator[Client]:
    """`antiphon serve` with two processes."""
    (folder / "antiphon.toml").write_text(SERVE.format(folder=folder, upstream=upstream))
    command = [
        sys.executable,
        "-c",
        "from antiphon.cli import main; main()",
        "serve",
        "--config",
        str(folder / "antiphon.toml"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        try:
            address = next(
                word for line in process.stdout for word in line.split() if word.startswith("http://127.0.0.1:")
            )
            yield Client(address.removesuffix("/v1"))
        finally:
            process.terminate()
            process.communicate(timeout=30)


def test_workers_on_one_sqlite_file_act_as_one_gateway(tmp_path: Path) -> None:
    gate = Gate()
    says: dict[str, Reply] = {"slow": turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))}
    with scripted(says) as upstream, workers(tmp_path, upstream.base_url) as client:
        slow = [client.begin(input="slow") for _ in range(4)]
        until(lambda: len(upstream.received) == 4)
        for id in slow[:2]:  # for any of them, and for any runner
            assert client.cancel(id).json()["status"] == "cancelled"
        gate.open()
        quick = [client.begin(input=f"quick {n}") for n in range(10)]
        for id in [*slow[2:], *quick]:
            response = client.wait(id)
            assert response["status"] == "completed"
            assert told_by(client.events(id)) == response
        assert len(upstream.received) == 14
