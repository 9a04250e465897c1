"""The experiments of each dialect, by its name, in the order in which dialects are tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from antiphon.dialects.dialect import ServerDialectName
from antiphon.probe import (
    chat,
    chat_steps,
    gemini,
    gemini_steps,
    messages,
    messages_steps,
    ollama,
    ollama_steps,
    responses,
    responses_steps,
)
from antiphon.probe.draft import ProfileDraft, Verdicts
from antiphon.probe.finding import Body, Step
from antiphon.probe.samples import TextForm


class Steps(Protocol):
    """The interface of each dialect's module of experiments."""

    @property
    def LIMIT_NAMES(self) -> tuple[str, ...]:
        """The possible names of the token limit, the usual name first."""

    def minimal_body(self, form: TextForm) -> Body: ...

    def with_token_limit(self, body: Body, name: str, tokens: int) -> Body: ...

    def probe_steps(self, form: TextForm) -> list[Step]: ...


class DialectExperiments(Struct, frozen=True, kw_only=True):
    """The experiments of one dialect, and the profile that follows from their findings."""

    steps: Steps
    conclude: Callable[[Verdicts], ProfileDraft]
    #: The usual form of a user message.
    text_form: TextForm = "string"
    #: Whether servers may store responses, number their events and accept WebSockets.
    has_stored_responses: bool = False


EXPERIMENTS: Final[dict[ServerDialectName, DialectExperiments]] = {
    "responses": DialectExperiments(
        steps=responses_steps, conclude=responses.conclude, text_form="parts", has_stored_responses=True
    ),
    "chat": DialectExperiments(steps=chat_steps, conclude=chat.conclude),
    "messages": DialectExperiments(steps=messages_steps, conclude=messages.conclude),
    "gemini": DialectExperiments(steps=gemini_steps, conclude=gemini.conclude),
    "ollama": DialectExperiments(steps=ollama_steps, conclude=ollama.conclude),
}
