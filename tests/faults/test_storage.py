"""docs/errors.md, "Storage": whatever happens to the storage, no client receives `completed` for a response that is not
stored, requests that store nothing are not affected, and the gateway recovers without a restart."""

from __future__ import annotations

import functools
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.api.probing import ALICE, UPSTREAM_KEY, head
from tests.faults.invariants import Lab, Told, laboratory, request
from tests.running import BOUND, read_all, until
from tests.store import postgres_server
from tests.store.sqlite.processes import held
from tests.websocket_client import open_websocket

from antiphon import testing
from antiphon.config import StoreConfig
from antiphon.protocol.response import Response
from antiphon.store.interface import Store
from antiphon.store.postgres.connections import ConnectionLimits
from antiphon.store.postgres.store import PostgresStore
from antiphon.store.sqlite import file as sqlite_file
from antiphon.store.sqlite.store import SqliteStore
from antiphon.testing import turn
from soak import kills

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
COMPLETED = ("completed", None)
UNAVAILABLE = ("failed", "storage_unavailable")
BIG = turn(testing.text("x" * 100_000), testing.usage(5, 2))
AUTHORIZED = ("authorization", f"Bearer {ALICE}")
HANDLES = 12  # the most that a store may open
CROWD = 4  # clients that send at once, and leave as many upstream connections in the pool


@contextmanager
def storing(url: str, *, has_a_fault: bool, **settings: Any) -> Iterator[Lab]:
    """A lab with a store. If the storage fails, the log has an entry with all details."""
    with laboratory("chat", store=StoreConfig(url=url), has_a_fault=has_a_fault, **settings) as lab:
        lab.spare = (CROWD, 0, CROWD + HANDLES)
        if has_a_fault:
            lab.never.remove('"exception"')
        yield lab


def call(lab: Lab, method: str, id: str) -> Told:
    with lab.gateway.connect() as connection:
        connection.sendall(
            head(method, f"/v1/responses/{id}", ("host", "localhost"), AUTHORIZED, ("connection", "close"))
        )
        return Told(read_all(connection))


def expect_stored(lab: Lab, response: Response) -> None:
    """Invariant 2: the stored response equals the sent one, and it can be continued."""
    assert call(lab, "GET", response.id).response == response
    assert lab.ask(previous_response_id=response.id, store=False).outcome == COMPLETED


def expect_refusals(lab: Lab) -> None:
    """The storage is unavailable: requests to store are refused in every form, other requests succeed."""
    plain, streamed = lab.ask(), lab.ask(stream=True)
    plain.tells(503, "storage_unavailable")
    assert streamed.outcome == UNAVAILABLE
    assert b"response.completed" not in streamed.body
    with open_websocket(lab.gateway.port, "/v1/responses", AUTHORIZED) as client:
        client.send({"type": "response.create", "model": "mock-1", "input": "Say hello."})
        events = [client.receive_json()]
        while events[-1]["type"] not in ("response.completed", "response.failed", "error"):
            events.append(client.receive_json())
        assert events[-1]["type"] == "response.failed"  # WS-3: alone
        assert events[-1]["response"]["error"]["code"] == "storage_unavailable"
        assert [event["type"] for event in events].count("error") == 0
        client.send({"type": "response.create", "model": "mock-1", "input": "Say hello.", "store": False})
        while (event := client.receive_json())["type"] not in ("response.completed", "response.failed", "error"):
            pass
        assert event["type"] == "response.completed"
    for stream in (True, False):
        assert lab.ask(stream=stream, store=False).outcome == COMPLETED


