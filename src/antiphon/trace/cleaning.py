"""A finished trace as it may be written: what was noted in haste made into records, keys taken out, a summary before it all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from antiphon.protocol.losses import Loss
from antiphon.trace.records import (
    AnyRecord,
    ClientHead,
    ClientPiece,
    ClientRequest,
    Data,
    HubRequest,
    LossList,
    Note,
    Record,
    Route,
    Summary,
    UpstreamHead,
    UpstreamPiece,
    UpstreamRequest,
)
from antiphon.trace.removal import Remover

PieceKind = type[UpstreamPiece] | type[ClientPiece]
# Pieces come often, and a tuple of plain things costs a tenth of what a record does: the reading of the clock, the kind, the bytes.
Entry = AnyRecord | tuple[float, PieceKind, bytes]
_Kind = TypeVar("_Kind", bound=Record)


class Finished(Struct, frozen=True, kw_only=True):
    """A trace that is complete, and not yet fit to be written."""

    id: str
    time: float
    start: float  # what the clock said
    duration: float
    entries: list[Entry]
    secrets: tuple[str, ...]  # that came with it
    size: int  # bytes that it takes in memory, about


def cleaned(finished: Finished, remover: Remover) -> list[AnyRecord]:
    pieces: dict[PieceKind, Iterator[bytes]] = {
        kind: iter(_pieces(finished, kind, remover)) for kind in (UpstreamPiece, ClientPiece)
    }
    records: list[AnyRecord] = []
    for entry in finished.entries:
        if isinstance(entry, tuple):
            moment, kind, _ = entry
            records.append(kind(at=round(moment - finished.start, 6), data=Data(next(pieces[kind]))))
        else:
            records.append(_clean(entry, remover))
    return [_summary(finished, records, remover), *records]


def _pieces(finished: Finished, kind: PieceKind, remover: Remover) -> list[bytes]:
    """All of a direction at once, since a key may be cut over several."""
    return remover.pieces([entry[2] for entry in finished.entries if isinstance(entry, tuple) and entry[1] is kind])


def _clean(record: AnyRecord, remover: Remover) -> AnyRecord:
    changes: dict[str, Any] = {}
    match record:
        case ClientRequest(path=path, headers=headers, body=body):
            changes = {"path": remover.url(path), "headers": remover.headers(headers), "body": Data(remover.data(body.raw))}
        case UpstreamRequest(url=url, headers=headers, body=body):
            changes = {"url": remover.url(url), "headers": remover.headers(headers), "body": Data(remover.data(body.raw))}
        case HubRequest(body=body):
            changes = {"body": Data(remover.data(body.raw))}
        case UpstreamHead(headers=headers) | ClientHead(headers=headers):
            changes = {"headers": remover.headers(headers)}
        case Route(model=model):
            changes = {"model": remover.text(model)}  # the rest of it is ours
        case LossList(losses=losses):
            changes = {"losses": [Loss(*map(remover.text, (each.path, each.what, each.why))) for each in losses]}
        case Note(value=str() as value):
            changes = {"value": remover.text(value)}
    return replace(record, **changes) if changes else record


def _summary(finished: Finished, records: list[AnyRecord], remover: Remover) -> Summary:
    route = _last(records, Route)
    head = _last(records, ClientHead)
    lost = {loss for each in records if isinstance(each, LossList) for loss in each.losses}
    errors = [str(each.value) for each in records if isinstance(each, Note) and each.name == "error" and each.value is not None]
    return Summary(
        at=0.0,
        id=remover.text(finished.id),
        time=finished.time,
        duration=finished.duration,
        model=route.model if route else None,
        upstream=route.upstream if route else None,
        status=head.status if head else None,
        losses=len(lost),
        error=errors[-1] if errors else None,
    )


def _last(records: list[AnyRecord], kind: type[_Kind]) -> _Kind | None:
    return next((each for each in reversed(records) if isinstance(each, kind)), None)
