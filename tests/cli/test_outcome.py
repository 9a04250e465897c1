"""What came of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.cli.network import USAGE, says
from tests.generate.events import counting_stamps

from antiphon.cli.outcome import ResponseOutcome
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


def test_a_whole_answer_has_no_fault() -> None:
    outcome = _outcome(_events(says("hello")))
    assert outcome.fault() is None
    assert outcome.usage == USAGE


@pytest.mark.parametrize(
    ("write", "fault"),
    [
        (_refuses, "the model refused"),
        (_is_cut, "the answer is not complete: max_output_tokens"),
        (_fails, "server_error/upstream_disconnected: it went away"),
    ],
)
def test_an_answer_that_is_none_or_not_whole_says_why(write: Callable[[ResponseWriter], None], fault: str) -> None:
    assert _outcome(_events(write)).fault() == fault


def test_a_failure_without_an_error_event_is_told_by_the_response() -> None:
    events = [event for event in _events(_fails) if not isinstance(event, ErrorEvent)]
    assert _outcome(events).fault() == "upstream_disconnected: it went away"


def test_a_stream_that_stops_after_an_error_says_that_error() -> None:
    events = [event for event in _events(_fails) if not isinstance(event, ResponseFailed)]
    assert _outcome(events).fault() == "server_error/upstream_disconnected: it went away"


def test_a_stream_that_just_stops_broke_off() -> None:
    outcome = _outcome(_events(says("hello"))[:-1])
    assert outcome.fault() == "the answer broke off: its end never came"
    assert outcome.usage is None


def test_ends_without_a_reason_are_told_as_such() -> None:
    assert (
        _outcome([ResponseFailed(sequence_number=0, response=INITIAL_RESPONSE)]).fault()
        == "the answer failed, and no reason was given"
    )
    cut = _outcome([ResponseIncomplete(sequence_number=0, response=INITIAL_RESPONSE)])
    assert cut.fault() == "the answer is not complete: no reason was given"
