"""A finished trace as it may be written: what was noted in haste made into records, keys taken out, a summary before it all."""

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
# Pieces come often, and a tuple of plain things costs a tenth of what a record does: the reading of the clock, the kind, the bytes.
TraceEntry = AnyTraceRecord | tuple[float, PieceKind, bytes]
_Kind = TypeVar("_Kind", bound=TraceRecord)


class FinishedTrace(Struct, frozen=True, kw_only=True):
    """A trace that is complete, and not yet fit to be written."""

    id: str
    time: float
    start: float  # what the clock said
    duration: float
    entries: list[TraceEntry]
    secrets: tuple[str, ...]  # that came with it
    size: int  # bytes that it takes in memory, about


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
    """All of a direction at once, since a key may be cut over several."""
    return redactor.pieces([entry[2] for entry in finished.entries if isinstance(entry, tuple) and entry[1] is kind])


def _clean(record: AnyTraceRecord, redactor: Redactor) -> AnyTraceRecord:
    changes: dict[str, Any] = {}
    match record:
        case ClientRequest(path=path, headers=headers, body=body):
            changes = {"path": redactor.url(path), "headers": redactor.headers(headers), "body": RawData(redactor.data(body.raw))}
        case UpstreamRequest(url=url, headers=headers, body=body):
            changes = {"url": redactor.url(url), "headers": redactor.headers(headers), "body": RawData(redactor.data(body.raw))}
        case HubRequest(body=body):
            changes = {"body": RawData(redactor.data(body.raw))}
        case UpstreamHead(headers=headers) | ClientHead(headers=headers):
            changes = {"headers": redactor.headers(headers)}
        case Route(model=model):
            changes = {"model": redactor.text(model)}  # the rest of it is ours
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
        str(each.value) for each in records if isinstance(each, TraceNote) and each.name == "error" and each.value is not None
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
