"""Passes a server's own frames to a client of the same dialect, as long as the translation would say the same.

The reader and the writer of the stream work as for any other client. Beside them, the relay lists the literal content
of each frame and compares it with the content of the hub events. Equal content: the client gets the frame as it came,
with all members, known or not. At the first difference (reasoning tags in a text, a repaired call, a withheld call, a
failure) the rest of the stream is the translation. Members of the server's answer beside its content stay then too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any, ClassVar, Final, Literal, NamedTuple

import msgspec

from antiphon import sse
from antiphon.dialects.common.json_lines import escape_line_ends
from antiphon.protocol.codec import decode_json
from antiphon.protocol.content import Content, OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.events import (
    ArgumentsDelta,
    CustomInputDelta,
    ErrorEvent,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    ReasoningDelta,
    RefusalDelta,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    SummaryTextDelta,
    TextRun,
)
from antiphon.protocol.items import CustomToolCall, FunctionCall, Message, Reasoning
from antiphon.protocol.response import Response

PieceKind = Literal["text", "reasoning", "refusal", "call", "arguments", "finish", "empty_finish", "unreadable"]


class Piece(NamedTuple):
    """A piece of the content of an answer. Calls are numbered in their order; a call's text is its id and name."""

    kind: PieceKind
    text: str = ""
    call_number: int = 0


FINISH: Final = Piece("finish")
#: An empty finish reason. If nothing but this ends the answer, the translation has the reason.
EMPTY_FINISH: Final = Piece("empty_finish")
#: Content that has no agreed form. No hub event equals it, so the translation is used.
UNREADABLE: Final = Piece("unreadable")
#: The text of arguments that a server sends as an object, so that the text has no literal form.
ANY_TEXT: Final = "\0"


class ContentLevel(NamedTuple):
    """One level of a whole answer: the members that a translation decides, and the one that has the next level."""

    members: frozenset[str]
    next_level: str = ""


class LiteralContent(ABC):
    """Lists the literal content of one answer, frame by frame or at once. Each dialect has its own."""

    #: Where a whole answer has its content, from the outermost object. All other members are the server's.
    levels: ClassVar[tuple[ContentLevel, ...]]
    #: Whether the frames of a translation get the members of the server's frames.
    keeps_frame_members: ClassVar[bool] = False

    #: The frame that ends every stream, if the dialect has one.
    last_frame: ClassVar[sse.Frame | None] = None
    #: Whether clients need the type of an event also as its name.
    names_events_by_type: ClassVar[bool] = False
    #: Whether the translation of a call is one frame, which is written when the call is complete.
    has_whole_calls: ClassVar[bool] = False

    @abstractmethod
    def pieces(self, value: Any) -> list[Piece] | None:
        """The content of a decoded frame, or of a whole answer; None if the client did not ask for this frame."""

    @abstractmethod
    def complete(self, value: Any) -> bool:
        """Adds the members that clients need and the server left out, and replaces the name of the model if the gateway
        maps it. Returns whether anything changed."""

    def note_members(self, value: dict[str, Any]) -> None:
        """Remembers the members of a decoded frame, for the translation of its content."""
        del value

    def position(self) -> Any:
        """What a translation must know of the frames before it."""
        return None

    def continue_from(self, position: Any, translation: bytes) -> bytes:
        """The translation in a form that continues the frames up to `position`."""
        del position
        return translation


def call_piece(number: int, call_id: str, name: Any) -> Piece:
    """The piece that starts a call. The id is empty if the dialect needs none."""
    return Piece("call", f"{call_id}\n{name}", number)


def text_piece(kind: PieceKind, text: Any, call_number: int = 0) -> Piece:
    """The piece of a member that should be a string or null."""
    if text is None:
        return Piece(kind)
    return Piece(kind, text, call_number) if isinstance(text, str) else UNREADABLE


