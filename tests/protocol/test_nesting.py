"""The limit on nested JSON is exact, ignores the content of strings, and is the same on every interpreter."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from antiphon.protocol.codec import check_nesting, decode_json, with_nesting_limit
from antiphon.protocol.nesting import CHUNK_SIZE, MAX_NESTING, NestingError, has_many_values, is_too_deep

# Text that a careless scan would read as structure: brackets, quotes and backslashes in every order.
tricky_text = st.text(st.sampled_from('[]{}"\\/\nabé☃'), max_size=12)
small_values = st.recursive(
    tricky_text | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tricky_text, inner, max_size=3),
    max_leaves=10,
)


def nested(depth: int, core: str, *, objects: bool = False, beside: str = "null") -> str:
    """JSON of `depth` levels around `core`, each level with another member beside."""
    opening, closing = ('{"k":' + beside + ',"n":', "}") if objects else (f"[{beside},", "]")
    return opening * depth + core + closing * depth


def depth_of(value: Any) -> int:
    match value:
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case _:
            return 0


@given(core=small_values, beside=small_values, objects=st.booleans(), ascii=st.booleans(), missing=st.integers(-2, 2))
def test_nesting_limit_is_exact_and_ignores_strings(
    core: Any, beside: Any, objects: bool, ascii: bool, missing: int
) -> None:
    """Input: the limit counts levels of arrays and objects, and nothing in a string is a level."""
    depth = MAX_NESTING - depth_of(core) - missing
    text = nested(
        depth, json.dumps(core, ensure_ascii=ascii), objects=objects, beside=json.dumps(beside, ensure_ascii=ascii)
    )
    levels = max(depth + depth_of(core), depth + depth_of(beside))
    for data in (text, text.encode(), Raw(text.encode())):
        assert is_too_deep(data) == (levels > MAX_NESTING)


@given(value=small_values)
def test_nesting_of_shallow_json_is_allowed_in_any_number(value: Any) -> None:
    """Many brackets are not deep ones."""
    assert not is_too_deep(json.dumps([value] * 200))


@pytest.mark.parametrize("depth", [MAX_NESTING, MAX_NESTING + 1])
@pytest.mark.parametrize("beside", ["[[[]]]", '{"a":{}}', '"[{"', '"\\\\"', '"\\\\\\"["'])
def test_nesting_is_counted_across_chunks(depth: int, beside: str) -> None:
    """The deepest level comes after more brackets than one chunk of the count has."""
    text = "[" + "[[[]],{}]," * (CHUNK_SIZE // 8 + 1) + nested(depth - 1, "1", beside=beside) + "]"
    assert is_too_deep(text) == (depth + depth_of(json.loads(beside)) > MAX_NESTING)


def test_nesting_error_names_the_limit() -> None:
    check_nesting("[" * MAX_NESTING + "]" * MAX_NESTING)
    with pytest.raises(NestingError, match=r"at most 256 levels"):
        check_nesting("[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '"' + "[" * 1000, '\\"' + "[" * 1000, "]" * 1000 + "[" * 300]
)
def test_nesting_of_broken_json_never_reaches_the_recursion_limit(text: str) -> None:
    """Input: 100,000 nested brackets. Text that is no JSON is rejected by one of the two, and neither recurses without
    limit."""
    with pytest.raises(msgspec.DecodeError):
        decode_json(text)


def test_decode_json_reads_types_and_bounded_decoders_check_first() -> None:
    assert decode_json(b'{"a":[1]}', type=dict[str, list[int]]) == {"a": [1]}
    assert decode_json('"text"') == "text"
    decode = with_nesting_limit(msgspec.json.Decoder(list[Any]).decode)
    assert decode(b"[[1]]") == [[1]]
    with pytest.raises(NestingError):
        decode(b"[" * 300 + b"]" * 300)


@pytest.mark.parametrize("inner", [b"", b" ", b"1"])
def test_bounded_decoders_have_an_exact_bound(inner: bytes) -> None:
    """Also for the shortest JSON that is too deep, which consists of brackets."""
    decode = with_nesting_limit(msgspec.json.Decoder(Any).decode)
    deepest = b"[" * MAX_NESTING + inner + b"]" * MAX_NESTING
    decode(deepest)
    decode_json(deepest)
    for refuse in (decode, decode_json):
        with pytest.raises(NestingError):
            refuse(b"[" + deepest + b"]")


def count_marks(value: Any) -> int:
    """The commas and opening brackets of JSON."""
    match value:
        case dict() | list():
            members = list(value.values() if isinstance(value, dict) else value)
            return 1 + max(0, len(members) - 1) + sum(map(count_marks, members))
        case _:
            return 0


@given(value=small_values, ascii=st.booleans())
def test_values_are_counted_outside_of_strings(value: Any, ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii).encode()
    count = count_marks(value)
    assert not has_many_values(text, count)
    assert count == 0 or has_many_values(text, count - 1)


def test_commas_in_strings_are_no_values() -> None:
    assert not has_many_values(json.dumps({"a": ',{["' * 1000, "b": 1}).encode(), 2)
