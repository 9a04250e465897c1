"""Which dialect a client speaks: mostly its path says so; where several share a path, a header that only one of them sends.

Also what follows from it beyond the body: the form of its stream, and headers that go to servers of the same dialect.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final
from urllib.parse import parse_qs

from antiphon.errors import ClientFault
from antiphon.gateway.client_speech import CLIENT_SPEECHES, HUB, ClientSpeech, speech_at
from antiphon.gateway.routes import Upstream
from antiphon.profiles.known_clients import OF_GEMINI, OF_MESSAGES
from antiphon.server.asgi import JSON, Headers, Scope, values_of
from antiphon.server.stream import SSE
from antiphon.server.telling import StreamForm


def speech_for(scope: Scope) -> ClientSpeech:
    """What the client reads, errors included."""
    speech = speech_at(scope["path"])
    if speech is not HUB or not scope["path"].startswith("/v1/models"):
        return speech
    if values_of(scope, OF_MESSAGES):
        return CLIENT_SPEECHES["messages"]
    return CLIENT_SPEECHES["gemini"] if any(values_of(scope, name) for name in OF_GEMINI) else HUB


def stream_form(speech: ClientSpeech, scope: Scope) -> StreamForm:
    """The form of a stream to a client of another dialect than the hub's."""
    if speech.dialect == "vscode":
        return StreamForm(events_from_hub=speech.events_from_hub, headers=NDJSON, waiting=b"\n")
    if speech.dialect != "gemini":
        return StreamForm(events_from_hub=speech.events_from_hub)
    # Its clients read comments as data, and blank lines as nothing; between the members of an array they are nothing to anybody.
    if parse_qs(scope["query_string"].decode("latin-1")).get("alt") == ["sse"]:
        return StreamForm(events_from_hub=speech.events_from_hub, waiting=b"\n")
    return StreamForm(events_from_hub=partial(speech.events_from_hub, array=True), headers=[JSON], waiting=b"\n")


def passed_headers(speech: ClientSpeech, scope: Scope, upstream: Upstream) -> dict[str, str]:
    """What a server of the client's own dialect is sent of its headers, as its profile says; no other server ever is."""
    passed: dict[str, str] = {}
    if upstream.profile.dialect != speech.dialect:
        return passed
    for name in upstream.profile.pass_headers:
        values = b",".join(values_of(scope, name.encode())).decode("latin-1")
        if not values:
            continue
        if not WORDS.fullmatch(values):
            raise ClientFault(f"the header {name}: wanted words separated by commas", param=name)
        own = upstream.headers.get(name)
        passed[name] = f"{own},{values}" if own else values
    return passed


NDJSON: Final[Headers] = [(b"content-type", b"application/x-ndjson"), *(header for header in SSE if header[0] != b"content-type")]
WORDS: Final = re.compile("[A-Za-z0-9._:=, -]{1,2000}")
