"""Prepares a finished trace for writing: converts entries to records, redacts keys, adds a summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from antiphon.protocol.losses import Loss
from antiphon.trace.records import (
    AnyTraceRecord,
    ClientHead,
    ClientPiece,
    ClientRequest,
    HubRequest,
    LossList,
    RawData,
    Route,
    TraceNote,
    TraceRecord,
    TraceSummary,
    UpstreamHead,
    UpstreamPiece,
    UpstreamRequest,
)
from antiphon.trace.redactor import Redactor

PieceKind = type[UpstreamPiece] | type[ClientPiece]
# Pieces are frequent, so they are tuples (clock, kind, bytes), which cost a tenth of a record.
TraceEntry = AnyTraceRecord | tuple[float, PieceKind, bytes]
_Kind = TypeVar("_Kind", bound=TraceRecord)


class FinishedTrace(Struct, frozen=True, kw_only=True):
    """A complete trace that still contains keys."""

    id: str
    time: float
    start: float  # on the monotonic clock
    duration: float
    entries: list[TraceEntry]
    secrets: tuple[str, ...]  # keys seen in this request
    size: int  # approximate bytes in memory


def redact_records(trace: FinishedTrace, redactor: Redactor) -> list[AnyTraceRecord]:
    pieces: dict[PieceKind, Iterator[bytes]] = {
        kind: iter(_redact_pieces(trace, kind, redactor)) for kind in (UpstreamPiece, ClientPiece)
    }
    records: list[AnyTraceRecord] = []
    for entry in trace.entries:
        if isinstance(entry, tuple):
            clock_time, kind, _ = entry
            records.append(kind(at=round(clock_time - trace.start, 6), data=RawData(next(pieces[kind]))))
        else:
            records.append(_redact_record(entry, redactor))
    return [_summarize(trace, records, redactor), *records]


def _redact_pieces(trace: FinishedTrace, kind: PieceKind, redactor: Redactor) -> list[bytes]:
    """The redacted pieces of one direction. All at once, since a key may be split over several."""
    return redactor.redact_pieces(
        [entry[2] for entry in trace.entries if isinstance(entry, tuple) and entry[1] is kind]
    )


def _redact_record(record: AnyTraceRecord, redactor: Redactor) -> AnyTraceRecord:
    changes: dict[str, Any] = {}
    match record:
        case ClientRequest(path=path, headers=headers, body=body):
            changes = {
                "path": redactor.redact_url(path),
                "headers": redactor.redact_headers(headers),
                "body": RawData(redactor.redact_data(body.raw)),
            }
        case UpstreamRequest(url=url, headers=headers, body=body):
            changes = {
                "url": redactor.redact_url(url),
                "headers": redactor.redact_headers(headers),
                "body": RawData(redactor.redact_data(body.raw)),
            }
        case HubRequest(body=body):
            changes = {"body": RawData(redactor.redact_data(body.raw))}
        case UpstreamHead(headers=headers) | ClientHead(headers=headers):
            changes = {"headers": redactor.redact_headers(headers)}
        case Route(model=model):
            changes = {"model": redactor.redact_text(model)}  # the other fields come from the configuration
        case LossList(losses=losses):
            changes = {
                "losses": [Loss(*map(redactor.redact_text, (loss.path, loss.what, loss.why))) for loss in losses]
            }
        case TraceNote(value=str() as value):
            changes = {"value": redactor.redact_text(value)}
    return replace(record, **changes) if changes else record


def _summarize(trace: FinishedTrace, records: list[AnyTraceRecord], redactor: Redactor) -> TraceSummary:
    route = _last_record(records, Route)
    head = _last_record(records, ClientHead)
    losses = {loss for record in records if isinstance(record, LossList) for loss in record.losses}
    return TraceSummary(
        at=0.0,
        id=redactor.redact_text(trace.id),
        time=trace.time,
        duration=trace.duration,
        model=_last_note(records, "model"),
        upstream=route.upstream if route else None,
        status=head.status if head else None,
        losses=len(losses),
        error=_last_note(records, "error"),
    )


def _last_record(records: list[AnyTraceRecord], kind: type[_Kind]) -> _Kind | None:
    return next((record for record in reversed(records) if isinstance(record, kind)), None)


def _last_note(records: list[AnyTraceRecord], name: str) -> str | None:
    notes = (record.value for record in reversed(records) if isinstance(record, TraceNote) and record.name == name)
    return next((str(value) for value in notes if value is not None), None)
