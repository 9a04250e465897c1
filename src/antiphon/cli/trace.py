"""`antiphon trace`: list the traces of requests, show one in order of time, or replay one."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO, assert_never

import msgspec

from antiphon.cli.exits import FAILED, OK, InvalidUsage
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import TextStyle, TextStyler, one_line, printable, printable_json
from antiphon.config import find_config, load_config
from antiphon.gateway.replay import NotReplayable, ReplayResult, replay_trace
from antiphon.ops.line_width import cut_text, terminal_width
from antiphon.protocol.codec import check_nesting
from antiphon.trace.reader import RecordedTrace, TraceError, list_traces, no_traces_message, read_trace
from antiphon.trace.records import (
    AnyTraceRecord,
    ClientHead,
    ClientPiece,
    ClientRequest,
    HubRequest,
    LossList,
    OmittedData,
    Route,
    TraceNote,
    TraceSummary,
    UpstreamHead,
    UpstreamPiece,
    UpstreamRequest,
    encode_record,
)


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "trace",
        help=summary,
        description="Lists, shows and replays the traces that `antiphon serve --trace DIR` writes.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_action(actions, "list", "list all traces, newest last")
    show = _add_action(actions, "show", "show one trace, from the client's request to the answer", has_id=True)
    show.add_argument("--raw", action="store_true", help="print the lines of the file unchanged")
    _add_action(
        actions,
        "replay",
        "translate a recorded request and its answer again, offline, and compare the result",
        has_id=True,
    )


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> int:
    folder = trace_folder(args.dir, environ, cwd or Path.cwd())
    try:
        match args.action:
            case "list":
                _write_list(folder, out, err)
                return OK
            case "show":
                _show(read_trace(folder, args.id), out, TextStyler(out, environ), is_raw=args.raw)
                return OK
            case _:
                return _replay(read_trace(folder, args.id), out, err)
    except (TraceError, NotReplayable) as error:
        raise InvalidUsage(str(error)) from None


def _add_action(actions: Any, name: str, summary: str, *, has_id: bool = False) -> argparse.ArgumentParser:
    action: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", epilog=EPILOG, **HELP_FORMAT
    )
    if has_id:
        action.add_argument(
            "id", metavar="ID", help="the id of a request (x-request-id), the beginning of an id, or `last`"
        )
    action.add_argument(
        "--dir", metavar="DIR", type=Path, help="the folder of traces (default: the configured folder, else `traces`)"
    )
    return action


def trace_folder(explicit_folder: Path | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the folder of traces: the given one, the configured one, or `traces`."""
    if explicit_folder is not None:
        return cwd / explicit_folder
    file = find_config(None, environ, cwd)
    configured_folder = load_config(file, environ).trace.dir if file else None
    return cwd / (configured_folder or "traces")


# list


