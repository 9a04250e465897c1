"""Incomplete answers of servers, and sealed reasoning (B-9, API-6, RSN-2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.client.conversing import client_of

from antiphon import testing
from antiphon.client.response_decoding import NumberedEvents
from antiphon.client.server import server_at
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.dialects.common.server_turn import StreamReader
from antiphon.errors import ApiError
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import Reasoning
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.request import Request
from antiphon.sse import Frame
from antiphon.testing import SSE_HEAD, ChatServer, GeminiServer, MessagesServer, ResponsesServer, turn

pytestmark = pytest.mark.io
RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
STRICT: dict[str, type[Any]] = {
    "chat": ChatServer,
    "responses": ResponsesServer,
    "messages": MessagesServer,
    "gemini": GeminiServer,
}


def frames(*events: dict[str, Any]) -> Any:
    """A stream of exactly these events."""
    body = b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events)
    return testing.exactly(SSE_HEAD, body, testing.end("fin"))


def test_incomplete_stream_is_normalized_and_keeps_its_id() -> None:
    """B-9: one sequence number for all events, no indexes, no `added` events, an incomplete response object."""
    sent_events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp_poor", "created_at": 1700000000.0, "model": "small"}},
        {"type": "response.output_text.delta", "item_id": "m", "delta": "Hel", "sequence_number": 0},
        {"type": "response.output_text.delta", "item_id": "m", "delta": "lo.", "sequence_number": 0},
        {"type": "response.completed", "response": {"status": "completed"}},
    ]
    with (
        ResponsesServer([frames(*sent_events)]) as server,
        client_of(server.base_url) as client,
        client.stream("Hi.") as stream,
    ):
        events = list(stream)
    assert find_violations(events) == []
    response = stream.response
    assert (response.id, response.created_at, response.model) == ("resp_poor", 1700000000, "small")
    assert stream.text == "Hello."


@pytest.mark.parametrize(("fields", "wanted"), [({"completed_at": 1700000005.5}, True), ({}, False)])
def test_completed_at_of_the_server_is_kept_if_valid(fields: dict[str, Any], wanted: bool) -> None:
    """B-9: the time is the server's, not the time of reading."""
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp_poor"}},
        {"type": "response.output_text.delta", "item_id": "m", "delta": "Hello."},
        {"type": "response.completed", "response": {"status": "completed", **fields}},
    ]
    with ResponsesServer([frames(*events)]) as server, client_of(server.base_url) as client:
        response = client.stream("Hi.").final()
    assert (response.completed_at == 1700000005) is wanted
    assert response.completed_at is not None


@pytest.mark.parametrize("dialect", ["responses", "chat", "messages", "gemini"])
def test_recorded_streams_are_decoded_to_conformant_events(dialect: Any) -> None:
    """B-9: complete and incomplete servers of any dialect; and the snapshot is always the fold of the events so far."""
    recordings = sorted((RECORDINGS / dialect).glob("**/*.sse"))
    assert recordings
    script = [testing.exactly(SSE_HEAD, path.read_bytes(), testing.end("fin")) for path in recordings]
    with STRICT[dialect](script) as server, client_of(server.origin, dialect=dialect, key="k") as client:
        for path in recordings:
            events: list[StreamEvent] = []
            with client.stream("Hi.", max_output_tokens=4096) as stream:
                for event in stream:
                    events.append(event)
                    if len(events) in (2, 7):
                        assert stream.response.status in ("queued", "in_progress", "completed", "failed", "incomplete")
            assert find_violations(events) == [], path.name
            assert fold_events(events) == stream.response, path.name
            assert (stream.response.status == "failed") == (stream.error is not None), path.name


def test_incomplete_plain_answer_is_normalized_and_keeps_its_id() -> None:
    answer = {
        "id": "resp_poor",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "text", "text": "Hello."}]}],
    }
    with ResponsesServer([testing.whole(answer)]) as server, client_of(server.base_url) as client:
        response = client.create("Hi.")
    assert (response.id, response.output_text, response.status) == ("resp_poor", "Hello.", "completed")


