"""Reads the options that clients set in headers: the style of events, loss events, and strict mode."""

from __future__ import annotations

from antiphon.dialects.responses.stream_out import EventStyle, SelectableEventStyle
from antiphon.errors import ClientFault
from antiphon.http.asgi import Scope, first_header


def requested_style(
    scope: Scope, key_style: SelectableEventStyle | None, server_style: SelectableEventStyle | None
) -> EventStyle:
    """API-6: the style that the request's header names, else the one set for its key, for the server, or the
    default."""
    match first_header(scope, b"antiphon-style"):
        case b"":
            return key_style or server_style or "default"
        case b"standard":
            return "standard"
        case b"older":
            return "older"
        case other:
            value = other[:50].decode("latin-1")
            raise ClientFault(
                f"the header Antiphon-Style: expected 'standard' or 'older', got {value!r}", param="antiphon-style"
            )


def wants_loss_events(scope: Scope) -> bool:
    """Whether the client requested the extension event that lists losses."""
    extensions = first_header(scope, b"antiphon-extensions").decode("latin-1").lower()
    return "losses" in (word.strip() for word in extensions.split(","))


def requested_strictness(scope: Scope) -> bool | None:
    """Whether a turn with losses is refused; None if the header is absent and the setting of the upstream applies."""
    match first_header(scope, b"antiphon-losses"):
        case b"":
            return None
        case b"strict":
            return True
        case b"warn":
            return False
        case other:
            value = other[:50].decode("latin-1")
            raise ClientFault(
                f"the header Antiphon-Losses: expected 'strict' or 'warn', got {value!r}", param="antiphon-losses"
            )
