"""Completes the usage of a response for clients, whose SDK requires the number of tokens written to the cache."""

from __future__ import annotations

from msgspec.structs import replace

from antiphon.protocol.response import Response, Usage


def complete_usage(usage: Usage) -> Usage:
    """The usage with `cache_write_tokens`: zero if the API of the server does not report it.

    The usage of a Responses server stays as the server sent it.
    """
    details = usage.input_tokens_details
    if details.cache_write_tokens is not None:
        return usage
    return replace(usage, input_tokens_details=replace(details, cache_write_tokens=0))


def with_complete_usage(response: Response) -> Response:
    """The response with its usage completed."""
    usage = response.usage and complete_usage(response.usage)
    return response if usage is response.usage else replace(response, usage=usage)
