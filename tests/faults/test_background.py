"""docs/errors.md, "kill -9 with background work queued and running": after any failure of a process or of the storage,
every background response reaches one end, none is run twice, and no stored event is lost (API-2)."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from tests.gateway.in_background import (
    BACKGROUND_TIMINGS,
    TOOLS,
    Client,
    Fails,
    Lab,
    Stall,
    check,
    config_of,
    laboratory,
    replicas,
    scripted,
    told_by,
)
from tests.running import until
from tests.store import postgres_server

from antiphon import testing
from antiphon.api import background_stream
from antiphon.config import BackgroundConfig
from antiphon.errors import StorageUnavailable
from antiphon.gateway.background_job import BackgroundJob
from antiphon.protocol.events import ResponseFailed, ResponseInProgress, ResponseQueued
from antiphon.store.interface import Store
from antiphon.store.opening import open_store
from antiphon.store.work import Work
from antiphon.testing import Gate, Reply, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
SOON = 60.0  # seconds in which all responses end
GOODBYE = "dead runner"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return postgres_server.fresh_url() if request.param == "postgres" else f"sqlite:///{tmp_path}/a.db"


def silent(gate: Gate) -> Reply:
    return turn(testing.wait(gate), testing.text("Hello."))


def with_output(gate: Gate) -> Reply:
    return turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))


def has_output(client: Client, id: str) -> bool:
    """Whether the response has more events than `queued`."""
    with client.reading("GET", f"/v1/responses/{id}?stream=true") as events:
        return any(type(event) is ResponseInProgress for event in events)


def test_fifty_background_responses_end_after_kill_9_and_none_runs_twice(url: str) -> None:
    """API-2: responses without output are restarted, responses with output fail, and queued ones run."""
    gate = Gate()
    says = {f"silent {n}": silent(gate) for n in range(8)} | {f"spoken {n}": with_output(gate) for n in range(8)}
    texts = [*says, *(f"waiting {n}" for n in range(34))]
    with scripted(says) as upstream:
        config = config_of(url, upstream.base_url, background=BackgroundConfig(running=16))
        with replicas(config) as [first]:
            ids = {text: first.begin(input=text) for text in texts}
            until(lambda: len(upstream.received) == 16)
            assert all(has_output(first, id) for text, id in ids.items() if text.startswith("spoken"))
            first.kill()
        gate.open()
        with replicas(config) as [second]:
            ended = {text: second.wait(id, seconds=SOON) for text, id in ids.items()}
            streams = {text: second.events(id) for text, id in ids.items()}
        asked = [received.json["messages"][-1]["content"] for received in upstream.received]
    for text, response in ended.items():
        assert told_by(streams[text]) == response
        outcome = (response["status"], (response["error"] or {}).get("code"), asked.count(text))
        if text.startswith("spoken"):
            assert outcome == ("failed", "server_restarted", 1)
            assert isinstance(streams[text][-1], ResponseFailed)
            assert response["output"][0]["content"][0]["text"] == "Hel"
        else:
            assert outcome == ("completed", None, 2 if text.startswith("silent") else 1)


def test_fifty_background_responses_end_after_one_of_two_replicas_dies(url: str) -> None:
    """API-2: the other replica restarts or fails the responses of the dead one, continues its own, and runs queued ones
    once."""
    gate = Gate()
    says = {f"silent {n}": silent(gate) for n in range(8)} | {f"spoken {n}": with_output(gate) for n in range(8)}
    texts = [*says, *(f"waiting {n}" for n in range(34))]
    with scripted(says) as upstream:
        config = config_of(url, upstream.base_url, background=BackgroundConfig(running=8))
        with replicas(config, config) as [first, second]:
            ids = {text: (first, second)[number % 2].begin(input=text) for number, text in enumerate(texts)}
            until(lambda: len(upstream.received) == 16)
            assert all(has_output(second, id) for text, id in ids.items() if text.startswith("spoken"))
            first.kill()
            gate.open()
            ended = {text: second.wait(id, seconds=SOON) for text, id in ids.items()}
            assert {text: told_by(second.events(id)) for text, id in ids.items()} == ended
        asked = Counter(received.json["messages"][-1]["content"] for received in upstream.received)
    ends = {text: (ended[text]["status"], (ended[text]["error"] or {}).get("code"), asked[text]) for text in texts}
    cut, again = ("failed", "server_restarted", 1), ("completed", None, 2)
    of_the_dead = [text for text, end in ends.items() if end in (cut, again)]
    assert len(of_the_dead) == 8
    assert all(ends[text] == (cut if text.startswith("spoken") else again) for text in of_the_dead)
    assert {end for text, end in ends.items() if text not in of_the_dead} == {("completed", None, 1)}


def test_shutdown_requeues_responses_without_output_and_fails_the_others(url: str) -> None:
    """API-2, after the grace period."""
    gate = Gate()
    says = {"silent": silent(gate), "spoken": with_output(gate)}
    with scripted(says) as upstream:
        with laboratory(url, upstream=upstream, says=says) as lab:
            ids = {text: lab.begin(input=text) for text in says}
            assert has_output(lab, ids["spoken"])
            until(lambda: lab.asked("silent") == 1)
        gate.open()
        with laboratory(url, upstream=upstream, says=says) as lab:
            spoke = lab.wait(ids["spoken"])
            assert (spoke["status"], spoke["error"]["code"]) == ("failed", "server_shutdown")
            assert told_by(lab.events(ids["spoken"])) == spoke
            assert lab.wait(ids["silent"])["status"] == "completed"
            assert (lab.asked("silent"), lab.asked("spoken")) == (2, 1)


RICH = turn(
    testing.reasoning("Well", "…"),
    testing.text("Hel", "lo\u2028\r\n."),
    testing.interleaved(testing.tool_call("c1", "f", '{"a":', "1}"), testing.tool_call("c2", "f", "{}")),
    testing.usage(5, 2),
)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_response_of_a_dead_gateway_is_ended_after_any_event(url: str, is_cancelled: bool) -> None:
    """STR-5 to STR-8, over the stored events and the added ones. A response to be cancelled is cancelled by whichever
    replica takes it."""
    with laboratory(url, says={"rich": RICH}) as lab:
        id = lab.begin(input="rich", tools=TOOLS)
        lab.wait(id)
        whole = lab.events(id)
    ids = asyncio.run(leave_parts(url, id, len(whole) - 1, is_cancelled=is_cancelled))
    with laboratory(url) as lab:
        for count, left in enumerate(ids):
            response = lab.wait(left)
            events = lab.events(left)
            assert len(events) > count
            assert told_by(events) == response
            code = response["error"]["code"] if response["error"] else None
            if is_cancelled:
                assert (response["status"], code) == ("cancelled", None)
            elif count:
                assert (response["status"], code) == ("failed", "server_restarted")
            else:
                assert response["status"] == "completed"  # it had no output
        assert len(lab.upstream.received) == (0 if is_cancelled else 1)


async def leave_parts(url: str, id: str, count: int, *, is_cancelled: bool) -> list[str]:
    """One response per event before the end; each has one event more, and its runner died."""
    store = await opened(url)
    record, stored_events = await store.get("alice", id), await store.events_after("alice", id, -1)
    assert record is not None
    assert stored_events is not None
    ids = []
    for number in range(count):
        ids.append(f"{id}x{number}")
        head = record.head.replace(id.encode(), ids[-1].encode())
        queued = replace(record, id=ids[-1], status="queued", head=head, output=b"[]")
        await store.enqueue("alice", queued, [], b'{"model":"mock-1","input":"Again.","background":true}')
        [work] = await store.claim(GOODBYE, 60.0, 1)
        assert work.id == ids[-1]
        events = [event.replace(id.encode(), work.id.encode()) for event in stored_events.events[:number]]
        assert await store.append(GOODBYE, work.id, 0, events, "in_progress")
        if is_cancelled:
            assert await store.cancel("alice", work.id, None) == "requested"
    await store.renew(GOODBYE, 0.0, ids)
    await store.close()
    return ids


async def opened(url: str) -> Store:
    store = await open_store(config_of(url, "http://127.0.0.1:1").store, {})
    assert store is not None
    return store


def test_postgresql_restart_ends_no_response_and_no_reader() -> None:
    """docs/errors.md, "PostgreSQL restarted": events wait to be written, and readers wait."""
    url = postgres_server.fresh_url()
    with laboratory(url) as lab, ThreadPoolExecutor(1) as reader:
        gates = [lab.gate(), lab.gate()]
        lab.says["slow"] = turn(
            testing.text("Hel"), testing.wait(gates[0]), testing.text("lo"), testing.wait(gates[1]), testing.text(".")
        )
        id, reading = begin_and_read(lab, gates[0], reader)
        with postgres_server.stopped():
            gates[0].open()
            gates[1].wait_reached()
        gates[1].open()
        response = lab.wait(id)
        assert (response["status"], response["output"][0]["content"][0]["text"]) == ("completed", "Hello.")
        received = reading.result()
        check(received)
        assert received == lab.events(id)
        assert lab.asked("slow") == 1


def test_postgresql_restart_loses_no_queued_response() -> None:
    """docs/errors.md, "PostgreSQL restarted": running and queued responses complete, each once."""
    says: dict[str, Reply] = {}
    limits = {"background": BackgroundConfig(running=4)}
    with laboratory(postgres_server.fresh_url(), says=says, config=limits) as lab:
        gate = lab.gate()
        says |= {f"running {n}": (silent, with_output)[n % 2](gate) for n in range(4)}
        ids = {text: lab.begin(input=text) for text in [*says, *(f"waiting {n}" for n in range(16))]}
        until(lambda: len(lab.upstream.received) == 4)
        with postgres_server.stopped():
            gate.open()
        for text, id in ids.items():
            response = lab.wait(id, seconds=SOON)
            assert (response["status"], lab.asked(text)) == ("completed", 1)
            assert told_by(lab.events(id)) == response


def begin_and_read(lab: Lab, gate: Gate, reader: Executor) -> tuple[str, Future[list[Any]]]:
    """A response whose upstream waits at the gate, and a reader that has its events so far and continues reading."""
    id = lab.begin(input="slow")
    gate.wait_reached()
    assert has_output(lab, id)
    has_read = Event()
    reading = reader.submit(read_all, lab, id, has_read)
    assert has_read.wait(60)
    return id, reading


def read_all(lab: Lab, id: str, has_read: Event) -> list[Any]:
    """Its stream to the end; `has_read` is set once the first event was read."""
    received = []
    with lab.reading("GET", f"/v1/responses/{id}?stream=true") as events:
        for event in events:
            received.append(event)
            has_read.set()
    return received


def away() -> StorageUnavailable:
    return StorageUnavailable("the storage is away")


def test_transient_storage_failures_only_delay_responses(tmp_path: Path) -> None:
    """Claims, heartbeats, events and the end are retried; a reader waits; a response that could not start is started
    again."""
    store = Fails()
    with laboratory(f"sqlite:///{tmp_path}/a.db", open_store=store.open) as lab, ThreadPoolExecutor(1) as reader:
        gate = lab.gate()
        lab.says["slow"] = with_output(gate)
        store.raises = {"claim": [away()], "renew": [away()], "append": [away()], "finish": [away()]}
        id, reading = begin_and_read(lab, gate, reader)
        store.raises["events_after"] = [away()]
        gate.open()
        check(reading.result())
        assert lab.get(id)["status"] == "completed"
        assert store.raises == {"claim": [], "renew": [], "append": [], "finish": [], "events_after": []}

        store.raises["events_after"] = [away()]
        assert lab.ask("GET", f"/v1/responses/{id}?stream=true").status_code == 503
        store.raises["get_chain"] = [away(), None]  # the request reads the chain first
        again = lab.begin(previous_response_id=id)
        until(lambda: not store.raises["get_chain"])
        assert lab.wait(again)["status"] == "completed"
        assert "background work interrupted: the store is unavailable" in lab.gateway.written


def test_reader_is_disconnected_and_logged_if_storage_stays_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reader saw no end, so it reconnects. The gateway is not at fault, and its log reports no failure of it."""
    monkeypatch.setattr(background_stream, "STORAGE_TIMEOUT", 1)
    store = Fails()
    with laboratory(f"sqlite:///{tmp_path}/a.db", open_store=store.open) as lab, ThreadPoolExecutor(1) as reader:
        gate = lab.gate()
        lab.says["slow"] = with_output(gate)
        id, reading = begin_and_read(lab, gate, reader)
        store.raises["events_after"] = [away()]
        gate.open()
        with pytest.raises(httpx2.RemoteProtocolError):
            reading.result()
        assert lab.wait(id)["status"] == "completed"
    logged = [(line["status"], line["error"]) for line in lab.gateway.log if line.get("error")]
    assert logged == [(200, "storage_unavailable")]
    assert "a request failed" not in caplog.text


