"""Members of JSON texts are set, and everything else stays as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.exits import InvalidUsage
from antiphon.cli.json_edit import parse_object, set_members, take_back_members

MEMBERS = {"model": "m", "env": {"A": "1"}}


def test_empty_text_becomes_the_members() -> None:
    assert json.loads(set_members(" \n", MEMBERS)) == MEMBERS


def test_comments_order_and_spaces_stay() -> None:
    text = '{\n    // mine, "model": no\n    "env" : {"B": "2"}, /* a } */\n    "theme":"dark" // last\n}\n'
    assert set_members(text, MEMBERS) == (
        '{\n    // mine, "model": no\n    "env" : {"B": "2",\n      "A": "1"\n    }, /* a } */\n'
        '    "theme":"dark", // last\n    "model": "m"\n}\n'
    )


def test_values_are_replaced_in_place() -> None:
    assert set_members('{"model": "old", "env": 3}', {"model": "m"}) == '{"model": "m", "env": 3}'
    assert set_members('{"env": [1, {"A": 2}], "x": 1}', {"env": "e"}) == '{"env": "e", "x": 1}'


def test_trailing_commas_and_line_ends_stay() -> None:
    assert set_members('{\r\n  "a": 1,\r\n}\r\n', {"b": 2}) == '{\r\n  "a": 1,\r\n  "b": 2\r\n}\r\n'


def test_empty_object_gets_lines() -> None:
    assert set_members("{}", {"a": 1}) == '{\n  "a": 1\n}'


@pytest.mark.parametrize(
    "text", ["{", '{"a": }', '{"a" 1}', "[1]", '"x"', "{} {}", '{"a": "x\ny"}', "{,}", "/", '{"a', "{} /* x"]
)
def test_text_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidUsage, match=r"not (JSON|a JSON object)"):
        set_members(text, MEMBERS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


def _merge(value: dict[str, Any], members: dict[str, Any]) -> dict[str, Any]:
    merged = dict(value)
    for name, member in members.items():
        old = merged.get(name)
        merged[name] = _merge(old, member) if isinstance(old, dict) and isinstance(member, dict) else member
    return merged


@given(OBJECTS, OBJECTS, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_result_has_the_old_members_and_the_new(
    value: dict[str, Any], members: dict[str, Any], indent: int | str | None, is_ascii: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    assert json.loads(set_members(text, members)) == _merge(value, members)


BEFORE = {"theme": "dark", "model": "old", "env": {"A": "1"}}
AFTER = {"theme": "dark", "model": "new", "env": {"A": "1", "B": "2"}, "added": {"x": 1, "y": {"z": 2}}}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (json.dumps(AFTER), BEFORE),
        (json.dumps(AFTER, indent=2), BEFORE),
        # Settings that came since stay.
        (json.dumps({**AFTER, "more": 1}, indent=2), {**BEFORE, "more": 1}),
        (json.dumps({"first": 1, **AFTER, "env": {"B": "2", "C": "3"}}), {"first": 1, **BEFORE, "env": {"C": "3"}}),
        # A value that was changed since stays.
        (json.dumps({**AFTER, "model": "other"}), {**BEFORE, "model": "other"}),
        (json.dumps({**AFTER, "added": {"x": 1, "own": 3}}), {**BEFORE, "added": {"own": 3}}),
        (json.dumps({"added": AFTER["added"]}), {}),
        (json.dumps({"added": {"y": {}}}), {}),
        ('{ // comment\n"added": {"x": 1} }', {}),
        ("{}", {}),
    ],
)
def test_members_that_are_as_set_are_taken_back(text: str, result: dict[str, Any]) -> None:
    assert parse_object(take_back_members(text, BEFORE, AFTER)) == result


def test_members_are_taken_back_without_touching_comments() -> None:
    text = (
        '{\r\n\t// mine\r\n\t"theme": "dark", // too\r\n\t"model": "new",\r\n\t"added": {\r\n\t\t"x": 1\r\n\t}\r\n}\r\n'
    )
    assert take_back_members(text, {}, {"model": "new", "added": {"x": 1}}) == (
        '{\r\n\t// mine\r\n\t"theme": "dark" // too\r\n}\r\n'
    )


@given(OBJECTS, OBJECTS)
def test_members_that_were_set_can_be_taken_back(before: dict[str, Any], members: dict[str, Any]) -> None:
    text = json.dumps(before, indent=2)
    after = set_members(text, members)
    assert parse_object(take_back_members(after, before, parse_object(after))) == before
