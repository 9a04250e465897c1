"""Recorded streams, checked without a server: form, shapes and grammar in one report."""

from __future__ import annotations

import msgspec
import pytest
from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.check.findings import Flaw
from antiphon.check.sse_form import judge_form, parse_blocks
from antiphon.check.stream import judge_stream
from antiphon.errors import UpstreamFault
from antiphon.protocol.emitters import SseEmitter
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.writer import ResponseWriter


def recorded(*pieces: str, fails: bool = False) -> bytes:
    """A stream in the form of a good server."""
    frames: list[bytes] = []
    request = Request(model="m", input="hi", stream=True)
    writer = ResponseWriter(
        make_initial_response(request, id="resp_1", created_at=1), SseEmitter(frames.append), counting_stamps()
    )
    for piece in pieces:
        writer.add_text("m", piece)
    if fails:
        writer.fail(UpstreamFault("no", code="server_error"), None)
    else:
        writer.complete(None)
    return b"".join(frames)


def _rows(flaws: list[Flaw]) -> set[str]:
    return {flaw.row for flaw in flaws}


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_valid_stream_has_no_flaws_with_any_line_ending(ending: bytes) -> None:
    stream = judge_stream(
        b"\xef\xbb\xbf: comment\n\n".replace(b"\n", ending) + recorded("Hel", "lo").replace(b"\n", ending)
    )
    assert stream.flaws == []
    assert stream.response is not None
    assert stream.response.status == "completed"


def test_valid_error_event_has_no_flaws() -> None:
    """STR-8"""
    assert judge_stream(recorded("Hel", fails=True)).flaws == []


def test_unicode_line_separators_in_text_have_no_flaws() -> None:
    assert judge_stream(recorded("a\u2028b", "c\u0085d")).flaws == []


def test_last_event_without_blank_line_is_read() -> None:
    assert judge_stream(recorded("Hel").rstrip(b"\n")).flaws == []


def test_empty_recording_reports_missing_start_and_end() -> None:
    """STR-1, HTTP-4"""
    stream = judge_stream(b"")
    assert (_rows(stream.flaws), stream.response) == ({"HTTP-4", "STR-1"}, None)


def test_same_flaw_in_every_delta_is_reported_once() -> None:
    body = recorded(*"abcdefgh").replace(b',"output_index":0,"content_index":0,"delta"', b',"content_index":0,"delta"')
    flaws = judge_stream(body).flaws
    assert [(flaw.row, flaw.message) for flaw in flaws] == [
        ("STR-3", "response.output_text.delta: output_index is missing: expected an integer")
    ]
    assert '"delta":"a"' in flaws[0].received


def test_undecodable_event_ends_the_grammar_but_not_the_report() -> None:
    """HTTP-3: events after an unreadable event are read, but not checked by the grammar."""
    body = b'event: x\ndata: {"type":5}\n\n' + recorded("Hel")
    stream = judge_stream(body)
    assert _rows(stream.flaws) == {"HTTP-3"}
    assert stream.response is not None


def test_older_error_style_is_reported() -> None:
    """HTTP-4, STR-7, STR-8: a flat error, no response.failed after it, and no [DONE]."""
    flat = {"type": "error", "code": "server_error", "message": "no", "param": None, "sequence_number": 2}
    start = recorded("Hel").split(b"event: response.output_item.added")[0]
    flaws = judge_stream(start + sse.encode_frame("error", msgspec.json.encode(flat))).flaws
    assert _rows(flaws) == {"HTTP-4", "STR-7", "STR-8"}
    assert any("error is missing" in flaw.message for flaw in flaws)


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("response.created", "STR-1"),
        ("response.output_item.added", "STR-2"),
        ("response.output_item.done", "STR-4"),
        ("response.content_part.added", "STR-3"),
        ("response.refusal.delta", "STR-11"),
        ("response.output_text.annotation.added", "STR-11"),
        ("response.function_call_arguments.done", "STR-9"),
        ("response.reasoning_summary_text.delta", "STR-10"),
        ("response.completed", "STR-7"),
        ("error", "STR-8"),
    ],
)
def test_event_without_fields_is_reported_under_its_row(kind: str, row: str) -> None:
    data = msgspec.json.encode({"type": kind, "sequence_number": 0})
    flaws = judge_stream(sse.encode_frame(kind, data) + sse.DONE_FRAME).flaws
    assert [flaw for flaw in flaws if flaw.row == row and flaw.message.startswith(f"{kind}: ")]


def test_event_ids_are_counted_and_comments_ignored() -> None:
    """HTTP-5"""
    blocks = parse_blocks(b'retry: 5\n: hi\nid: 1\nevent: a:b\ndata: {"type":"a:b"}\n\nid\n\ndata: [DONE]\n\n')
    assert [flaw.row for flaw in judge_form(blocks)] == ["HTTP-3", "HTTP-5"]
    assert "2 events have an id: line" in judge_form(blocks)[1].message
