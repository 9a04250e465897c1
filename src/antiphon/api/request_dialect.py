"""Detects the dialect of a client by its path, or by a header where several dialects share a path.

Also chooses the stream format of a dialect, and the headers that are forwarded to servers of the same dialect.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final
from urllib.parse import parse_qs

from antiphon.api.delivery import StreamFormat
from antiphon.errors import ClientFault
from antiphon.gateway.client_dialect import CLIENT_DIALECTS, HUB_DIALECT, ClientDialect, dialect_at_path
from antiphon.gateway.routes import Upstream
from antiphon.http.asgi import JSON, Headers, Scope, header_values
from antiphon.http.event_stream import SSE_HEADERS
from antiphon.profiles.client_headers import GEMINI_CLIENT_HEADERS, MESSAGES_CLIENT_HEADER


def dialect_for(scope: Scope) -> ClientDialect:
    """The dialect of the answer, errors included."""
    dialect = dialect_at_path(scope["path"])
    if dialect is not HUB_DIALECT or not scope["path"].startswith("/v1/models"):
        return dialect
    if header_values(scope, MESSAGES_CLIENT_HEADER):
        return CLIENT_DIALECTS["messages"]
    return (
        CLIENT_DIALECTS["gemini"] if any(header_values(scope, name) for name in GEMINI_CLIENT_HEADERS) else HUB_DIALECT
    )


def stream_format_for(dialect: ClientDialect, scope: Scope) -> StreamFormat:
    """The stream format of a dialect other than the hub's."""
    if dialect.name == "vscode":
        return StreamFormat(events_from_hub=dialect.events_from_hub, headers=NDJSON, keepalive=b"\n")
    if dialect.name != "gemini":
        return StreamFormat(events_from_hub=dialect.events_from_hub)
    # Gemini clients read SSE comments as data, but ignore blank lines. Blank lines in a JSON array are ignored too.
    if parse_qs(scope["query_string"].decode("latin-1")).get("alt") == ["sse"]:
        return StreamFormat(events_from_hub=dialect.events_from_hub, keepalive=b"\n")
    return StreamFormat(
        events_from_hub=partial(dialect.events_from_hub, as_json_array=True), headers=[JSON], keepalive=b"\n"
    )


def forwarded_headers(dialect: ClientDialect, scope: Scope, upstream: Upstream) -> dict[str, str]:
    """The client's headers that its profile forwards. Only a server of the client's own dialect gets them."""
    passed: dict[str, str] = {}
    if upstream.profile.dialect != dialect.name:
        return passed
    for name in upstream.profile.pass_headers:
        values = b",".join(header_values(scope, name.encode())).decode("latin-1")
        if not values:
            continue
        if not HEADER_VALUE.fullmatch(values):
            raise ClientFault(f"the header {name}: expected words separated by commas", param=name)
        own_value = upstream.headers.get(name)
        passed[name] = f"{own_value},{values}" if own_value else values
    return passed


NDJSON: Final[Headers] = [
    (b"content-type", b"application/x-ndjson"),
    *(header for header in SSE_HEADERS if header[0] != b"content-type"),
]
HEADER_VALUE: Final = re.compile("[A-Za-z0-9._:=, -]{1,2000}")
