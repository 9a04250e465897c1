"""The API of `generateContent` and `streamGenerateContent`."""

from antiphon.dialects.gemini.errors import error_from_hub, error_to_hub
from antiphon.dialects.gemini.request_in import request_to_hub
from antiphon.dialects.gemini.request_out import request_from_hub
from antiphon.dialects.gemini.stream_in import EventsToHub, response_to_hub
from antiphon.dialects.gemini.stream_out import EventsFromHub, response_from_hub

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
