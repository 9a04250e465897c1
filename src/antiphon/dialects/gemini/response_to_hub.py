"""Reads a gemini server's whole answer as a stream of one frame (STR-14). An error in its place is raised."""

from __future__ import annotations

from antiphon.dialects.gemini.events_to_hub import EventsToHub
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps


def response_to_hub(
    body: bytes,
    request: Request,
    initial_response: Response,
    stamps: Stamps,
    wire: GeminiWire = GeminiWire(),  # noqa: B008
) -> tuple[Response, Losses]:
    """Read a server's whole answer. Raises the error that the server sent, or that the body is not an answer."""
    return EventsToHub(request, initial_response, stamps, wire).response(body)
