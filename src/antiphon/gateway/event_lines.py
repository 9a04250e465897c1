"""The stored form of a background response's events: one line of JSON each. A long text is stored once; the later
events that repeat it refer to the event that has it.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from antiphon.protocol import codec
from antiphon.protocol.base import Shape
from antiphon.protocol.events import (
    ArgumentsDone,
    CustomInputDone,
    ErrorEvent,
    OutputTextDone,
    ReasoningDone,
    RefusalDone,
    ResponseCreated,
    ResponseFailed,
    ResponseQueued,
    StreamEvent,
    SummaryTextDone,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus
from antiphon.store.interface import Store


class EventLineWriter:
    """Writes events as lines of JSON. A cancelled response ends without an error. The events before `in_progress` are
    the same in every run, since a reader may have received them while the response was queued."""

    def __init__(self, queued: Response, *, is_cancelled: bool = False) -> None:
        self.losses = Losses()
        self.is_cancelled = is_cancelled
        self._queued = queued
        self.response: Response | None = None  # a failed or cancelled response, as written
        self._omitted_events = 0
        self._long_texts: dict[int, tuple[str, int]] = {}  # by identity: the text, and the number of its event
        self._lines: list[bytes] = []

    def take_lines(self) -> list[bytes]:
        """The lines since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def feed(self, event: StreamEvent) -> bytes:
        """Keeps the line of an event for `take_lines`, and returns it too."""
        if isinstance(event, ErrorEvent) and self.is_cancelled:
            self._omitted_events = 1
            return b""
        if type(event) is ResponseCreated or type(event) is ResponseQueued:
            event = replace(event, response=self._queued)
        elif isinstance(event, ResponseFailed):
            if self.is_cancelled:
                response = replace(event.response, status=ResponseStatus.CANCELLED, error=None)
                event = replace(event, sequence_number=event.sequence_number - self._omitted_events, response=response)
            self.response = event.response
        line = encode_event_line(self._refer(event) if self._long_texts else event)
        self._note_long_text(event)
        self._lines.append(line)
        return line

    def finish(self) -> bytes:
        return b""

    def _note_long_text(self, event: StreamEvent) -> None:
        field = TEXT_FIELDS.get(type(event))
        if field is not None and len(text := getattr(event, field)) >= LONG_TEXT:
            self._long_texts[id(text)] = text, event.sequence_number

    def _refer(self, value: Any) -> Any:
        """The value with references in place of the long texts that were written."""
        if isinstance(value, str):
            _, number = self._long_texts.get(id(value), ("", None))
            return value if number is None else Raw(REFERENCE % number)
        if type(value) is list:
            return [self._refer(member) for member in value]
        if isinstance(value, Shape):
            members = {name: getattr(value, name) for name in value.__struct_fields__}
            changes = {name: new for name, old in members.items() if (new := self._refer(old)) is not old}
            return replace(value, **changes) if changes else value
        return value


class StoredEventReader:
    """Reads the stored events of one response, some at a time, with their long texts."""

    def __init__(self, store: Store, owner: str, id: str) -> None:
        self._store = store
        self._owner = owner
        self._id = id
        self._last_text: tuple[int, bytes] = -1, b""  # the number of an event, and its text as JSON

    async def read_after(self, number: int) -> StoredLines | None:
        """Returns lines after the event with this number; None if there is no such response."""
        stored = await self._store.events_after(self._owner, self._id, number)
        if stored is None:
            return None
        lines = [line if REFERENCE_MARK not in line else await self._resolve(line) for line in stored.events]
        return StoredLines(lines, stored.status, stored.has_more)

    async def _resolve(self, line: bytes) -> bytes:
        for number in {int(digits) for digits in REFERENCE_PATTERN.findall(line)}:
            line = line.replace(REFERENCE % number, await self._text_of(number))
        return line

    async def _text_of(self, number: int) -> bytes:
        """The text of an event, as JSON."""
        if self._last_text[0] != number:
            stored = await self._store.events_after(self._owner, self._id, number - 1)
            line = stored.events[0] if stored is not None and stored.events else b"{}"  # it was deleted
            texts = msgspec.json.decode(line, type=_Texts)
            self._last_text = number, bytes(texts.text or texts.refusal or texts.arguments or texts.input or b'""')
        return self._last_text[1]


class StoredLines(Struct, frozen=True):
    """Events of a response as JSON, its status, and whether more events are stored."""

    lines: list[bytes]
    status: str
    has_more: bool


class _Texts(Struct):
    """The member of an event that has its text."""

    text: Raw = Raw()
    refusal: Raw = Raw()
    arguments: Raw = Raw()
    input: Raw = Raw()


def encode_event_line(event: StreamEvent) -> bytes:
    """An event as JSON on one line. Raw bytes of the upstream in it may hold line breaks."""
    data = codec.encode(event)
    return msgspec.json.format(data, indent=-1) if b"\n" in data or b"\r" in data else data


LONG_TEXT: Final = 64 * 1024  # characters
#: The member that has the text, by the type of an event.
TEXT_FIELDS: Final[dict[type, str]] = {
    OutputTextDone: "text",
    ReasoningDone: "text",
    SummaryTextDone: "text",
    RefusalDone: "refusal",
    ArgumentsDone: "arguments",
    CustomInputDone: "input",
}
# Quotation marks in a text are escaped, so no text contains a reference.
REFERENCE: Final = b'{"antiphon:text_of_event":%d}'
REFERENCE_MARK: Final = b'{"antiphon:text_of_event":'
REFERENCE_PATTERN: Final = re.compile(rb'\{"antiphon:text_of_event":(\d{1,18})\}')
