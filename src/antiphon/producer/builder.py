"""`ResponseBuilder`: an agent's thread events in, Open Responses events and the response out (B-5, B-7).

It does not know where events go: each call names the emitter for its events (B-2).
"""

from __future__ import annotations

from antiphon.dialects.agent_log.stream_in import ThreadToHub
from antiphon.dialects.agent_log.wire import ThreadEvent
from antiphon.errors import ApiError
from antiphon.producer.settings import OpenResponsesConfig
from antiphon.protocol.emitters import Emitter, NullEmitter
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.writer import ResponseWriter
from antiphon.system_stamps import SYSTEM_STAMPS


class ResponseBuilder:
    """Builds one response from one turn of an agent. `slug` is the prefix of its extensions: `vtcode:file_change`."""

    def __init__(
        self,
        model: str,
        *,
        config: OpenResponsesConfig = OpenResponsesConfig(enabled=True),  # noqa: B008
        slug: str = "vtcode",
        stamps: Stamps = SYSTEM_STAMPS,
    ) -> None:
        initial_response = make_initial_response(
            Request(model=model, store=False), id=stamps.new_id("resp"), created_at=stamps.now()
        )
        self._emitter: Emitter = NullEmitter()
        self._writer = ResponseWriter(initial_response, self._emit, stamps)
        self._thread = ThreadToHub(self._writer, config.wire(slug))

    def process_event(self, event: ThreadEvent, emitter: Emitter) -> None:
        """Translates the next event of the agent."""
        self._emitter = emitter
        self._thread.feed(event)

    def finish(self, emitter: Emitter, error: ApiError | None = None) -> None:
        """Ends the response: it is completed, or failed if there is an error. A turn that has already ended does not
        change."""
        self._emitter = emitter
        if error is not None:
            self._thread.finish(error)
        elif not self._writer.has_ended:
            self._writer.complete()

    def response(self) -> Response:
        """The response so far."""
        return self._writer.response

    @property
    def losses(self) -> Losses:
        """What could not be translated."""
        return self._thread.losses

    def _emit(self, event: StreamEvent) -> None:
        self._emitter(event)
