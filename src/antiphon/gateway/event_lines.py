"""The stored form of a background response's events: one line of JSON each. A long text, the instructions and the tools
are stored once; the later events that repeat them refer to the event that has them.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from antiphon.protocol import codec
from antiphon.protocol.base import Shape
from antiphon.protocol.events import (
    DONE_TEXT_FIELDS,
    ErrorEvent,
    ResponseCreated,
    ResponseEvent,
    ResponseFailed,
    ResponseQueued,
    StreamEvent,
    TextRun,
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
        self._settings: tuple[Response, int] | None = None  # the first response, and the number of its event
        self._reference_count = 0  # in the event that is encoded
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
        line = self._encode(event)
        self._note_long_text(event)
        self._lines.append(line)
        return line

    def text_run(self, run: TextRun) -> bytes:
        """The same for the events of a run."""
        pattern = encode_event_line(TextRun(0, run.item_id, run.output_index, run.content_index, [""]).events()[0])
        before, _, rest = pattern.partition(b":0,")
        middle, _, after = rest.partition(b'"delta":""')  # not in the id: JSON escapes quotation marks
        deltas = _encode_lines(run.deltas).split(b"\n")  # JSON escapes line breaks too
        deltas.pop()
        lines = [
            b'%b:%d,%b"delta":%b%b' % (before, number, middle, delta, after)
            for number, delta in enumerate(deltas, run.sequence_number)
        ]
        self._lines += lines
        return b"".join(lines)

    def finish(self) -> bytes:
        return b""

    def _encode(self, event: StreamEvent) -> bytes:
        """The line of an event, after a space if it has references. JSON of the client that looks like a reference
        forbids them."""
        self._reference_count = 0
        shortened: Any = self._refer_to_settings(event) if isinstance(event, ResponseEvent) else event
        if self._long_texts:
            shortened = self._refer(shortened)
        if self._reference_count:
            line = encode_event_line(shortened)
            if line.count(REFERENCE_MARK) == self._reference_count:
                return b" " + line
        return encode_event_line(event)

    def _refer_to_settings(self, event: Any) -> Any:
        """The event with references in place of the instructions and tools that the first response has."""
        response = event.response
        if self._settings is None:
            self._settings = response, event.sequence_number
            return event
        first, number = self._settings
        changes: dict[str, Any] = {}
        if response.tools and response.tools is first.tools:
            changes["tools"] = Raw(TOOLS_REFERENCE % number)
        if response.instructions is first.instructions and len(response.instructions or "") >= LONG_INSTRUCTIONS:
            changes["instructions"] = Raw(INSTRUCTIONS_REFERENCE % number)
        self._reference_count += len(changes)
        return replace(event, response=replace(response, **changes)) if changes else event

    def _note_long_text(self, event: StreamEvent) -> None:
        field = DONE_TEXT_FIELDS.get(type(event))
        if field is not None and len(text := getattr(event, field)) >= LONG_TEXT:
            self._long_texts[id(text)] = text, event.sequence_number

    def _refer(self, value: Any) -> Any:
        """The value with references in place of the long texts that were written."""
        if isinstance(value, str):
            _, number = self._long_texts.get(id(value), ("", None))
            if number is None:
                return value
            self._reference_count += 1
            return Raw(REFERENCE % number)
        if type(value) is list:
            return [self._refer(member) for member in value]
        if isinstance(value, Shape):
            members = {name: getattr(value, name) for name in value.__struct_fields__}
            changes = {name: new for name, old in members.items() if (new := self._refer(old)) is not old}
            return replace(value, **changes) if changes else value
        return value


class StoredEventReader:
    """Reads the stored events of one response, some at a time, with the texts, instructions and tools that they refer
    to."""

    def __init__(self, store: Store, owner: str, id: str) -> None:
        self._store = store
        self._owner = owner
        self._id = id
        self._last_value: tuple[bytes, bytes] = b"", b""  # a long one, by its reference
        self._settings: dict[bytes, bytes] = {}  # instructions and tools, by their references

    async def read_after(self, number: int) -> StoredLines | None:
        """Returns lines after the event with this number; None if there is no such response."""
        stored = await self._store.events_after(self._owner, self._id, number)
        if stored is None:
            return None
        page = _Page(max(number, -1) + 1, stored.events)
        lines = [line if REFERENCE_MARK not in line else await self._resolve(line, page) for line in stored.events]
        return StoredLines(lines, stored.status, stored.has_more)

    async def _resolve(self, line: bytes, page: _Page) -> bytes:
        """Lines of 0.1.0 have no space before them, and refer to texts only. JSON of the client that looks like a
        reference must not multiply a text."""
        is_marked, line = line.startswith(b" "), line.removeprefix(b" ")
        limit = 0 if is_marked else MAX_UNMARKED_REFERENCES  # 0: none
        matches = {match[0]: match for match in islice(REFERENCE_PATTERN.finditer(line), limit or None)}
        values = {
            reference: await self._value_of(reference, match[1], int(match[2]), page)
            for reference, match in matches.items()
            if is_marked or match[1] == TEXT
        }
        return REFERENCE_PATTERN.sub(lambda match: values.get(match[0], match[0]), line, count=limit)

    async def _value_of(self, reference: bytes, member: bytes, number: int, page: _Page) -> bytes:
        """The value, as JSON."""
        if member != TEXT:
            if reference not in self._settings:
                response = msgspec.json.decode(await self._line(number, page), type=_Referred).response
                self._settings[reference] = bytes(response.tools if member == TOOLS else response.instructions)
            return self._settings[reference]
        if self._last_value[0] != reference:
            texts = msgspec.json.decode(await self._line(number, page), type=_Referred)
            self._last_value = reference, bytes(texts.text or texts.refusal or texts.arguments or texts.input or b'""')
        return self._last_value[1]

    async def _line(self, number: int, page: _Page) -> bytes:
        if page.first_number <= number < page.first_number + len(page.lines):
            return page.lines[number - page.first_number]
        stored = await self._store.events_after(self._owner, self._id, number - 1, limit=1)
        return stored.events[0] if stored is not None and stored.events else b"{}"  # it was deleted


class _Page(Struct, frozen=True):
    """Stored lines, and the number of the first."""

    first_number: int
    lines: list[bytes]


class StoredLines(Struct, frozen=True):
    """Events of a response as JSON, its status, and whether more events are stored."""

    lines: list[bytes]
    status: str
    has_more: bool


class _Settings(Struct, frozen=True):
    """The members of a response that other events refer to."""

    instructions: Raw = Raw(b"null")
    tools: Raw = Raw(b"[]")


class _Referred(Struct):
    """The members of an event that other events refer to: one of the texts, or those of its response."""

    text: Raw = Raw()
    refusal: Raw = Raw()
    arguments: Raw = Raw()
    input: Raw = Raw()
    response: _Settings = _Settings()


def encode_event_line(event: StreamEvent) -> bytes:
    """An event as JSON on one line. Raw bytes of the upstream in it may hold line breaks."""
    data = codec.encode(event)
    return msgspec.json.format(data, indent=-1) if b"\n" in data or b"\r" in data else data


LONG_TEXT: Final = 64 * 1024  # characters
LONG_INSTRUCTIONS: Final = 512  # characters
MAX_UNMARKED_REFERENCES: Final = 4
# Quotation marks in a text are escaped, so no text contains a reference.
TEXT, INSTRUCTIONS, TOOLS = b"text", b"instructions", b"tools"
REFERENCE: Final = b'{"antiphon:text_of_event":%d}'
INSTRUCTIONS_REFERENCE: Final = b'{"antiphon:instructions_of_event":%d}'
TOOLS_REFERENCE: Final = b'{"antiphon:tools_of_event":%d}'
REFERENCE_MARK: Final = b'_of_event":'
REFERENCE_PATTERN: Final = re.compile(rb'\{"antiphon:(text|instructions|tools)_of_event":(\d{1,18})\}')
_encode_lines: Final = msgspec.json.Encoder().encode_lines