class _QueuedFrame:
    """A frame that was not sent yet, and its content that no hub event confirmed yet."""

    __slots__ = ("data", "is_final", "is_touched", "pieces", "position")

    def __init__(self, data: bytes, pieces: deque[Piece], is_final: bool, position: Any = None) -> None:
        self.data = data
        self.pieces = pieces
        self.is_final = is_final  # it ends the answer
        self.position = position  # after the frame
        self.is_touched = False  # a part of its content was confirmed


class Relay:
    """Chooses between the server's frames and their translation, for one stream."""

    def __init__(self, content: LiteralContent, encode_frame: Callable[[sse.Frame], bytes]) -> None:
        self.is_active = True  # no difference was found so far
        self._content = content
        self._encode_frame = encode_frame
        self._queue: deque[_QueuedFrame] = deque()
        self._queue_size = 0
        self._final_frames: list[_QueuedFrame] = []  # since the last content
        self._position = content.position()  # after the last frame that was sent
        self._translation: list[bytes] = []  # of the queued frames
        self._call_numbers: dict[int, int] = {}  # of hub calls, by output index
        self._has_frames = False
        self._has_ended = False
        self._has_finish_reason = False
        self._has_last_frame = False

    def add_frames(self, frames: Iterable[sse.Frame]) -> None:
        """Queues frames of the server. Their hub events follow."""
        for frame in frames:
            self._has_frames = True
            if self.is_active and not self._has_last_frame:
                self._queue_frame(frame)
            elif self._content.keeps_frame_members:
                self._content.note_members(_decode_object(frame.data))

    def deliver(self, event: StreamEvent | TextRun, translation: bytes) -> bytes:
        """The bytes to send for a hub event: the frames whose content is now confirmed, or the translation."""
        self._translation.append(b"" if self._was_relayed(event) else translation)
        if self.is_active:
            # Without frames, the upstream sent a whole answer although a stream was requested.
            self.is_active = self._has_frames and all(_confirm(piece, self._queue) for piece in self._hub_pieces(event))
        if self.is_active and type(event) in TERMINAL_EVENTS:
            self._end_answer()
        return self._take_frames() if self.is_active else self._take_translation()

    def flush(self) -> bytes:
        """The frames that can be sent although no event followed them. Frames wait for events only up to a limit."""
        ready = self._take_frames() if self.is_active else b""
        self.is_active = self.is_active and self._queue_size <= MAX_QUEUE_BYTES
        return ready

    def _was_relayed(self, event: StreamEvent | TextRun) -> bool:
        """Whether the event completes a call whose frame was sent. A queued frame with a part of it is touched."""
        if not (self.is_active and self._content.has_whole_calls and isinstance(event, ItemDone)):
            return False
        return event.output_index in self._call_numbers and not any(frame.is_touched for frame in self._queue)

    def _take_frames(self) -> bytes:
        """The queued frames whose content is confirmed. Frames from the finish reason on wait for the end."""
        ready = [frame.data for frame in takewhile(self._is_confirmed, self._queue)]
        if len(ready) < len(self._queue) and self._queue[len(ready)].is_touched:
            return b""  # the translation so far covers only a part of a frame
        for data in ready:
            self._position = self._queue.popleft().position
            self._queue_size -= len(data)
        if ready or not self._queue:
            self._translation.clear()
        if self._has_ended and self._content.last_frame is not None and not self._has_last_frame:
            ready.append(self._encode_frame(self._content.last_frame))
            self._has_last_frame = True
        return b"".join(ready)

    def _is_confirmed(self, frame: _QueuedFrame) -> bool:
        return not frame.pieces and (self._has_ended or not frame.is_final)

    def _queue_frame(self, frame: sse.Frame) -> None:
        value = _decode(frame.data)
        pieces = _literal_pieces(self._content, value) if isinstance(value, dict) else [UNREADABLE]
        if isinstance(value, dict):
            self._content.note_members(value)
        if pieces is None:
            return
        if UNREADABLE not in pieces:
            data = msgspec.json.encode(value) if self._content.complete(value) else frame.data
            frame = sse.Frame(value["type"] if self._content.names_events_by_type else "", data)
        is_last = _is_same_kind(frame, self._content.last_frame)
        if is_last and not isinstance(value, dict):
            pieces = []
        self._has_last_frame = is_last
        content = _content_of(pieces)
        if content and UNREADABLE not in content:
            # Some servers repeat the finish reason in every frame; only the last one ends the answer.
            self._has_finish_reason = False
            for queued in self._final_frames:
                queued.is_final = False
            self._final_frames.clear()
        self._has_finish_reason = self._has_finish_reason or FINISH in pieces
        if not frame.data.isascii():  # some clients treat more characters than LF as line ends
            frame = sse.Frame(frame.event, escape_line_ends(frame.data))
        data = self._encode_frame(frame)
        is_final = is_last or FINISH in pieces or (EMPTY_FINISH in pieces and not content)
        queued = _QueuedFrame(data, content, is_final, self._content.position())
        self._queue.append(queued)
        if is_final:
            self._final_frames.append(queued)
        self._queue_size += len(data)

    def _hub_pieces(self, event: StreamEvent | TextRun) -> list[Piece]:
        match event:
            case OutputTextDelta():
                return [Piece("text", event.delta)]
            case TextRun():
                return [Piece("text", "".join(event.deltas))]
            case ReasoningDelta() | SummaryTextDelta():
                return [Piece("reasoning", event.delta)]
            case RefusalDelta():
                return [Piece("refusal", event.delta)]
            case ItemAdded(item=FunctionCall() | CustomToolCall() as call):
                number = self._call_numbers[event.output_index] = len(self._call_numbers)
                return [call_piece(number, call.call_id, call.name)]
            case ArgumentsDelta() | CustomInputDelta():
                return [Piece("arguments", event.delta, self._call_numbers[event.output_index])]
            case ErrorEvent() | ResponseFailed():
                return [UNREADABLE]
            case _:
                return []

    def _end_answer(self) -> None:
        """The answer ended well. Its frames must have said so, and nothing that the hub did not say."""
        self._has_ended = True
        self.is_active = self._has_finish_reason and not any(frame.pieces for frame in self._queue)

    def _take_translation(self) -> bytes:
        translation = b"".join(self._translation)
        self._translation.clear()
        return self._content.continue_from(self._position, translation)


