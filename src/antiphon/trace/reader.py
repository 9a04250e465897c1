"""Reads traces: the list, and a single trace.

Errors name the file and the line. Files without the name of a trace are ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.protocol.losses import Loss
from antiphon.trace.folder import TraceFile, file_id, trace_files
from antiphon.trace.records import (
    FORMAT,
    AnyTraceRecord,
    ClientHead,
    ClientPiece,
    ClientRequest,
    HubRequest,
    LossList,
    OmittedData,
    Route,
    TraceNote,
    TraceRecord,
    TraceSummary,
    UpstreamHead,
    UpstreamPiece,
    UpstreamRequest,
    decode_record,
)

LAST_TRACE: Final = "last"  # selects the newest trace
_Kind = TypeVar("_Kind", bound=TraceRecord)


class TraceError(AntiphonError):
    """A trace that does not exist, has an ambiguous name, or cannot be read."""


class RecordedTrace(Struct, frozen=True):
    """One trace. For records that occur more than once, such as the request of a retry, properties return the last."""

    summary: TraceSummary
    records: list[AnyTraceRecord]  # in chronological order, without the summary

    @property
    def id(self) -> str:
        return self.summary.id

    @property
    def client_request(self) -> ClientRequest | None:
        return self._last_record(ClientRequest)

    @property
    def hub_request(self) -> HubRequest | None:
        return self._last_record(HubRequest)

    @property
    def route(self) -> Route | None:
        return self._last_record(Route)

    @property
    def upstream_request(self) -> UpstreamRequest | None:
        return self._last_record(UpstreamRequest)

    @property
    def upstream_head(self) -> UpstreamHead | None:
        return self._last_record(UpstreamHead)

    @property
    def upstream_pieces(self) -> list[UpstreamPiece]:
        """The response to the last request to the upstream."""
        start = max(
            (index for index, record in enumerate(self.records) if isinstance(record, UpstreamRequest)), default=0
        )
        return [record for record in self.records[start:] if isinstance(record, UpstreamPiece)]

    @property
    def client_head(self) -> ClientHead | None:
        return self._last_record(ClientHead)

    @property
    def client_pieces(self) -> list[ClientPiece]:
        return [record for record in self.records if isinstance(record, ClientPiece)]

    @property
    def losses(self) -> list[Loss]:
        """The distinct losses, in the order of the records."""
        return list(
            dict.fromkeys(loss for record in self.records if isinstance(record, LossList) for loss in record.losses)
        )

    @property
    def notes(self) -> dict[str, str | int | float | None]:
        return {record.name: record.value for record in self.records if isinstance(record, TraceNote)}

    @property
    def omitted_bytes(self) -> dict[str, int]:
        """The number of omitted bytes, by record kind."""
        omitted = self._last_record(OmittedData)
        return omitted.missing if omitted else {}

    def _last_record(self, kind: type[_Kind]) -> _Kind | None:
        return next((record for record in reversed(self.records) if isinstance(record, kind)), None)


def list_traces(folder: Path) -> list[TraceSummary]:
    """All traces in the folder, the oldest first. An unreadable one is listed with an error."""
    return [summary for file in trace_files(folder) if (summary := _read_summary(file)) is not None]


def read_trace(folder: Path, id_or_prefix: str) -> RecordedTrace:
    """The trace with this id, or the only one whose id has this prefix (`req_` may be left out), or the `last`."""
    file = _find_file(trace_files(folder), id_or_prefix, folder)
    try:
        lines = file.path.read_bytes().split(b"\n")
    except OSError as error:
        raise TraceError(f"{file.path}: cannot read the file: {error.strerror}") from None
    if lines.pop():
        raise TraceError(f"{file.path}: the last line is incomplete; the file was truncated")
    first_line, *other_lines = lines or [b""]
    summary = _check_summary(_decode_line(first_line, file, 1), file)
    return RecordedTrace(
        summary, [_decode_line(line, file, line_number) for line_number, line in enumerate(other_lines, 2)]
    )


def no_traces_message(folder: Path) -> str:
    """The message for a folder without traces."""
    return f"there are no traces in {folder}; `antiphon serve --trace DIR` writes them"


def _find_file(files: list[TraceFile], id_or_prefix: str, folder: Path) -> TraceFile:
    if not files:
        raise TraceError(no_traces_message(folder))
    if id_or_prefix == LAST_TRACE:
        return files[-1]
    prefix = file_id(id_or_prefix)
    matches = [file for file in files if file.id == prefix] or [
        file for file in files if file.id.startswith((prefix, f"req_{prefix}"))
    ]
    if not matches:
        raise TraceError(
            f"no trace in {folder} has an id that begins with {id_or_prefix!r}; `antiphon trace list` lists all traces"
        )
    if len({file.id for file in matches}) > 1:
        examples = ", ".join(file.id for file in matches[:3])
        raise TraceError(
            f"{len(matches)} traces have an id that begins with {id_or_prefix!r}: "
            f"{examples}{', …' if len(matches) > 3 else ''}"
        )
    return matches[-1]


def _read_summary(file: TraceFile) -> TraceSummary | None:
    try:
        with file.path.open("rb") as lines:
            return _check_summary(_decode_line(lines.readline().rstrip(b"\n"), file, 1), file)
    except FileNotFoundError:
        return None  # removed since the folder was listed
    except (OSError, TraceError):
        return TraceSummary(
            at=0.0,
            id=file.id,
            time=file.time,
            duration=0.0,
            model=None,
            upstream=None,
            status=None,
            losses=0,
            error="cannot be read",
        )


def _decode_line(line: bytes, file: TraceFile, line_number: int) -> AnyTraceRecord:
    try:
        return decode_record(line)
    except (msgspec.DecodeError, ValueError) as error:
        raise TraceError(f"{file.path}, line {line_number}: not a trace record: {error}") from None


def _check_summary(record: AnyTraceRecord, file: TraceFile) -> TraceSummary:
    if not isinstance(record, TraceSummary):
        raise TraceError(f"{file.path}: the first line is not a trace summary")
    if record.format != FORMAT:
        raise TraceError(f"{file.path}: has format {record.format}; expected format {FORMAT}")
    return record
