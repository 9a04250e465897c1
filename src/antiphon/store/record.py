"""A response at rest."""

from __future__ import annotations

from msgspec import Struct


class Record(Struct, frozen=True, kw_only=True):
    """A response and what it was asked, as JSON. `previous` is the response that it continued."""

    id: str
    previous: str | None
    created_at: int  # in seconds since 1970
    status: str
    head: bytes  # the response without its output
    input: bytes  # an array: the items of its own request, without what it continued
    output: bytes  # an array


class Turn(Struct, frozen=True, kw_only=True):
    """Of a response its own input and output, and nothing of its head."""

    id: str
    input: bytes
    output: bytes
