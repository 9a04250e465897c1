"""`Turn`: what an agent is asked, and how it answers. All it writes goes to one `ResponseWriter`, whose words refuse illegal moves.

Writing is awaited: if whoever reads is slow the agent waits, and an agent that computes without a pause still lets others run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.protocol.content import Annotation, InputText, OutputTextParam, Text
from antiphon.protocol.items import FunctionCallOutput, ItemParam, MessageParam, Phase, UnknownItem
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Response, Usage
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.writer import ResponseWriter


class Outlet(Protocol):
    """Where an answer goes."""

    def is_busy(self) -> bool:
        """Whether it is time to wait; asked with every piece of text, so it must be cheap."""
        ...

    async def wait_for_reader(self) -> None:
        """Waits for whoever reads."""
        ...


class Turn:
    """One question, and the answer to it."""

    def __init__(self, request: Request, writer: ResponseWriter, stamps: Stamps, outlet: Outlet) -> None:
        self.request = request
        self.writer = writer  # for what has no method here
        self.outlet = outlet
        self._new_id = stamps.new_id
        self._count = 0

    # What is asked

    @property
    def input(self) -> list[ItemParam]:
        """The whole conversation, oldest first."""
        return input_items(self.request)

    @property
    def text(self) -> str:
        """The user's last words."""
        for item in reversed(self.input):
            if isinstance(item, MessageParam) and item.role == "user":
                return message_text(item)
        return ""

    @property
    def response(self) -> Response:
        """The answer so far."""
        return self.writer.response

    # What is answered

    def message(self, *, phase: Phase | UnsetType = UNSET) -> MessageWriter:
        """A message, written while the `async with` lasts."""
        return MessageWriter(self, self._key("message"), phase)

    def reasoning(self) -> ReasoningWriter:
        """Reasoning, likewise."""
        return ReasoningWriter(self, self._key("reasoning"))

    def function_call(self, name: str, *, call_id: str | None = None) -> CallWriter:
        """A call of one of the client's tools, its arguments written piece by piece as JSON text."""
        return CallWriter(self, self._key("call"), name, call_id or self._new_id("call"))

    async def call(self, name: str, arguments: Any, *, call_id: str | None = None) -> str:
        """The same in one step, from arguments as objects; returns the call's id."""
        async with self.function_call(name, call_id=call_id) as call:
            await call.write(msgspec.json.encode(arguments).decode())
        return call.call_id

    async def output(self, call_id: str, output: str) -> None:
        """What came of a call that the agent made itself."""
        done = FunctionCallOutput(id=self._new_id("fco"), call_id=call_id, output=output, status=ItemStatus.COMPLETED)
        self.writer.whole_item(self._key("output"), done)
        await self.wait_for_reader()

    async def extension(self, kind: str, members: Mapping[str, Any], *, status: ItemStatus = ItemStatus.COMPLETED) -> None:
        """An item of the agent's own kind, `slug:name`, whole (B-3)."""
        key = self._key(kind)
        self.writer.extension_item(key, kind, dict(members))
        final = Raw(msgspec.json.encode({**members, "type": kind, "status": status}))
        self.writer.finish_item(key, UnknownItem(kind=kind, raw=final))
        await self.wait_for_reader()

    async def event(self, kind: str, members: Mapping[str, Any]) -> None:
        """An event of the agent's own kind, `slug:name`; it leaves no trace in the response."""
        self.writer.extension_event(kind, dict(members))
        await self.wait_for_reader()

    def usage(self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0, reasoning_tokens: int = 0) -> None:
        """What the turn has cost so far (B-7); the last word counts."""
        self.writer.update(
            usage=Usage(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                total_tokens=input_tokens + output_tokens,
                input_tokens_details=InputTokensDetails(cached_tokens=cached_tokens),
                output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning_tokens),
            )
        )

    def incomplete(self, reason: str = "max_output_tokens") -> None:
        """Ends the response before its time: the item that is open, if one is, is incomplete. Nothing can follow."""
        self.writer.incomplete(reason)

    async def wait_for_reader(self) -> None:
        """Lets whoever reads keep up."""
        if self.outlet.is_busy():
            await self.outlet.wait_for_reader()

    def _key(self, kind: str) -> str:
        self._count += 1
        return f"{kind} {self._count}"


class ItemWriter(ABC):
    """An item that is open while an `async with` lasts. If that ends with an exception, the item is left as it is: the response
    fails, and closes it."""

    __slots__ = ("_key", "_outlet", "_turn", "_writer")

    def __init__(self, turn: Turn, key: str) -> None:
        self._turn = turn
        self._writer = turn.writer
        self._outlet = turn.outlet
        self._key = key

    async def __aenter__(self) -> Self:
        self._announce()
        await self._turn.wait_for_reader()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None and not self._writer.has_ended:
            self._writer.close(self._key)
            await self._turn.wait_for_reader()

    @abstractmethod
    def _announce(self) -> None:
        """Opens the item."""


class MessageWriter(ItemWriter):
    """A message that is being written."""

    __slots__ = ("_phase",)

    def __init__(self, turn: Turn, key: str, phase: Phase | UnsetType) -> None:
        super().__init__(turn, key)
        self._phase = phase

    async def write(self, text: str) -> None:
        """The next piece of its text."""
        self._writer.text(self._key, text)
        if self._outlet.is_busy():
            await self._outlet.wait_for_reader()

    async def refuse(self, text: str) -> None:
        """The next piece of a refusal (STR-11)."""
        self._writer.refusal(self._key, text)
        await self._turn.wait_for_reader()

    async def cite(self, annotation: Annotation) -> None:
        """A citation of the text (STR-11)."""
        self._writer.annotation(self._key, annotation)
        await self._turn.wait_for_reader()

    def _announce(self) -> None:
        self._writer.message(self._key, phase=self._phase)


class ReasoningWriter(ItemWriter):
    """Reasoning that is being written."""

    __slots__ = ()

    async def write(self, text: str) -> None:
        """The next piece of the reasoning itself."""
        self._writer.reasoning(self._key, text)
        if self._outlet.is_busy():
            await self._outlet.wait_for_reader()

    async def summarise(self, text: str) -> None:
        """The next piece of a summary of it (STR-10)."""
        self._writer.summary(self._key, text)
        await self._turn.wait_for_reader()

    def _announce(self) -> None:
        self._writer.reasoning_item(self._key)


class CallWriter(ItemWriter):
    """A call whose arguments are being written."""

    __slots__ = ("_name", "call_id")

    def __init__(self, turn: Turn, key: str, name: str, call_id: str) -> None:
        super().__init__(turn, key)
        self._name = name
        self.call_id = call_id

    async def write(self, arguments: str) -> None:
        """The next piece of the arguments, as JSON text (STR-9)."""
        self._writer.arguments(self._key, arguments)
        await self._turn.wait_for_reader()

    def _announce(self) -> None:
        self._writer.call(self._key, name=self._name, call_id=self.call_id)


def message_text(message: MessageParam) -> str:
    """The words of a message."""
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text for part in message.content if isinstance(part, InputText | OutputTextParam | Text))
