"""Ollama's own API: `/api/chat` and `/api/generate`."""

from antiphon.dialects.ollama.answer_content import AnswerContent
from antiphon.dialects.ollama.errors import error_from_hub, error_to_hub
from antiphon.dialects.ollama.models import model_from_hub, models_from_hub
from antiphon.dialects.ollama.request_in import request_at_path, request_to_hub
from antiphon.dialects.ollama.request_out import request_from_hub
from antiphon.dialects.ollama.stream_in import EventsToHub, response_to_hub
from antiphon.dialects.ollama.stream_out import EventsFromHub, response_from_hub
from antiphon.dialects.ollama.wire import wire_after_refusal

__all__ = [
    "AnswerContent",
    "EventsFromHub",
    "EventsToHub",
    "error_from_hub",
    "error_to_hub",
    "model_from_hub",
    "models_from_hub",
    "request_at_path",
    "request_from_hub",
    "request_to_hub",
    "response_from_hub",
    "response_to_hub",
    "wire_after_refusal",
]
