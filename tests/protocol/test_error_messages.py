"""Texts of errors (ERR-3): short, in words, and in one spelling."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from hypothesis import assume, given
from msgspec import Meta, Raw
from msgspec import inspect as shapes
from tests.generate.schema import json_values
from tests.generate.shapes import kind_of

from antiphon.protocol.base import EXTRA_NAME
from antiphon.protocol.content import Number, Refusal
from antiphon.protocol.error_messages import (
    MAX_EXCERPT_LENGTH,
    MAX_EXCERPT_SOURCE_BYTES,
    describe_type,
    excerpt,
    json_kind,
    member_path,
)
from antiphon.protocol.errors import ErrorBody
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.request import CompactRequest, Request, TextFormatParam
from antiphon.protocol.response import CompactResource
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.tools import ToolParam


@pytest.mark.parametrize(
    ("type", "words"),
    [
        (str, "a string"),
        (
            Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$")],
            "a string of 1 to 64 characters matching ^[a-zA-Z0-9_-]+$",
        ),
        (int, "an integer"),
        (Annotated[int, Meta(le=5)], "an integer of at most 5"),
        (Number | None, "a number or null"),
        (bool, "true or false"),
        (Any, "anything"),
        (Literal["a"], '"a"'),
        (Literal["a", "b"] | None, 'one of "a", "b" or null'),
        (ItemStatus, 'one of "in_progress", "completed", "incomplete", "failed"'),
        (list[str], "an array of strings"),
        (list[int], "an array of integers"),
        (list[Any], "an array of anything"),
        (list[dict[str, Any]], "an array of objects"),
        (dict[str, Any], "an object"),
        (Annotated[dict[str, str], Meta(max_length=2)], "an object of at most 2 strings"),
        (Annotated[list[ToolParam], Meta(min_length=1, max_length=2)], "an array of 1 to 2 objects"),
        (ToolParam, 'an object whose type is one such as "function", "custom", "namespace", "tool_search"'),
        (TextFormatParam | None, 'an object whose type is one of "text", "json_object", "json_schema" or null'),
        (Refusal, 'an object of type "refusal"'),
        (ErrorBody, "an object"),
    ],
)
def test_expected_type_is_described_in_words(type: Any, words: str) -> None:
    assert describe_type(shapes.type_info(type)) == words


def infos(info: shapes.Type, seen: set[type]) -> Iterator[shapes.Type]:
    """Every type inside a type, once."""
    yield info
    inner: list[shapes.Type] = []
    match info:
        case shapes.StructType(cls=cls, fields=fields) if cls not in seen:
            seen.add(cls)
            inner = [field.type for field in fields if field.encode_name != EXTRA_NAME]
        case shapes.UnionType(types=types):
            inner = list(types)
        case shapes.ListType(item_type=item):
            inner = [item]
        case shapes.DictType(key_type=key, value_type=value):
            inner = [key, value]
    for member in inner:
        yield from infos(member, seen)


@pytest.mark.parametrize("type", [Request, CompactRequest, CompactResource, StreamEvent, ErrorBody])
def test_every_type_of_the_protocol_has_a_description(type: Any) -> None:
    for info in infos(shapes.type_info(type), set()):
        words = describe_type(info)
        assert "'" not in words
        assert ("anything" in words) == any(
            isinstance(inner, shapes.AnyType | shapes.RawType) for inner in plain_parts(info)
        )


def plain_parts(info: shapes.Type) -> list[shapes.Type]:
    """The parts of a description: options and entries, not the fields of objects."""
    match info:
        case shapes.UnionType(types=types):
            return [part for option in types for part in plain_parts(option)]
        case shapes.ListType(item_type=item):
            return plain_parts(item)
        case _:
            return [info]


@given(json_values)
def test_json_kind_follows_from_the_first_character(value: Any) -> None:
    assert json_kind(f" {json.dumps(value)}\n".encode()) == kind_of(value)


@given(json_values)
def test_excerpt_is_the_value_or_its_start(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assume("…" not in text)  # the mark of a cut
    shown = excerpt(text.encode())
    assert len(shown) <= 120
    beginning, cut, size = shown.partition("…")
    assert " ".join(text.split()).startswith(beginning)
    if not cut:
        assert beginning == " ".join(text.split())
    elif size:
        assert re.fullmatch(r" \((a string|an array|an object|an integer|a number) of \d+ (characters|bytes)\)", size)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b'"' + b"a" * 58 + b'"', '"' + "a" * 58 + '"'),
        (b'"' + "é".encode() * 70 + b'"', '"' + "é" * 59 + "… (a string of 70 characters)"),
        (b"[" + b" " * 2000 + b"]", "[… (an array of 2002 bytes)"),
        (b'{\n  "a": 1\n}', '{ "a": 1 }'),
        (b" " * 2000 + b"true\n", "true"),
        (b"1" * 61, "1" * 60 + "… (an integer of 61 bytes)"),
    ],
)
def test_excerpt_of_a_long_value_has_start_kind_and_size(raw: bytes, shown: str) -> None:
    assert excerpt(Raw(raw)) == shown


@pytest.mark.parametrize(
    ("path", "name", "spelled"),
    [
        ("", "input", "input"),
        ("metadata", "a-b:c_1", "metadata.a-b:c_1"),
        ("metadata", "a.b", 'metadata["a.b"]'),
        ("", "ü", '["ü"]'),
        ("x", 'say "so"', 'x["say \\"so\\""]'),
        ("x", "k" * 100, f'x["{"k" * 60}…"]'),
    ],
)
def test_member_path_has_the_usual_spelling(path: str, name: str, spelled: str) -> None:
    assert member_path(path, name) == spelled


def test_value_of_the_longest_length_is_shown_whole() -> None:
    longest = b'"' + b"a" * (MAX_EXCERPT_LENGTH - 2) + b'"'
    assert excerpt(longest) == longest.decode()
    assert (
        excerpt(b'"a' + longest[1:])
        == f'"{"a" * (MAX_EXCERPT_LENGTH - 1)}… (a string of {MAX_EXCERPT_LENGTH - 1} characters)'
    )
    spaced = b"[" + b" " * (MAX_EXCERPT_SOURCE_BYTES - 2) + b"]"
    assert excerpt(spaced) == "[ ]"
    assert excerpt(b"[ " + spaced[1:]) == f"[… (an array of {MAX_EXCERPT_SOURCE_BYTES + 1} bytes)"


def test_name_of_the_longest_length_is_quoted_whole() -> None:
    assert member_path("a", "b " * (MAX_EXCERPT_LENGTH // 2)) == f'a["{"b " * (MAX_EXCERPT_LENGTH // 2)}"]'
    assert (
        member_path("a", " " + "b " * (MAX_EXCERPT_LENGTH // 2))
        == f'a["{" " + "b " * (MAX_EXCERPT_LENGTH // 2)}'[: MAX_EXCERPT_LENGTH + 3] + '…"]'
    )
