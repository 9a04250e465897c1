"""`trace/reader`: lookup of a trace, and errors for unreadable ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.trace.folder import trace_file_name, write_file
from antiphon.trace.reader import TraceError, list_traces, read_trace
from antiphon.trace.records import (
    RawData,
    TraceRecord,
    TraceSummary,
    UpstreamHead,
    UpstreamPiece,
    UpstreamRequest,
    encode_record,
)

DEAD = b'{"kind":"summary"'


def summary(id: str, time: float = 1.0, format: int = 1) -> TraceSummary:
    return TraceSummary(
        at=0.0,
        format=format,
        id=id,
        time=time,
        duration=1.0,
        model="m",
        upstream="lab",
        status=200,
        losses=0,
        error=None,
    )


def put(folder: Path, id: str, time: float = 1.0, lines: list[bytes] | None = None) -> None:
    write_file(folder, trace_file_name(id, time), lines if lines is not None else [encode_record(summary(id, time))])


def put_records(folder: Path, *records: TraceRecord) -> None:
    put(folder, "req_1", lines=[encode_record(record) for record in (summary("req_1"), *records)])


def refusal(folder: Path, id: str) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(folder, id)
    return str(caught.value).replace(str(folder), "FOLDER")


@pytest.mark.parametrize("wanted", ["req_abc1", "req_abc", "abc", "last"])
def test_read_trace_accepts_id_prefix_and_last(tmp_path: Path, wanted: str) -> None:
    put(tmp_path, "req_xyz", 1.0)
    put(tmp_path, "req_abc1", 2.0)
    assert read_trace(tmp_path, wanted).id == "req_abc1"


def test_read_trace_prefers_a_whole_id_over_a_prefix(tmp_path: Path) -> None:
    put(tmp_path, "req_a")
    put(tmp_path, "req_ab", 2.0)
    assert read_trace(tmp_path, "req_a").id == "req_a"


def test_read_trace_prefers_the_newer_of_two_equal_ids(tmp_path: Path) -> None:
    put(tmp_path, "req_a", 1.0)
    put(tmp_path, "req_a", 2.0)
    assert read_trace(tmp_path, "req_a").summary.time == 2.0


def test_read_trace_refuses_an_unknown_id(tmp_path: Path) -> None:
    assert refusal(tmp_path, "x") == "there are no traces in FOLDER; `antiphon serve --trace DIR` writes them"
    put(tmp_path, "req_a")
    assert (
        refusal(tmp_path, "x")
        == "no trace in FOLDER has an id that begins with 'x'; `antiphon trace list` lists all traces"
    )


def test_read_trace_refuses_an_ambiguous_prefix(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, f"req_{number}", float(number))
    assert refusal(tmp_path, "req") == "3 traces have an id that begins with 'req': req_0, req_1, req_2"
    put(tmp_path, "req_3", 3.0)
    assert refusal(tmp_path, "req") == "4 traces have an id that begins with 'req': req_0, req_1, req_2, …"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "line 1: not a trace record"),
        ([DEAD], "line 1: not a trace record"),
        ([encode_record(UpstreamPiece(at=0.0, data=RawData(b"")))], "the first line is not a trace summary"),
        ([encode_record(summary("req_a")), DEAD], "line 2: not a trace record"),
        ([encode_record(summary("req_a", format=9)), b'{"kind":"new"}'], "has format 9; expected format 1"),
    ],
)
def test_invalid_trace_is_refused_with_its_line(tmp_path: Path, lines: list[bytes], expected: str) -> None:
    put(tmp_path, "req_a", lines=lines)
    assert expected in refusal(tmp_path, "req_a")


def test_truncated_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / trace_file_name("req_a", 1.0)).write_bytes(encode_record(summary("req_a")))
    assert "the file was truncated" in refusal(tmp_path, "req_a")


def test_unreadable_trace_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / trace_file_name("req_a", 1.0)).mkdir()
    assert refusal(tmp_path, "req_a").endswith("cannot read the file: Is a directory")


def test_list_traces_includes_unreadable_traces(tmp_path: Path) -> None:
    put(tmp_path, "req_a", 1.0)
    put(tmp_path, "req_b", 2.0, [DEAD])
    (tmp_path / trace_file_name("req_c", 3.0)).mkdir()
    (tmp_path / trace_file_name("req_d", 4.0)).symlink_to(tmp_path / "swept")
    (tmp_path / "notes.txt").write_text("not ours")
    assert [(each.id, each.time, each.error) for each in list_traces(tmp_path)] == [
        ("req_a", 1.0, None),
        ("req_b", 2.0, "cannot be read"),
        ("req_c", 3.0, "cannot be read"),
    ]


def test_trace_of_a_retried_request_has_the_last_answer(tmp_path: Path) -> None:
    sent = UpstreamRequest(at=0.0, method="POST", url="http://lab", headers={}, body=RawData(b"{}"))
    put_records(
        tmp_path,
        sent,
        UpstreamHead(at=0.0, status=503, headers={}),
        UpstreamPiece(at=0.0, data=RawData(b"first")),
        sent,
        UpstreamHead(at=0.0, status=200, headers={}),
        UpstreamPiece(at=0.0, data=RawData(b"second")),
    )
    read = read_trace(tmp_path, "last")
    assert [piece.data.raw for piece in read.upstream_pieces] == [b"second"]
    assert read.upstream_head is not None
    assert read.upstream_head.status == 200
    assert read.client_request is None
    assert read.client_pieces == []
    assert len(read.losses) == 0
