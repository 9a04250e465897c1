"""Plays an answer of a server to a client of the same dialect, with its reader, its writer and the relay."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from antiphon.dialects.common.relay import Relay, relayed_answer
from antiphon.dialects.dialect import FRAME_DECODERS, FRAME_ENCODERS, ServerDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS
from antiphon.errors import ApiError
from antiphon.protocol.events import StreamEvent, TerminalEvent
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.stamps import Stamps


def _stamps() -> Stamps:
    numbers = count()
    return Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1)


class RelayedStream:
    """A stream of a server on its way to a client."""

    def __init__(
        self, dialect: ServerDialectName, request: bytes, *, model: str | None = None, wire: Any = None
    ) -> None:
        client, server = CLIENT_DIALECTS[dialect], SERVER_DIALECTS[dialect]
        hub_request, _ = client.request_to_hub(request)
        wire = wire or server.wire_type()
        stamps = _stamps()
        initial_response = make_initial_response(hub_request, id="resp_1", created_at=1)
        assert client.answer_content is not None
        content = client.answer_content(hub_request, wire, initial_response, model)
        self.relay = Relay(content, FRAME_ENCODERS[client.framing])
        self._decoder = FRAME_DECODERS[server.framing]()
        self._reader = server.events_to_hub(hub_request, initial_response, stamps, wire)
        self._writer = client.events_from_hub(hub_request)

    def feed(self, data: bytes) -> bytes:
        frames = self._decoder.feed(data)
        self.relay.add_frames(frames)
        return b"".join([self._deliver(self._reader.feed(frame)) for frame in frames]) + self.relay.flush()

    def finish(self, error: ApiError | None = None) -> bytes:
        return self._deliver(self._reader.finish(error))

    def _deliver(self, events: Iterable[StreamEvent]) -> bytes:
        out: list[bytes] = []
        for event in events:
            end = isinstance(event, TerminalEvent)
            out.append(self.relay.deliver(event, self._writer.feed(event) + (self._writer.finish() if end else b"")))
        return b"".join(out)


def relayed_stream(
    dialect: ServerDialectName, request: bytes, data: bytes, *, model: str | None = None, wire: Any = None
) -> tuple[bytes, bool]:
    """The client's bytes for a whole stream, and whether the server's frames passed."""
    stream = RelayedStream(dialect, request, model=model, wire=wire)
    out = stream.feed(data) + stream.finish()
    return out, stream.relay.is_active


def relayed_whole(dialect: ServerDialectName, request: bytes, body: bytes, *, model: str | None = None) -> bytes | None:
    """The client's body for a whole answer; None if it is translated."""
    client, server = CLIENT_DIALECTS[dialect], SERVER_DIALECTS[dialect]
    hub_request, _ = client.request_to_hub(request)
    stamps = _stamps()
    initial_response = make_initial_response(hub_request, id="resp_1", created_at=1)
    wire = server.wire_type()
    response, _ = server.response_to_hub(body, hub_request, initial_response, stamps, wire)
    assert client.answer_content is not None
    return relayed_answer(client.answer_content(hub_request, wire, initial_response, model), body, response)
