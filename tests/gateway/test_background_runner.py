"""API-2: background responses, on both stores: their life, their stream from any event on, and their end at any
moment."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec.structs import replace
from tests.gateway.in_background import (
    BACKGROUND_TIMINGS,
    HELLO,
    TOOLS,
    Fails,
    Lab,
    Stall,
    check,
    events_in,
    laboratory,
    told_by,
)
from tests.running import until
from tests.store import postgres_server

from antiphon import testing
from antiphon.config import BackgroundConfig, TraceConfig
from antiphon.errors import StorageUnavailable
from antiphon.gateway.background_job import LARGE_LINE, MAX_PENDING_BYTES, Ending, EventLog
from antiphon.gateway.background_runner import BackgroundRunner, BackgroundTimings
from antiphon.gateway.client_body import ClientBody
from antiphon.gateway.event_lines import EventLineWriter
from antiphon.gateway.turn_data import TurnData, prepare_data
from antiphon.protocol.codec import decode_event
from antiphon.protocol.events import (
    ErrorEvent,
    OutputTextDelta,
    ResponseCreated,
    ResponseFailed,
    ResponseInProgress,
    ResponseQueued,
    TerminalEvent,
)
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.store.postgres.connections import Connections
from antiphon.store.postgres.work import APPEND_EVENTS, CLAIM_WORK, ENQUEUE_WORK, FINISH_WORK
from antiphon.store.work import QueueStats, Work
from antiphon.testing import Gate, Reply, turn
from antiphon.trace.reader import read_trace

pytestmark = pytest.mark.io
RUNNING = 8
COMPARED_FIELDS = ("status", "model", "upstream", "owner", "events", "input_tokens", "output_tokens", "losses", "error")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    url = (
        postgres_server.fresh_url()
        if request.param == "postgres"
        else f"sqlite:///{tmp_path_factory.mktemp('store')}/a.db"
    )
    with laboratory(url, config={"background": BackgroundConfig(running=RUNNING, waiting=20)}) as lab:
        yield lab


@pytest.fixture
def lab(shared_lab: Lab) -> Iterator[Lab]:
    shared_lab.says.clear()
    shared_lab.upstream.received.clear()
    yield shared_lab
    shared_lab.open_gates()
    shared_lab.upstream.wait_idle()
    until(lambda: shared_lab.gateway.services.background.running_jobs == 0)  # type: ignore[union-attr]


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def line_of(lab: Lab) -> dict[str, Any]:
    """The log line of the latest background response."""

    def background_lines() -> list[dict[str, Any]]:
        return [line for line in lab.gateway.log if line.get("method") == "BACKGROUND"]

    until(lambda: bool(background_lines()))
    return background_lines()[-1]


class SlowStore:
    """A store whose first write waits for a gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.written = 0

    async def append(self, _runner: str, _id: str, _number: int, lines: list[bytes], _status: str) -> bool:
        await self.gate.wait()
        self.written += len(lines)
        return True


async def _fill_log(lines: int, size: int) -> tuple[int, int]:
    """The number of lines that a producer can add before the store writes any, and afterwards."""
    store = SlowStore()
    log = EventLog(store, "run_1", "resp_1", 0.0, lambda: None)  # type: ignore[arg-type]
    added = 0

    async def produce() -> None:
        nonlocal added
        for _ in range(lines):
            log.add([b"x" * size])
            added += 1
            await log.wait_for_room()

    producing = asyncio.create_task(produce())
    for _ in range(1000):
        await asyncio.sleep(0)
    held = added
    store.gate.set()
    await producing
    log.stop_writing()
    return held, added


