"""The stored form of a response."""

from __future__ import annotations

from msgspec import Struct


class ResponseRecord(Struct, frozen=True, kw_only=True):
    """A response and its input, as JSON. `previous` is the response that it continues."""

    id: str
    previous: str | None
    created_at: int  # in seconds since 1970
    status: str
    head: bytes  # the response without its output
    input: bytes  # an array: the items of its own request, without earlier turns
    output: bytes  # an array


class StoredTurn(Struct, frozen=True, kw_only=True):
    """The input and output of a response, without its head."""

    id: str
    input: bytes
    output: bytes


class Excerpt(Struct, frozen=True, kw_only=True):
    """The part of a chain or conversation that fits a limit in bytes."""

    content: bytes  # arrays of items, oldest first, separated by commas
    size: int  # bytes in total, omitted ones included
    omitted_count: int = 0  # number of the oldest turns or items that do not fit
