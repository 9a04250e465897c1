"""Messages of decoding errors: the received value, the expected type, and the path of the field (ERR-3).

Received values are shown as shortened JSON; values of the wire format are in double quotes. A path is written like
`input[3].content[0].image_url`, or `metadata["two words"]` where a key is not a plain name. Other modules decide what
is an error.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw
from msgspec import inspect as shapes

from antiphon.errors import ClientFault, InvalidJson, InvalidUnicode, InvalidValue, JsonTooDeep
from antiphon.protocol.base import UNKNOWN_TAG
from antiphon.protocol.nesting import MAX_NESTING, NestingError

#: What a decoder raises for invalid JSON. A ValidationError, which is one of them, means valid JSON of the wrong shape.
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError)


def member_path(path: str, name: str) -> str:
    """The path of a member."""
    if not PLAIN_NAME.fullmatch(name):
        return f"{path}[{_quote(name)}]"
    return f"{path}.{name}" if path else name


def json_kind(raw: bytes | Raw) -> str:
    """The JSON type name of valid JSON, decided by its first byte."""
    text = bytes(raw).strip()
    kind = KIND_OF_FIRST_BYTE.get(text[:1])
    if kind is not None:
        return kind
    return "integer" if text.lstrip(b"-").isdigit() else "number"


def excerpt(raw: bytes | Raw) -> str:
    """A short, printable form of a value. A long value is shown by its beginning, its kind and its size."""
    value_bytes = bytes(raw).strip()
    text = " ".join(value_bytes[:MAX_EXCERPT_SOURCE_BYTES].decode("utf-8", "replace").split())
    if len(value_bytes) <= MAX_EXCERPT_SOURCE_BYTES and len(text) <= MAX_EXCERPT_LENGTH:
        return text
    kind = json_kind(raw)
    size = f"{len(msgspec.json.decode(raw, type=str))} characters" if kind == "string" else f"{len(value_bytes)} bytes"
    return f"{text[:MAX_EXCERPT_LENGTH]}… ({KIND_WITH_ARTICLE[kind]} of {size})"


def type_mismatch_error(raw: bytes | Raw, info: shapes.Type, path: str) -> ClientFault:
    """The error for a value whose type does not match its field."""
    mismatch = f"expected {describe_type(info)}, got {excerpt(raw)}"
    return InvalidValue(f"{path}: {mismatch}", param=path) if path else InvalidJson(f"the body: {mismatch}")


def fault_from_decode_error(error: Exception, body: bytes) -> ClientFault:
    """The error for invalid JSON, built from the decoder's exception and the body."""
    if isinstance(error, NestingError):
        return JsonTooDeep(
            f"the body is nested too deeply: at most {MAX_NESTING} levels of arrays and objects are allowed"
        )
    invalid_value = _first_invalid_value(body)
    if invalid_value:
        return _invalid_value_error(*invalid_value)
    if isinstance(error, UnicodeDecodeError):
        return InvalidUnicode(f"the body is not valid UTF-8: {error.reason}")
    return InvalidJson(f"the body {_describe_syntax_problem(str(error), body)}")


def describe_type(info: shapes.Type) -> str:
    """Describes the values that a type accepts."""
    match info:
        case shapes.UnionType(types=types):
            return _describe_union(types)
        case shapes.LiteralType(values=values):
            return describe_choices([str(value) for value in values])
        case shapes.EnumType(cls=cls):
            return describe_choices([member.value for member in cls])
        case shapes.StructType(tag=tag):
            return f"an object of type {_quote(str(tag))}" if tag else "an object"
        case shapes.StrType(min_length=low, max_length=high, pattern=pattern):
            length = f" of {_describe_range(low, high)} characters" if _describe_range(low, high) else ""
            return "a string" + length + (f" matching {pattern}" if pattern else "")
        case shapes.IntType(ge=low, le=high):
            bounds = _describe_range(low, high)
            return f"an integer {'of' if bounds.startswith('at') else 'from'} {bounds}" if bounds else "an integer"
        case shapes.ListType(item_type=item, min_length=low, max_length=high):
            return " ".join(filter(None, ("an array of", _describe_range(low, high), _describe_plural(item))))
        case shapes.DictType(value_type=value, max_length=high):
            bounds = _describe_range(None, high)
            return f"an object of {bounds} {_describe_plural(value)}" if bounds else "an object"
        case _:
            return TYPE_DESCRIPTIONS.get(type(info), "anything")


def describe_choices(values: list[str]) -> str:
    """A closed choice: lists all the allowed values."""
    quoted = [_quote(value) for value in values]
    return quoted[0] if len(quoted) == 1 else "one of " + ", ".join(quoted)


def describe_examples(values: list[str]) -> str:
    """An open choice: lists a few of the known values."""
    return "one such as " + ", ".join(map(_quote, values[:4]))


