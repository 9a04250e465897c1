"""The Chat Completions dialect."""

from antiphon.dialects.chat.errors import error_from_hub, error_to_hub
from antiphon.dialects.chat.events_from_hub import EventsFromHub
from antiphon.dialects.chat.events_to_hub import EventsToHub
from antiphon.dialects.chat.request import request_from_hub, request_to_hub
from antiphon.dialects.chat.response import response_from_hub, response_to_hub

__all__ = [
    "EventsFromHub",
    "EventsToHub",
    "error_from_hub",
    "error_to_hub",
    "request_from_hub",
    "request_to_hub",
    "response_from_hub",
    "response_to_hub",
]
