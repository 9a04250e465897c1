"""`Turn`: the request of a turn, and methods to write the answer. One `ResponseWriter` checks the order of all writes.

Writes are awaited: the agent waits for a slow reader, and yields to other tasks.
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
    """The destination of an answer, with backpressure."""

    def is_busy(self) -> bool:
        """Whether the agent should wait. It is called for every piece of text, so it must be cheap."""
        ...

    async def wait_for_reader(self) -> None:
        """Waits for the reader."""
        ...


class Turn:
    """One request, and the answer to it.

    Example:
        @agent(model="counter")
        async def count_words(turn: Turn) -> None:
            async with turn.message() as message:
                await message.write(f"You wrote {len(turn.text.split())} words.")
            turn.usage(input_tokens=len(turn.text), output_tokens=4)
    """

    def __init__(self, request: Request, writer: ResponseWriter, stamps: Stamps, outlet: Outlet) -> None:
        self.request = request
        self.writer = writer  # for events without a method here
        self.outlet = outlet
        self._new_id = stamps.new_id
        self._count = 0

    # The request

    @property
    def input(self) -> list[ItemParam]:
        """The whole conversation, oldest first."""
        return input_items(self.request)

    @property
    def text(self) -> str:
        """The text of the last user message."""
        for item in reversed(self.input):
            if isinstance(item, MessageParam) and item.role == "user":
                return message_text(item)
        return ""

    @property
    def response(self) -> Response:
        """The answer so far."""
        return self.writer.response

    # The answer

    def message(self, *, phase: Phase | UnsetType = UNSET) -> MessageWriter:
        """Opens a message; it ends with the `async with` block.

        Example:
            async with turn.message() as message:
                await message.write("Hello, ")
                await message.write("world.")
        """
        return MessageWriter(self, self._next_key("message"), phase)

    def reasoning(self) -> ReasoningWriter:
        """Opens reasoning; it ends with the `async with` block.

        Example:
            async with turn.reasoning() as reasoning:
                await reasoning.write("The last word is a folder.")
                await reasoning.summarise("Looks for a folder.")
        """
        return ReasoningWriter(self, self._next_key("reasoning"))

    def function_call(self, name: str, *, call_id: str | None = None) -> CallWriter:
        """Opens a call of one of the client's tools. Its arguments are written in pieces, as JSON text.

        Example:
            async with turn.function_call("weather") as call:
                await call.write('{"city": ')
                await call.write('"Lima"}')
        """
        return CallWriter(self, self._next_key("call"), name, call_id or self._new_id("call"))

    async def call(self, name: str, arguments: Any, *, call_id: str | None = None) -> str:
        """Writes a call in one step, with arguments as Python objects. Returns the id of the call.

        Example:
            call_id = await turn.call("weather", {"city": "Lima"})
        """
        async with self.function_call(name, call_id=call_id) as call:
            await call.write(msgspec.json.encode(arguments).decode())
        return call.call_id

    async def output(self, call_id: str, output: str) -> None:
        """Writes the output of a call that the agent executed itself.

        Example:
            call_id = await turn.call("weather", {"city": "Lima"})
            await turn.output(call_id, "It is sunny.")
        """
        done = FunctionCallOutput(id=self._new_id("fco"), call_id=call_id, output=output, status=ItemStatus.COMPLETED)
        self.writer.add_whole_item(self._next_key("output"), done)
        await self.wait_for_reader()

    async def extension(
        self, kind: str, members: Mapping[str, Any], *, status: ItemStatus = ItemStatus.COMPLETED
    ) -> None:
        """Writes a whole item of the agent's own type, `slug:name` (B-3).

        Example:
            await turn.extension("acme:file_change", {"path": "a.py", "kind": "update"})
        """
        key = self._next_key(kind)
        self.writer.open_extension_item(key, kind, dict(members))
        final = Raw(msgspec.json.encode({**members, "type": kind, "status": status}))
        self.writer.finish_item(key, UnknownItem(kind=kind, raw=final))
        await self.wait_for_reader()

    async def event(self, kind: str, members: Mapping[str, Any]) -> None:
        """Emits an event of the agent's own type, `slug:name`. It is not part of the response.

        Example:
            await turn.event("acme:progress", {"percent": 50})
        """
        self.writer.emit_extension_event(kind, dict(members))
        await self.wait_for_reader()

    def usage(
        self,
        *,
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int = 0,
        cache_write_tokens: int | None = None,
        reasoning_tokens: int = 0,
    ) -> None:
        """Sets the usage of the turn so far (B-7). The last call is used.

        Example:
            turn.usage(input_tokens=1000, cached_tokens=500, output_tokens=200)
        """
        self.writer.update_response(
            usage=Usage(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                total_tokens=input_tokens + output_tokens,
                input_tokens_details=InputTokensDetails(
                    cached_tokens=cached_tokens, cache_write_tokens=cache_write_tokens
                ),
                output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning_tokens),
            )
        )

    def incomplete(self, reason: str = "max_output_tokens") -> None:
        """Ends the response as incomplete, and the open item with it. Nothing can follow.

        Example:
            async with turn.message() as message:
                await message.write("This answer is too")
                turn.incomplete("max_output_tokens")
        """
        self.writer.end_incomplete(reason)

    async def wait_for_reader(self) -> None:
        """Waits for the reader if the outlet is busy. Only code that writes through `writer` must call it.

        Example:
            turn.writer.open_message("greeting")
            turn.writer.add_text("greeting", "Hello.")
            await turn.wait_for_reader()
        """
        if self.outlet.is_busy():
            await self.outlet.wait_for_reader()

    def _next_key(self, kind: str) -> str:
        self._count += 1
        return f"{kind} {self._count}"


class ItemWriter(ABC):
    """An item that is open during an `async with` block. After an exception the item stays open: the failing response
    closes it."""

    __slots__ = ("_key", "_outlet", "_turn", "_writer")

    def __init__(self, turn: Turn, key: str) -> None:
        self._turn = turn
        self._writer = turn.writer
        self._outlet = turn.outlet
        self._key = key

    async def __aenter__(self) -> Self:
        self._open_item()
        await self._turn.wait_for_reader()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and not self._writer.has_ended:
            self._writer.close_item(self._key)
            await self._turn.wait_for_reader()

    @abstractmethod
    def _open_item(self) -> None:
        """Opens the item."""


class MessageWriter(ItemWriter):
    """Writes a message."""

    __slots__ = ("_phase",)

    def __init__(self, turn: Turn, key: str, phase: Phase | UnsetType) -> None:
        super().__init__(turn, key)
        self._phase = phase

    async def write(self, text: str) -> None:
        """Writes the next piece of text."""
        self._writer.add_text(self._key, text)
        if self._outlet.is_busy():
            await self._outlet.wait_for_reader()

    async def refuse(self, text: str) -> None:
        """Writes the next piece of a refusal (STR-11)."""
        self._writer.add_refusal(self._key, text)
        await self._turn.wait_for_reader()

    async def cite(self, annotation: Annotation) -> None:
        """Adds a citation to the text (STR-11)."""
        self._writer.add_annotation(self._key, annotation)
        await self._turn.wait_for_reader()

    def _open_item(self) -> None:
        self._writer.open_message(self._key, phase=self._phase)


class ReasoningWriter(ItemWriter):
    """Writes reasoning."""

    __slots__ = ()

    async def write(self, text: str) -> None:
        """Writes the next piece of the reasoning."""
        self._writer.add_reasoning(self._key, text)
        if self._outlet.is_busy():
            await self._outlet.wait_for_reader()

    async def summarise(self, text: str) -> None:
        """Writes the next piece of its summary (STR-10)."""
        self._writer.add_summary(self._key, text)
        await self._turn.wait_for_reader()

    def _open_item(self) -> None:
        self._writer.open_reasoning(self._key)


class CallWriter(ItemWriter):
    """Writes a tool call."""

    __slots__ = ("_name", "call_id")

    def __init__(self, turn: Turn, key: str, name: str, call_id: str) -> None:
        super().__init__(turn, key)
        self._name = name
        self.call_id = call_id

    async def write(self, arguments: str) -> None:
        """Writes the next piece of the arguments, as JSON text (STR-9)."""
        self._writer.add_arguments(self._key, arguments)
        await self._turn.wait_for_reader()

    def _open_item(self) -> None:
        self._writer.open_call(self._key, name=self._name, call_id=self.call_id)


def message_text(message: MessageParam) -> str:
    """The text of a message."""
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text for part in message.content if isinstance(part, InputText | OutputTextParam | Text))
