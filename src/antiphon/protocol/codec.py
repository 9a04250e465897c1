"""Decodes bytes to protocol types, and encodes them again.

A body is decoded in one typed pass; if that fails, `lenient_decoding` decodes it again and keeps unknown fields and
types (ITEM-5, REQ-7). Both passes refuse excessive nesting, NaN, numbers out of range, invalid UTF-8 and unpaired
surrogates. Encoding puts the raw bytes of unknown fields back in their places.

JSON from outside is decoded here wherever it enters: client bodies, upstream answers and events, and JSON inside
strings (arguments of calls). Stored rows are decoded without the limit on nesting, because they may be older than it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec import inspect as shapes
from msgspec.structs import replace

from antiphon.protocol.base import EXTRA_NAME, RAW_MARK, RAW_MARK_BYTE, Shape, Unknown
from antiphon.protocol.error_messages import DECODE_ERRORS, fault_from_decode_error
from antiphon.protocol.events import REASONING_TEXT_EVENTS, StreamEvent, UnknownEvent
from antiphon.protocol.items import Item, ItemParam
from antiphon.protocol.lenient_decoding import LenientDecoder, lenient_decoder
from antiphon.protocol.nesting import MAX_NESTING, MIN_TOO_DEEP_LENGTH, Json, NestingError, is_too_deep
from antiphon.protocol.request import CompactRequest, Request
from antiphon.protocol.response import Response
from antiphon.protocol.tools import ToolList, ToolParam

T = TypeVar("T")

_encode: Final = msgspec.json.Encoder().encode

JSON_WHITESPACE: Final = " \t\n\r"  # `str.strip()` also removes U+2028, which JSON takes for text

# The number of tool lists that are cached by their bytes, and the largest size of one.
MAX_CACHED_TOOL_LISTS: Final = 32
MAX_CACHED_TOOL_BYTES: Final = 128 * 1024
HASHED_TOOL_BYTES: Final = 256
LARGE_SETTING: Final = 1024 * 1024  # bytes of encoded tools or instructions
SETTING_MARK: Final = re.compile(rb'"antiphon:encoded_(tools|instructions)"')  # stands for them in the rest


@overload
def decode_json(data: Json) -> Any: ...
@overload
def decode_json(data: Json, type: type[T]) -> T: ...
@overload
def decode_json(data: Json, type: Any) -> Any: ...
def decode_json(data: Json, type: Any = Any) -> Any:
    """The value of JSON from outside: raises `msgspec.DecodeError`, of which `NestingError` is one, or
    `UnicodeDecodeError`."""
    check_nesting(data)
    return msgspec.json.decode(data, type=type)


def with_nesting_limit(decode: Callable[[Any], T]) -> Callable[[Json], T]:
    """A decoder that checks the nesting first."""

    def decode_with_limit(data: Json) -> T:
        if len(data) >= MIN_TOO_DEEP_LENGTH and is_too_deep(data):
            raise NestingError
        return decode(data)

    return decode_with_limit


def check_nesting(data: Json, max_levels: int = MAX_NESTING) -> None:
    """Raises `NestingError` for JSON that is nested too deeply. Text that is no JSON is left for the decoder to
    reject."""
    if len(data) >= MIN_TOO_DEEP_LENGTH and is_too_deep(data, max_levels):
        raise NestingError


def decode_request(body: bytes) -> Request:
    """Decodes the body of `POST /responses`. A list of tools with the same bytes as an earlier one is not decoded
    again."""
    return decode_client_request(body)[0]


def decode_client_request(body: bytes) -> tuple[Request, bool]:
    """Decodes a body as `decode_request`, and tells whether nothing in it is unknown: no field, no item, no part."""
    _check_nesting(body)
    try:
        return _request_with_tools(_decode_raw_tools_request(body)), True
    except DECODE_ERRORS:
        return _decode_lenient_request(body), False


def decode_stored_request(body: bytes) -> Request:
    """Decodes a request that was accepted before. Its nesting is not limited."""
    try:
        return _request_with_tools(_decode_raw_tools_request(body))
    except DECODE_ERRORS:
        return _decode_lenient_request(body)


def decode_create_message(message: bytes) -> Request | None:
    """Decodes a `response.create` message of a WebSocket: a request with a `type`. None if the message has unknown
    fields or a fault, which `decode_request` reports."""
    _check_nesting(message)
    try:
        return _request_with_tools(_decode_create_message(message))
    except DECODE_ERRORS:
        return None


def decode_compact_request(body: bytes) -> CompactRequest:
    """Decodes the body of `POST /responses/compact`."""
    _check_nesting(body)
    request: CompactRequest = _decode_value(body, _COMPACT_REQUEST_DECODER)
    return request


def decode_item_param(raw: bytes | Raw) -> ItemParam:
    """Decodes one input item."""
    item: ItemParam = _decode_value(raw, _ITEM_PARAM_DECODER)
    return item


def decode_item(raw: bytes | Raw) -> Item:
    """Decodes one output item. All required fields must be present."""
    item: Item = _decode_value(raw, _ITEM_DECODER)
    return item


def decode_response(body: bytes | Raw) -> Response:
    """Decodes a response object. All required fields must be present."""
    response: Response = _decode_value(body, _RESPONSE_DECODER)
    return response


def decode_event(data: bytes | Raw) -> StreamEvent:
    """Decodes one event of a stream. Reasoning events are accepted under both of their names (STR-10)."""
    event: StreamEvent = _decode_value(data, _EVENT_DECODER)
    if isinstance(event, UnknownEvent) and event.kind in REASONING_TEXT_EVENTS:
        name = Raw(_encode(REASONING_TEXT_EVENTS[event.kind]))
        event = _decode_value(_encode({**event.raw_members(), "type": name}), _EVENT_DECODER)
    return event


def decode_as(body: bytes | Raw, type: Any) -> Any:
    """Decodes any shape or union of shapes, given as a type."""
    _check_nesting(body)
    return _decode_value(body, _decoder_for(type))


def decode_stored(row: bytes | Raw, type: Any) -> Any:
    """Decodes a stored value of any shape. Its nesting is not limited."""
    return _decode_value(row, _decoder_for(type))


def encode(value: Any) -> bytes:
    """Encodes a value made of shapes as JSON.

    Unknown fields and objects keep their bytes, so their white space may contain line ends. A caller that writes lines
    must replace those (`sse.encode_frame` does).
    """
    if type(value) in _TYPES_WITH_TOOLS:
        if type(value.tools) is ToolList:
            value = replace(value, tools=_encode_tools(value.tools))
        elif type(value.tools) is Raw or type(value.instructions) is Raw:
            return b"".join(encode_pieces(value))
    return _encode_restored(value)


def encode_pieces(value: Request | Response) -> list[bytes | Raw]:
    """The same in pieces: instructions and tools that are encoded already and large, which must be on one line, are
    neither copied nor searched. Each of that takes as long as encoding all the rest."""
    large = large_settings(value)
    if not large:
        return [encode(value) if type(value.tools) is ToolList else _encode_restored(value)]
    marked_value = replace(value, **{name: Raw(b'"antiphon:encoded_%b"' % name.encode()) for name in large})
    pieces: list[bytes] = SETTING_MARK.split(_encode_restored(marked_value))
    if len(pieces) > 1 + 2 * len(large):  # the client has such a mark in its own JSON
        return [_encode(restore_raw(value))]
    return [large[piece.decode()] if index % 2 else piece for index, piece in enumerate(pieces)]


def large_settings(value: Request | Response) -> dict[str, Raw]:
    """The instructions and tools that are encoded already and large."""
    settings: dict[str, Any] = {"tools": value.tools, "instructions": value.instructions}
    if Raw not in map(type, settings.values()):  # nearly always
        return {}
    return {name: raw for name, raw in settings.items() if type(raw) is Raw and len(raw) > LARGE_SETTING}


def _encode_restored(value: Any) -> bytes:
    # The mark may also be part of a user's text. Restoring then changes nothing.
    encoded = _encode(value)
    return _encode(restore_raw(value)) if RAW_MARK_BYTE in encoded and RAW_MARK in encoded else encoded


def restore_raw(value: Any) -> Any:
    """Replaces unknown fields and objects by their raw bytes, so that the value can be encoded."""
    match value:
        case Shape():
            return _restore_members(value)
        case Unknown():
            return value.raw
        case list():
            return [restore_raw(member) for member in value]
        case dict():
            return {name: restore_raw(member) for name, member in value.items()}
        case _:
            return value


def _restore_members(shape: Shape) -> dict[str, Any]:
    config = shape.__struct_config__
    members: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field else {}
    for name, wire_name, is_plain in _wire_fields(type(shape)):
        member = getattr(shape, name)
        if member is not UNSET:
            members[wire_name] = member if is_plain else restore_raw(member)
    # If an unknown field has the name of a known one, the known one wins. Decoding never produces such a pair.
    return {**shape.extra, **members} if shape.extra else members


def _encode_tools(tools: ToolList[Any]) -> Raw:
    return tools.derive_once(_encode_tools, lambda: Raw(encode(list(tools))))


class _RawToolsRequest(Request, frozen=True, kw_only=True):
    """A request whose tools are not decoded yet."""

    tools: Raw | UnsetType = UNSET  # type: ignore[assignment]


class _CreateMessage(_RawToolsRequest, frozen=True, kw_only=True):
    """The same as a message of a WebSocket."""

    type: Literal["response.create"]


def _request_with_tools(raw: _RawToolsRequest) -> Request:
    # Field by field: a loop takes ten times as long, and this runs for every request. A test holds it complete.
    return Request(
        extra=raw.extra,
        model=raw.model,
        input=raw.input,
        previous_response_id=raw.previous_response_id,
        include=raw.include,
        tools=UNSET if raw.tools is UNSET else _tools_of(raw.tools),
        tool_choice=raw.tool_choice,
        metadata=raw.metadata,
        text=raw.text,
        temperature=raw.temperature,
        top_p=raw.top_p,
        presence_penalty=raw.presence_penalty,
        frequency_penalty=raw.frequency_penalty,
        parallel_tool_calls=raw.parallel_tool_calls,
        stream=raw.stream,
        stream_options=raw.stream_options,
        background=raw.background,
        max_output_tokens=raw.max_output_tokens,
        max_tool_calls=raw.max_tool_calls,
        reasoning=raw.reasoning,
        safety_identifier=raw.safety_identifier,
        prompt_cache_key=raw.prompt_cache_key,
        truncation=raw.truncation,
        instructions=raw.instructions,
        store=raw.store,
        service_tier=raw.service_tier,
        top_logprobs=raw.top_logprobs,
        conversation=raw.conversation,
        context_management=raw.context_management,
        client_metadata=raw.client_metadata,
        prompt_cache_retention=raw.prompt_cache_retention,
        prompt_cache_options=raw.prompt_cache_options,
        user=raw.user,
        generate=raw.generate,
    )


def _decode_lenient_request(body: bytes) -> Request:
    """Keeps unknown fields, and reports the path of an error."""
    request: Request = _decode_value(body, _REQUEST_DECODER)
    return request


class _Field(NamedTuple):
    name: str
    wire_name: str
    is_plain: bool


@cache
def _wire_fields(cls: type[Shape]) -> tuple[_Field, ...]:
    """The wire fields of a shape. A plain field cannot contain raw bytes that must be restored."""
    info: Any = shapes.type_info(cls)
    return tuple(
        _Field(field.name, field.encode_name, _is_plain(field.type))
        for field in info.fields
        if field.encode_name != EXTRA_NAME
    )


def _is_plain(info: shapes.Type) -> bool:
    match info:
        case shapes.UnionType(types=types):
            return all(map(_is_plain, types))
        case shapes.ListType(item_type=item):
            return _is_plain(item)
        case _:
            return not isinstance(info, shapes.StructType | shapes.AnyType)


def _tools_of(raw: Raw) -> list[ToolParam] | None:
    return _decode_tools(raw) if len(raw) > MAX_CACHED_TOOL_BYTES else _decode_tools_once(_ToolBytes(raw))


class _ToolBytes(bytes):
    """The bytes of a list of tools. Only their end is hashed: a hash of all of them takes most of the time of a lookup,
    and different lists are compared anyway."""

    def __hash__(self) -> int:
        return hash(self[-HASHED_TOOL_BYTES:])


@lru_cache(maxsize=MAX_CACHED_TOOL_LISTS)
def _decode_tools_once(raw: _ToolBytes) -> ToolList[ToolParam] | None:
    tools = _decode_tools(raw)
    return None if tools is None else ToolList(tools)


def _check_nesting(body: bytes | Raw) -> None:
    try:
        check_nesting(body)
    except NestingError as error:
        raise fault_from_decode_error(error, bytes(body)) from None


def _decode_value(raw: bytes | Raw, decoder: LenientDecoder) -> Any:
    try:
        return decoder.decode(raw if isinstance(raw, Raw) else Raw(raw), "")
    except DECODE_ERRORS as error:
        raise fault_from_decode_error(error, bytes(raw)) from None


@cache
def _decoder_for(type: Any) -> LenientDecoder:
    return lenient_decoder(type)


_REQUEST_DECODER: Final = lenient_decoder(Request)
_TYPES_WITH_TOOLS: Final = (Request, Response)
_decode_raw_tools_request: Final = msgspec.json.Decoder(_RawToolsRequest).decode
_decode_create_message: Final = msgspec.json.Decoder(_CreateMessage).decode
_decode_tools: Final = msgspec.json.Decoder(list[ToolParam] | None).decode
_COMPACT_REQUEST_DECODER: Final = lenient_decoder(CompactRequest)
_ITEM_PARAM_DECODER: Final = lenient_decoder(ItemParam)
_ITEM_DECODER: Final = lenient_decoder(Item)
_RESPONSE_DECODER: Final = lenient_decoder(Response)
_EVENT_DECODER: Final = lenient_decoder(StreamEvent)