def _describe_union(types: tuple[shapes.Type, ...]) -> str:
    tagged_options = [option for option in types if isinstance(option, shapes.StructType) and option.tag]
    descriptions = [describe_type(option) for option in types if option not in tagged_options]
    if "a number" in descriptions:
        descriptions = [description for description in descriptions if description != "an integer"]
    if tagged_options:
        descriptions.insert(
            len(descriptions) - descriptions.count("null"),
            _describe_tagged([str(option.tag) for option in tagged_options]),
        )
    return " or ".join(descriptions)


def _describe_tagged(tags: list[str]) -> str:
    known_tags = [tag for tag in tags if tag != UNKNOWN_TAG]
    describe_tags = describe_choices if known_tags == tags else describe_examples
    return f"an object whose type is {describe_tags(known_tags)}"


def _describe_plural(info: shapes.Type) -> str:
    description = describe_type(info)
    return "objects" if "object" in description else ARTICLE_AND_NOUN.sub(r"\1s", description)


def _describe_range(low: int | None, high: int | None) -> str:
    match low, high:
        case None, None:
            return ""
        case None, _:
            return f"at most {high}"
        case _, None:
            return f"at least {low}"
        case _:
            return f"{low} to {high}"


def _quote(text: str) -> str:
    shortened = text if len(text) <= MAX_EXCERPT_LENGTH else f"{text[:MAX_EXCERPT_LENGTH]}…"
    return json.dumps(shortened, ensure_ascii=False)


def _describe_syntax_problem(decoder_message: str, body: bytes) -> str:
    """HTTP-1: describes where the JSON syntax is invalid."""
    if not body.strip():
        return "is empty: expected a JSON object"
    if body.startswith(BOM):
        return "is not valid JSON: expected plain UTF-8, got a byte order mark at the start"
    if decoder_message == TRUNCATION_MESSAGE:
        return f"is not valid JSON: it is truncated after {len(body)} bytes"
    return "is not valid JSON: " + decoder_message.removeprefix("JSON is malformed: ")


class _NonFiniteNumber(NamedTuple):
    """NaN, Infinity or 1e400, as written in the body."""

    spelling: str


def _invalid_value_error(path: str, value: str | _NonFiniteNumber) -> ClientFault:
    location = path or "the body"
    if isinstance(value, _NonFiniteNumber):
        return InvalidValue(
            f"{location}: expected a finite number, got {excerpt(value.spelling.encode())}", param=path or None
        )
    problem = "invalid UTF-8 or an unpaired surrogate"
    return InvalidUnicode(
        f"{location}: expected a string of valid Unicode characters, got {problem}", param=path or None
    )


def _first_invalid_value(body: bytes) -> tuple[str, str | _NonFiniteNumber] | None:
    """The first string or number that JSON does not allow, and its path.

    Uses a more lenient parser, which represents invalid UTF-8 as surrogates. Returns None if that parser cannot read
    the body either.
    """
    try:
        pending_values: list[tuple[str, Any]] = [("", _parse_leniently(body))]
    except ValueError:
        return None
    invalid_value: tuple[str, str | _NonFiniteNumber] | None = None
    while pending_values and invalid_value is None:
        path, value = pending_values.pop()
        match value:
            case _NonFiniteNumber():
                invalid_value = path, value
            case str():
                invalid_value = (path, value) if SURROGATE.search(value) else None
            case dict():
                pending_values += [(member_path(path, key), member) for key, member in reversed(value.items())]
                pending_values += [(path, key) for key in value]
            case list():
                pending_values += [(f"{path}[{index}]", member) for index, member in reversed(list(enumerate(value)))]
    return invalid_value


def _parse_leniently(body: bytes) -> Any:
    def parse_number(spelling: str) -> _NonFiniteNumber | None:
        return None if math.isfinite(float(spelling)) else _NonFiniteNumber(spelling)

    text = body.decode("utf-8", "surrogateescape")
    return json.loads(text, parse_int=parse_number, parse_float=parse_number, parse_constant=_NonFiniteNumber)


MAX_EXCERPT_LENGTH: Final = 60
MAX_EXCERPT_SOURCE_BYTES: Final = 1000
BOM: Final = b"\xef\xbb\xbf"
TRUNCATION_MESSAGE: Final = "Input data was truncated"
ARTICLE_AND_NOUN: Final = re.compile("^an? (string|integer|number)")
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_:-]{1,80}")
SURROGATE: Final = re.compile("[\ud800-\udfff]")
KIND_OF_FIRST_BYTE: Final = {
    b"{": "object",
    b"[": "array",
    b'"': "string",
    b"t": "boolean",
    b"f": "boolean",
    b"n": "null",
}
KIND_WITH_ARTICLE: Final = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
}
TYPE_DESCRIPTIONS: Final[dict[type, str]] = {
    shapes.FloatType: "a number",
    shapes.BoolType: "true or false",
    shapes.NoneType: "null",
}