@pytest.mark.parametrize("method", ["get_chain", "finish"])
def test_internal_error_is_logged_and_fails_the_background_response(tmp_path: Path, method: str) -> None:
    store = Fails()
    url = f"sqlite:///{tmp_path}/a.db"
    with laboratory(url, open_store=store.open, has_a_fault=True) as lab:
        previous = lab.post().json()["id"]
        # The request reads the chain before the job does.
        store.raises[method] = [ZeroDivisionError(), None] if method == "get_chain" else [ZeroDivisionError()]
        id = lab.begin(previous_response_id=previous)
        until(lambda: not store.raises[method])
        response = lab.wait(id)
        assert told_by(lab.events(id)) == response
        assert response["status"] == ("failed" if method == "get_chain" else response["status"])
        assert "a request failed inside the gateway" in lab.gateway.written


@pytest.mark.parametrize(("method", "passes"), [("get_chain", 1), ("append", 0), ("finish", 0)])
def test_response_deleted_during_storage_stays_deleted(tmp_path: Path, method: str, passes: int) -> None:
    """Its runner gets no notification and notices the deletion when it writes."""
    stall = Stall(method, passes)  # the request reads the chain before the job does
    with laboratory(
        f"sqlite:///{tmp_path}/a.db",
        open_store=stall.open,
        background_timings=replace(BACKGROUND_TIMINGS, heartbeat=60.0),
    ) as lab:
        gate = lab.gate()
        lab.says["slow"] = with_output(gate)
        previous = lab.post().json()["id"]
        stall.is_on = True
        id = lab.begin(
            input="slow" if method == "append" else "Hello",
            previous_response_id=previous if method == "get_chain" else None,
        )
        assert stall.reached.wait(60)
        assert lab.ask("DELETE", f"/v1/responses/{id}").status_code == 200
        stall.let_go()
        gate.open()
        until(lambda: lab.gateway.services.background.running_jobs == 0)  # type: ignore[union-attr]
        assert lab.ask("GET", f"/v1/responses/{id}").status_code == 404


