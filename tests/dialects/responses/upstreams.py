"""Shared by the tests of this dialect: recordings, a reader for them, and responses without ids and times."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.dialects.responses import EventsToHub, ResponsesWire
from antiphon.protocol import codec
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.losses import Loss
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response

RECORDINGS = Path(__file__).parents[2] / "recordings" / "responses"
STREAMS = sorted(path.stem for path in RECORDINGS.glob("*.sse"))
PAIRS = sorted(path.stem.removesuffix("_plain") for path in RECORDINGS.glob("*_plain.json"))
REQUEST = Request(model="m", input="hi")


class ReadResult(NamedTuple):
    events: list[StreamEvent]
    losses: list[Loss]

    @property
    def response(self) -> Response:
        return fold_events(self.events)


def recording(name: str) -> bytes:
    return (RECORDINGS / name).read_bytes()


def frames(data: bytes) -> list[sse.Frame]:
    decoder = sse.Decoder()
    return decoder.feed(data) + decoder.finish()


def reader(request: Request = REQUEST, wire: ResponsesWire = ResponsesWire()) -> EventsToHub:  # noqa: B008
    return EventsToHub(request, make_initial_response(request, id="resp_1", created_at=1), counting_stamps(), wire)


def read_frames(
    given: Iterable[sse.Frame],
    request: Request = REQUEST,
    wire: ResponsesWire = ResponsesWire(),  # noqa: B008
) -> ReadResult:
    to_hub = reader(request, wire)
    events = [event for frame in given for event in to_hub.feed(frame)]
    return ReadResult(events + to_hub.finish(), list(to_hub.losses))


def read_stream(data: bytes, request: Request = REQUEST, wire: ResponsesWire = ResponsesWire()) -> ReadResult:  # noqa: B008
    return read_frames(frames(data), request, wire)


def read_events(events: Iterable[dict[str, Any]], wire: ResponsesWire = ResponsesWire()) -> ReadResult:  # noqa: B008
    return read_frames((frame_of(event) for event in events), wire=wire)


def frame_of(event: dict[str, Any]) -> sse.Frame:
    return sse.Frame(str(event.get("type", "")), json.dumps(event).encode())


def stable_fields(response: Response) -> dict[str, Any]:
    """The comparable fields: no ids, times, echoed settings or envelopes; null and absent are the same."""
    fields = json.loads(codec.encode(response))
    names = ("status", "output", "error", "incomplete_details", "usage", "service_tier")
    return {name: _without_ids(fields[name]) for name in names}


def output_of(read: ReadResult) -> list[dict[str, Any]]:
    """The output, without empty members."""
    output: list[dict[str, Any]] = _full(stable_fields(read.response)["output"])
    return output


def normalized(fields: dict[str, Any]) -> dict[str, Any]:
    """Adds the status that reasoning may lack, and removes empty encrypted content."""
    output = [
        {"status": "completed", **item} if item["type"] == "reasoning" else dict(item) for item in fields["output"]
    ]
    for item in output:
        if item.get("encrypted_content") == "":
            del item["encrypted_content"]
    return {**fields, "output": output}


def _without_ids(value: Any) -> Any:
    match value:
        case dict():
            members = {
                name: _without_ids(member) for name, member in value.items() if name not in IDS and member is not None
            }
            return (
                members | {"encrypted_content": _opened(members["encrypted_content"])}
                if "encrypted_content" in members
                else members
            )
        case list():
            return [_without_ids(member) for member in value]
        case _:
            return value


def _opened(sealed: str) -> str:
    """RSN-2: what its maker will get back."""
    envelope = unseal_reasoning(sealed)
    return envelope.content["encrypted_content"] if envelope is not None else sealed


def _full(value: Any) -> Any:
    match value:
        case dict():
            return {name: _full(member) for name, member in value.items() if member != []}
        case list():
            return [_full(member) for member in value]
        case _:
            return value


IDS = ("id", "call_id")
