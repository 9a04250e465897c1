"""The Responses dialect: Open Responses, and older or incomplete servers and clients of this API."""

from antiphon.dialects.responses.errors import error_from_hub, error_to_hub
from antiphon.dialects.responses.events_from_hub import EventsFromHub
from antiphon.dialects.responses.events_to_hub import EventsToHub
from antiphon.dialects.responses.request import request_from_hub, request_to_hub
from antiphon.dialects.responses.response import response_from_hub, response_to_hub
from antiphon.dialects.responses.wire import ResponsesWire, wire_after_refusal

__all__ = [
    "EventsFromHub",
    "EventsToHub",
    "ResponsesWire",
    "error_from_hub",
    "error_to_hub",
    "request_from_hub",
    "request_to_hub",
    "response_from_hub",
    "response_to_hub",
    "wire_after_refusal",
]
