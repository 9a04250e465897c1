"""Messages."""

from antiphon.dialects.messages.errors_from_hub import error_from_hub
from antiphon.dialects.messages.errors_to_hub import error_to_hub
from antiphon.dialects.messages.events_from_hub import EventsFromHub
from antiphon.dialects.messages.events_to_hub import EventsToHub
from antiphon.dialects.messages.request_from_hub import request_from_hub
from antiphon.dialects.messages.request_to_hub import request_to_hub
from antiphon.dialects.messages.response_from_hub import response_from_hub
from antiphon.dialects.messages.response_to_hub import response_to_hub
from antiphon.dialects.messages.wire import wire_after_refusal

__all__ = [
    "EventsFromHub",
    "EventsToHub",
    "error_from_hub",
    "error_to_hub",
    "request_from_hub",
    "request_to_hub",
    "response_from_hub",
    "response_to_hub",
    "wire_after_refusal",
]
