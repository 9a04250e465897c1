"""Members of JSON texts are set, and everything else stays as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.exits import InvalidUsage
from antiphon.cli.json_edit import set_members

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