# kill -9


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_completed_responses_survive_kill_9(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A few rounds; `make soak` has many, and measures the recovery time on an idle machine."""
    assert kills.main(["--store", store, "--rounds", "3", "--responses", "120", "--soon", "60"]) == 0
    assert f"{store}: 3 rounds, " in (output := capsys.readouterr().out)
    assert ", 0 lost, 0 other problems, " in output


# Full disk


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[], None] | None]:
    """A folder with little space, and a function that makes more; None where no disk may be mounted."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    ballast = folder / "ballast"
    try:
        ballast.write_bytes(bytes(1_000_000))
        yield ballast.unlink
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("limit", ["of the disk", "of the file"])
def test_full_disk_is_reported_and_recovers_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Where no disk can be mounted, a limit of the file size replaces it; that limit is tested everywhere."""
    with small_disk(tmp_path) if limit == "of the disk" else nullcontext() as make_room:
        if make_room is None:
            monkeypatch.setitem(sqlite_file.SETTINGS, "max_page_count", 75)
        with storing(f"sqlite:///{tmp_path}/antiphon.db", has_a_fault=True) as lab:
            lab.says = BIG
            responses: list[Response] = []
            while (answer := lab.ask(stream=len(responses) % 2 == 0)).outcome == COMPLETED:
                responses.append(answer.response)
                assert len(responses) < 30, "the disk is larger than it should be"
            assert answer.outcome == UNAVAILABLE
            expect_refusals(lab)
            for response in responses:
                expect_stored(lab, response)
            if answer.status == 200:
                call(lab, "GET", answer.response.id).tells(404, "not_found", "id")
            if make_room is None:
                assert call(lab, "DELETE", responses.pop().id).status == 200
            else:
                make_room()
            after = lab.ask(stream=True)
            assert after.outcome == COMPLETED
            for response in [*responses, after.response]:
                expect_stored(lab, response)
            lab.settle()


# Locked database


def test_short_database_lock_delays_only_requests_that_store(tmp_path: Path) -> None:
    with storing(f"sqlite:///{tmp_path}/antiphon.db", has_a_fault=False) as lab, ThreadPoolExecutor(3) as clients:
        before = lab.ask().response
        with held(tmp_path / "antiphon.db"):
            waiting = [clients.submit(lab.ask, stream=stream) for stream in (True, False)]
            end = time.monotonic() + 3
            others = 0
            while time.monotonic() < end:
                assert lab.ask(stream=others % 2 == 0, store=False).outcome == COMPLETED
                expect_stored(lab, before)  # reading still works
                others += 1
            assert others > 10
            assert not any(client.done() for client in waiting)
        answers = [client.result(BOUND) for client in waiting]
        assert [one.outcome for one in answers] == [COMPLETED] * 2
        for one in answers:
            expect_stored(lab, one.response)
        lab.settle()


def test_long_database_lock_is_reported_as_storage_unavailable(tmp_path: Path) -> None:
    async def hasty(config: StoreConfig, environ: object) -> Store:
        del config, environ
        return await SqliteStore.open(tmp_path / "antiphon.db", lock_timeout=0.2)

    with storing(f"sqlite:///{tmp_path}/antiphon.db", has_a_fault=True, open_store=hasty) as lab:
        before = lab.ask().response
        with held(tmp_path / "antiphon.db"):
            expect_refusals(lab)
            expect_stored(lab, before)
            call(lab, "DELETE", before.id).tells(503, "storage_unavailable")
        expect_stored(lab, before)
        expect_stored(lab, lab.ask(stream=True).response)
        lab.settle()


# PostgreSQL restarts


class Crowd:
    """Clients that send without a pause, with and without `store`, until they are stopped."""

    def __init__(self, lab: Lab) -> None:
        self.kept: list[Response] = []
        self.refused = 0
        self.unstored = 0
        self._lab = lab
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(CROWD)
        self._clients = [
            self._pool.submit(functools.partial(self._ask, stream=stream, store=store))
            for stream in (True, False)
            for store in (True, False)
        ]

    def expect_more(self, *, stored: int = 0, unstored: int = 0) -> None:
        """Waits until this many more requests are answered."""
        wanted = len(self.kept) + stored, self.unstored + unstored
        until(
            lambda: (
                (len(self.kept) >= wanted[0] and self.unstored >= wanted[1]) or any(one.done() for one in self._clients)
            )
        )
        assert not any(one.done() for one in self._clients), [one.exception() for one in self._clients if one.done()]

    def end(self) -> None:
        self._is_over.set()
        for client in self._clients:
            client.result(BOUND)
        self._pool.shutdown()
        for response in self.kept:
            expect_stored(self._lab, response)

    def _ask(self, *, stream: bool, store: bool) -> None:
        while not self._is_over.is_set():
            answer = self._lab.ask(stream=stream, store=store)
            if not store:
                assert answer.outcome == COMPLETED
                self.unstored += 1
            elif answer.outcome == COMPLETED:
                self.kept.append(answer.response)
            else:
                assert answer.outcome == UNAVAILABLE
                self.refused += 1


def test_stopped_postgresql_is_reported_and_used_again_after_its_restart() -> None:
    url = postgres_server.fresh_url()

    async def hasty(config: StoreConfig, environ: object) -> Store:
        del config, environ
        return await PostgresStore.open(url, ConnectionLimits(reconnect_timeout=0.3))

    with storing(url, has_a_fault=True, open_store=hasty) as lab:
        before = lab.ask().response
        crowd = Crowd(lab)
        crowd.expect_more(stored=2, unstored=2)
        with postgres_server.stopped():
            call(lab, "GET", before.id).tells(503, "storage_unavailable")
            lab.ask(previous_response_id=before.id).tells(503, "storage_unavailable")
            crowd.expect_more(unstored=5)
            expect_refusals(lab)
        until(lambda: call(lab, "GET", before.id).status == 200)
        crowd.expect_more(stored=2, unstored=2)
        crowd.end()
        assert crowd.refused
        expect_stored(lab, before)
        lab.settle()


def test_killed_postgresql_backends_under_load_cause_no_errors() -> None:
    url = postgres_server.fresh_url()
    with storing(url, has_a_fault=False) as lab:
        crowd = Crowd(lab)
        killed = 0
        for _ in range(5):
            crowd.expect_more(stored=3, unstored=3)
            killed += postgres_server.kill_backends(url)
        crowd.expect_more(stored=3, unstored=3)
        crowd.end()
        assert killed >= 5
        assert crowd.refused == 0
        lab.settle()


# Content of the disk


def test_database_contains_no_keys(tmp_path: Path) -> None:
    """Invariant 5."""
    with storing(f"sqlite:///{tmp_path}/antiphon.db", has_a_fault=False) as lab:
        assert lab.ask(stream=True).outcome == COMPLETED
        files = list(tmp_path.iterdir())
        assert len(files) == 3
        data = b"".join(file.read_bytes() for file in files)
    assert b"Say hello." in data
    assert ALICE.encode() not in data
    assert UPSTREAM_KEY.encode() not in data


def test_storage_failure_after_a_disconnect_is_only_logged(tmp_path: Path) -> None:
    """The failed write is logged, since the client has disconnected."""

    async def hasty(config: StoreConfig, environ: object) -> Store:
        del config, environ
        return await SqliteStore.open(tmp_path / "antiphon.db", lock_timeout=0.2)

    gate = testing.Gate()
    with storing(f"sqlite:///{tmp_path}/antiphon.db", has_a_fault=True, open_store=hasty) as lab:
        lab.says = turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))
        with held(tmp_path / "antiphon.db"):
            with lab.gateway.connect() as client:
                client.sendall(request(stream=True))
                gate.wait_reached(BOUND)
            until(lambda: "a response could not be stored" in lab.gateway.written)
        lab.settle()
