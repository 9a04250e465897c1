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


def redacted_records(finished: FinishedTrace, redactor: Redactor) -> list[AnyTraceRecord]:
    pieces: dict[PieceKind, Iterator[bytes]] = {
        kind: iter(_pieces(finished, kind, redactor)) for kind in (UpstreamPiece, ClientPiece)
    }
    records: list[AnyTraceRecord] = []
    for entry in finished.entries:
        if isinstance(entry, tuple):
            moment, kind, _ = entry
            records.append(kind(at=round(moment - finished.start, 6), data=RawData(next(pieces[kind]))))
        else:
            records.append(_clean(entry, redactor))
    return [_summary(finished, records, redactor), *records]


def _pieces(finished: FinishedTrace, kind: PieceKind, redactor: Redactor) -> list[bytes]:
    """The redacted pieces of one direction. All at once, since a key may be split over several."""
    return redactor.pieces([entry[2] for entry in finished.entries if isinstance(entry, tuple) and entry[1] is kind])


def _clean(record: AnyTraceRecord, redactor: Redactor) -> AnyTraceRecord:
    changes: dict[str, Any] = {}
    match record:
        case ClientRequest(path=path, headers=headers, body=body):
            changes = {
                "path": redactor.url(path),
                "headers": redactor.headers(headers),
                "body": RawData(redactor.data(body.raw)),
            }
        case UpstreamRequest(url=url, headers=headers, body=body):
            changes = {
                "url": redactor.url(url),
                "headers": redactor.headers(headers),
                "body": RawData(redactor.data(body.raw)),
            }
        case HubRequest(body=body):
            changes = {"body": RawData(redactor.data(body.raw))}
        case UpstreamHead(headers=headers) | ClientHead(headers=headers):
            changes = {"headers": redactor.headers(headers)}
        case Route(model=model):
            changes = {"model": redactor.text(model)}  # the other fields come from the configuration
        case LossList(losses=losses):
            changes = {"losses": [Loss(*map(redactor.text, (each.path, each.what, each.why))) for each in losses]}
        case TraceNote(value=str() as value):
            changes = {"value": redactor.text(value)}
    return replace(record, **changes) if changes else record


def _summary(finished: FinishedTrace, records: list[AnyTraceRecord], redactor: Redactor) -> TraceSummary:
    route = _last(records, Route)
    head = _last(records, ClientHead)
    losses = {loss for each in records if isinstance(each, LossList) for loss in each.losses}
    errors = [
        str(each.value)
        for each in records
        if isinstance(each, TraceNote) and each.name == "error" and each.value is not None
    ]
    return TraceSummary(
        at=0.0,
        id=redactor.text(finished.id),
        time=finished.time,
        duration=finished.duration,
        model=route.model if route else None,
        upstream=route.upstream if route else None,
        status=head.status if head else None,
        losses=len(losses),
        error=errors[-1] if errors else None,
    )


def _last(records: list[AnyTraceRecord], kind: type[_Kind]) -> _Kind | None:
    return next((each for each in reversed(records) if isinstance(each, kind)), None)