def test_event_log_is_bounded_while_the_store_is_slow() -> None:
    held, added = asyncio.run(_fill_log(lines=100, size=MAX_PENDING_BYTES // 10))
    assert held == 11
    assert added == 100


class CountedStore:
    """A store that counts how often its queue is counted, and has no work."""

    pushes_changes = True
    change_counter = 0

    def __init__(self) -> None:
        self.waiting = 0
        self.count = 0

    async def lease_holders(self) -> list[str]:
        return []

    async def claim(self, *arguments: object, **named: object) -> list[Work]:
        del arguments, named
        return []

    async def wait_for_change(self, *arguments: object) -> None:
        del arguments
        raise StorageUnavailable("the storage is closed")

    async def queue_stats(self) -> QueueStats:
        self.count += 1
        return QueueStats(waiting=self.waiting, running=0, oldest_waiting=None)


def test_queue_is_not_counted_for_every_request() -> None:
    """A count reads the whole queue. A queue that may be full is counted, so that no place is refused wrongly."""

    async def reserve() -> None:
        store = CountedStore()
        timings = BackgroundTimings(lease=3600.0, poll_interval=3600.0)
        runner = BackgroundRunner(None, store, 1, timings)  # type: ignore[arg-type]
        assert [await runner.reserve_place(50) for _ in range(50)] == [True] * 50
        assert store.count <= 2  # once here, once for the metrics
        store.waiting = 49
        counts = store.count
        assert [await runner.reserve_place(50) for _ in range(2)] == [True, True]
        assert store.count == counts + 2  # 50 were queued, none of them waits any more
        store.waiting = 50
        assert await runner.reserve_place(50) is False
        await runner.stop(0.0)

    asyncio.run(reserve())


def test_event_log_writes_a_large_event_alone() -> None:
    """So that nothing copies it. The end is written with the small events after it."""
    written: list[list[int]] = []

    class Recorded:
        async def append(self, *arguments: Any) -> bool:
            written.append([len(line) for line in arguments[3]])
            return len(written) < 4

        async def finish(self, *arguments: Any, addition: object) -> bool:
            del addition
            written.append([len(line) for line in arguments[5]])
            return True

    async def write(*sizes: int) -> int:
        lost: list[bool] = []
        log = EventLog(Recorded(), "r", "a", 0.001, lambda: lost.append(True))  # type: ignore[arg-type]
        log.add([b"x" * size for size in sizes])
        assert await log.finish(Ending(response=None, record=None, item_ids=[], call_ids=[]))  # type: ignore[arg-type]
        return len(lost)

    large = LARGE_LINE + 1
    assert asyncio.run(write(1, 2, large, 3)) == 0
    assert written == [[1, 2], [large], [3]]
    assert asyncio.run(write(large, large)) == 1  # the lease is lost: nothing more is appended
    assert written[3:] == [[large], [large, large]]


# Normal operation


def test_large_answer_is_stored_and_read_whole(lab: Lab) -> None:
    """In the background and streamed; its last events are larger than what is written at once."""
    text = ["é" * 10_000] * 80
    lab.says["large"] = turn(testing.text(*text), testing.usage(5, 2))
    id = lab.begin(input="large")
    response = lab.wait(id)
    assert (response["status"], text_of(response)) == ("completed", "".join(text))
    events = lab.events(id)
    assert told_by(events) == response
    assert lab.events(id, len(events) - 3) == events[-2:]
    streamed = events_in(lab.post(input="large", stream=True))
    check(streamed)
    assert text_of(told_by(streamed)) == "".join(text)
    assert text_of(lab.get(told_by(streamed)["id"])) == "".join(text)


def test_finished_job_is_not_kept_in_memory(lab: Lab) -> None:
    """Its answer may be large. Several heartbeats see the job."""
    gate = lab.gate()
    lab.says["slow"] = turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))
    id = lab.begin(input="slow")
    gate.wait_reached()
    job = weakref.ref(lab.gateway.services.background._running[id])  # type: ignore[union-attr]
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 4 * BACKGROUND_TIMINGS.heartbeat)
    gate.open()
    lab.wait(id)

    def is_gone() -> bool:
        gc.collect()
        return job() is None

    until(is_gone)


def test_background_response_runs_after_its_client_disconnected(lab: Lab) -> None:
    """API-2."""
    before, after = lab.gate(), lab.gate()
    lab.says["slow"] = turn(
        testing.wait(before), testing.text("Hel"), testing.wait(after), testing.text("lo."), testing.usage(5, 2)
    )
    id = lab.begin(input="slow", metadata={"a": "b"})
    lab.wait(id, "in_progress")
    before.open()
    after.wait_reached()
    assert lab.get(id)["status"] == "in_progress"
    after.open()
    response = lab.wait(id)
    assert (response["status"], text_of(response)) == ("completed", "Hello.")
    assert (response["metadata"], response["usage"]["output_tokens"]) == ({"a": "b"}, 2)
    assert told_by(lab.events(id)) == response
    assert lab.asked("slow") == 1
    line = line_of(lab)
    assert (line["status"], line["model"], line["owner"], line["output_tokens"]) == (200, "mock-1", "alice", 2)


