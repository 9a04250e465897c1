"""Headers that clients of the APIs send: key headers, and headers that identify the clients of one API."""

from __future__ import annotations

from typing import Final

from antiphon.dialects.dialect import ClientDialectName

# Headers with the client's key, besides `authorization`.
KEY_HEADERS = (b"x-api-key", b"x-goog-api-key")
# Headers that only clients of one dialect send. They decide at paths that several dialects share.
CLIENT_HEADERS: Final[dict[ClientDialectName, tuple[bytes, ...]]] = {
    "messages": (b"anthropic-version",),
    "gemini": (b"x-goog-api-client", b"x-goog-api-key"),
}
# Headers that CORS must allow for clients in browsers.
CORS_CLIENT_HEADERS = (
    *KEY_HEADERS,
    *CLIENT_HEADERS["messages"],
    b"anthropic-beta",
    b"anthropic-dangerous-direct-browser-access",
    b"x-goog-api-client",
)
