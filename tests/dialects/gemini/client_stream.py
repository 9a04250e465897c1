"""Test helpers that write a response with a recording writer and read the stream that a client gets."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.dialects.gemini.reading import frames_of
from tests.generate.events import CALLED_TOOLS, counting_stamps

from antiphon.dialects.gemini import EventsFromHub
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.request import ReasoningConfigParam, Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage, make_initial_response
from antiphon.protocol.writer import ResponseWriter

# Offers the tools that the generated responses call, and asks for thoughts.
REQUEST = Request(
    model="m",
    reasoning=ReasoningConfigParam(summary="auto"),
    tools=CALLED_TOOLS,
)
USAGE = Usage(
    input_tokens=30,
    output_tokens=12,
    total_tokens=42,
    input_tokens_details=InputTokensDetails(cached_tokens=8),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=5),
)
HEAD = {"modelVersion": "m", "responseId": "resp_1"}


class ClientStream(NamedTuple):
    data: bytes
    from_hub: EventsFromHub

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(frame.data) for frame in frames_of(self.data)]

    @property
    def parts(self) -> list[dict[str, Any]]:
        """Every part before the last one, which ends the answer."""
        candidates = [candidate for answer in self.answers for candidate in answer.get("candidates", ())]
        return [part for candidate in candidates for part in candidate["content"]["parts"]]

    @property
    def end(self) -> str | None:
        candidates: list[dict[str, Any]] = self.answers[-1].get("candidates", [{}])
        reason: str | None = candidates[0].get("finishReason")
        return reason

    @property
    def lost(self) -> list[str]:
        return [loss.path for loss in self.from_hub.losses]


class RecordingWriter(ResponseWriter):
    """A writer that collects its events."""

    def __init__(self, request: Request = REQUEST) -> None:
        self.collector = EventCollector()
        super().__init__(make_initial_response(request, id="resp_1", created_at=7), self.collector, counting_stamps())

    def client_stream(self, request: Request = REQUEST) -> ClientStream:
        return stream_to_client(self.collector.events, request)


def stream_to_client(events: Sequence[StreamEvent], request: Request = REQUEST) -> ClientStream:
    from_hub = EventsFromHub(request)
    data = b"".join(map(from_hub.feed, events)) + from_hub.finish()
    return ClientStream(data, from_hub)


def signed(text: str) -> str:
    """Sealed reasoning as a client of this dialect gets it."""
    return base64.b64encode(text.encode()).decode()
