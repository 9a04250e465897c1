"""The Chat Completions dialect."""

from antiphon.dialects.chat.answer_content import AnswerContent
from antiphon.dialects.chat.errors import error_from_hub, error_to_hub
from antiphon.dialects.chat.request_in import request_to_hub
from antiphon.dialects.chat.request_out import request_from_hub
from antiphon.dialects.chat.stream_in import EventsToHub, response_to_hub
from antiphon.dialects.chat.stream_out import EventsFromHub, response_from_hub
from antiphon.dialects.chat.wire import PART_TYPES, wire_after_refusal

__all__ = [
    "PART_TYPES",
    "AnswerContent",
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
