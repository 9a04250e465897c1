"""`OpenResponsesIntegration`: the calls for an agent's own loop, whether the layer is on or off (B-8)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from antiphon.dialects.agent_log.wire import ThreadEvent
from antiphon.errors import InvalidTransition
from antiphon.producer.builder import ResponseBuilder
from antiphon.producer.settings import OpenResponsesConfig, load_settings
from antiphon.protocol.emitters import Emitter, NullEmitter
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.system_stamps import SYSTEM_STAMPS

OpenResponsesCallback = Callable[[StreamEvent], None]


class OpenResponsesIntegration:
    """Builds one response after the other. If the layer is off, its methods do nothing."""

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
    def from_toml(cls, toml: str | Path, *, slug: str = "vtcode") -> OpenResponsesIntegration:
        """Uses the settings of `[agent.open_responses]` in a TOML text (`str`), or in a file (`Path`)."""
        return cls(load_settings(toml), slug=slug)

    def set_callback(self, callback: OpenResponsesCallback | None) -> None:
        """Sets the callback for events; None removes it."""
        self._callback = callback

    def start_response(self, model: str) -> None:
        """Starts a response. Events are emitted with the first event of the agent."""
        if not self._config.enabled:
            return
        if self._builder is not None:
            raise InvalidTransition(
                f"the response {self._builder.response().id} is still in progress: finish it before the next one starts"
            )
        self._builder = ResponseBuilder(model, config=self._config, slug=self._slug, stamps=self._stamps)

    def process_event(self, event: ThreadEvent) -> None:
        """Translates the next event of the agent."""
        if not self._config.enabled:
            return
        if self._builder is None:
            raise InvalidTransition("no response is in progress: call start_response before process_event")
        self._builder.process_event(event, self._emitter())

    def finish_response(self) -> Response | None:
        """Ends the response and returns it; None if none was started."""
        builder, self._builder = self._builder, None
        if builder is None:
            return None
        builder.finish(self._emitter())
        return builder.response()

    def _emitter(self) -> Emitter:
        return self._callback if self._callback is not None and self._config.emit_events else NullEmitter()
