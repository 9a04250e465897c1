"""What a trace is made of: one record a line, in the order of what happened, after a summary with which a list can do.

Bytes stand as text where they are UTF-8, as `{"base64": …}` where they are not, and come back as they were.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.protocol.losses import Loss

FORMAT: Final = 1  # of the files; a reader of another format says so instead of guessing


class RawData:
    """Bytes as they went over a wire."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw


class TraceRecord(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """One thing that happened, and when: in seconds since the request came."""

    at: float


class TraceSummary(TraceRecord, frozen=True, kw_only=True, tag="summary"):
    """A trace in one line."""

    format: int = FORMAT
    id: str
    time: float  # seconds since 1970
    duration: float
    model: str | None
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
    """Who was to answer, and how."""

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
    """Bytes of the answer, cut as they arrived."""

    data: RawData


class ClientHead(TraceRecord, frozen=True, kw_only=True, tag="client_head"):
    status: int
    headers: dict[str, str]


class ClientPiece(TraceRecord, frozen=True, kw_only=True, tag="client_piece"):
    """Bytes for the client, cut as they were sent."""

    data: RawData


class LossList(TraceRecord, frozen=True, kw_only=True, tag="losses"):
    """What was known to be lost by then, or some of it."""

    losses: list[Loss]


class TraceNote(TraceRecord, frozen=True, kw_only=True, tag="note"):
    name: str
    value: str | int | float | None


class OmittedData(TraceRecord, frozen=True, kw_only=True, tag="cut"):
    """What is missing, since the trace would have become too large: bytes, by the kind of their records."""

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
    """One line, without its end."""
    return _encoder.encode(record)


def decode_record(line: bytes) -> AnyTraceRecord:
    """Raises `msgspec.DecodeError` (or its kind for wrong shapes) if the line is none."""
    return _decoder.decode(line)


def _plain(value: Any) -> str | dict[str, str]:
    raw: bytes = value.raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def _data(_type: type, value: Any) -> RawData:
    match value:
        case str():
            return RawData(value.encode())
        case {"base64": str() as encoded}:
            return RawData(base64.b64decode(encoded))
        case _:
            raise ValueError('wanted text or {"base64": …}')


_encoder: Final = msgspec.json.Encoder(enc_hook=_plain)
_decoder: Final[msgspec.json.Decoder[AnyTraceRecord]] = msgspec.json.Decoder(AnyTraceRecord, dec_hook=_data)
