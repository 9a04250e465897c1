"""The Responses dialect: Open Responses, and older or incomplete servers and clients of this API."""

from antiphon.dialects.responses.errors import error_from_hub, error_to_hub
from antiphon.dialects.responses.request_in import request_to_hub
from antiphon.dialects.responses.request_out import request_from_hub
from antiphon.dialects.responses.stream_in import (
    EventsToHub,
    frames_without_settings,
    response_to_hub,
    without_settings,
)
from antiphon.dialects.responses.stream_out import EventsFromHub, complete_usage, response_from_hub, unseal_item
from antiphon.dialects.responses.token_count import count_request
from antiphon.dialects.responses.wire import PART_TYPES, ResponsesWire, wire_after_refusal

__all__ = [
    "PART_TYPES",
    "EventsFromHub",
    "EventsToHub",
    "ResponsesWire",
    "complete_usage",
    "count_request",
    "error_from_hub",
    "error_to_hub",
    "frames_without_settings",
    "request_from_hub",
    "request_to_hub",
    "response_from_hub",
    "response_to_hub",
    "unseal_item",
    "wire_after_refusal",
    "without_settings",
]
