"""The conversation of `antiphon chat`: which fields the next request has, and the transcript for people."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from antiphon.cli.attachments import Attachment
from antiphon.protocol.content import InputFileParam, InputImageParam, InputText
from antiphon.protocol.items import ItemParam, MessageParam
from antiphon.protocol.request_fields import RequestFields
from antiphon.protocol.response import Response


class Exchange(Struct):
    """A question and its answer, for the transcript."""

    question: str
    answer: str


class Conversation:
    """A conversation. Turns that the gateway stored are continued by id; the others are sent again."""

    def __init__(self, model: str, instructions: str = "", previous_id: str | None = None) -> None:
        self.model = model
        self.instructions = instructions
        self.exchanges: list[Exchange] = []
        self._previous_id = previous_id
        self._unstored_items: list[ItemParam] = []
        self._attachments: list[Attachment] = []

    @property
    def attachments(self) -> int:
        """The number of files for the next question."""
        return len(self._attachments)

    def attach(self, attachment: Attachment) -> None:
        """Add a file to the next question."""
        self._attachments.append(attachment)

    def restart(self) -> None:
        """Forget everything but the model and the system prompt."""
        self.exchanges = []
        self._previous_id = None
        self._unstored_items = []
        self._attachments = []

    def request_fields(self, question: str) -> tuple[list[ItemParam], RequestFields]:
        """Return the input and the fields of the request for a question."""
        fields: RequestFields = {"model": self.model}
        if self.instructions:
            fields["instructions"] = self.instructions
        if self._previous_id is not None:
            fields["previous_response_id"] = self._previous_id
        return [*self._unstored_items, self._message(question)], fields

    def add_answer(self, question: str, response: Response) -> None:
        """Record a complete or incomplete answer."""
        if response.store:
            self._previous_id = response.id
            self._unstored_items = []
        else:
            self._unstored_items += [self._message(question), *response.output]
        self._end_exchange(question, response.output_text)

    def add_interrupted_answer(self, question: str, text: str) -> None:
        """Record an answer that the user stopped, so that the model knows how far it got."""
        self._unstored_items.append(self._message(question))
        if text:
            self._unstored_items.append(MessageParam(role="assistant", content=text))
        self._end_exchange(question, f"{text}\n\n{STOPPED}".strip())

    def transcript(self) -> str:
        """Return the conversation as Markdown."""
        lines = [f"# Conversation with {self.model}", ""]
        if self.instructions:
            lines += ["## System", "", self.instructions, ""]
        for exchange in self.exchanges:
            lines += ["## User", "", exchange.question, "", "## Assistant", "", exchange.answer, ""]
        return "\n".join(lines)

    def _message(self, question: str) -> MessageParam:
        if not self._attachments:
            return MessageParam(role="user", content=question)
        parts: list[InputText | InputImageParam | InputFileParam] = [InputText(text=question), *self._attachments]
        return MessageParam(role="user", content=[*parts])

    def _end_exchange(self, question: str, answer: str) -> None:
        self.exchanges.append(Exchange(question, answer))
        self._attachments = []


STOPPED: Final = "[stopped]"
