"""The outcome of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.cli.network import USAGE, says
from tests.generate.events import counting_stamps

from antiphon.cli.outcome import ResponseOutcome, describe_error
from antiphon.errors import UpstreamFault
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import ErrorEvent, ResponseFailed, ResponseIncomplete, StreamEvent
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.writer import ResponseWriter

INITIAL_RESPONSE = make_initial_response(Request(model="m", input="hi"), id="resp_1", created_at=1)


def _events(write: Callable[[ResponseWriter], None]) -> list[StreamEvent]:
    collector = EventCollector()
    write(ResponseWriter(INITIAL_RESPONSE, collector, counting_stamps()))
    return collector.events


def _outcome(events: Sequence[StreamEvent]) -> ResponseOutcome:
    outcome = ResponseOutcome()
    for event in events:
        outcome.add_event(event)
    return outcome


def _refuses(writer: ResponseWriter) -> None:
    writer.add_refusal("m", "I won't.")
    writer.complete()


def _is_cut(writer: ResponseWriter) -> None:
    writer.add_text("m", "so far")
    writer.end_incomplete("max_output_tokens", USAGE)


def _fails(writer: ResponseWriter) -> None:
    writer.add_text("m", "so far")
    writer.fail(UpstreamFault("it went away", code="upstream_disconnected"))


def test_complete_answer_has_no_fault() -> None:
    outcome = _outcome(_events(says("hello")))
    assert outcome.failure_message() is None
    assert outcome.usage == USAGE


@pytest.mark.parametrize(
    ("write", "fault"),
    [
        (_refuses, "the model refused"),
        (_is_cut, "the answer is incomplete: max_output_tokens"),
        (_fails, "server_error/upstream_disconnected: it went away"),
    ],
)
def test_failed_or_incomplete_answer_has_a_fault_with_its_reason(
    write: Callable[[ResponseWriter], None], fault: str
) -> None:
    assert _outcome(_events(write)).failure_message() == fault


def test_failure_without_error_event_is_read_from_the_response() -> None:
    events = [event for event in _events(_fails) if not isinstance(event, ErrorEvent)]
    assert _outcome(events).failure_message() == "upstream_disconnected: it went away"


def test_stream_that_stops_after_an_error_has_that_fault() -> None:
    events = [event for event in _events(_fails) if not isinstance(event, ResponseFailed)]
    assert _outcome(events).failure_message() == "server_error/upstream_disconnected: it went away"


def test_stream_without_an_end_has_a_fault() -> None:
    outcome = _outcome(_events(says("hello"))[:-1])
    assert outcome.failure_message() == "the answer is incomplete: the stream ended without a terminal event"
    assert outcome.usage is None


def test_end_without_a_reason_has_a_fault_that_says_so() -> None:
    assert (
        _outcome([ResponseFailed(sequence_number=0, response=INITIAL_RESPONSE)]).failure_message()
        == "the answer failed; no reason was given"
    )
    cut = _outcome([ResponseIncomplete(sequence_number=0, response=INITIAL_RESPONSE)])
    assert cut.failure_message() == "the answer is incomplete: no reason was given"


def test_describe_error_removes_control_characters() -> None:
    assert describe_error("a\x1b[2J", None, "b\n\x9bc", "d\x07") == "a[2J: b c (at d)"