def test_background_stream_resumes_without_gap_or_repetition(lab: Lab) -> None:
    """API-2, with `stream: true`."""
    gate = lab.gate()
    lab.says["slow"] = turn(testing.text("Hel", "lo"), testing.wait(gate), testing.text(", ", "you."))
    asked = {"model": "mock-1", "input": "slow", "background": True, "stream": True}
    seen = []
    with lab.reading("POST", "/v1/responses", json=asked) as events:
        for event in events:
            seen.append(event)
            if isinstance(event, OutputTextDelta):
                break
    id = seen[0].response.id  # type: ignore[union-attr]
    gate.open()
    rest = lab.events(id, seen[-1].sequence_number)
    check(seen + rest)
    assert seen + rest == lab.events(id)
    assert text_of(told_by(rest)) == "Hello, you."
    assert lab.asked("slow") == 1


def test_queued_stream_sends_its_id_and_can_be_resumed(lab: Lab) -> None:
    """API-2, STR-1: `response.created` and `response.queued` are sent at once, and are the first stored events."""
    gate = lab.block(RUNNING)
    asked = {"model": "mock-1", "input": "later", "background": True, "stream": True}
    with lab.reading("POST", "/v1/responses", json=asked) as events:
        seen = [next(events), next(events)]
    created, queued = seen
    assert isinstance(created, ResponseCreated)
    assert isinstance(queued, ResponseQueued)
    assert (created.response.status, queued.response) == ("queued", created.response)
    id = created.response.id
    with lab.reading("GET", f"/v1/responses/{id}?stream=true&starting_after=0") as events:
        assert next(events) == queued
    with ThreadPoolExecutor(2) as readers:
        from_the_first, from_the_second = readers.submit(lab.events, id), readers.submit(lab.events, id, 1)
        assert lab.asked("later") == 0
        gate.open()
        received = from_the_first.result()
    assert received == seen + from_the_second.result() == lab.events(id)
    assert told_by(received)["status"] == "completed"


def test_queued_events_equal_the_stored_events() -> None:
    """API-2: an upstream may name its service tier at once; readers of the earlier events get no different value
    later."""
    queued = replace(make_initial_response(Request(model="m"), id="resp_1", created_at=1), status="queued")
    lines = EventLineWriter(queued)
    tiered = replace(queued, service_tier="priority")
    for event in (
        ResponseCreated(sequence_number=0, response=tiered),
        ResponseQueued(sequence_number=1, response=tiered),
    ):
        lines.feed(event)
        assert list(map(decode_event, lines.take_lines())) == [replace(event, response=queued)]
    in_progress = ResponseInProgress(sequence_number=2, response=replace(tiered, status="in_progress"))
    lines.feed(in_progress)
    assert list(map(decode_event, lines.take_lines())) == [in_progress]


def test_background_stream_equals_the_stored_events(lab: Lab) -> None:
    answer = lab.post(background=True, stream=True)
    events = events_in(answer)
    check(events)
    assert lab.events(events[0].response.id) == events  # type: ignore[union-attr]
    assert lab.get(events[0].response.id) == told_by(events)  # type: ignore[union-attr]


def test_readers_get_the_same_events_from_any_event_on(lab: Lab) -> None:
    """API-2: stored and live events, joined. One reader reconnects a hundred times."""
    gates = [lab.gate(), lab.gate()]
    call = testing.tool_call("c1", "f", '{"a":', "1}")
    lab.says["slow"] = turn(
        testing.reasoning("Well"),
        testing.wait(gates[0]),
        testing.text("Hel", "lo"),
        testing.wait(gates[1]),
        testing.text("!"),
        call,
    )
    id = lab.begin(input="slow", tools=TOOLS)
    numbers = [None, *range(25)]
    with ThreadPoolExecutor(len(numbers) + 1) as readers:
        gates[0].wait_reached()
        reading = [readers.submit(lab.events, id, number) for number in numbers]
        coming_back = readers.submit(come_back_again_and_again, lab, id)
        gates[0].open()
        gates[1].wait_reached()
        gates[1].open()
        received = [reader.result() for reader in reading]
        pieced_together = coming_back.result()
    whole = lab.events(id)
    assert len(whole) < 25
    assert told_by(whole) == lab.get(id)
    for number, events in zip(numbers, received, strict=True):
        assert events == (whole if number is None else whole[number + 1 :])
        assert lab.events(id, number) == events
    assert pieced_together == whole
    for number in range(100):
        assert lab.events(id, number % len(whole)) == whole[number % len(whole) + 1 :]


