"""Bytes ⇄ types. Reading is one typed decode; only what that refuses is taken apart level by level.

The second reading keeps what the first has no place for: objects of unknown type and unknown fields stay as their raw bytes
(ITEM-5, REQ-7), a message without `type` is a message (ITEM-8). What is really wrong becomes an error that says where it
stands, what came and what was wanted (ERR-3). Depth, NaN, numbers out of range, invalid UTF-8 and halves of surrogate pairs are
refused in both readings. Writing puts raw bytes back where they were.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Annotated, Any, Final, Literal, Union

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec import inspect as shapes
from msgspec.structs import replace

from antiphon.errors import ClientFault, InvalidJson, InvalidUnicode, InvalidValue, JsonTooDeep, MissingField
from antiphon.protocol.base import EXTRA_NAME, MARK, UNKNOWN_TAG, Shape, Unknown
from antiphon.protocol.events import StreamEvent, UnknownEvent
from antiphon.protocol.items import Item, ItemParam
from antiphon.protocol.request import CompactRequest, Request
from antiphon.protocol.response import Response
from antiphon.protocol.tools import FunctionToolParam

_encode: Final = msgspec.json.Encoder().encode
_tables: Final[dict[int, dict[str | None, shapes.StructType]]] = {}


def decode_request(body: bytes) -> Request:
    """The body of `POST /responses`."""
    request: Request = _read(body, Request)
    return request


def decode_compact_request(body: bytes) -> CompactRequest:
    """The body of `POST /responses/compact`."""
    request: CompactRequest = _read(body, CompactRequest)
    return request


def decode_item_param(raw: bytes | Raw) -> ItemParam:
    """One input item."""
    item: ItemParam = _read(raw, ItemParam)
    return item


def decode_item(raw: bytes | Raw) -> Item:
    """One output item; it must be whole."""
    item: Item = _read(raw, Item)
    return item


def decode_response(body: bytes | Raw) -> Response:
    """A response object; it must be whole."""
    response: Response = _read(body, Response)
    return response


def decode_event(data: bytes | Raw) -> StreamEvent:
    """One event of a stream; it must be whole."""
    event: StreamEvent = _read(data, StreamEvent)
    return event


def decode_as(body: bytes | Raw, type: Any) -> Any:
    """Any shape or union of shapes, by its type."""
    return _read(body, type)


def encode(value: Any) -> bytes:
    """Any value made of shapes, as JSON; unknown fields and objects stand where they stood."""
    try:
        encoded = _encode(value)
        # The mark can also be a piece of somebody's text: then putting back changes nothing.
        return _encode(put_back(value)) if MARK in encoded else encoded
    except RecursionError:
        raise JsonTooDeep("the JSON is nested too deeply to be written") from None


def put_back(value: Any) -> Any:
    """`value` with unknown fields among the known ones and unknown objects as their bytes, ready to be encoded."""
    match value:
        case Unknown():
            return value.raw
        case Shape():
            config = value.__struct_config__
            fields: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field else {}
            for name, wire_name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
                member = getattr(value, name)
                if member is not UNSET and wire_name != EXTRA_NAME:
                    fields[wire_name] = put_back(member)
            if value.extra:
                # A known field of the same name was read as such, so the two cannot meet; if they do, the known one counts.
                fields = {**fields, **{name: raw for name, raw in value.extra.items() if name not in fields}}
            return fields
        case list():
            return [put_back(member) for member in value]
        case _:
            return value


def check_json(raw: bytes | Raw, path: str = "") -> None:
    """Refuses what `Raw` would let through: bad UTF-8, surrogate halves, numbers out of range, depth."""
    try:
        msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _fault_of(error, bytes(raw), path) from None


def _read(raw: bytes | Raw, type: Any) -> Any:
    raw = bytes(raw)
    if MARK not in raw:  # the mark in somebody's bytes must not be taken for ours: such a body is read the slow way
        try:
            return _decoder(type).decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            pass
    check_json(raw)
    return _take_apart(Raw(raw), _info(type), "")


@lru_cache(maxsize=256)
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type)


@cache
def _info(type: Any) -> shapes.Type:
    return shapes.type_info(type)


def _take_apart(raw: Raw, info: shapes.Type, path: str) -> Any:
    """The second reading. `raw` is valid JSON by now; only its shape is in doubt."""
    match info:
        case shapes.Metadata(type=inner):
            return _take_apart(raw, inner, path)
        case shapes.StructType():
            return _struct(raw, info, path)
        case shapes.UnionType():
            return _union(raw, info, path)
        case shapes.ListType():
            return _list(raw, info, path)
        case shapes.DictType():
            return _dict(raw, info, path)
        case _:
            return _leaf(raw, info, path)


def _leaf(raw: Raw, info: shapes.Type, path: str) -> Any:
    try:
        return _decoder(_annotation(info)).decode(raw)
    except msgspec.ValidationError:
        raise _unwanted(raw, info, path) from None


def _list(raw: Raw, info: shapes.ListType, path: str) -> list[Any]:
    if raw_kind(raw) != "array":
        raise _unwanted(raw, info, path)
    members = msgspec.json.decode(raw, type=list[Raw])
    count = len(members)
    if (info.max_length is not None and count > info.max_length) or (info.min_length is not None and count < info.min_length):
        raise InvalidValue(f"{path}: wanted {describe(info)}, got {count} of them", param=path)
    decode = _element_decoder(info.item_type)
    return [_element(member, decode, info.item_type, f"{path}[{at}]") for at, member in enumerate(members)]


def _element(raw: Raw, decode: Callable[[Raw], Any] | None, info: shapes.Type, path: str) -> Any:
    """One of many: most of them are as they should be, and need not be taken apart because another is not."""
    if decode is not None and MARK not in bytes(raw):
        try:
            return decode(raw)
        except msgspec.ValidationError:
            pass
    return _take_apart(raw, info, path)


def _element_decoder(info: shapes.Type) -> Callable[[Raw], Any] | None:
    """A typed decoder for objects told apart by their tags, None for any other kind of element."""
    options = info.types if isinstance(info, shapes.UnionType) else (info,)
    classes = tuple(option.cls for option in options if isinstance(option, shapes.StructType))
    return _decoder(Union[classes]).decode if len(classes) == len(options) else None  # noqa: UP007


def _dict(raw: Raw, info: shapes.DictType, path: str) -> dict[str, Any]:
    if raw_kind(raw) != "object":
        raise _unwanted(raw, info, path)
    members = _members(raw)
    if info.max_length is not None and len(members) > info.max_length:
        raise InvalidValue(f"{path}: wanted at most {info.max_length} entries, got {len(members)}", param=path)
    for key in members:
        _leaf(Raw(_encode(key)), info.key_type, f"{path}.{key[:80]}")
    return {key: _take_apart(member, info.value_type, f"{path}.{key}") for key, member in members.items()}


def _struct(raw: Raw, info: shapes.StructType, path: str) -> Any:
    if raw_kind(raw) != "object":
        raise _unwanted(raw, info, path) if path else InvalidJson(f"wanted a JSON object, got {excerpt(raw)}")
    members = _members(raw)
    if info.tag_field:
        members.pop(info.tag_field, None)
    names = _names(info.cls)
    unknown = {name: members.pop(name) for name in list(members) if name not in names}
    try:  # often the unknown fields were all that was wrong
        rest = _encode(members)
        if MARK not in rest:
            known = _decoder(info.cls).decode(rest)
            return replace(known, extra=unknown) if unknown else known
    except msgspec.ValidationError:
        pass
    values: dict[str, Any] = {}
    for field in info.fields:
        if field.encode_name == EXTRA_NAME:
            continue
        at = f"{path}.{field.encode_name}" if path else field.encode_name
        if field.encode_name in members:
            values[field.name] = _take_apart(members.pop(field.encode_name), field.type, at)
        elif field.required:
            explain = HINTS.get(info.cls)
            hint = explain(unknown) if explain else None
            raise MissingField(hint or f"{at} is missing: wanted {describe(field.type)}", param=at)
    return info.cls(**values, extra=unknown or UNSET)


def _members(raw: Raw) -> dict[str, Raw]:
    members: dict[str, Raw] = _decoder(dict[str, Raw]).decode(raw)
    return members


@lru_cache(maxsize=512)
def _names(shape: type[Struct]) -> frozenset[str]:
    return frozenset(shape.__struct_encode_fields__) - {EXTRA_NAME}


def _union(raw: Raw, info: shapes.UnionType, path: str) -> Any:
    kind = raw_kind(raw)
    by_tag = _by_tag(info)
    if kind == "object" and by_tag:
        return _tagged(raw, by_tag, path)
    for option in info.types:
        if _could_be(option, kind):
            return _take_apart(raw, option, path)
    raise _unwanted(raw, info, path)


def _by_tag(info: shapes.UnionType) -> dict[str | None, shapes.StructType]:
    """The structs of a union by their tags. Type trees live as long as the process, so one can be known by its identity."""
    found = _tables.get(id(info))
    if found is None:
        structs = [option for option in info.types if isinstance(option, shapes.StructType)]
        found = _tables[id(info)] = {str(option.tag) if option.tag else None: option for option in structs}
    return found


def _tagged(raw: Raw, by_tag: dict[str | None, shapes.StructType], path: str) -> Any:
    if None in by_tag:
        return _struct(raw, by_tag[None], path)
    members = _members(raw)
    tag = msgspec.json.decode(members.get("type", Raw(b"null")))
    if tag is None:
        tag = next((implied for name, implied in IMPLIED if name in members and implied in by_tag), None)
    at = f"{path}.type" if path else "type"
    if not isinstance(tag, str):
        known = ", ".join(repr(tag) for tag in by_tag if tag != UNKNOWN_TAG)
        raise MissingField(f"{at} is missing: wanted a type such as {known}; got {excerpt(raw)}", param=at)
    if tag in by_tag and tag != UNKNOWN_TAG:
        return _struct(raw, by_tag[tag], path)
    unknown = by_tag.get(UNKNOWN_TAG)
    if unknown is None:
        raise InvalidValue(f"{at}: got {tag!r}, wanted one of {', '.join(repr(t) for t in by_tag)}", param=at)
    if unknown.cls is UnknownEvent:
        number = _take_apart(members.get("sequence_number", Raw(b"null")), shapes.IntType(), "sequence_number")
        return UnknownEvent(kind=tag, raw=raw, sequence_number=number)
    return unknown.cls(kind=tag, raw=raw)


def _could_be(option: shapes.Type, kind: str) -> bool:
    match option:
        case shapes.Metadata(type=inner):
            return _could_be(inner, kind)
        case shapes.LiteralType(values=values):
            return kind == "string" and isinstance(values[0], str)
        case shapes.AnyType():
            return True
        case _:
            return kind in KINDS.get(type(option), ())


def _annotation(info: shapes.Type) -> Any:
    """The Python type behind a leaf, with its limits."""
    match info:
        case shapes.StrType():
            limits = {"min_length": info.min_length, "max_length": info.max_length, "pattern": info.pattern}
            return _limited(str, limits)
        case shapes.IntType():
            return _limited(int, {"ge": info.ge, "le": info.le})
        case shapes.LiteralType(values=values):
            return _literal(values)
        case shapes.EnumType(cls=cls):
            return cls
        case _:
            return LEAVES[type(info)]


def _limited(base: type, limits: dict[str, Any]) -> Any:
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return Annotated[base, msgspec.Meta(**given)] if given else base


def _literal(values: tuple[Any, ...]) -> Any:
    return Literal[values]


def describe(info: shapes.Type) -> str:
    """What a type wants, in words."""
    match info:
        case shapes.Metadata(type=inner):
            return describe(inner)
        case shapes.UnionType(types=types):
            return _describe_union(types)
        case shapes.LiteralType(values=values):
            return "one of " + ", ".join(f'"{value}"' for value in values)
        case shapes.EnumType(cls=cls):
            return "one of " + ", ".join(f'"{member.value}"' for member in cls)
        case shapes.StructType(tag=tag):
            return f'an object of type "{tag}"' if tag else "an object"
        case shapes.StrType(min_length=low, max_length=high, pattern=pattern):
            return "a string" + _span(low, high, "characters") + (f" matching {pattern}" if pattern else "")
        case shapes.IntType(ge=low, le=high):
            return "an integer" + _span(low, high, "")
        case shapes.ListType(item_type=item, min_length=low, max_length=high):
            return f"an array of {_plural(item)}" + _span(low, high, "entries")
        case _:
            return WORDS.get(type(info), "a value")


def _describe_union(types: tuple[shapes.Type, ...]) -> str:
    structs = [option for option in types if isinstance(option, shapes.StructType)]
    words = [describe(option) for option in types if option not in structs and not isinstance(option, shapes.NoneType)]
    tags = [option.tag for option in structs if option.tag and option.tag != UNKNOWN_TAG]
    if tags:
        words.append("an object with a type such as " + ", ".join(f'"{tag}"' for tag in tags[:4]))
    elif structs:
        words.append("an object")
    return " or ".join(words)


def _plural(info: shapes.Type) -> str:
    words = describe(info)
    return "objects" if "object" in words else words.removeprefix("a ").removeprefix("an ") + "s"


def _span(low: int | None, high: int | None, unit: str) -> str:
    match low, high:
        case None, None:
            return ""
        case None, _:
            return f" of at most {high} {unit}".rstrip()
        case _, None:
            return f" of at least {low} {unit}".rstrip()
        case _:
            return f" of {low} to {high} {unit}".rstrip()


def raw_kind(raw: bytes | Raw) -> str:
    """The JSON kind of valid JSON, by its first byte."""
    text = bytes(raw).strip()
    kind = KIND_OF_BYTE.get(text[:1])
    if kind is not None:
        return kind
    return "integer" if text.lstrip(b"-").isdigit() else "number"


def excerpt(raw: bytes | Raw, limit: int = 60) -> str:
    """A short, printable piece of what came; long values are named by their kind and size, not shown."""
    text = bytes(raw).strip().decode("utf-8", "replace")
    return text if len(text) <= limit else f"{text[:limit]}… ({raw_kind(raw)}, {len(text)} characters)"


def _unwanted(raw: Raw, info: shapes.Type, path: str) -> ClientFault:
    came = excerpt(raw)
    if raw_kind(raw) == "string" and isinstance(info, shapes.StrType):
        came = f"{len(msgspec.json.decode(raw, type=str))} characters: {came}"
    return InvalidValue(f"{path}: got {came}, wanted {describe(info)}", param=path or None)


def _fault_of(error: Exception, body: bytes, path: str) -> ClientFault:
    match error:
        case RecursionError():
            return JsonTooDeep("the JSON is nested too deeply", param=path or None)
        case UnicodeDecodeError():
            return InvalidUnicode(f"a string is not valid UTF-8: {error.reason}", param=path or None)
    at = _path_of(body, _is_surrogate_half)
    if at is not None:
        return InvalidUnicode(f"{at}: half of a surrogate pair (\\ud800 to \\udfff alone) is no character", param=_join(path, at))
    at = _path_of(body, _is_no_number)
    if at is not None:
        return InvalidValue(f"{at}: wanted a number, got NaN, Infinity or one that is out of range", param=_join(path, at))
    return InvalidJson(f"the body is not valid JSON: {error}", param=path or None)


def _join(path: str, at: str) -> str:
    return f"{path}.{at}" if path and at and not at.startswith("[") else path + at


def _path_of(body: bytes, is_bad: Callable[[Any], bool]) -> str | None:
    """Where the first bad value stands, by a reader that takes more than ours does; None if that cannot be told."""
    try:
        waiting: list[tuple[str, Any]] = [("", json.loads(body))]
    except (ValueError, RecursionError):
        return None
    while waiting:
        path, value = waiting.pop()
        if is_bad(value):
            return path
        match value:
            case dict():
                waiting += [(f"{path}.{key}" if path else key, member) for key, member in reversed(value.items())]
                waiting += [(path, key) for key in value]
            case list():
                waiting += [(f"{path}[{at}]", member) for at, member in reversed(list(enumerate(value)))]
    return None


def _is_surrogate_half(value: Any) -> bool:
    return isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value)


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _nested_tool_hint(members: dict[str, Raw]) -> str | None:
    """TOOL-1, C-3: the chat form of a tool, explained."""
    if "function" not in members:
        return None
    return (
        'this tool is nested as in Chat Completions ({"type":"function","function":{"name":…}}); here tools are flat: '
        '{"type":"function","name":…,"description":…,"parameters":…,"strict":…}'
    )


KIND_OF_BYTE: Final = {b"{": "object", b"[": "array", b'"': "string", b"t": "boolean", b"f": "boolean", b"n": "null"}
KINDS: Final[dict[type, tuple[str, ...]]] = {
    shapes.StrType: ("string",),
    shapes.EnumType: ("string",),
    shapes.IntType: ("integer",),
    shapes.FloatType: ("integer", "number"),
    shapes.BoolType: ("boolean",),
    shapes.NoneType: ("null",),
    shapes.ListType: ("array",),
    shapes.DictType: ("object",),
}
LEAVES: Final[dict[type, Any]] = {
    shapes.FloatType: float,
    shapes.BoolType: bool,
    shapes.NoneType: None,
    shapes.AnyType: Any,
}
WORDS: Final[dict[type, str]] = {
    shapes.FloatType: "a number",
    shapes.BoolType: "true or false",
    shapes.DictType: "an object",
    shapes.NoneType: "null",
}
# ITEM-8, and the specification's item_reference, whose `type` may be left out or null; which field gives the type away.
IMPLIED: Final = (("role", "message"), ("schema", "json_schema"), ("id", "item_reference"))
HINTS: Final[dict[type, Callable[[dict[str, Raw]], str | None]]] = {FunctionToolParam: _nested_tool_hint}