def relayed_answer(content: LiteralContent, body: bytes, response: Response) -> bytes | None:
    """The server's whole answer for a client of the same dialect; None if it does not say literally what the response
    says."""
    value = _decode(body)
    pieces = _literal_pieces(content, value) if isinstance(value, dict) else None
    if pieces is None or FINISH not in pieces:
        return None
    frame = _QueuedFrame(body, _content_of(pieces), is_final=True)
    if not all(_confirm(piece, [frame]) for piece in _response_pieces(response) if piece.text) or frame.pieces:
        return None
    return msgspec.json.encode(value) if content.complete(value) else body


def repaired_answer(content: LiteralContent, body: bytes, translation: bytes) -> bytes:
    """The translation of the server's whole answer, with the members of that answer beside its content."""
    merged = _merge_levels(_decode_object(body), msgspec.json.decode(translation), content.levels)
    content.complete(merged)
    return msgspec.json.encode(merged)


def _merge_levels(value: Any, translation: Any, levels: tuple[ContentLevel, ...]) -> Any:
    if isinstance(value, list) and isinstance(translation, list) and value and translation:
        return [_merge_levels(value[0], translation[0], levels), *value[1:]]  # only the first answer is translated
    if not isinstance(value, dict) or not isinstance(translation, dict):
        return translation
    level, *inner_levels = levels
    merged = {**translation, **{name: member for name, member in value.items() if name not in level.members}}
    name = level.next_level
    if inner_levels and name in translation:
        merged[name] = _merge_levels(value.get(name), translation[name], tuple(inner_levels))
    return merged