def come_back_again_and_again(lab: Lab, id: str) -> list[Any]:
    """Disconnects after every event."""
    seen: list[Any] = []
    while not seen or not isinstance(seen[-1], TerminalEvent):
        after = f"&starting_after={len(seen) - 1}" if seen else ""
        with lab.reading("GET", f"/v1/responses/{id}?stream=true{after}") as events:
            seen.append(next(events))
    return seen


def test_background_response_can_be_continued_after_its_end(lab: Lab) -> None:
    """API-2, PREV-1."""
    gate = lab.gate()
    lab.says["slow"] = turn(testing.wait(gate), testing.text("Hello."))
    id = lab.begin(input="slow")
    lab.wait(id, "in_progress")
    for background in (True, False):
        answer = lab.post(previous_response_id=id, background=background)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("invalid_value", "previous_response_id")
        assert "in_progress" in error["message"]
    gate.open()
    lab.wait(id)
    second = lab.wait(lab.begin(previous_response_id=id, input="And?"))
    assert second["status"] == "completed"
    assert [message["content"] for message in lab.upstream.received[-1].json["messages"]] == ["slow", "Hello.", "And?"]
    assert second["previous_response_id"] == id


def metric(lab: Lab, name: str) -> float:
    text = lab.ask("GET", "/metrics").text
    return float(
        next(line for line in text.splitlines() if line.startswith(f"antiphon_background_{name} ")).split()[-1]
    )


# Cancellation


def expect_cancelled(lab: Lab, id: str, answer: httpx2.Response) -> dict[str, Any]:
    """One end, the same in the answer, in its stream and in GET."""
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    assert (response["status"], response["error"], response["id"]) == ("cancelled", None, id)
    assert lab.get(id) == response
    events = lab.events(id)
    assert isinstance(events[-1], ResponseFailed)
    assert not any(isinstance(event, ErrorEvent) for event in events)
    assert told_by(events) == response
    assert lab.cancel(id).json() == response  # twice
    return response


def test_queued_response_is_cancelled_without_an_upstream_request(lab: Lab) -> None:
    """API-2. A reader of its stream receives its end."""
    gate = lab.block(RUNNING)
    id = lab.begin(input="never")
    with lab.reading("GET", f"/v1/responses/{id}?stream=true") as events:
        received = [next(events), next(events)]
        answer = lab.cancel(id)
        received += events
    expect_cancelled(lab, id, answer)
    assert received == lab.events(id)
    assert [lab.events(id, number) for number in range(3)] == [received[1:], received[2:], []]
    gate.open()
    lab.wait(lab.begin())
    assert lab.asked("never") == 0


@pytest.mark.parametrize("moment", ["before the first byte", "in the middle of text", "in the middle of arguments"])
def test_cancelling_a_running_response_aborts_its_upstream(lab: Lab, moment: str) -> None:
    """API-2."""
    gate = lab.gate()
    reply = {
        "before the first byte": turn(testing.wait(gate), testing.text("Hi")),
        "in the middle of text": turn(testing.text("Hel"), testing.wait(gate), testing.text("lo")),
        "in the middle of arguments": turn(testing.tool_call("c1", "f", '{"a":'), testing.wait(gate)),
    }
    lab.says["slow"] = reply[moment]
    gone = lab.upstream.abandoned
    id = lab.begin(input="slow", tools=TOOLS)
    gate.wait_reached()
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(lab.events, id)
        answer = lab.cancel(id)
        received = reading.result()
    response = expect_cancelled(lab, id, answer)
    assert received == lab.events(id)
    lab.upstream.wait_disconnected(gone + 1)
    assert [item["status"] for item in response["output"]] == ["incomplete"] * len(response["output"])
    assert lab.asked("slow") == 1
    gate.open()


