"""Headers that clients of the APIs send: where they put their keys, and which of them only clients of one API have."""

from __future__ import annotations

# Where clients put their keys besides `authorization`.
KEY_HEADERS = (b"x-api-key", b"x-goog-api-key")
# Headers that only clients of one dialect send, where its paths are those of others too.
MESSAGES_CLIENT_HEADER = b"anthropic-version"
GEMINI_CLIENT_HEADERS = (b"x-goog-api-client", b"x-goog-api-key")
# What pages of these clients have to be allowed to send.
CORS_CLIENT_HEADERS = (
    *KEY_HEADERS,
    MESSAGES_CLIENT_HEADER,
    b"anthropic-beta",
    b"anthropic-dangerous-direct-browser-access",
    b"x-goog-api-client",
)
