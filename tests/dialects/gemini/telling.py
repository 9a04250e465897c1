"""How the tests of this dialect tell a client of a response: a life that a writer leads, and what the client is sent of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.dialects.gemini.reading import frames_of
from tests.generate.events import counting_stamps

from antiphon.dialects.gemini import EventsFromHub
from antiphon.protocol.emitters import Collector
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.request import ReasoningConfigParam, Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage, opening
from antiphon.protocol.tools import CustomTool, FunctionToolParam, NamespaceTool
from antiphon.protocol.writer import ResponseWriter

# Offers what the generated lives call, and asks for thoughts.
REQUEST = Request(
    model="m",
    reasoning=ReasoningConfigParam(summary="auto"),
    tools=[
        FunctionToolParam(name="look"),
        CustomTool(name="patch"),
        NamespaceTool(name="files", tools=[FunctionToolParam(name="look"), CustomTool(name="patch")]),
    ],
)
USAGE = Usage(
    input_tokens=30,
    output_tokens=12,
    total_tokens=42,
    input_tokens_details=InputTokensDetails(cached_tokens=8),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=5),
)
HEAD = {"modelVersion": "m", "responseId": "resp_1"}


class Told(NamedTuple):
    data: bytes
    from_hub: EventsFromHub

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(frame.data) for frame in frames_of(self.data)]

    @property
    def parts(self) -> list[dict[str, Any]]:
        """Every part, up to the one of the end."""
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


class Life(ResponseWriter):
    """A writer that collects what it makes."""

    def __init__(self, request: Request = REQUEST) -> None:
        self.collector = Collector()
        super().__init__(opening(request, id="resp_1", created_at=7), self.collector, counting_stamps())

    def told(self, request: Request = REQUEST) -> Told:
        return tell(self.collector.events, request)


def tell(events: Sequence[StreamEvent], request: Request = REQUEST) -> Told:
    from_hub = EventsFromHub(request)
    data = b"".join(map(from_hub.feed, events)) + from_hub.finish()
    return Told(data, from_hub)


def signed(text: str) -> str:
    """Sealed reasoning, as a client of this dialect is shown it."""
    return base64.b64encode(text.encode()).decode()