def test_deleted_response_is_cancelled_at_its_next_write(tmp_path: Path) -> None:
    with laboratory(
        f"sqlite:///{tmp_path}/a.db", background_timings=replace(BACKGROUND_TIMINGS, heartbeat=60.0)
    ) as lab:
        gates = [lab.gate(), lab.gate()]
        lab.says["slow"] = turn(testing.text("Hel"), testing.wait(gates[0]), testing.text("lo"), testing.wait(gates[1]))
        id = lab.begin(input="slow")
        assert has_output(lab, id)
        assert lab.ask("DELETE", f"/v1/responses/{id}").status_code == 200
        gates[0].open()
        lab.upstream.wait_disconnected(1)
        gates[1].open()


@pytest.mark.parametrize(
    "reply",
    [
        turn(testing.text("Hello."), stream=False),
        turn(testing.text("Hello."), omit=("done",)),
    ],
    ids=["no stream", "no end mark"],
)
def test_background_events_are_a_stream_for_every_form_of_upstream_answer(tmp_path: Path, reply: Reply) -> None:
    with laboratory(f"sqlite:///{tmp_path}/a.db", says={"odd": reply}) as lab:
        response = lab.wait(lab.begin(input="odd"))
        events = lab.events(response["id"])
        assert told_by(events) == response
        assert type(events[1]) is ResponseQueued
        assert response["status"] == "completed"