def add_missing(value: dict[str, Any], members: dict[str, Any]) -> bool:
    """Adds the members that an object lacks. Returns whether it lacked any."""
    if members.keys() <= value.keys():
        return False
    value.update({name: member for name, member in members.items() if name not in value})
    return True


def replace_model(value: dict[str, Any], name: str, model: str | None) -> bool:
    """Replaces the name of the model, if the gateway maps it and the object has it."""
    if model is None or name not in value:
        return False
    value[name] = model
    return True


def _literal_pieces(content: LiteralContent, value: Any) -> list[Piece] | None:
    try:
        return content.pieces(value)
    except (AttributeError, KeyError, TypeError):  # another form than the dialect's
        return [UNREADABLE]


def _response_pieces(response: Response) -> Iterable[Piece]:
    call_count = 0
    for item in response.output:
        match item:
            case Message():
                for part in item.content:
                    yield _part_piece(part)
            case Reasoning():
                for part in (*item.summary, *(item.content or ())):
                    yield _part_piece(part)
            case FunctionCall():
                yield call_piece(call_count, item.call_id, item.name)
                yield Piece("arguments", item.arguments, call_count)
                call_count += 1
            case CustomToolCall():
                yield call_piece(call_count, item.call_id, item.name)
                yield Piece("arguments", item.input, call_count)
                call_count += 1


def _part_piece(part: Content) -> Piece:
    match part:
        case OutputText(text=text):
            return Piece("text", text)
        case ReasoningText(text=text) | SummaryText(text=text):
            return Piece("reasoning", text)
        case Refusal(refusal=text):
            return Piece("refusal", text)
        case _:
            return UNREADABLE


def _content_of(pieces: list[Piece]) -> deque[Piece]:
    """The pieces that must be confirmed."""
    return deque(piece for piece in pieces if piece.text or piece is UNREADABLE)


def _confirm(piece: Piece, frames: Iterable[_QueuedFrame]) -> bool:
    """Removes a piece of the hub from the literal content of frames; False if they say something else."""
    rest = "" if piece is UNREADABLE else piece.text
    for frame in frames:
        if not rest:
            break
        while frame.pieces and rest:
            head = frame.pieces.popleft()
            if (head.kind, head.call_number) != (piece.kind, piece.call_number):
                return False
            if head.text == ANY_TEXT or (head.kind == "call" and _is_same_call(head, piece)):
                rest = ""
            elif head.kind != "call" and rest.startswith(head.text):
                rest = rest[len(head.text) :]
            elif head.kind != "call" and head.text.startswith(rest):
                frame.pieces.appendleft(head._replace(text=head.text[len(rest) :]))
                rest = ""
            else:
                return False
            frame.is_touched = bool(frame.pieces)
    return not rest and piece is not UNREADABLE


def _is_same_call(literal: Piece, piece: Piece) -> bool:
    """Calls of some dialects have no ids, and the hub's are the gateway's own."""
    return piece.text == literal.text or (literal.text[0] == "\n" and piece.text.endswith(literal.text))


def _is_same_kind(frame: sse.Frame, last_frame: sse.Frame | None) -> bool:
    if last_frame is None:
        return False
    return frame.event == last_frame.event if last_frame.event else frame.data.strip() == last_frame.data


def _decode_object(data: bytes) -> dict[str, Any]:
    """The object; an empty one if the data are something else."""
    value = _decode(data)
    return value if isinstance(value, dict) else {}


def _decode(data: bytes) -> Any:
    try:
        return decode_json(data)
    except ValueError:
        return None


#: The bytes of frames that may wait for hub events. More means that the reader repairs something.
MAX_QUEUE_BYTES: Final = 1024 * 1024
TERMINAL_EVENTS: Final = frozenset({ResponseCompleted, ResponseIncomplete})
