"""`EventsFromHub` writes hub events for a client, as server-sent events or as WebSocket messages.

Deltas are the most frequent events. They use byte templates that give the same bytes as `codec.encode`. Clients of this
API differ in the names of reasoning events and in the form of errors (API-6); `EVENT_STYLES` lists the styles. A client
gets encrypted reasoning without its envelope, and complete usage.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeGuard, TypeVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon import sse
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.protocol import codec
from antiphon.protocol.base import Shape
from antiphon.protocol.events import (
    RESPONSE_EVENTS,
    TYPE_OF_EVENT,
    ArgumentsDelta,
    ArgumentsDone,
    ContentPartAdded,
    ContentPartDone,
    ErrorEvent,
    Event,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    ReasoningDone,
    ResponseEvent,
    StreamEvent,
    SummaryPartAdded,
    SummaryPartDone,
    TextRun,
    UnknownEvent,
)
from antiphon.protocol.items import Item, ItemParam, Reasoning, ReasoningParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, Usage

_I = TypeVar("_I", bound=Item | ItemParam)
SelectableEventStyle = Literal["standard", "older"]
EventStyle = Literal["default"] | SelectableEventStyle
Framing = Literal["sse", "websocket"]
MESSAGE_END: Final = b"\n"  # no message contains it
_encode: Final = msgspec.json.Encoder().encode
_encode_lines: Final = msgspec.json.Encoder().encode_lines


class EventStyleOptions(Struct, frozen=True, kw_only=True):
    """The options of a style. They are independent of each other."""

    #: The name of reasoning events: `response.<name>.delta` and `.done` (STR-10).
    reasoning: Literal["reasoning", "reasoning_text"]
    #: `error` events: with an object `error`, or with its members beside the type (STR-8).
    error: Literal["nested", "flat"]
    #: Whether a stream ends with `data: [DONE]` (HTTP-4).
    done: bool


EVENT_STYLES: Final[dict[EventStyle, EventStyleOptions]] = {
    # Each option has the value that most clients read without loss; docs/clients.md lists the clients.
    "default": EventStyleOptions(reasoning="reasoning_text", error="nested", done=True),
    "standard": EventStyleOptions(reasoning="reasoning", error="nested", done=True),
    "older": EventStyleOptions(reasoning="reasoning_text", error="flat", done=False),
}


class FlatError(Shape, frozen=True, kw_only=True, tag="error"):
    """An error event with flat members (API-6)."""

    sequence_number: int
    code: str | None
    message: str
    param: str | None


class ReasoningTextDelta(ReasoningDelta, frozen=True, kw_only=True, tag="response.reasoning_text.delta"):
    """A piece of reasoning, under the name that most clients read (API-6)."""


class ReasoningTextDone(ReasoningDone, frozen=True, kw_only=True, tag="response.reasoning_text.done"):
    """The whole text of reasoning, under the name that most clients read (API-6)."""


class EventsFromHub:
    """Encodes events: as frames of a stream (HTTP-3), or as one WebSocket message each (WS-3)."""

    def __init__(self, request: Request, *, style: EventStyle = "default", framing: Framing = "sse") -> None:
        del request  # part of the common signature; unused here
        self.losses = Losses()
        self._style = EVENT_STYLES[style]
        self._framing = framing
        self._dropped_count = 0
        self._response: Response | None = None  # the last encoded response; its bytes are `_response_pieces`
        self._response_pieces: list[bytes | memoryview] = []
        self._delta_heads: dict[tuple[str, int, int | None], bytes] = {}
        self._text_template = TEXT_TEMPLATES[framing]
        self._padded_text_template = PADDED_TEXT_TEMPLATES[framing]
        self._reasoning_template = REASONING_TEMPLATES[self._style.reasoning][framing]
        self._arguments_template = ARGUMENTS_TEMPLATES[framing]

    def feed(self, event: StreamEvent) -> bytes:
        """Return the bytes of one event. Empty if the event is not sent to the client."""
        if type(event) is OutputTextDelta:
            if event.logprobs == [] and event.extra is UNSET:
                key = (event.item_id, event.output_index, event.content_index)
                head = self._delta_heads.get(key) or self._delta_head(key)
                if event.obfuscation is UNSET:
                    return self._text_template % (event.sequence_number, head, _encode(event.delta))
                padding = _encode(event.obfuscation)
                return self._padded_text_template % (event.sequence_number, head, _encode(event.delta), padding)
        elif type(event) is ReasoningDelta:
            if event.obfuscation is UNSET and event.extra is UNSET:
                key = (event.item_id, event.output_index, event.content_index)
                return self._reasoning_template % (
                    event.sequence_number,
                    self._delta_heads.get(key) or self._delta_head(key),
                    _encode(event.delta),
                )
        elif type(event) is ArgumentsDelta and event.obfuscation is UNSET and event.extra is UNSET:
            call_key = (event.item_id, event.output_index, None)
            return self._arguments_template % (
                event.sequence_number,
                self._delta_heads.get(call_key) or self._delta_head(call_key),
                _encode(event.delta),
            )
        return self._encode_event(event)

    def text_run(self, run: TextRun) -> bytes:
        """Return the bytes of a run of deltas. WebSocket messages are separated by `MESSAGE_END`."""
        head = self._delta_head((run.item_id, run.output_index, run.content_index))
        template = self._text_template.replace(b"%b%b", head.replace(b"%", b"%%") + b"%b")
        deltas = _encode_lines(run.deltas).split(b"\n")  # JSON escapes line breaks inside strings
        deltas.pop()
        messages = [template % numbered for numbered in enumerate(deltas, run.sequence_number)]
        return (MESSAGE_END if self._framing == "websocket" else b"").join(messages)

    def split_event(self, event: StreamEvent) -> list[bytes | memoryview] | None:
        """Return the bytes of an event whose response has large settings, in pieces, so that nothing copies them. None
        for other events, and for a WebSocket, whose message is one piece."""
        if self._framing == "websocket" or not _is_response_event(event) or event.extra is not UNSET:
            return None
        if not codec.large_settings(event.response):
            return None
        return self._response_event_pieces(replace(event, response=unseal_response(event.response)))

    def finish(self) -> bytes:
        """HTTP-4: return the end of the stream."""
        return sse.DONE_FRAME if self._style.done and self._framing == "sse" else b""

    def _encode_event(self, event: StreamEvent) -> bytes:
        if self._framing == "websocket" and isinstance(event, ErrorEvent):
            # WS-3: a turn ends once, so only `response.failed` is sent, with the sequence number of the error (STR-5).
            self._dropped_count = 1
            return b""
        if self._dropped_count and isinstance(event, ResponseEvent):
            event = replace(event, sequence_number=event.sequence_number - self._dropped_count)
        styled_event: StreamEvent | FlatError = event
        if type(event) not in PLAIN_EVENTS:
            event = unseal_event(event)
            if _is_response_event(event) and event.extra is UNSET:
                return self._response_event(event)
            styled_event = _in_style(event, self._style)
        data = _on_one_line(codec.encode(styled_event))
        if self._framing == "websocket":
            return data
        name = EVENT_NAMES.get(type(styled_event))
        return b"event: %b\ndata: %b\n\n" % (name, data) if name else sse.encode_frame(_type_of(styled_event), data)

    def _response_event(self, event: ResponseEvent) -> bytes:
        return b"".join(self._response_event_pieces(event))

    def _response_event_pieces(self, event: ResponseEvent) -> list[bytes | memoryview]:
        """Encode an event with a response. A stream starts with the same response twice; it is encoded once."""
        if event.response is not self._response:
            self._response_pieces = encode_response_pieces(with_complete_usage(event.response))
            self._response = event.response
        head = response_event_head(event)
        if self._framing == "websocket":
            return [head, *self._response_pieces, b"}"]
        return [b"event: %b\ndata: %b" % (EVENT_NAMES[type(event)], head), *self._response_pieces, b"}\n\n"]

    def _delta_head(self, key: tuple[str, int, int | None]) -> bytes:
        id, output_index, content_index = key
        content_member = b"" if content_index is None else b',"content_index":%d' % content_index
        head = b',"item_id":%b,"output_index":%d%b,"delta":' % (_encode(id), output_index, content_member)
        self._delta_heads[key] = head
        return head


def response_event_head(event: ResponseEvent) -> bytes:
    """The JSON of an event up to its response."""
    return b'{"type":"%b","sequence_number":%d,"response":' % (EVENT_NAMES[type(event)], event.sequence_number)


def encode_response_pieces(response: Response) -> list[bytes | memoryview]:
    """The JSON of a response on one line, in pieces: large settings are neither copied nor searched."""
    return [
        memoryview(piece) if type(piece) is msgspec.Raw else _without_line_breaks(piece)
        for piece in codec.encode_pieces(response)
    ]


def _on_one_line(data: bytes) -> bytes:
    """HTTP-3: the data of an event is one line. Raw JSON of another server may hold line breaks."""
    return msgspec.json.format(data, indent=-1) if b"\n" in data or b"\r" in data else data


def _without_line_breaks(piece: bytes) -> bytes:
    """The same for a piece of JSON. Strings have no line breaks, so these are space between members."""
    return piece.replace(b"\n", b" ").replace(b"\r", b" ")


def response_from_hub(response: Response, request: Request) -> tuple[bytes, Losses]:
    """HTTP-2: encode the response."""
    del request  # part of the common signature; unused here
    return codec.encode(with_complete_usage(unseal_response(response))), Losses()


# A client gets a server's encrypted reasoning as the server sent it, and sends it back as it is. The gateway stores it
# in an envelope, which names the maker. Reasoning that a server of another API made stays in its envelope.


def unseal_item(item: _I) -> _I:
    """The item as the server sent it."""
    if not isinstance(item, ReasoningParam) or not item.encrypted_content:
        return item
    envelope = unseal_reasoning(item.encrypted_content)
    match envelope.content if envelope is not None else None:
        case {"encrypted_content": str() as sealed}:
            return replace(item, encrypted_content=sealed)
        case _:
            return item


def unseal_response(response: Response) -> Response:
    """The response with its items as the server sent them."""
    if Reasoning not in map(type, response.output):
        return response
    return replace(response, output=[unseal_item(item) for item in response.output])


def unseal_event(event: StreamEvent) -> StreamEvent:
    """The event with its items as the server sent them."""
    if type(event) in RESPONSE_EVENTS:
        assert isinstance(event, ResponseEvent)
        response = unseal_response(event.response)
        return event if response is event.response else replace(event, response=response)
    if (type(event) is ItemAdded or type(event) is ItemDone) and event.item is not None:
        item = unseal_item(event.item)
        return event if item is event.item else replace(event, item=item)
    return event


def complete_usage(usage: Usage) -> Usage:
    """The usage with `cache_write_tokens`, which the SDK requires: zero if the API of the server does not report it.

    The usage of a Responses server stays as the server sent it.
    """
    details = usage.input_tokens_details
    if details.cache_write_tokens is not None:
        return usage
    return replace(usage, input_tokens_details=replace(details, cache_write_tokens=0))


def with_complete_usage(response: Response) -> Response:
    """The response with its usage completed."""
    if response.usage is None or response.usage.input_tokens_details.cache_write_tokens is not None:
        return response
    return replace(response, usage=complete_usage(response.usage))


def _is_response_event(event: StreamEvent) -> TypeGuard[ResponseEvent]:
    return type(event) in RESPONSE_EVENTS  # equal to `isinstance` here, and faster


def _make_templates(kind: type[Event], tail: bytes) -> dict[Framing, bytes]:
    """Byte templates of an event. Their placeholders are the sequence number, the head, the delta, and those of the
    tail."""
    name = str(kind.__struct_config__.tag).encode()
    message = b'{"type":"%b","sequence_number":%%d%%b%%b%b}' % (name, tail)
    return {"sse": b"event: %b\ndata: %b\n\n" % (name, message), "websocket": message}


def _in_style(event: StreamEvent, style: EventStyleOptions) -> StreamEvent | FlatError:
    match event:
        case ReasoningDelta() if style.reasoning == "reasoning_text":
            return ReasoningTextDelta(**_members_of(event))
        case ReasoningDone() if style.reasoning == "reasoning_text":
            return ReasoningTextDone(**_members_of(event))
        case ErrorEvent(error=error) if style.error == "flat":
            return FlatError(
                sequence_number=event.sequence_number, code=error.code, message=error.message, param=error.param
            )
        case _:
            return event


def _members_of(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def _type_of(event: StreamEvent | FlatError) -> str:
    return (
        event.kind
        if isinstance(event, UnknownEvent)
        else TYPE_OF_EVENT.get(type(event)) or str(event.__struct_config__.tag)
    )


#: Events that have no item and the same form in every style.
PLAIN_EVENTS: Final[frozenset[type]] = frozenset(
    {ContentPartAdded, ContentPartDone, OutputTextDone, ArgumentsDone, SummaryPartAdded, SummaryPartDone}
)
EVENT_NAMES: Final = {kind: name.encode() for kind, name in TYPE_OF_EVENT.items()}
TEXT_TEMPLATES: Final = _make_templates(OutputTextDelta, b',"logprobs":[]')
PADDED_TEXT_TEMPLATES: Final = _make_templates(OutputTextDelta, b',"logprobs":[],"obfuscation":%b')
REASONING_TEMPLATES: Final = {
    "reasoning_text": _make_templates(ReasoningTextDelta, b""),
    "reasoning": _make_templates(ReasoningDelta, b""),
}
ARGUMENTS_TEMPLATES: Final = _make_templates(ArgumentsDelta, b"")