def test_runner_that_reclaims_its_expired_lease_does_not_restart(tmp_path: Path) -> None:
    store = Fails()
    timings = replace(BACKGROUND_TIMINGS, lease=0.01, poll_interval=0.01, heartbeat=60.0)
    with laboratory(f"sqlite:///{tmp_path}/a.db", open_store=store.open, background_timings=timings) as lab:
        gate = lab.gate()
        lab.says["slow"] = with_output(gate)
        id = lab.begin(input="slow")
        gate.wait_reached()
        before = store.asked["claim"]
        until(lambda: store.asked["claim"] > before + 10)
        gate.open()
        assert lab.wait(id)["status"] == "completed"
        assert lab.asked("slow") == 1


def test_job_can_be_cancelled_before_its_first_step_and_after_deletion(tmp_path: Path) -> None:
    with laboratory(f"sqlite:///{tmp_path}/a.db") as lab:
        runner: Any = lab.gateway.services.background

        async def run(work: Work) -> None:
            services: Any = lab.gateway.services
            job = BackgroundJob(services, services.store, "somebody", work, 0.01, lambda: None)
            job.cancel()
            await job.task

        for is_cancelled in (False, True):
            work = Work(
                owner="alice",
                id="resp_gone",
                request=b"{}",
                head=b"{}",
                input=b"[]",
                attempt=1,
                next_event=0,
                is_cancelled=is_cancelled,
            )
            asyncio.run_coroutine_threadsafe(run(work), runner._claim_task.get_loop()).result(20)
        assert not lab.upstream.received
