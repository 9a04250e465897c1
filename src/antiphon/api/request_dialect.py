"""Which dialect a client speaks: mostly its path says so; where several share a path, a header that only one of them sends.

Also what follows from it beyond the body: the form of its stream, and headers that go to servers of the same dialect.
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
    """What the client reads, errors included."""
    speech = dialect_at_path(scope["path"])
    if speech is not HUB_DIALECT or not scope["path"].startswith("/v1/models"):
        return speech
    if header_values(scope, MESSAGES_CLIENT_HEADER):
        return CLIENT_DIALECTS["messages"]
    return CLIENT_DIALECTS["gemini"] if any(header_values(scope, name) for name in GEMINI_CLIENT_HEADERS) else HUB_DIALECT


def stream_format_for(speech: ClientDialect, scope: Scope) -> StreamFormat:
    """The form of a stream to a client of another dialect than the hub's."""
    if speech.name == "vscode":
        return StreamFormat(events_from_hub=speech.events_from_hub, headers=NDJSON, keepalive=b"\n")
    if speech.name != "gemini":
        return StreamFormat(events_from_hub=speech.events_from_hub)
    # Its clients read comments as data, and blank lines as nothing; between the members of an array they are nothing to anybody.
    if parse_qs(scope["query_string"].decode("latin-1")).get("alt") == ["sse"]:
        return StreamFormat(events_from_hub=speech.events_from_hub, keepalive=b"\n")
    return StreamFormat(events_from_hub=partial(speech.events_from_hub, as_json_array=True), headers=[JSON], keepalive=b"\n")


def forwarded_headers(speech: ClientDialect, scope: Scope, upstream: Upstream) -> dict[str, str]:
    """What a server of the client's own dialect is sent of its headers, as its profile says; no other server ever is."""
    passed: dict[str, str] = {}
    if upstream.profile.dialect != speech.name:
        return passed
    for name in upstream.profile.pass_headers:
        values = b",".join(header_values(scope, name.encode())).decode("latin-1")
        if not values:
            continue
        if not WORDS.fullmatch(values):
            raise ClientFault(f"the header {name}: wanted words separated by commas", param=name)
        own = upstream.headers.get(name)
        passed[name] = f"{own},{values}" if own else values
    return passed


NDJSON: Final[Headers] = [
    (b"content-type", b"application/x-ndjson"),
    *(header for header in SSE_HEADERS if header[0] != b"content-type"),
]
WORDS: Final = re.compile("[A-Za-z0-9._:=, -]{1,2000}")