@pytest.mark.parametrize(
    "body",
    [
        b"data: nonsense\n\n",
        b"data: []\n\n",
        b'data: {"response": 7, "sequence_number": "x"}\n\n',
        b"",
        b": nothing\n\n",
    ],
)
def test_invalid_stream_ends_with_an_error(body: bytes) -> None:
    with (
        ResponsesServer([testing.exactly(SSE_HEAD, body, testing.end("fin"))]) as server,
        client_of(server.base_url) as client,
    ):
        with client.stream("Hi.") as stream:
            assert stream.error is None
            assert len(stream.losses) == 0
            events = list(stream)
        assert find_violations(events) == []
        with pytest.raises(ApiError):
            stream.final()


def test_failed_response_with_invalid_status_is_failed() -> None:
    events = [{"type": "response.failed", "response": {"status": 7}}]
    with ResponsesServer([frames(*events)]) as server, client_of(server.base_url) as client:
        with client.stream("Hi.") as stream:
            list(stream)
        assert stream.response.status == "failed"


@pytest.mark.parametrize("streams", [False, True])
def test_sealed_reasoning_returns_to_its_server_unchanged(streams: bool) -> None:
    """RSN-2: in between it names its maker, so that it is sent to no other server."""
    thinking = turn(testing.reasoning("Hm.", signature="sealed-by-the-server"), testing.text("Yes."))
    with ResponsesServer([thinking, turn(testing.text("Still."))]) as server, client_of(server.base_url) as client:
        settings: dict[str, Any] = {"include": ["reasoning.encrypted_content"], "store": False}
        first = client.stream("Hi.", **settings).final() if streams else client.create("Hi.", **settings)
        [reasoning] = [item for item in first.output if isinstance(item, Reasoning)]
        assert isinstance(reasoning.encrypted_content, str)
        envelope = unseal_reasoning(reasoning.encrypted_content)
        assert envelope is not None
        sealed = envelope.content["encrypted_content"]
        client.create(
            [{"role": "user", "content": "Hi."}, *first.output, {"role": "user", "content": "And?"}],
            **settings,
        )
        sent = [item for item in server.received[1].json["input"] if item["type"] == "reasoning"]
        assert [item["encrypted_content"] for item in sent] == [sealed]
        assert not server.refusals


def test_repeated_events_after_a_reconnect_are_dropped() -> None:
    """B-9: by the server's sequence numbers, not by ours."""
    events = NumberedEvents(server_at("http://lab", None), Request(), tracks_numbers=True)
    created = Frame("", b'{"type":"response.created","sequence_number":3,"response":{"id":"resp_1"}}')
    assert len(events.feed(created)) == 1
    assert events.mark_reconnect() == 3
    assert events.feed(created) == []
    assert (events.id, events.last_number) == ("resp_1", 3)
    assert events.feed(Frame("", b'{"type":"response.output_text.delta","sequence_number":4,"delta":"x"}')) != []


def test_failed_response_without_error_raises() -> None:
    with ResponsesServer([turn(testing.text("x"))]) as server, client_of(server.base_url) as client:
        whole = client.create("Hi.")
    body = msgspec.json.decode(msgspec.json.encode(whole)) | {"status": "failed", "error": None}
    with ResponsesServer([testing.whole(body)]) as server, client_of(server.base_url) as client:
        with pytest.raises(ApiError, match="the response failed"):
            client.create("Hi.")


@pytest.mark.parametrize("dialect", STRICT)
def test_endless_stream_ends_as_incomplete_at_the_limit(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, *other_defaults = StreamReader.__init__.__defaults__ or ()
    monkeypatch.setattr(StreamReader.__init__, "__defaults__", (OutputLimits(max_bytes=1000), *other_defaults))
    answer = turn(testing.text(*["word "] * 1000))
    with (
        STRICT[dialect]([answer]) as server,
        client_of(server.base_url, dialect=dialect) as client,
        client.stream("Hi.") as stream,
    ):
        events = list(stream)
    assert find_violations(events) == []
    assert stream.response.status == "incomplete"
    assert stream.response.incomplete_details is not None
    assert stream.response.incomplete_details.reason == "max_output_bytes"