def _write_list(folder: Path, out: TextIO, err: TextIO) -> None:
    summaries = list_traces(folder)
    if not summaries:
        err.write(f"{no_traces_message(folder)}\n")
        return
    is_terminal = out.isatty()
    length = _unique_length([summary.id for summary in summaries]) if is_terminal else None
    rows = [HEADINGS, *(_summary_row(summary, length) for summary in summaries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        out.write((cut_text(line, terminal_width(out)) if is_terminal else line) + "\n")


def _unique_length(ids: list[str]) -> int:
    """The number of characters from which the beginnings of all ids differ."""
    count = len(set(ids))
    longest = max(map(len, ids))
    lengths = range(min(MIN_ID_LENGTH, longest), longest)
    return next((length for length in lengths if len({id[:length] for id in ids}) == count), longest)


def _summary_row(summary: TraceSummary, id_length: int | None) -> tuple[str, ...]:
    """The cells of a trace. On a terminal, with a length of ids, the time has no year."""
    time = _format_time(summary.time)
    return (
        time if id_length is None else time.partition("-")[2],
        one_line(summary.id)[:id_length],
        one_line(summary.model or "-"),
        one_line(summary.upstream or "-"),
        str(summary.status or "-"),
        f"{summary.duration:.3f} s",
        str(summary.losses),
        one_line(summary.error or "-"),
    )


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


# show


def _show(trace: RecordedTrace, out: TextIO, paint: TextStyler, *, is_raw: bool) -> None:
    if is_raw:
        out.writelines(f"{printable_json(encode_record(record))}\n" for record in (trace.summary, *trace.records))
        return
    summary = trace.summary
    out.write(f"{paint('bold', one_line(trace.id))}  {_format_time(summary.time)}  {summary.duration:.3f} s\n")
    for section in _sections(trace.records):
        _show_section(section, out, paint)
    if len(trace.losses):
        out.write(f"\n{paint('yellow', 'lost')}\n")
        _show_text(printable("\n".join(map(str, trace.losses))), out)


def _sections(records: Iterable[AnyTraceRecord]) -> list[list[AnyTraceRecord]]:
    """Group the pieces of each direction; every other record is a section of its own."""
    sections: list[list[AnyTraceRecord]] = []
    pieces: dict[type, list[AnyTraceRecord]] = {}
    for record in records:
        if not isinstance(record, UpstreamPiece | ClientPiece):
            sections.append([record])
            if isinstance(record, UpstreamRequest):
                pieces.pop(UpstreamPiece, None)  # a retry: another answer follows
        elif type(record) in pieces:
            pieces[type(record)].append(record)
        else:
            pieces[type(record)] = [record]
            sections.append(pieces[type(record)])
    return sections


def _show_section(section: list[AnyTraceRecord], out: TextIO, paint: TextStyler) -> None:
    def title(text: str, style: TextStyle = "bold") -> None:
        out.write(f"\n{paint('dim', f'{first.at:9.3f} s')}  {paint(style, one_line(text))}\n")

    first = section[0]
    match first:
        case ClientRequest():
            title(f"request of the client: {first.method} {first.path}")
            _show_headers(first.headers, out)
            _show_text(_format_json(first.body.raw), out)
        case HubRequest():
            title("the request in the hub format")
            _show_text(_format_json(first.body.raw), out)
        case Route():
            mode = "streamed" if first.stream else "not streamed"
            title(
                f"route: upstream {first.upstream}, model {first.model}, dialect {first.dialect}, profile "
                f"{first.profile}, {mode}"
            )
        case UpstreamRequest():
            title(f"request to the upstream: {first.method} {first.url}")
            _show_headers(first.headers, out)
            _show_text(_format_json(first.body.raw), out)
        case UpstreamHead():
            title(f"response of the upstream: {first.status}")
            _show_headers(first.headers, out)
        case ClientHead():
            title(f"response to the client: {first.status}")
            _show_headers(first.headers, out)
        case UpstreamPiece():
            _show_pieces(
                "received from the upstream:",
                [record for record in section if isinstance(record, UpstreamPiece)],
                title,
                out,
            )
        case ClientPiece():
            _show_pieces(
                "sent to the client:", [record for record in section if isinstance(record, ClientPiece)], title, out
            )
        case TraceNote():
            if first.value is not None:
                title(f"{first.name}: {first.value}")
        case OmittedData():
            missing = ", ".join(f"{count} bytes of {kind}" for kind, count in sorted(first.missing.items()))
            title(f"too large: {missing} are not in the trace", "red")
        case TraceSummary() | LossList():
            pass  # shown as the heading and at the end
        case _ as never:
            assert_never(never)


def _show_pieces(
    heading: str, pieces: list[UpstreamPiece] | list[ClientPiece], title: Callable[[str], None], out: TextIO
) -> None:
    data = b"".join(piece.data.raw for piece in pieces)
    piece_count = "1 piece" if len(pieces) == 1 else f"{len(pieces)} pieces, the last at {pieces[-1].at:.3f} s"
    title(f"{heading} {len(data)} bytes in {piece_count}")
    _show_text(_format_json(data), out)


def _show_headers(headers: Mapping[str, str], out: TextIO) -> None:
    out.writelines(f"    {one_line(name)}: {one_line(value)}\n" for name, value in headers.items())


def _show_text(text: str, out: TextIO) -> None:
    out.writelines(f"    {line}\n" for line in text.rstrip("\n").split("\n"))


def _format_json(data: bytes) -> str:
    """Indent JSON, leave other text unchanged, and remove control characters."""
    if data[:1] in (b"{", b"["):
        with contextlib.suppress(msgspec.DecodeError):
            check_nesting(data)
            data = msgspec.json.format(data, indent=2)
    return printable(data.decode("utf-8", "replace"))


# replay


def _replay(trace: RecordedTrace, out: TextIO, err: TextIO) -> int:
    result = replay_trace(trace)
    out.write(printable(result.answer.decode("utf-8", "replace")).rstrip("\n") + "\n")
    out.flush()
    err.writelines(f"{line}\n" for line in _describe_result(result))
    return FAILED if result.differences else OK


def _describe_result(result: ReplayResult) -> list[str]:
    if not result.differences:
        scope = " up to the end of the recorded answer, which is incomplete" if result.is_cut_short else ""
        return [f"identical to the recording{scope}"]
    return [
        line
        for difference in result.differences
        for line in (
            f"{difference.what} differs:",
            f"  recorded: … {one_line(difference.recorded)}",
            f"  now:      … {one_line(difference.made)}",
        )
    ]


MIN_ID_LENGTH: Final = len("req_") + 6
HEADINGS: Final = ("TIME", "ID", "MODEL", "UPSTREAM", "STATUS", "DURATION", "LOSSES", "ERROR")
EPILOG: Final = """examples:
  antiphon trace list
  antiphon trace show last
  antiphon trace replay req_3f

exit codes:
  0    success; a replay is identical to the recording
  1    a replay differs from the recording
  2    the trace does not exist, or cannot be read or replayed"""
