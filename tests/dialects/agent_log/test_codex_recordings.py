"""Recordings of `codex exec --json` against a scripted server: the laws of every dialect, and the responses."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.generate.events import counting_stamps

from antiphon.dialects.agent_log import EventsToHub
from antiphon.dialects.agent_log.wire import ThreadWire
from antiphon.dialects.common.json_lines import JsonLines
from antiphon.protocol.events import StreamEvent, TerminalEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import FunctionCall, FunctionCallOutput, Message, UnknownItem
from antiphon.protocol.open_items import type_of
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response

FOLDER = Path(__file__).parents[2] / "recordings" / "codex"
RECORDINGS = {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.jsonl"))}
every_recording = pytest.mark.parametrize("name", RECORDINGS)


def codex_log(request: Request) -> EventsToHub:
    initial_response = make_initial_response(request, id="resp_1", created_at=1)
    return EventsToHub(request, initial_response, counting_stamps(), ThreadWire(slug="codex"))


def events_of(*pieces: bytes) -> list[StreamEvent]:
    request = Request(model="codex")
    lines, to_hub = JsonLines(), codex_log(request)
    all_lines = [line for piece in pieces for line in lines.feed(piece)] + lines.finish()
    return [event for line in all_lines for event in to_hub.feed(line)] + to_hub.finish()


def response_of_recording(name: str) -> Response:
    return fold_events(events_of(RECORDINGS[name]))


@every_recording
def test_recording_passes_the_grammar(name: str) -> None:
    """Law (a), B-5."""
    assert find_violations(events_of(RECORDINGS[name])) == []


@every_recording
def test_recording_gives_the_same_events_for_every_split(name: str) -> None:
    """Law (b)."""
    data = RECORDINGS[name]
    whole = events_of(data)
    for place in range(0, len(data), 7):
        assert events_of(data[:place], data[place:]) == whole
    assert events_of(*(data[at : at + 1] for at in range(len(data)))) == whole


@every_recording
def test_truncated_recording_ends_once_with_no_open_items(name: str) -> None:
    """Law (e), ITEM-3, STR-7."""
    data = RECORDINGS[name]
    for place in range(0, len(data), 11):
        events = events_of(data[:place])
        assert find_violations(events) == []
        assert [event for event in events if isinstance(event, TerminalEvent)] == events[-1:]


def test_agent_message_becomes_a_message() -> None:
    response = response_of_recording("text")
    (message,) = response.output
    assert isinstance(message, Message)
    assert message.content[0].text == "Hello there, wörld 👋."  # type: ignore[union-attr]
    assert response.usage is not None
    assert response.usage.input_tokens == 6639


def test_commands_and_file_changes_become_codex_extension_items() -> None:
    """B-3."""
    response = response_of_recording("command_and_patch")
    assert [type_of(item) for item in response.output] == [
        "message", "codex:command_execution", "codex:file_change", "message",
    ]  # fmt: skip
    (failed, _) = response_of_recording("command_fails").output
    assert isinstance(failed, UnknownItem)
    assert (failed.string_member("status"), failed.string_member("aggregated_output")) == ("failed", "no\n")


def test_mcp_tool_call_becomes_a_call_and_its_output() -> None:
    call, output, _ = response_of_recording("mcp_tool_call").output
    assert isinstance(call, FunctionCall)
    assert isinstance(output, FunctionCallOutput)
    assert call.name == "lab__read_mcp_resource"
    assert output.call_id == call.call_id
    assert "first" in str(output.output)


def test_refused_turn_fails_the_response() -> None:
    response = response_of_recording("refused")
    assert response.status == "failed"
    assert response.error is not None
    assert "the model is broken" in response.error.message


def test_line_that_is_no_event_is_a_loss() -> None:
    """F-4."""
    request = Request(model="codex")
    to_hub = codex_log(request)
    assert to_hub.feed(b"Reading from stdin...") == []
    assert [str(loss) for loss in to_hub.losses] == ["stream: a line (it is not an event: Reading from stdin...)"]
    assert to_hub.error is None
    to_hub.finish()
    assert to_hub.error is not None