def test_cancel_is_allowed_only_for_the_owner_and_background_responses(lab: Lab) -> None:
    gate = lab.gate()
    lab.says["slow"] = turn(testing.wait(gate), testing.text("Hi"))
    id = lab.begin(input="slow")
    stranger, unknown = lab.bob.cancel(id), lab.bob.cancel("resp_" + "0" * 40)
    assert (stranger.status_code, stranger.json()["error"]["code"]) == (404, "not_found")
    assert stranger.json()["error"]["message"].replace(id, "") == unknown.json()["error"]["message"].replace(
        "resp_" + "0" * 40, ""
    )
    assert lab.bob.ask("GET", f"/v1/responses/{id}?stream=true").status_code == 404
    gate.open()
    ended = lab.wait(id)
    assert ended["status"] == "completed"
    assert lab.cancel(id).json() == ended  # after the end
    plain = lab.post().json()["id"]
    refused = lab.cancel(plain)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_value")


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    ("method", "passes", "status"),
    [("append", 0, "cancelled"), ("get_chain", 1, "cancelled"), ("finish", 0, "completed")],
)
def test_cancel_during_storage_leaves_one_end(
    tmp_path: Path, store: str, method: str, passes: int, status: str
) -> None:
    """API-2: just claimed, during a save, and during the last save, when nothing is left to be cancelled."""
    stall = Stall(method, passes)  # the request reads the chain before the job does
    url = postgres_server.fresh_url() if store == "postgres" else f"sqlite:///{tmp_path}/a.db"
    with laboratory(url, open_store=stall.open) as lab:
        gate = lab.gate()
        lab.says["slow"] = turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))
        previous = lab.post().json()["id"] if method == "get_chain" else None
        stall.is_on = True
        id = lab.begin(input="slow" if method == "append" else "Hello", previous_response_id=previous)
        assert stall.reached.wait(60)
        with ThreadPoolExecutor(1) as other:
            cancelling = other.submit(lab.cancel, id)
            until(lambda: not is_held(lab, id))
            stall.let_go()
            assert cancelling.result().json()["status"] == status
        gate.open()
        ended = lab.wait(id)
        assert ended["status"] == status
        assert told_by(lab.events(id)) == ended


def is_held(lab: Lab, id: str) -> bool:
    """Whether the runner has not been notified of a cancel yet."""
    job = lab.gateway.services.background._running.get(id)  # type: ignore[union-attr]
    return job is not None and job._interruption is None


def test_response_deleted_while_running_leaves_nothing(lab: Lab) -> None:
    """Its upstream is aborted, its stream breaks off, and it cannot be resumed."""
    gate = lab.gate()
    lab.says["slow"] = turn(testing.text("Hel"), testing.wait(gate))
    gone = lab.upstream.abandoned
    id = lab.begin(input="slow")
    gate.wait_reached()
    with lab.reading("GET", f"/v1/responses/{id}?stream=true") as events:
        next(events)
        assert lab.ask("DELETE", f"/v1/responses/{id}").json()["deleted"] is True
        with pytest.raises(httpx2.RemoteProtocolError):
            list(events)
    lab.upstream.wait_disconnected(gone + 1)
    assert lab.ask("GET", f"/v1/responses/{id}").status_code == 404
    assert lab.ask("GET", f"/v1/responses/{id}?stream=true").status_code == 404
    assert lab.cancel(id).status_code == 404
    gate.open()


# Failures


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (testing.error(500), "upstream_error"),
        (testing.error(429), "rate_limit_exceeded"),
        (turn(testing.text("Hel"), testing.end("rst")), "upstream_disconnected"),
    ],
)
def test_upstream_error_fails_the_background_response(lab: Lab, reply: Any, code: str) -> None:
    lab.says["bad"] = reply
    response = lab.wait(lab.begin(input="bad"))
    assert (response["status"], response["error"]["code"]) == ("failed", code)
    events = lab.events(response["id"])
    assert isinstance(events[-2], ErrorEvent)
    assert told_by(events) == response


