"""One difference between what was recorded and what arrived on the other side of the gateway."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from antiphon.dialects.dialect import ServerDialectName

Check = Literal[
    "request",  # what the upstream received, as JSON, if its dialect is the client's
    "answer",  # what the client received, as JSON, if its dialect is the server's
    "events",  # the same for the events of a stream
    "accumulated",  # what the SDK of the dialect makes of a stream, in comparison with the recorded one
    "asked",  # the content of a request for a server of another dialect
    "text",
    "reasoning",
    "seals",
    "calls",
    "finish",
    "usage",
    "losses",  # content that is missing and not reported
    "error",
    "refused",  # the gateway answers with an error of its own
    "sdk",  # the SDK reads something else than the bytes say, or fails
    "cut",  # an answer that arrives in small pieces gives another result
    "grammar",
]


class Difference(Struct, frozen=True, kw_only=True):
    """`path` and `change` say what differs; a class of differences matches nothing else than these five fields."""

    check: Check
    client: ServerDialectName
    server: ServerDialectName
    path: str
    change: str

    def __str__(self) -> str:
        return f"{self.check} {self.client} → {self.server}: {self.path} {self.change}"


class Finding(Struct, frozen=True, kw_only=True):
    """A difference with what helps a reader to understand it."""

    difference: Difference
    detail: str
    source: str
