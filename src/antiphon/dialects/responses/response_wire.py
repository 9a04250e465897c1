"""Lenient shapes of responses and events of this API, and functions that decode them.

Every field may be absent, null or of a wrong type. A well-formed response needs one typed decode. The functions here
rely on `require_valid_json`, which refuses invalid JSON once.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from antiphon.errors import ClientFault, UpstreamFault
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_json
from antiphon.protocol.content import Annotation, LogProb, Number, TopLogProb, UnknownAnnotation
from antiphon.protocol.items import Item, UnknownItem
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage

_S = TypeVar("_S", bound=Struct)
ABSENT_JSON: Final = Raw(b"")


class ServerTopLogProb(Struct, frozen=True, gc=False):
    token: str
    logprob: Number
    bytes: list[int] | None = None


class ServerLogProb(Struct, frozen=True, gc=False):
    token: str
    logprob: Number
    bytes: list[int] | None = None
    top_logprobs: list[ServerTopLogProb] | None = None


class ServerEvent(Struct, frozen=True, gc=False):
    """Any event. It has the members of all event types, so that one decode serves all of them."""

    type: str | None = None
    sequence_number: int | None = None
    delta: str | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    logprobs: list[ServerLogProb] | None = None
    summary_index: int | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: Raw = ABSENT_JSON
    input: Raw = ABSENT_JSON
    name: str | None = None
    item: Raw = ABSENT_JSON
    part: Raw = ABSENT_JSON
    annotation: Raw = ABSENT_JSON
    response: Raw = ABSENT_JSON
    error: Raw = ABSENT_JSON
    code: Raw = ABSENT_JSON
    message: str | None = None
    param: str | None = None
    obfuscation: str | None = None


class PlainEvent(ServerEvent, frozen=True, gc=False, forbid_unknown_fields=True):
    """The same for an event without unknown members."""


class ServerPart(Struct, frozen=True, gc=False):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    annotations: list[Raw] | None = None
    logprobs: list[ServerLogProb] | None = None


class ServerItem(Struct, frozen=True, gc=False):
    type: str | None = None
    id: str | None = None
    status: str | None = None
    role: str | None = None
    phase: str | None = None
    content: Raw = ABSENT_JSON
    summary: Raw = ABSENT_JSON
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Raw = ABSENT_JSON
    input: Raw = ABSENT_JSON


class ServerError(Struct, frozen=True, gc=False):
    type: str | None = None
    code: Raw = ABSENT_JSON  # a string; some servers send a number
    message: str | None = None
    param: str | None = None


class ServerReason(Struct, frozen=True, gc=False):
    reason: str | None = None


class ServerTokensDetails(Struct, frozen=True, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class ServerUsage(Struct, frozen=True, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens_details: ServerTokensDetails | None = None
    output_tokens_details: ServerTokensDetails | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class ServerResponse(Struct, frozen=True, gc=False):
    object: str | None = None
    status: str | None = None
    output: list[Raw] | None = None
    usage: Raw = ABSENT_JSON
    error: Raw = ABSENT_JSON
    incomplete_details: ServerReason | None = None
    service_tier: str | None = None


def require_valid_json(data: bytes) -> bytes:
    """Return `data` if it is valid JSON. `Raw` members alone would not be checked."""
    try:
        decode_json(data)
    except DECODE_ERRORS:
        raise UpstreamFault("the upstream sent invalid JSON", code="upstream_invalid_response") from None
    return data


def decode_struct(raw: bytes | Raw, type: type[_S]) -> _S:
    """Decode `raw` as this struct. A member of a wrong type counts as absent."""
    if raw is ABSENT_JSON:
        return type()
    try:
        return msgspec.json.decode(raw, type=type)
    except msgspec.ValidationError:
        return _member_by_member(raw, type)


def string_or_number(raw: Raw) -> str | None:
    """A string, or a number as one."""
    value = decode_value(raw)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


def text_or_json(raw: Raw) -> str | None:
    """A string as it is; an object as its JSON, since some servers send arguments as the object that they describe."""
    value = decode_value(raw)
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def decode_value(raw: Raw) -> Any:
    """Decode any JSON value. None if it is absent."""
    return msgspec.json.decode(raw) if raw is not ABSENT_JSON else None


def decode_parts(raw: Raw) -> list[ServerPart]:
    """Decode the parts of a message, a reasoning item or a summary. A string counts as one text part."""
    value = decode_value(raw)
    if isinstance(value, str):
        return [ServerPart(text=value)]
    return (
        [decode_struct(part, ServerPart) for part in msgspec.json.decode(raw, type=list[Raw])]
        if isinstance(value, list)
        else []
    )


def logprobs_to_hub(server_logprobs: list[ServerLogProb] | None) -> list[LogProb]:
    return [
        LogProb(
            token=entry.token,
            logprob=entry.logprob,
            bytes=_bytes_of(entry),
            top_logprobs=[
                TopLogProb(token=top.token, logprob=top.logprob, bytes=_bytes_of(top))
                for top in entry.top_logprobs or ()
            ],
        )
        for entry in server_logprobs or ()
    ]


def annotation_to_hub(raw: Raw) -> Annotation | None:
    """Decode a citation. An invalid one is kept as raw JSON."""
    if decode_value(raw) is None:
        return None
    try:
        annotation: Annotation = codec.decode_as(raw, Annotation)
    except ClientFault:
        return UnknownAnnotation(kind=decode_struct(raw, ServerPart).type or "unknown", raw=raw)
    return annotation


def item_to_hub(raw: Raw, kind: str, id: str) -> Item:
    """Decode an item that is carried whole (ITEM-5). A missing id and status are added; if the item is still invalid,
    it is kept as raw JSON."""
    members = {
        name: member
        for name, member in msgspec.json.decode(raw, type=dict[str, Raw]).items()
        if bytes(member) != b"null"
    }
    defaults = Raw(msgspec.json.encode(id)), Raw(b'"completed"')
    for candidate in (raw, {"id": defaults[0], **members}, {"id": defaults[0], "status": defaults[1], **members}):
        try:
            return codec.decode_item(candidate if isinstance(candidate, Raw) else msgspec.json.encode(candidate))
        except ClientFault:
            continue
    return UnknownItem(kind=kind, raw=raw)


def usage_to_hub(raw: Raw) -> Usage | None:
    """REQ-4: decode the token counts. Missing details are zero."""
    if not isinstance(decode_value(raw), dict):
        return None
    try:
        usage: Usage = codec.decode_as(raw, Usage)
    except ClientFault:
        server_usage = decode_struct(raw, ServerUsage)
    else:
        return usage
    input_count = _first(server_usage.input_tokens, server_usage.prompt_tokens)
    output_count = _first(server_usage.output_tokens, server_usage.completion_tokens)
    details = server_usage.input_tokens_details or ServerTokensDetails()
    reasoning_tokens = (
        server_usage.output_tokens_details.reasoning_tokens if server_usage.output_tokens_details else None
    )
    return Usage(
        input_tokens=input_count,
        output_tokens=output_count,
        total_tokens=_first(server_usage.total_tokens, input_count + output_count),
        input_tokens_details=InputTokensDetails(
            cached_tokens=details.cached_tokens or 0,
            cache_write_tokens=UNSET if details.cache_write_tokens is None else details.cache_write_tokens,
        ),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning_tokens or 0),
    )


def _first(*counts: int | None) -> int:
    return next((count for count in counts if count is not None), 0)


def _bytes_of(token: ServerLogProb | ServerTopLogProb) -> list[int]:
    return token.bytes if token.bytes is not None else list(token.token.encode())


def _member_by_member(raw: bytes | Raw, type: type[_S]) -> _S:
    try:
        members = msgspec.json.decode(raw, type=dict[str, Raw])
    except msgspec.ValidationError:
        return type()
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(type):
        if field.encode_name in members:
            try:
                values[field.name] = msgspec.json.decode(members[field.encode_name], type=field.type)
            except msgspec.ValidationError:
                # The older spelling's `delta` may be an object with the text inside (API-6).
                if field.name == "delta":
                    values["delta"] = decode_struct(members["delta"], ServerPart).text
    return type(**values)


DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError)
