"""`OpenResponsesIntegration`: what an agent's own loop calls, whether the layer is switched on or not (B-8)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from antiphon.dialects.common.thread_events import ThreadEvent
from antiphon.errors import InvalidTransition
from antiphon.producer.builder import ResponseBuilder
from antiphon.producer.settings import OpenResponsesConfig, load_settings
from antiphon.producer.stamps import SYSTEM_STAMPS
from antiphon.protocol.emitters import Emitter, NullEmitter
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps

OpenResponsesCallback = Callable[[StreamEvent], None]


class OpenResponsesIntegration:
    """One response after the other. Switched off, it does nothing and finishes none."""

    def __init__(
        self,
        config: OpenResponsesConfig = OpenResponsesConfig(),  # noqa: B008
        *,
        slug: str = "vtcode",
        stamps: Stamps = SYSTEM_STAMPS,
    ) -> None:
        self._config = config
        self._slug = slug
        self._stamps = stamps
        self._callback: OpenResponsesCallback | None = None
        self._builder: ResponseBuilder | None = None

    @classmethod
    def from_toml(cls, file: Path, *, slug: str = "vtcode") -> OpenResponsesIntegration:
        """With the switches of `[agent.open_responses]`."""
        return cls(load_settings(file), slug=slug)

    def set_callback(self, callback: OpenResponsesCallback | None) -> None:
        """Who is told of events from now on; nobody if it is None."""
        self._callback = callback

    def start_response(self, model: str) -> None:
        """A response begins; what it is told of comes with the agent's events."""
        if not self._config.enabled:
            return
        if self._builder is not None:
            raise InvalidTransition(
                f"the response {self._builder.response().id} is under way: finish it before the next one starts"
            )
        self._builder = ResponseBuilder(model, config=self._config, slug=self._slug, stamps=self._stamps)

    def process_event(self, event: ThreadEvent) -> None:
        """What the agent tells next."""
        if not self._config.enabled:
            return
        if self._builder is None:
            raise InvalidTransition("no response is under way: call start_response before process_event")
        self._builder.process_event(event, self._emitter())

    def finish_response(self) -> Response | None:
        """The response, at its end; None if none was under way."""
        builder, self._builder = self._builder, None
        if builder is None:
            return None
        builder.finish(self._emitter())
        return builder.response()

    def _emitter(self) -> Emitter:
        return self._callback if self._callback is not None and self._config.emit_events else NullEmitter()
