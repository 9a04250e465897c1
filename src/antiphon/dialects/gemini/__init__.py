"""The API of `generateContent` and `streamGenerateContent`."""

from antiphon.dialects.gemini.answer_content import AnswerContent
from antiphon.dialects.gemini.errors import error_from_hub, error_to_hub
from antiphon.dialects.gemini.models import (
    INSTEAD_OF_INTERACTIONS,
    TURN_ACTIONS,
    model_from_hub,
    model_resource_name,
    models_from_hub,
    request_at_path,
)
from antiphon.dialects.gemini.request_in import request_to_hub
from antiphon.dialects.gemini.request_out import request_from_hub
from antiphon.dialects.gemini.stream_in import EventsToHub, response_to_hub
from antiphon.dialects.gemini.stream_out import EventsFromHub, response_from_hub
from antiphon.dialects.gemini.token_count import count_request, turn_to_count
from antiphon.dialects.gemini.wire import PART_TYPES

__all__ = [
    "INSTEAD_OF_INTERACTIONS",
    "PART_TYPES",
    "TURN_ACTIONS",
    "AnswerContent",
    "EventsFromHub",
    "EventsToHub",
    "count_request",
    "error_from_hub",
    "error_to_hub",
    "model_from_hub",
    "model_resource_name",
    "models_from_hub",
    "request_at_path",
    "request_from_hub",
    "request_to_hub",
    "response_from_hub",
    "response_to_hub",
    "turn_to_count",
]
