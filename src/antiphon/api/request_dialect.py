"""Detects the dialect of a client by its path, or by a header where several dialects share a path.

Also chooses the stream format of a dialect, and the headers that are forwarded to servers of the same dialect.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final
from urllib.parse import parse_qs

from antiphon.api.turn_delivery import StreamFormat
from antiphon.dialects.dialect import ClientDialect, Framing
from antiphon.dialects.registry import CLIENT_DIALECTS, HUB_DIALECT
from antiphon.errors import ClientFault
from antiphon.gateway.client_dialect import dialect_at_path
from antiphon.gateway.routes import Upstream
from antiphon.http.asgi import JSON, Headers, Scope, header_values
from antiphon.http.event_stream import SSE_HEADERS
from antiphon.profiles.client_headers import CLIENT_HEADERS


def dialect_for(scope: Scope) -> ClientDialect:
    """The dialect of the answer, errors included."""
    dialect = dialect_at_path(scope["path"])
    if dialect is not HUB_DIALECT or not scope["path"].startswith("/v1/models"):
        return dialect
    for name, headers in CLIENT_HEADERS.items():
        if any(header_values(scope, header) for header in headers):
            return CLIENT_DIALECTS[name]
    return dialect


def stream_format_for(dialect: ClientDialect, scope: Scope) -> StreamFormat:
    """The stream format of a dialect other than the hub's."""
    if dialect.streams_json_array and parse_qs(scope["query_string"].decode("latin-1")).get("alt") != ["sse"]:
        return StreamFormat(
            events_from_hub=partial(dialect.events_from_hub, as_json_array=True),
            headers=[JSON],
            keepalive=dialect.keepalive,
        )
    return StreamFormat(
        events_from_hub=dialect.events_from_hub, headers=STREAM_HEADERS[dialect.framing], keepalive=dialect.keepalive
    )


def forwarded_headers(dialect: ClientDialect, scope: Scope, upstream: Upstream) -> dict[str, str]:
    """The client's headers that its profile forwards. Only a server of the client's own dialect gets them."""
    forwarded: dict[str, str] = {}
    if upstream.profile.dialect != dialect.name:
        return forwarded
    for name in upstream.profile.pass_headers:
        values = b",".join(header_values(scope, name.encode())).decode("latin-1")
        if not values:
            continue
        if not HEADER_VALUE.fullmatch(values):
            raise ClientFault(f"the header {name}: expected words separated by commas", param=name)
        own_value = upstream.headers.get(name)
        forwarded[name] = f"{own_value},{values}" if own_value else values
    return forwarded


NDJSON: Final[Headers] = [
    (b"content-type", b"application/x-ndjson"),
    *(header for header in SSE_HEADERS if header[0] != b"content-type"),
]
STREAM_HEADERS: Final[dict[Framing, Headers]] = {"sse": SSE_HEADERS, "json_lines": NDJSON}
HEADER_VALUE: Final = re.compile("[A-Za-z0-9._:=, -]{1,2000}")
