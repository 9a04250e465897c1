"""What a client reads, as it says itself or as clients like it are known to: the style of events, whether it wants losses told
among them, and whether it wants an answer at all where something is lost."""

from __future__ import annotations

from antiphon.errors import ClientFault
from antiphon.profiles.known_clients import ANNOUNCEMENT, Style, style_of
from antiphon.server.asgi import Scope, first_of


def style_for(scope: Scope) -> Style:
    """API-6: what the client says it reads, else what clients like it are known to read."""
    match first_of(scope, b"antiphon-style"):
        case b"" if ANNOUNCEMENT[1] in first_of(scope, ANNOUNCEMENT[0]):
            return "older"
        case b"":
            return style_of(first_of(scope, b"user-agent")[:512].decode("latin-1"))
        case b"standard":
            return "standard"
        case b"older":
            return "older"
        case other:
            came = other[:50].decode("latin-1")
            raise ClientFault(f"the header Antiphon-Style: got {came!r}, wanted 'standard' or 'older'", param="antiphon-style")


def wants_losses(scope: Scope) -> bool:
    """Whether the client asked for the extension event that tells what was lost."""
    asked = first_of(scope, b"antiphon-extensions").decode("latin-1").lower()
    return "losses" in (word.strip() for word in asked.split(","))


def refuses_losses(scope: Scope) -> bool | None:
    """Whether a turn that loses something on its way is to be refused; None if the client leaves that to the upstream's setting."""
    match first_of(scope, b"antiphon-losses"):
        case b"":
            return None
        case b"strict":
            return True
        case b"warn":
            return False
        case other:
            came = other[:50].decode("latin-1")
            raise ClientFault(f"the header Antiphon-Losses: got {came!r}, wanted 'strict' or 'warn'", param="antiphon-losses")
