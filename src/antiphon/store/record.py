"""A response at rest."""

from __future__ import annotations

from msgspec import Struct


class ResponseRecord(Struct, frozen=True, kw_only=True):
    """A response and what it was asked, as JSON. `previous` is the response that it continued."""

    id: str
    previous: str | None
    created_at: int  # in seconds since 1970
    status: str
    head: bytes  # the response without its output
    input: bytes  # an array: the items of its own request, without what it continued
    output: bytes  # an array


class StoredTurn(Struct, frozen=True, kw_only=True):
    """Of a response its own input and output, and nothing of its head."""

    id: str
    input: bytes
    output: bytes


class Excerpt(Struct, frozen=True, kw_only=True):
    """As much of a chain or of a conversation as fits into a number of bytes."""

    content: bytes  # arrays of items, the oldest first, with commas between them
    size: int  # bytes of all of it, with what is left out
    left_out: int = 0  # the oldest turns or items that do not fit
