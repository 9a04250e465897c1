"""Headers that clients of the APIs send: key headers, and headers that identify the clients of one API."""

from __future__ import annotations

# Headers with the client's key, besides `authorization`.
KEY_HEADERS = (b"x-api-key", b"x-goog-api-key")
# Headers that only clients of one dialect send, for dialects that share paths with others.
MESSAGES_CLIENT_HEADER = b"anthropic-version"
GEMINI_CLIENT_HEADERS = (b"x-goog-api-client", b"x-goog-api-key")
# Headers that CORS must allow for clients in browsers.
CORS_CLIENT_HEADERS = (
    *KEY_HEADERS,
    MESSAGES_CLIENT_HEADER,
    b"anthropic-beta",
    b"anthropic-dangerous-direct-browser-access",
    b"x-goog-api-client",
)
