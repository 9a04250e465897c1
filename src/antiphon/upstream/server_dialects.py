"""The server half of each dialect, and the paths of its endpoints.

A path may contain the model name, which the client chooses; it cannot select another path of the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote

from msgspec import Struct

from antiphon import sse
from antiphon.dialects import chat, gemini, messages, responses
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.errors import ApiError, InvalidValue
from antiphon.profiles import Dialect
from antiphon.protocol.events import StreamEvent, TextRun
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response


class EventsToHub(Protocol):
    """The stream reader of a server dialect."""

    @property
    def error(self) -> ApiError | None: ...

    @property
    def losses(self) -> Losses: ...

    def feed(self, frame: sse.Frame) -> list[StreamEvent]: ...

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]: ...

    def limit_output(self, limits: OutputLimits) -> None: ...

    def cut_off(self, reason: str) -> list[StreamEvent]: ...


# `text_run` of a reader that accepts many text deltas at once.
TextRunToHub = Callable[[list[sse.Frame], int], tuple[TextRun | None, int]]


class ServerDialect(Struct, frozen=True):
    """The server half of one dialect. Each call gets the profile's wire options; each dialect has its own struct for
    them."""

    path: str
    request_from_hub: Callable[[Request, Any], tuple[bytes, Losses]]
    events_to_hub: Callable[..., EventsToHub]
    response_to_hub: Callable[..., tuple[Response, Losses]]
    error_to_hub: Callable[[int, Mapping[str, str], bytes], ApiError]
    stream_path: str = ""  # for streams, if different
    models_path: str = "/models"
    #: The wire options without a part that the server refused for a model; None: nothing can be left out.
    wire_after_refusal: Callable[[Any, str, RefusedPart], Any | None] | None = None

    def url(self, base_url: str, model: str, *, streams: bool) -> str:
        """The URL for a turn."""
        return self.url_at((streams and self.stream_path) or self.path, base_url, model)

    def url_at(self, path: str, base_url: str, model: str) -> str:
        """The URL of a path; `{model}` is replaced with the model name."""
        return base_url + (
            path.replace("{model}", quote(model_resource_name(model), safe="/")) if "{model}" in path else path
        )


def model_resource_name(model: str) -> str:
    """The full resource name of a model. Servers resolve `models/x/../../y` to `y`, so such names are refused."""
    name = model if RESOURCE.match(model) else f"models/{model}"
    if not all(part.strip(".") for part in name.split("/")):
        raise InvalidValue(
            f"model: expected a model name without empty path segments, got {model[:100]!r}", param="model"
        )
    return name


SERVER_DIALECTS: Final[dict[Dialect, ServerDialect]] = {
    "chat": ServerDialect(
        "/chat/completions",
        chat.request_from_hub,
        chat.EventsToHub,
        chat.response_to_hub,
        chat.error_to_hub,
    ),
    "responses": ServerDialect(
        "/responses",
        responses.request_from_hub,
        responses.EventsToHub,
        responses.response_to_hub,
        responses.error_to_hub,
        wire_after_refusal=responses.wire_after_refusal,
    ),
    "messages": ServerDialect(
        "/messages",
        messages.request_from_hub,
        messages.EventsToHub,
        messages.response_to_hub,
        messages.error_to_hub,
        models_path="/models?limit=1000",
        wire_after_refusal=messages.wire_after_refusal,
    ),
    "gemini": ServerDialect(
        "/{model}:generateContent",
        gemini.request_from_hub,
        gemini.EventsToHub,
        gemini.response_to_hub,
        gemini.error_to_hub,
        stream_path="/{model}:streamGenerateContent?alt=sse",
        models_path="/models?pageSize=1000",
    ),
}
RESOURCE: Final = re.compile(r"(?:[\w.-]+/)*(?:models|tunedModels)/")
