"""`ResponseBuilder` and the integration object: the examples of the document, and their edge cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.errors import ApiError, ConfigError, InvalidTransition
from antiphon.producer import (
    AgentMessageItem,
    AgentUsage,
    CallbackEmitter,
    Emitter,
    EventCollector,
    FileChangeItem,
    ItemCompleted,
    ItemStarted,
    NullEmitter,
    OpenResponsesConfig,
    OpenResponsesIntegration,
    ReasoningItem,
    ResponseBuilder,
    SseEmitter,
    ThreadEvent,
    ThreadStarted,
    TurnCompleted,
    TurnStarted,
)
from antiphon.protocol.events import TYPE_OF_EVENT, StreamEvent, TerminalEvent
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.open_items import type_of

pytestmark = pytest.mark.without_coverage
TURN: list[ThreadEvent] = [
    ThreadStarted(thread_id="thread_1"),
    TurnStarted(),
    ItemCompleted(item=ReasoningItem(id="0", text="Hm.")),
    ItemCompleted(item=FileChangeItem(id="1", changes=[{"path": "src/main.rs", "kind": "update"}])),
    ItemStarted(item=AgentMessageItem(id="2", text="Do")),
    ItemCompleted(item=AgentMessageItem(id="2", text="Done.")),
    TurnCompleted(usage=AgentUsage(input_tokens=1000, cached_input_tokens=500, output_tokens=200)),
]


def test_builder_emits_to_the_emitter_of_each_call() -> None:
    """B-5, B-2: to a collecting, a callback, an SSE and a null emitter alike."""
    builder, collector = ResponseBuilder("gpt-5"), EventCollector()
    frames: list[bytes] = []
    received: list[StreamEvent] = []
    emitters: list[Emitter] = [collector, CallbackEmitter(received.append), SseEmitter(frames.append), NullEmitter()]
    for at, event in enumerate(TURN):
        builder.process_event(event, emitters[min(at, 3)] if at < 6 else SseEmitter(frames.append))
    assert [TYPE_OF_EVENT[type(event)] for event in collector.events] == ["response.created", "response.in_progress"]
    assert received == []
    assert frames[0].startswith(b"event: response.output_item.added\n")
    assert frames[-1] == b"data: [DONE]\n\n"
    response = builder.response()
    assert (response.model, response.status) == ("gpt-5", "completed")
    assert response.usage is not None
    assert response.usage.total_tokens == 1200
    assert [type_of(item) for item in response.output] == ["reasoning", "vtcode:file_change", "message"]
    assert list(builder.losses) == []


def test_builder_can_be_finished_before_its_turn() -> None:
    """B-4: completed, or failed with an error."""
    for error, status in ((None, "completed"), (ApiError("cut", code="cancelled"), "failed")):
        builder, collector = ResponseBuilder("gpt-5"), EventCollector()
        for event in TURN[:-2]:
            builder.process_event(event, collector)
        builder.finish(collector, error)
        builder.finish(collector, error)
        assert builder.response().status == status
        assert find_violations(collector.events) == []
        assert sum(isinstance(event, TerminalEvent) for event in collector.events) == 1


def test_integration_calls_its_callback_and_returns_the_response(tmp_path: Path) -> None:
    """B-8: as in the document, with the switches of a file."""
    file = tmp_path / "vtcode.toml"
    file.write_text("[agent.open_responses]\nenabled = true\ninclude_extensions = false\n")
    integration = OpenResponsesIntegration.from_toml(file)
    received: list[StreamEvent] = []
    integration.set_callback(received.append)
    integration.start_response("gpt-5")
    for event in TURN:
        integration.process_event(event)
    response = integration.finish_response()
    assert response is not None
    assert [type_of(item) for item in response.output] == ["reasoning", "message"]
    assert find_violations(received) == []
    assert integration.finish_response() is None


def test_disabled_integration_does_nothing() -> None:
    """B-8: `enabled` is false by default."""
    integration = OpenResponsesIntegration()
    received: list[StreamEvent] = []
    integration.set_callback(received.append)
    integration.start_response("gpt-5")
    for event in TURN:
        integration.process_event(event)
    assert integration.finish_response() is None
    assert received == []


def test_integration_without_events_returns_a_response() -> None:
    """B-8: `emit_events`."""
    integration = OpenResponsesIntegration(OpenResponsesConfig(enabled=True, emit_events=False), slug="acme")
    received: list[StreamEvent] = []
    integration.set_callback(received.append)
    integration.start_response("gpt-5")
    integration.process_event(TURN[3])
    integration.set_callback(None)
    response = integration.finish_response()
    assert received == []
    assert response is not None
    assert [type_of(item) for item in response.output] == ["acme:file_change"]


def test_integration_refuses_overlapping_responses() -> None:
    """B-1."""
    integration = OpenResponsesIntegration(OpenResponsesConfig(enabled=True))
    with pytest.raises(InvalidTransition, match="call start_response before process_event"):
        integration.process_event(TURN[0])
    integration.start_response("gpt-5")
    with pytest.raises(InvalidTransition, match="finish it before the next one starts"):
        integration.start_response("gpt-5")


def test_integration_reads_toml_text_and_files(tmp_path: Path) -> None:
    """B-8: a `str` is TOML text, a `Path` is a file."""
    text = "[agent.open_responses]\nenabled = true\n"
    file = tmp_path / "vtcode.toml"
    file.write_text(text)
    for toml in (text, file):
        integration = OpenResponsesIntegration.from_toml(toml)
        integration.start_response("m")
        assert integration.finish_response() is not None
    with pytest.raises(ConfigError, match="the TOML text, line 2"):
        OpenResponsesIntegration.from_toml("[agent.open_responses]\nenable = true\n")
    with pytest.raises(ConfigError, match="cannot read the file"):
        OpenResponsesIntegration.from_toml(tmp_path / "none.toml")
