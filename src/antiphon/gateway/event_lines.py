"""The stored form of a background response's events: one line of JSON each. A long text, the instructions and the tools
are stored once; the later events that repeat them refer to the event that has them. The deltas of a run are stored in
the line of its first event; the lines of the others are their places in the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, field
from msgspec.structs import astuple, replace

from antiphon.dialects.responses.stream_out import encode_response_pieces, response_event_head
from antiphon.gateway.worker_pool import LARGE_INPUT, WorkerPool
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
from antiphon.store.work import MAX_EVENTS_BYTES


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
        line = _encode_run(astuple(run))
        places = len(run.deltas) - 1
        self._lines.append(line)
        self._lines += (b"%d " * places % tuple(range(1, places + 1))).split()
        return line

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

    def __init__(self, store: Store, owner: str, id: str, workers: WorkerPool | None = None) -> None:
        self._store = store
        self._owner = owner
        self._id = id
        self._workers = workers  # with them, large settings are apart from the lines (`StoredLines.settings`)
        self._last_value: tuple[bytes, bytes] = b"", b""  # a long one, by its reference
        self._settings: dict[int, Settings] = {}  # by the number of the event that has them
        self._run: tuple[int, list[bytes]] = -1, []  # the lines of the last run, by the number of its first event

    async def read_after(self, number: int) -> StoredLines | None:
        """Returns lines after the event with this number; None if there is no such response."""
        stored = await self._store.events_after(self._owner, self._id, number)
        if stored is None:
            return None
        page = _Page(max(number, -1) + 1, stored.events)
        result = StoredLines([], stored.status, stored.has_more)
        size = 0
        for stored_line in stored.events:
            line = await self._read_line(stored_line, page, result)
            if line is None:
                return None
            result.lines.append(line)
            size += len(line)
            if size >= MAX_EVENTS_BYTES:  # runs are stored in far fewer bytes than they have
                break
        return replace(result, has_more=stored.has_more or len(result.lines) < len(stored.events))

    async def _read_line(self, line: bytes, page: _Page, result: StoredLines) -> bytes | None:
        """The event of the next stored line, as JSON; None if the response was deleted."""
        number = page.first_number + len(result.lines)
        if self._workers is not None and len(line) > LARGE_INPUT and line.startswith(FIRST_EVENT):
            line, settings = await self._workers.call(len(line), split_settings, line)
            self._settings[number] = result.settings[len(result.lines)] = settings
            return line
        if line.startswith(b"{"):
            return line if REFERENCE_MARK not in line else await self._resolve(line, page, result)
        if line.startswith(b" "):
            return await self._resolve(line, page, result)
        place = 0 if line.startswith(b"[") else int(line)
        if self._run[0] != number - place:
            run = line if place == 0 else await self._line(number - place, page)
            if run == MISSING_LINE:
                return None
            self._run = number - place, run_lines(run)
        return self._run[1][place]

    async def _resolve(self, line: bytes, page: _Page, result: StoredLines) -> bytes:
        """Lines of 0.1.0 have no space before them, and refer to texts only. JSON of the client that looks like a
        reference must not multiply a text."""
        is_marked, line = line.startswith(b" "), line.removeprefix(b" ")
        limit = 0 if is_marked else MAX_UNMARKED_REFERENCES  # 0: none
        matches = {match[0]: match for match in islice(REFERENCE_PATTERN.finditer(line), limit or None)}
        values = {
            reference: await self._value_of(reference, match[1], int(match[2]), page, result)
            for reference, match in matches.items()
            if is_marked or match[1] == TEXT
        }
        return REFERENCE_PATTERN.sub(lambda match: values.get(match[0], match[0]), line, count=limit)

    async def _value_of(self, reference: bytes, member: bytes, number: int, page: _Page, result: StoredLines) -> bytes:
        """The value, as JSON. Large settings are apart from the line, which has none then."""
        if member != TEXT:
            settings = await self._settings_of(number, page)
            if self._workers is not None and settings.are_large:
                result.settings[len(result.lines)] = settings
                settings = NO_SETTINGS
            return bytes(settings.tools if member == TOOLS else settings.instructions)
        if self._last_value[0] != reference:
            texts = msgspec.json.decode(await self._line(number, page), type=_Referred)
            self._last_value = reference, bytes(texts.text or texts.refusal or texts.arguments or texts.input or b'""')
        return self._last_value[1]

    async def _settings_of(self, number: int, page: _Page) -> Settings:
        if number not in self._settings:
            line = await self._line(number, page)
            if self._workers is None:
                self._settings[number] = split_settings(line)[1]
            else:
                self._settings[number] = (await self._workers.call(len(line), split_settings, line))[1]
        return self._settings[number]

    async def _line(self, number: int, page: _Page) -> bytes:
        if page.first_number <= number < page.first_number + len(page.lines):
            return page.lines[number - page.first_number]
        stored = await self._store.events_after(self._owner, self._id, number - 1, limit=1)
        return stored.events[0] if stored is not None and stored.events else MISSING_LINE  # it was deleted


class _Page(Struct, frozen=True):
    """Stored lines, and the number of the first."""

    first_number: int
    lines: list[bytes]


class Settings(Struct, frozen=True):
    """The members of a response that other events refer to, as JSON."""

    instructions: Raw = Raw(b"null")
    tools: Raw = Raw(b"[]")

    @property
    def are_large(self) -> bool:
        return len(self.instructions) + len(self.tools) > LARGE_INPUT


class StoredLines(Struct, frozen=True):
    """Events of a response as JSON, its status, and whether more events are stored. `settings` has the large settings
    of some lines, by their index; decoding them would take long, and no reader needs their values."""

    lines: list[bytes]
    status: str
    has_more: bool
    settings: dict[int, Settings] = field(default_factory=dict)

    def events(self) -> Iterator[bytes | StreamEvent]:
        """The lines, and the events with large settings, which stay encoded."""
        for index, line in enumerate(self.lines):
            settings = self.settings.get(index)
            if settings is None:
                yield line
                continue
            event = codec.decode_event(line)
            assert isinstance(event, ResponseEvent)
            members: dict[str, Any] = {"tools": settings.tools, "instructions": settings.instructions}
            yield replace(event, response=replace(event.response, **members))


class _Referred(Struct):
    """The texts of an event that other events refer to; it has one of them."""

    text: Raw = Raw()
    refusal: Raw = Raw()
    arguments: Raw = Raw()
    input: Raw = Raw()


def split_settings(line: bytes) -> tuple[bytes, Settings]:
    """The line of an event without the instructions and tools of its response, and these."""
    members = msgspec.json.decode(line, type=dict[str, Raw])
    response = msgspec.json.decode(members.get("response", b"{}"), type=dict[str, Raw])
    settings = Settings(**{name: response[name] for name in Settings.__struct_fields__ if name in response})
    rest = {**response, "instructions": NO_SETTINGS.instructions, "tools": NO_SETTINGS.tools}
    return msgspec.json.encode({**members, "response": rest}), settings


def run_lines(line: bytes) -> list[bytes]:
    """The lines of the events of a stored run."""
    run = TextRun(*_decode_run(line))
    pattern = encode_event_line(TextRun(0, run.item_id, run.output_index, run.content_index, [""]).events()[0])
    before, _, rest = pattern.partition(b":0,")
    middle, _, after = rest.partition(b'"delta":""')  # not in the id: JSON escapes quotation marks
    deltas = _encode_lines(run.deltas).split(b"\n")  # JSON escapes line breaks too
    deltas.pop()
    return [
        b'%b:%d,%b"delta":%b%b' % (before, number, middle, delta, after)
        for number, delta in enumerate(deltas, run.sequence_number)
    ]


def encode_event_line(event: StreamEvent) -> bytes:
    """An event as JSON on one line. Raw bytes of the upstream in it may hold line breaks."""
    if isinstance(event, ResponseEvent) and event.extra is UNSET and codec.large_settings(event.response):
        return b"".join((response_event_head(event), *encode_response_pieces(event.response), b"}"))
    data = codec.encode(event)
    return msgspec.json.format(data, indent=-1) if b"\n" in data or b"\r" in data else data


NO_SETTINGS: Final = Settings()
FIRST_EVENT: Final = b'{"type":"response.created",'  # has the settings; later events refer to it
LONG_TEXT: Final = 64 * 1024  # characters
LONG_INSTRUCTIONS: Final = 512  # characters
MAX_UNMARKED_REFERENCES: Final = 4
MISSING_LINE: Final = b"{}"
# Quotation marks in a text are escaped, so no text contains a reference.
TEXT, INSTRUCTIONS, TOOLS = b"text", b"instructions", b"tools"
REFERENCE: Final = b'{"antiphon:text_of_event":%d}'
INSTRUCTIONS_REFERENCE: Final = b'{"antiphon:instructions_of_event":%d}'
TOOLS_REFERENCE: Final = b'{"antiphon:tools_of_event":%d}'
REFERENCE_MARK: Final = b'_of_event":'
REFERENCE_PATTERN: Final = re.compile(rb'\{"antiphon:(text|instructions|tools)_of_event":(\d{1,18})\}')
_encode_lines: Final = msgspec.json.Encoder().encode_lines
_encode_run: Final = msgspec.json.Encoder().encode
_decode_run: Final = msgspec.json.Decoder(tuple[int, str, int, int, list[str]]).decode
