"""The dialects that upstreams speak: where each puts its endpoints, and the half of it that faces a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

from antiphon import sse
from antiphon.dialects import chat, responses
from antiphon.errors import ApiError
from antiphon.profiles import Dialect
from antiphon.protocol.events import StreamEvent, TextRun
from antiphon.protocol.losses import Losses
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


# `text_run` of a reader that can take many pieces of a text at once.
TextRunToHub = Callable[[list[sse.Frame], int], tuple[TextRun | None, int]]


class Speech(Struct, frozen=True):
    """One dialect as an upstream speaks it. A profile's wire options go in with each call; each dialect has a struct of its own."""

    path: str
    request_from_hub: Callable[[Request, Any], tuple[bytes, Losses]]
    events_to_hub: Callable[..., EventsToHub]
    response_to_hub: Callable[..., tuple[Response, Losses]]
    error_to_hub: Callable[[int, Mapping[str, str], bytes], ApiError]


SPEECHES: Final[dict[Dialect, Speech]] = {
    "chat": Speech("/chat/completions", chat.request_from_hub, chat.EventsToHub, chat.response_to_hub, chat.error_to_hub),
    "responses": Speech(
        "/responses", responses.request_from_hub, responses.EventsToHub, responses.response_to_hub, responses.error_to_hub
    ),
}
