"""The laws of every dialect and every recording. A new dialect is one line in `DIALECTS`; the laws then apply to it.

(a) events pass the grammar; (e) a stream that is truncated anywhere ends once, with nothing left open. (b) is in
`test_cuts.py`. (c) and (d) depend on what a dialect can express, and are in each dialect's own tests."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects import chat, gemini, messages, ollama, responses
from antiphon.dialects.dialect import FRAME_DECODERS, Framing, ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.protocol.events import StreamEvent, TerminalEvent
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.tools import CustomTool, FunctionToolParam, NamespaceTool, ToolParam

DIALECTS: dict[ServerDialectName, ModuleType] = {
    "chat": chat,
    "gemini": gemini,
    "messages": messages,
    "ollama": ollama,
    "responses": responses,
}
SUFFIXES: dict[Framing, str] = {"sse": "sse", "json_lines": "ndjson"}
NAMES = {
    "request_to_hub": ["body"],
    "request_from_hub": ["request", "wire"],
    "EventsToHub": ["request", "initial_response", "stamps", "wire"],
    "EventsFromHub": ["request"],
    "response_to_hub": ["body", "request", "initial_response", "stamps", "wire"],
    "response_from_hub": ["response", "request"],
    "error_to_hub": ["status", "headers", "body"],
    "error_from_hub": ["error"],
}
FOLDER = Path(__file__).parents[1] / "recordings"
# A request that offers every kind of tool, so that calls of any of them are recognised.
TOOLS: list[ToolParam] = [
    FunctionToolParam(name="get_weather"),
    CustomTool(name="apply_patch"),
    NamespaceTool(name="files", tools=[FunctionToolParam(name="read"), CustomTool(name="edit")]),
]
REQUEST = Request(model="m", input="hi", tools=TOOLS)


class Recording(NamedTuple):
    dialect: ServerDialectName
    path: Path

    def __str__(self) -> str:
        return f"{self.dialect}/{self.path.stem}"


RECORDINGS = [
    Recording(name, path)
    for name in DIALECTS
    for path in sorted((FOLDER / name).glob(f"*.{SUFFIXES[SERVER_DIALECTS[name].framing]}"))
]
every_recording = pytest.mark.parametrize("recording", RECORDINGS, ids=str)


def frames_of(dialect: ServerDialectName, *pieces: bytes) -> list[sse.Frame]:
    decoder = FRAME_DECODERS[SERVER_DIALECTS[dialect].framing]()
    return [frame for piece in pieces for frame in decoder.feed(piece)] + decoder.finish()


def events_of(dialect: ServerDialectName, frames: list[sse.Frame]) -> list[StreamEvent]:
    initial_response = make_initial_response(REQUEST, id="resp_1", created_at=1)
    to_hub = DIALECTS[dialect].EventsToHub(REQUEST, initial_response, counting_stamps())
    events: list[StreamEvent] = [event for frame in frames for event in to_hub.feed(frame)]
    return events + list(to_hub.finish())


@pytest.mark.parametrize("name", DIALECTS)
def test_dialect_has_the_eight_names_with_the_same_parameters(name: ServerDialectName) -> None:
    for half, parameters in NAMES.items():
        taken = inspect.signature(getattr(DIALECTS[name], half)).parameters.values()
        assert [parameter.name for parameter in taken if parameter.kind is not parameter.KEYWORD_ONLY] == parameters


@pytest.mark.parametrize("name", DIALECTS)
def test_dialect_has_recordings(name: ServerDialectName) -> None:
    assert sum(recording.dialect == name for recording in RECORDINGS) >= 20


@every_recording
def test_recording_passes_the_grammar(recording: Recording) -> None:
    """Law (a): STR-1 … STR-12 and ITEM-2 … ITEM-6, for any server behaviour."""
    assert (
        find_violations(events_of(recording.dialect, frames_of(recording.dialect, recording.path.read_bytes()))) == []
    )


@pytest.mark.without_coverage
@pytest.mark.slow
@every_recording
def test_truncated_recording_ends_once_with_no_open_items(recording: Recording) -> None:
    """Law (e), ITEM-3, STR-7: after any number of bytes; only the set of complete frames differs."""
    data = recording.path.read_bytes()
    for frames in {tuple(frames_of(recording.dialect, data[:place])) for place in range(len(data) + 1)}:
        events = events_of(recording.dialect, list(frames))
        assert find_violations(events) == []
        assert [event for event in events if isinstance(event, TerminalEvent)] == events[-1:]
