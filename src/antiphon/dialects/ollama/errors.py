"""Translates Ollama's errors in both directions: an object whose `error` is a text (ERR-4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.dialects.common.upstream_errors import error_text, upstream_error
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.codec import decode_json


def error_to_hub(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Translate an error response of a server. `headers` are lower-cased."""
    try:
        message = _message(decode_json(body))
    except ValueError:
        message = None
    if message is None and status in (404, 405):
        # The address does not serve this dialect. The configuration is wrong, not the request of the client.
        return UpstreamFault(f"the upstream does not serve Ollama's API at the configured URL (status {status})")
    return upstream_error(status, headers, None, message or error_text(body), None)


def error_in_answer(error: Any) -> ApiError:
    """Translate an error inside a stream, or in a body with status 200. Its status is not known."""
    return upstream_error(500, {}, None, _message({"error": error}), None)


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """Return the status and the body."""
    return error.status, error_line(error)


def error_line(error: ApiError) -> bytes:
    """Encode an error as a body or as a line."""
    return msgspec.json.encode({"error": error.message})


def _message(value: Any) -> str | None:
    match value:
        case {"error": str() as message} | {"error": {"message": str() as message}}:
            return message
        case _:
            return None
