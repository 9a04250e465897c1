"""Shutdown of a gateway: no new requests, time for running answers, then one terminal event for each. Real
processes."""

from __future__ import annotations

import asyncio
import io
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec
import pytest
from msgspec.structs import replace
from tests.faults.invariants import Told, request
from tests.running import BOUND, one_upstream, read_all, running, until
from tests.websocket_client import Closed, WebSocketClient, open_websocket

from antiphon import testing
from antiphon.config import StoreConfig
from antiphon.dialects.responses.stream_out import with_complete_usage
from antiphon.gateway.recording import response_from_record
from antiphon.http.access_policy import ANONYMOUS_OWNER
from antiphon.ops.logger import Logger
from antiphon.ops.services import BackgroundControl, Services
from antiphon.protocol.response import Response
from antiphon.store.interface import Store
from antiphon.store.sqlite.store import SqliteStore
from antiphon.testing import ChatServer, Gate, turn
from antiphon.upstream.http import HttpTransport

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
START = 60.0  # seconds; several processes start on a busy machine
CREATE = {"type": "response.create", "model": "mock-1", "input": "Say hello."}
CONFIG = """
[server]
port = 0
log = "json"
workers = {workers}
grace = {grace}
[store]
url = "sqlite:///{database}"
[[upstreams]]
name = "lab"
dialect = "chat"
base_url = "{upstream}"
models = ["*"]
"""


class Served:
    """A process that serves."""

    def __init__(self, process: subprocess.Popen[str], database: Path) -> None:
        self.process = process
        self.database = database
        self.port = _port_in(process)
        self._log = io.StringIO()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=BOUND)

    def signal(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)

    def is_refusing(self) -> bool:
        try:
            self.connect().close()
        except ConnectionError:
            return True
        return False

    def wait(self, seconds: float = START) -> int:
        """Its exit code."""
        code = self.process.wait(seconds)
        self._reader.join(BOUND)
        return code

    def kept(self, id: str) -> Response | None:
        """The stored response with this id, after the process has ended."""

        async def go() -> Response | None:
            store = await SqliteStore.open(self.database)
            record = await store.get(ANONYMOUS_OWNER, id)
            assert await store.verify() == []
            await store.close()
            return None if record is None else response_from_record(record)

        return asyncio.run(go())

    @property
    def log(self) -> str:
        return self._log.getvalue()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._log.write(line)


