"""Streams that continue over broken connections: no event missing, no event twice (B-9, API-2)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.conversing import Sleeps, asked, breaking, client_of
from tests.faults.invariants import CHUNKED_HEAD
from tests.gateway.in_background import ALICE, Lab, check, laboratory
from tests.running import BOUND
from tests.upstream.scripted import until

from antiphon import testing
from antiphon.client import AsyncClient, Retries, Timeouts
from antiphon.errors import ClientFault, UpstreamFault
from antiphon.protocol.codec import encode
from antiphon.protocol.events import OutputTextDelta, StreamEvent
from antiphon.testing import Gate, ResponsesServer, turn

pytestmark = pytest.mark.io
GOOD = Path(__file__).resolve().parents[1] / "recordings" / "responses" / "good_text_stream.sse"
LONG = [f"word{number} " for number in range(60)]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with laboratory(
        f"sqlite:///{tmp_path}/store.db", says={"long": turn(testing.text(*LONG), testing.usage(5, 60))}
    ) as lab:
        yield lab
        lab.open_gates()


@pytest.mark.parametrize("limits", [[2000, None], [3000, 1500, 2500, 4000, None], [5000, 900, 5000, None]])
def test_background_stream_resumes_after_broken_connections(lab: Lab, limits: list[int | None]) -> None:
    """B-9: no gap and no repetition, event by event as the gateway stored them."""
    sleeps = Sleeps()

    async def work(client: AsyncClient) -> list[StreamEvent]:
        async with client.stream("long", background=True) as stream:
            events = [event async for event in stream]
        assert stream.error is None
        assert stream.text == "".join(LONG)
        return events

    with breaking(lab.gateway.port, limits) as link:
        events = asked(link.url, work, key=ALICE, retries=sleeps.retries(3))
        assert link.connections >= len(limits)
        assert any("starting_after=" in request for request in link.requests)
    check(events)
    stored = lab.events(events[0].response.id)  # type: ignore[union-attr]
    assert [encode(event) for event in events] == [encode(event) for event in stored]


def test_stream_resumes_after_the_last_seen_event(lab: Lab) -> None:
    """B-9: and the snapshot is complete, although the earlier events are not sent again."""
    with client_of(lab.url, key=ALICE) as client:
        with client.stream("long", background=True) as stream:
            seen: list[StreamEvent] = []
            for event in stream:
                seen.append(event)
                if len(seen) == 20:
                    break
        id, last = stream.response.id, seen[-1].sequence_number
        with client.resume(id, after=last) as resumed:
            rest = list(resumed)
        check([*seen, *rest])
        assert resumed.text == "".join(LONG)
        assert list(client.resume(id, after=rest[-1].sequence_number)) == []
        assert client.resume(id).final().output_text == "".join(LONG)


def test_stream_snapshot_is_available_at_any_time(lab: Lab) -> None:
    gate = lab.gate()
    lab.says["half"] = turn(testing.text("one ", "two "), testing.wait(gate), testing.text("three"))
    with client_of(lab.url, key=ALICE) as client, client.stream("half", background=True) as stream:
        for event in stream:
            if type(event) is OutputTextDelta and event.delta == "two ":
                break
        assert (stream.text, stream.response.status) == ("one two ", "in_progress")
        gate.open()
        assert stream.final().output_text == "one two three"


def test_cancelled_response_ends_its_stream_without_an_error(lab: Lab) -> None:
    lab.says["wait"] = turn(testing.text("Well"), testing.wait(lab.gate()), testing.text("."))
    with client_of(lab.url, key=ALICE) as client:
        response = client.create("wait", background=True)
        assert response.status == "queued"
        with client.resume(response.id) as stream:
            for event in stream:
                if type(event) is OutputTextDelta:
                    break
            assert client.cancel(response.id).status == "cancelled"
            rest = list(stream)
        assert stream.response.status == "cancelled"
        assert stream.error is None
        assert stream.final().error is None
        assert rest[-1].sequence_number == lab.events(response.id)[-1].sequence_number
        assert client.retrieve(response.id).status == "cancelled"
        client.delete(response.id)
        with pytest.raises(ClientFault):
            client.retrieve(response.id)


@pytest.mark.parametrize("limit", [10, 350])
def test_exhausted_reconnects_raise_and_the_stream_can_be_resumed_later(lab: Lab, limit: int) -> None:
    """The response itself has not failed: the fault is raised, and no terminal event is invented."""
    sleeps = Sleeps()
    with breaking(lab.gateway.port, [3000, limit]) as link:
        with client_of(link.url, key=ALICE, retries=sleeps.retries(2)) as client:
            seen: list[StreamEvent] = []
            with client.stream("long", background=True) as stream, pytest.raises(UpstreamFault) as caught:
                seen.extend(stream)  # earlier events remain
            assert caught.value.code == "upstream_disconnected"
            id = stream.response.id
    with client_of(lab.url, key=ALICE) as client:
        assert client.resume(id).final().output_text == "".join(LONG)


def test_resume_of_an_unknown_response_raises_not_found(lab: Lab) -> None:
    with client_of(lab.url, key=ALICE) as client, pytest.raises(ClientFault) as caught:
        list(client.resume("resp_nobody"))
    assert caught.value.code == "not_found"


def test_unstored_stream_is_not_requested_again() -> None:
    broken = turn(testing.text("Hel"), testing.end("fin"))
    with ResponsesServer([broken]) as server, client_of(server.base_url, retries=Sleeps().retries()) as client:
        with pytest.raises(UpstreamFault):
            client.stream("Hi.").final()
        assert len(server.received) == 1


def test_silent_background_stream_is_requested_again(lab: Lab) -> None:
    """The response is produced elsewhere and may take its time."""
    gate = lab.gate()
    lab.says["slow"] = turn(testing.text("Well"), testing.wait(gate), testing.text("."))

    async def open_gate(_seconds: float) -> None:
        gate.open()

    retries = Retries(times=9, sleep=open_gate)
    with client_of(lab.url, key=ALICE, retries=retries, timeouts=Timeouts(idle=0.2)) as client:
        assert client.stream("slow", background=True).final().output_text == "Well."


def test_unopened_stream_can_be_closed() -> None:
    with client_of("http://127.0.0.1:9") as client:
        client.stream("Hi.").close()


def test_consecutive_streams_reuse_one_connection() -> None:
    async def work(client: AsyncClient) -> None:
        for _ in range(3):
            assert (await client.stream("Hi.").final()).output_text == "You said: Hi."
            await until(lambda: not client._sender.transport.connections_in_use)
        assert client._sender.transport.open_connections == 1

    with ResponsesServer() as server:
        asked(server.base_url, work)


def test_connection_with_a_late_end_is_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the stream object is already released."""
    monkeypatch.setattr(
        "antiphon.client.event_sources.LINGER_SECONDS", BOUND
    )  # a busy machine needs longer than two seconds to get to the end
    gate = Gate()
    events = GOOD.read_bytes()
    late = testing.exactly(CHUNKED_HEAD, b"%x\r\n%b\r\n" % (len(events), events), testing.wait(gate), b"0\r\n\r\n")

    async def work(client: AsyncClient) -> None:
        assert (await client.stream("Hi.").final()).status == "completed"
        await asyncio.to_thread(gate.wait_reached)
        gc.collect()
        await asyncio.sleep(0.01)
        gate.open()
        await until(lambda: not client._sender.transport.connections_in_use)
        assert client._sender.transport.open_connections == 1

    with ResponsesServer([late]) as server:
        asked(server.base_url, work)


def test_connection_without_an_end_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.client.event_sources.LINGER_SECONDS", 0.0)
    endless = testing.exactly(testing.SSE_HEAD, GOOD.read_bytes(), testing.end("hang"))

    async def work(client: AsyncClient) -> None:
        assert (await client.stream("Hi.").final()).status == "completed"
        await until(lambda: not client._sender.transport.open_connections)

    with ResponsesServer([endless]) as server:
        asked(server.base_url, work)


def test_stream_can_be_reopened_after_a_failed_open() -> None:
    with (
        ResponsesServer([testing.error(503), turn(testing.text("Hello."))]) as server,
        client_of(server.base_url) as client,
    ):
        stream = client.stream("Hi.")
        with pytest.raises(UpstreamFault):
            stream.__enter__()
        assert stream.final().output_text == "Hello."


def test_closing_a_stream_early_disconnects_from_the_server(lab: Lab) -> None:
    lab.says["wait"] = turn(testing.text("Well"), testing.wait(lab.gate()))
    with client_of(lab.url, key=ALICE) as client:
        with client.stream("wait") as stream:
            next(iter(stream))
        lab.upstream.wait_disconnected()
        with pytest.raises(UpstreamFault, match="closed before its end"):
            stream.final()
