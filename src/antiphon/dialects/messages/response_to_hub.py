"""Reads a Messages server's whole answer as a stream (STR-14)."""

from __future__ import annotations

from antiphon.dialects.messages.events_to_hub import EventsToHub
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps


def response_to_hub(
    body: bytes,
    request: Request,
    initial_response: Response,
    stamps: Stamps,
    wire: MessagesWire = MessagesWire(),  # noqa: B008
) -> tuple[Response, Losses]:
    """Read a server's whole answer. Raises the error that the server sent, or that the body is not an answer."""
    return EventsToHub(request, initial_response, stamps, wire).response(body)
