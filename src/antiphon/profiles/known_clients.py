"""Headers that clients of the APIs send: where they put their keys, and which of them only clients of one API have."""

from __future__ import annotations

# Where clients put their keys besides `authorization`.
KEY_HEADERS = (b"x-api-key", b"x-goog-api-key")
# Headers that only clients of one dialect send, where its paths are those of others too.
OF_MESSAGES = b"anthropic-version"
OF_GEMINI = (b"x-goog-api-client", b"x-goog-api-key")
# What pages of these clients have to be allowed to send.
HEADERS_OF_PAGES = (
    *KEY_HEADERS,
    OF_MESSAGES,
    b"anthropic-beta",
    b"anthropic-dangerous-direct-browser-access",
    b"x-goog-api-client",
)
