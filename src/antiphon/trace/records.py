"""The records of a trace: one JSON record per line, in chronological order, after a summary for lists.

Bytes are written as text if they are UTF-8, as `{"base64": …}` otherwise, and decode to the same bytes.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.protocol.losses import Loss

FORMAT: Final = 1  # of the files; readers refuse other formats


class RawData:
    """Bytes as sent or received."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw


class TraceRecord(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One event; `at` is in seconds since the request arrived."""

    at: float


class TraceSummary(TraceRecord, frozen=True, kw_only=True, tag="summary"):
    """The first record, which lists need only."""

    format: int = FORMAT
    id: str
    time: float  # seconds since 1970
    duration: float
    model: str | None  # as the client named it; the name at the upstream is in the route
    upstream: str | None
    status: int | None
    losses: int
    error: str | None


class ClientRequest(TraceRecord, frozen=True, kw_only=True, tag="client_request"):
    method: str
    path: str
    headers: dict[str, str]
    body: RawData


class HubRequest(TraceRecord, frozen=True, kw_only=True, tag="hub_request"):
    body: RawData


class Route(TraceRecord, frozen=True, kw_only=True, tag="route"):
    """The upstream selected for the request."""

    upstream: str
    dialect: str
    model: str
    profile: str
    stream: bool


class UpstreamRequest(TraceRecord, frozen=True, kw_only=True, tag="upstream_request"):
    method: str
    url: str
    headers: dict[str, str]
    body: RawData


class UpstreamHead(TraceRecord, frozen=True, kw_only=True, tag="upstream_head"):
    status: int
    headers: dict[str, str]


class UpstreamPiece(TraceRecord, frozen=True, kw_only=True, tag="upstream_piece"):
    """A piece of the upstream's body, as received."""

    data: RawData


class ClientHead(TraceRecord, frozen=True, kw_only=True, tag="client_head"):
    status: int
    headers: dict[str, str]


class ClientPiece(TraceRecord, frozen=True, kw_only=True, tag="client_piece"):
    """A piece of the body for the client, as sent."""

    data: RawData


class LossList(TraceRecord, frozen=True, kw_only=True, tag="losses"):
    """Losses found so far, or some of them."""

    losses: list[Loss]


class TraceNote(TraceRecord, frozen=True, kw_only=True, tag="note"):
    name: str
    value: str | int | float | None


class OmittedData(TraceRecord, frozen=True, kw_only=True, tag="cut"):
    """Numbers of bytes omitted because the trace was too large, by record kind."""

    missing: dict[str, int]


AnyTraceRecord = (
    TraceSummary
    | ClientRequest
    | HubRequest
    | Route
    | UpstreamRequest
    | UpstreamHead
    | UpstreamPiece
    | ClientHead
    | ClientPiece
    | LossList
    | TraceNote
    | OmittedData
)


def encode_record(record: TraceRecord) -> bytes:
    """A record as one line, without the line break."""
    return _encoder.encode(record)


def decode_record(line: bytes) -> AnyTraceRecord:
    """Decodes a line; raises `msgspec.DecodeError` or a subclass if it is not a record."""
    return _decoder.decode(line)


def _encode_raw_data(value: Any) -> str | dict[str, str]:
    raw: bytes = value.raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def _decode_raw_data(_type: type, value: Any) -> RawData:
    match value:
        case str():
            return RawData(value.encode())
        case {"base64": str() as encoded}:
            return RawData(base64.b64decode(encoded))
        case _:
            raise ValueError('expected a string or {"base64": …}')


_encoder: Final = msgspec.json.Encoder(enc_hook=_encode_raw_data)
_decoder: Final[msgspec.json.Decoder[AnyTraceRecord]] = msgspec.json.Decoder(AnyTraceRecord, dec_hook=_decode_raw_data)
