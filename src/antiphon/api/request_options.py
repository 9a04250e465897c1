"""What a client asks for in headers: the style of events, whether it wants losses told among them, and whether it wants an answer
at all where something is lost."""

from __future__ import annotations

from antiphon.dialects.responses.events_from_hub import EventStyle, SelectableEventStyle
from antiphon.errors import ClientFault
from antiphon.http.asgi import Scope, first_header


def requested_style(scope: Scope, of_key: SelectableEventStyle | None, of_server: SelectableEventStyle | None) -> EventStyle:
    """API-6: the style that the request's header names, else the one set for its key, for the server, or the default."""
    match first_header(scope, b"antiphon-style"):
        case b"":
            return of_key or of_server or "default"
        case b"standard":
            return "standard"
        case b"older":
            return "older"
        case other:
            came = other[:50].decode("latin-1")
            raise ClientFault(f"the header Antiphon-Style: got {came!r}, wanted 'standard' or 'older'", param="antiphon-style")


def wants_loss_events(scope: Scope) -> bool:
    """Whether the client asked for the extension event that tells what was lost."""
    asked = first_header(scope, b"antiphon-extensions").decode("latin-1").lower()
    return "losses" in (word.strip() for word in asked.split(","))


def requested_strictness(scope: Scope) -> bool | None:
    """Whether a turn that loses something on its way is to be refused; None if the client leaves that to the upstream's setting."""
    match first_header(scope, b"antiphon-losses"):
        case b"":
            return None
        case b"strict":
            return True
        case b"warn":
            return False
        case other:
            came = other[:50].decode("latin-1")
            raise ClientFault(f"the header Antiphon-Losses: got {came!r}, wanted 'strict' or 'warn'", param="antiphon-losses")
