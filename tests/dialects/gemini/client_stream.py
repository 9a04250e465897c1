"""Test helpers that write a response with a recording writer and read the stream that a client gets."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.dialects.gemini.reading import frames_of
from tests.dialects.recording_writer import RecordingWriter
from tests.generate.events import CALLED_TOOLS

from antiphon.dialects.gemini import EventsFromHub
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.request import ReasoningConfigParam, Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage

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


def stream_to_client(events: Sequence[StreamEvent], request: Request = REQUEST) -> ClientStream:
    from_hub = EventsFromHub(request)
    data = b"".join(map(from_hub.feed, events)) + from_hub.finish()
    return ClientStream(data, from_hub)


class GeminiWriter(RecordingWriter[ClientStream]):
    """A writer whose stream is that of a Gemini client."""

    default_request = REQUEST
    encode_stream = staticmethod(stream_to_client)


def signed(text: str) -> str:
    """Sealed reasoning as a client of this dialect gets it."""
    return base64.b64encode(text.encode()).decode()