def test_history_may_be_deleted_before_a_queued_response_runs(lab: Lab) -> None:
    first = lab.post().json()["id"]
    gate = lab.block(RUNNING)
    id = lab.begin(previous_response_id=first, input="And?")
    assert lab.ask("DELETE", f"/v1/responses/{first}").status_code == 200
    gate.open()
    response = lab.wait(id)
    assert (response["status"], response["error"]["code"]) == ("failed", "previous_response_not_found")
    assert told_by(lab.events(id)) == response


def test_background_responses_over_the_limits_wait_or_are_refused(lab: Lab) -> None:
    """F-2: a limited number runs at once, and the queue is limited."""
    gate = lab.block(RUNNING)
    waiting = [lab.begin() for _ in range(20)]
    refused = lab.post(background=True)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert int(refused.headers["retry-after"]) > 0
    assert len(lab.upstream.received) == RUNNING
    assert lab.post().status_code == 200  # a foreground response uses no queue
    assert metric(lab, "running") == RUNNING
    until(lambda: metric(lab, "waiting") == 20)
    gate.open()
    assert {lab.wait(id)["status"] for id in waiting} == {"completed"}


def test_background_turn_is_traced(tmp_path: Path) -> None:
    config = {"trace": TraceConfig(dir=str(tmp_path / "traces"))}
    with laboratory(f"sqlite:///{tmp_path}/a.db", config=config) as lab:
        lab.wait(lab.begin())
        line = line_of(lab)
    record = read_trace(tmp_path / "traces", line["request_id"])
    assert record.client_request is not None
    assert record.client_request.method == "BACKGROUND"
    assert record.upstream_request is not None
    assert b"Say hello." in record.upstream_request.body.raw
    assert b"Hel" in b"".join(piece.data.raw for piece in record.upstream_pieces)


def test_retention_keeps_queued_responses(lab: Lab) -> None:
    gate = lab.block(RUNNING)
    id = lab.begin()
    store = lab.gateway.services.store
    loop = lab.gateway.services.background._claim_task.get_loop()  # type: ignore[union-attr]
    assert store is not None
    while asyncio.run_coroutine_threadsafe(store.prune(before=2**40, keep=None), loop).result(20):
        pass
    assert lab.get(id)["status"] == "queued"
    gate.open()
    assert lab.wait(id)["status"] == "completed"


def test_background_requires_a_stored_response(lab: Lab) -> None:
    refused = lab.post(background=True, store=False)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "background")
    assert msgspec.json.decode(refused.content)["error"]["code"] == "unsupported_parameter"
    assert HELLO.elements


def test_runner_starts_work_that_another_replica_has_queued() -> None:
    """API-2: the notification wakes the runner, which would look for work only after five minutes."""
    url = postgres_server.fresh_url()
    gate = Gate()
    busy = {"background": BackgroundConfig(running=1, waiting=10)}
    idle_timings = BackgroundTimings(lease=300, heartbeat=1, poll_interval=300, flush_interval=0.01)
    replies: dict[str, Reply] = {"slow": turn(testing.wait(gate), testing.text("Hello."))}
    with (
        laboratory(url, says=replies, config=busy) as first,
        laboratory(url, upstream=first.upstream, says=replies, background_timings=idle_timings) as second,
    ):
        slow = first.begin(input="slow")
        gate.wait_reached()
        quick = first.begin(input="quick")
        assert second.wait(quick)["status"] == "completed"
        gate.open()
        assert first.wait(slow)["status"] == "completed"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"stream": True},
        {"tools": TOOLS, "instructions": "Be brief."},
        {"input": [{"role": "user", "content": "Hi"}]},
    ],
    ids=str,
)
def test_upstream_gets_the_same_request_from_the_process_that_queued_it_and_from_another(
    settings: dict[str, Any],
) -> None:
    url = postgres_server.fresh_url()
    with laboratory(url) as first, laboratory(url, upstream=first.upstream) as second:
        assert second.gateway.services.background is not None
        second.gateway.services.background.stop_claiming()
        streams = []
        for lab in (first, second):
            answer = lab.post(background=True, **settings)
            id = answer.json()["id"] if "stream" not in settings else told_by(events_in(answer))["id"]
            assert lab.wait(id)["status"] == "completed"
            streams.append([type(event) for event in lab.events(id)])
        own, other = [received.json for received in first.upstream.received]
        assert own == other
        assert own["stream"] is True
        assert streams[0] == streams[1]
        lines = [line for line in first.gateway.log if line.get("method") == "BACKGROUND"]
        own_line, other_line = [{name: line.get(name) for name in COMPARED_FIELDS} for line in lines]
        assert own_line == other_line