@contextmanager
def served(folder: Path, upstream: ChatServer, *, grace: float, workers: int = 1) -> Iterator[Served]:
    """`antiphon serve` as a user starts it."""
    database = folder / "antiphon.db"
    file = folder / "antiphon.toml"
    file.write_text(CONFIG.format(workers=workers, grace=grace, database=database, upstream=upstream.base_url))
    command = [sys.executable, "-m", "antiphon", "serve", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Served(process, database)
        finally:
            process.kill()


def _port_in(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if "http://127.0.0.1:" in line:
            return int(line.partition("http://127.0.0.1:")[2].partition("/")[0])
    raise AssertionError("the gateway did not start")


def read_until(connection: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        piece = connection.recv(65536)
        assert piece, data
        data += piece
    return data


def events_until(client: WebSocketClient, *kinds: str) -> list[dict[str, Any]]:
    """The stream up to the first event of one of these types."""
    events = [client.receive_json()]
    while events[-1]["type"] not in kinds:
        events.append(client.receive_json())
    return events


def hesitating() -> tuple[Gate, ChatServer]:
    """An upstream that stops in the middle of each answer, until its gate is opened."""
    gate = Gate()
    return gate, ChatServer(
        lambda _: turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."), testing.usage(5, 2))
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_answers_that_exceed_the_grace_period_fail_with_server_shutdown(tmp_path: Path, workers: int) -> None:
    """SSE, plain and WebSocket; each response that a client received is stored as it was sent."""
    gate, upstream = hesitating()
    with upstream, served(tmp_path, upstream, grace=0.5, workers=workers) as gateway:
        with gateway.connect() as stream, gateway.connect() as plain, gateway.connect() as idle:
            with open_websocket(gateway.port) as talking, open_websocket(gateway.port) as silent:
                stream.sendall(request(stream=True, close=False))
                plain.sendall(request(close=False))
                talking.send(CREATE)
                start = read_until(stream, b"output_text.delta")
                events = events_until(talking, "response.output_text.delta")
                upstream.wait_received(3, BOUND)
                gateway.signal()
                until(gateway.is_refusing)
                assert idle.recv(1) == b""
                assert silent.end() == Closed(1001, "server_shutdown")
                events += events_until(talking, "response.failed")
                assert talking.end() == Closed(1001, "server_shutdown")
            answer = Told(start + read_all(stream))
            refused = Told(read_all(plain))
        assert gateway.wait() == 0
        gate.open()
        failed = events[-1]["response"]
        assert answer.outcome == ("failed", "server_shutdown")
        assert (refused.status, refused.error["code"]) == (503, "server_shutdown")
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_shutdown")
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert gateway.kept(answer.response.id) == answer.response
        assert msgspec.to_builtins(gateway.kept(failed["id"])) == failed
        assert '"exception"' not in gateway.log


@pytest.mark.parametrize("workers", [1, 2])
def test_answers_that_end_within_the_grace_period_complete(tmp_path: Path, workers: int) -> None:
    gate, upstream = hesitating()
    with upstream, served(tmp_path, upstream, grace=60, workers=workers) as gateway:
        with gateway.connect() as stream, gateway.connect() as plain, open_websocket(gateway.port) as talking:
            stream.sendall(request(stream=True, close=False))
            plain.sendall(request(close=False))
            talking.send(CREATE)
            start = read_until(stream, b"output_text.delta")
            events_until(talking, "response.output_text.delta")
            upstream.wait_received(3, BOUND)
            talking.send(CREATE)  # it is queued
            talking.send(CREATE)
            talking.ping(b"?")
            talking.wait_for_pong(b"?")  # all of it has been read
            gateway.signal()
            until(gateway.is_refusing)
            gate.open()
            done = events_until(talking, "response.completed")[-1]["response"]
            waiting = [talking.receive_json(), talking.receive_json()]
            assert talking.end() == Closed(1001, "server_shutdown")
            answers = [Told(start + read_all(stream)), Told(read_all(plain))]
        assert gateway.wait() == 0
        assert [(error["type"], error["status"], error["error"]["code"]) for error in waiting] == [
            ("error", 503, "server_shutdown")
        ] * 2
        assert [(answer.outcome, answer.text) for answer in answers] == [(("completed", None), "Hello.")] * 2
        for answer in answers:
            assert _complete(gateway.kept(answer.response.id)) == answer.response
        assert msgspec.to_builtins(_complete(gateway.kept(done["id"]))) == done
        assert len(upstream.received) == 3  # the queued turn made no upstream call
        assert '"exception"' not in gateway.log


@pytest.mark.parametrize(("workers", "how"), [(1, signal.SIGTERM), (1, signal.SIGINT), (2, signal.SIGTERM)])
def test_second_signal_stops_at_once(tmp_path: Path, workers: int, how: signal.Signals) -> None:
    gate, upstream = hesitating()
    with upstream, served(tmp_path, upstream, grace=3600, workers=workers) as gateway, gateway.connect() as stream:
        stream.sendall(request(stream=True))
        start = read_until(stream, b"output_text.delta")
        gateway.signal(how)
        until(gateway.is_refusing)
        assert gateway.process.poll() is None
        gateway.signal(how)
        assert gateway.wait(BOUND) == 0
        gate.open()
        if workers == 1:  # there is still time for an event
            answer = Told(start + read_all(stream))
            assert answer.outcome == ("failed", "server_shutdown")
            assert gateway.kept(answer.response.id) == answer.response
            assert '"exception"' not in gateway.log


@pytest.mark.parametrize("is_read", [False, True])
def test_second_signal_ends_background_responses_at_once(tmp_path: Path, is_read: bool) -> None:
    """API-2, with and without a reader."""
    gate, upstream = hesitating()
    with upstream, served(tmp_path, upstream, grace=3600) as gateway, gateway.connect() as stream:
        stream.sendall(request(stream=True, background=True))
        start = read_until(stream, b"output_text.delta")
        if not is_read:
            stream.close()
        gateway.signal()
        until(gateway.is_refusing)
        assert gateway.process.poll() is None
        gateway.signal()
        assert gateway.wait(BOUND) == 0
        gate.open()
        stored = gateway.kept(start.partition(b'"id":"')[2].partition(b'"')[0].decode())
        assert stored is not None
        assert stored.error is not None
        assert stored.error.code == "server_shutdown"
        assert '"exception"' not in gateway.log


class Graces:
    """A runner that records the grace period it was given."""

    def __init__(self, runner: BackgroundControl) -> None:
        self._runner = runner
        self.given: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    async def stop(self, grace: float) -> None:
        self.given.append(grace)
        await self._runner.stop(grace)


@pytest.mark.parametrize("over", ["http", "websocket", "nothing"])
def test_background_grace_period_runs_in_parallel_with_requests(tmp_path: Path, over: str) -> None:
    gate, upstream = hesitating()
    with upstream:
        config = one_upstream(upstream.base_url)
        config = replace(
            config, store=StoreConfig(url=f"sqlite:///{tmp_path}/a.db"), server=replace(config.server, grace=0.1)
        )
        with ExitStack() as clients:
            reader = clients.enter_context(ThreadPoolExecutor(1))
            with running(config) as gateway:
                assert gateway.services.background is not None
                graces = Graces(gateway.services.background)
                gateway.services.background = cast(BackgroundControl, graces)
                if over == "http":
                    clients.enter_context(gateway.connect()).sendall(request(stream=True))
                elif over == "websocket":
                    client = clients.enter_context(open_websocket(gateway.port))
                    client.send(CREATE)
                    reader.submit(lambda: (events_until(client, "response.failed"), client.end()))
                if over != "nothing":
                    gate.wait_reached()
            gate.open()
    [given] = graces.given
    assert (given == 0) if over != "nothing" else (0 < given <= 0.1)


@pytest.mark.parametrize("over", ["http", "websocket"])
def test_response_being_stored_at_the_deadline_is_sent_as_stored(tmp_path: Path, over: str) -> None:
    """The terminal event that a client receives always matches the stored status."""
    gate, upstream = hesitating()
    with upstream, served(tmp_path, upstream, grace=1) as gateway:
        held = apsw.Connection(str(gateway.database))
        held.set_busy_timeout(int(1000 * BOUND))  # the gateway may be sweeping
        with gateway.connect() as stream, open_websocket(gateway.port) as talking:
            held.execute("BEGIN IMMEDIATE")
            if over == "http":
                stream.sendall(request(stream=True))
                start = read_until(stream, b"output_text.delta")
            else:
                talking.send(CREATE)
                events_until(talking, "response.output_text.delta")
            gate.open()
            upstream.wait_idle(BOUND)
            gateway.signal()
            until(lambda: "timeout graceful shutdown exceeded" in gateway.log)
            held.execute("COMMIT")
            held.close()
            if over == "http":
                answer = Told(start + read_all(stream))
                assert answer.outcome == ("completed", None)
                id = answer.response.id
            else:
                done = events_until(talking, "response.completed", "response.failed", "error")[-1]
                assert done["type"] == "response.completed"
                id = done["response"]["id"]
                assert talking.end() == Closed(1001, "server_shutdown")
        assert gateway.wait() == 0
        stored = gateway.kept(id)
        assert stored is not None
        assert stored.status == "completed"
        assert '"exception"' not in gateway.log


class Closable:
    """A minimal store that records when it is closed."""

    is_closed = False

    async def prune(self, **_: object) -> int:
        return 0

    async def prune_usage(self, **_: object) -> int:
        return 0

    async def close(self) -> None:
        self.is_closed = True


def test_store_closes_after_the_last_turn() -> None:
    async def go() -> None:
        store = Closable()

        async def give_it(*_: object) -> Store:
            return cast(Store, store)

        config = replace(one_upstream("http://127.0.0.1:1/v1"), store=StoreConfig(url="off"))
        services = Services(config, {}, HttpTransport({}), Logger(io.StringIO(), "json"), open_store=give_it)
        await services.open()
        services.process.requests_in_flight = 1
        closing = asyncio.create_task(services.close())
        done, _ = await asyncio.wait([closing], timeout=0.05)
        assert not done
        assert not store.is_closed
        services.process.requests_in_flight = 0
        await closing
        assert store.is_closed

    asyncio.run(go())


def test_shutdown_does_not_wait_forever_for_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway ends even if a request never ends: `running` checks that."""
    monkeypatch.setattr("antiphon.ops.services.CLOSE_TIMEOUT", 0.05)
    with ChatServer() as upstream, running(one_upstream(upstream.base_url)) as gateway:
        gateway.services.process.requests_in_flight += 1


def _complete(response: Response | None) -> Response:
    """The stored response in the form that clients get."""
    assert response is not None
    return with_complete_usage(response)
