"""A gemini server's whole answer, by way of the stream (STR-14): it is one frame. An error in its place is raised."""

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
    opening: Response,
    stamps: Stamps,
    wire: GeminiWire = GeminiWire(),  # noqa: B008
) -> tuple[Response, Losses]:
    """A server's whole answer. Raises what it says instead of one, or that it is none."""
    return EventsToHub(request, opening, stamps, wire).response(body)
