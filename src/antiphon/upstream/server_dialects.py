"""The dialects that upstreams speak: where each puts its endpoints, and the half of it that faces a server.

Where a path names the model, the name is the client's: it can reach no other path of the server with it.
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
    """What every dialect's reader of streams has."""

    @property
    def error(self) -> ApiError | None: ...

    @property
    def losses(self) -> Losses: ...

    def feed(self, frame: sse.Frame) -> list[StreamEvent]: ...

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]: ...

    def limit_output(self, limits: OutputLimits) -> None: ...

    def cut_off(self, reason: str) -> list[StreamEvent]: ...


# `text_run` of a reader that can take many pieces of a text at once.
TextRunToHub = Callable[[list[sse.Frame], int], tuple[TextRun | None, int]]


class ServerDialect(Struct, frozen=True):
    """One dialect as an upstream speaks it. A profile's wire options go in with each call; each dialect has a struct of its own."""

    path: str
    request_from_hub: Callable[[Request, Any], tuple[bytes, Losses]]
    events_to_hub: Callable[..., EventsToHub]
    response_to_hub: Callable[..., tuple[Response, Losses]]
    error_to_hub: Callable[[int, Mapping[str, str], bytes], ApiError]
    stream_path: str = ""  # where a stream is asked for elsewhere
    models_path: str = "/models"
    #: The wire options under which a model is not sent what the server refused; None: nothing can be left out.
    wire_after_refusal: Callable[[Any, str, RefusedPart], Any | None] | None = None

    def url(self, base_url: str, model: str, *, streams: bool) -> str:
        """Where a turn is asked for."""
        return self.url_at((streams and self.stream_path) or self.path, base_url, model)

    def url_at(self, path: str, base_url: str, model: str) -> str:
        """A path of this dialect; `{model}` in it stands for a model's name."""
        return base_url + (path.replace("{model}", quote(model_resource_name(model), safe="/")) if "{model}" in path else path)


def model_resource_name(model: str) -> str:
    """The whole name of a model, as paths have it. Servers take `models/x/../../y` for `y`, so no such name leaves here."""
    name = model if RESOURCE.match(model) else f"models/{model}"
    if not all(part.strip(".") for part in name.split("/")):
        raise InvalidValue(f"model: got {model[:100]!r}, wanted the name of a model, with no empty step in it", param="model")
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