def test_short_response_is_prepared_once_and_written_in_three_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    bodies: list[bytes] = []
    fetch = Connections.fetch_unwrapped

    async def counted_fetch(self: Connections, sql: str, *arguments: Any, size: int = 0) -> list[Any]:
        rows = await fetch(self, sql, *arguments, size=size)
        if sql in (ENQUEUE_WORK, APPEND_EVENTS, FINISH_WORK) or (sql == CLAIM_WORK and rows):
            statements.append(sql)
        return rows

    async def counted_preparation(body: ClientBody, host: Any) -> TurnData:
        bodies.append(body.content)
        return await prepare_data(body, host)

    monkeypatch.setattr(Connections, "fetch_unwrapped", counted_fetch)
    monkeypatch.setattr("antiphon.gateway.prepare_turn.prepare_data", counted_preparation)
    timings = replace(BACKGROUND_TIMINGS, flush_interval=60.0)
    with laboratory(postgres_server.fresh_url(), background_timings=timings) as lab:
        assert lab.wait(lab.begin())["status"] == "completed"
    assert statements == [ENQUEUE_WORK, CLAIM_WORK, FINISH_WORK]
    assert len(bodies) == 1


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_response_that_is_queued_during_a_claim_is_prepared_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """The claim begins before the response is queued, and returns it."""
    url = postgres_server.fresh_url() if kind == "postgres" else f"sqlite:///{tmp_path}/a.db"
    bodies: list[bytes] = []

    async def counted_preparation(body: ClientBody, host: Any) -> TurnData:
        bodies.append(body.content)
        return await prepare_data(body, host)

    monkeypatch.setattr("antiphon.gateway.prepare_turn.prepare_data", counted_preparation)
    claim = Stall("claim")
    claim.is_on = True
    with laboratory(url, open_store=claim.open) as lab:
        assert claim.reached.wait(60)
        id = lab.begin()
        claim.let_go()
        assert lab.wait(id)["status"] == "completed"
    assert len(bodies) == 1


def test_input_is_stored_once() -> None:
    url = postgres_server.fresh_url()
    gate = Gate()
    text = "x" * 10_000
    with laboratory(url, says={text: turn(testing.wait(gate), testing.text("Hello."))}) as lab:
        id = lab.begin(input=[{"role": "user", "content": text}])
        gate.wait_reached()
        assert int(postgres_server.sql("SELECT octet_length(request) FROM antiphon_work", url)) < 200
        gate.open()
        assert lab.wait(id)["status"] == "completed"


def test_new_work_is_run_beside_work_that_is_claimed_again(tmp_path: Path) -> None:
    """The lease of the first response has expired, so one claim returns it again, before the second response."""
    timings = BackgroundTimings(lease=0.001, heartbeat=3600.0, poll_interval=3600.0, flush_interval=0.01)
    with laboratory(f"sqlite:///{tmp_path}/a.db", background_timings=timings) as lab:
        gate = lab.block(1)
        assert lab.wait(lab.begin())["status"] == "completed"
        gate.open()
        assert lab.asked("block") == 1


def test_leases_are_renewed_after_idle_heartbeats(tmp_path: Path) -> None:
    store = Fails()
    with laboratory(f"sqlite:///{tmp_path}/a.db", open_store=store.open) as lab:
        until(lambda: store.asked["claim"] > 5)  # polls, which are as frequent as heartbeats
        lab.block(1)
        until(lambda: store.asked["renew"] > 1)


def test_leases_are_renewed_after_the_storage_was_unavailable(tmp_path: Path) -> None:
    store = Fails()
    with laboratory(f"sqlite:///{tmp_path}/a.db", open_store=store.open) as lab:
        store.raises["renew"] = [StorageUnavailable("the storage is unavailable")]
        lab.block(1)
        until(lambda: store.asked["renew"] > 2)
        assert "cannot renew leases" in lab.gateway.written
