"""The API of `generateContent` and `streamGenerateContent`."""

from antiphon.dialects.gemini.errors_from_hub import error_from_hub
from antiphon.dialects.gemini.errors_to_hub import error_to_hub
from antiphon.dialects.gemini.events_from_hub import EventsFromHub
from antiphon.dialects.gemini.events_to_hub import EventsToHub
from antiphon.dialects.gemini.request_from_hub import request_from_hub
from antiphon.dialects.gemini.request_to_hub import request_to_hub
from antiphon.dialects.gemini.response_from_hub import response_from_hub
from antiphon.dialects.gemini.response_to_hub import response_to_hub

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
