"""Messages."""

from antiphon.dialects.messages.answer_content import AnswerContent
from antiphon.dialects.messages.errors import error_from_hub, error_to_hub
from antiphon.dialects.messages.models import model_from_hub, models_from_hub
from antiphon.dialects.messages.request_in import request_to_hub
from antiphon.dialects.messages.request_out import request_from_hub
from antiphon.dialects.messages.stream_in import EventsToHub, response_to_hub
from antiphon.dialects.messages.stream_out import EventsFromHub, response_from_hub
from antiphon.dialects.messages.token_count import count_request
from antiphon.dialects.messages.wire import NATIVE_BLOCKS, PART_TYPES, wire_after_refusal

__all__ = [
    "NATIVE_BLOCKS",
    "PART_TYPES",
    "AnswerContent",
    "EventsFromHub",
    "EventsToHub",
    "count_request",
    "error_from_hub",
    "error_to_hub",
    "model_from_hub",
    "models_from_hub",
    "request_from_hub",
    "request_to_hub",
    "response_from_hub",
    "response_to_hub",
    "wire_after_refusal",
]
