"""Custom tools as functions of one string: the string is read from any spelling and any split of the arguments."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from antiphon.dialects.common.freeform_tools import (
    ARGUMENTS_PREFIX,
    ARGUMENTS_SUFFIX,
    MAX_START_LENGTH,
    FreeformInput,
    description,
    schema,
    wrap_delta,
    wrap_input,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.tools import CustomTool, GrammarFormat, TextFormatOfTool

INPUTS = st.text(alphabet=st.sampled_from('ab"\\/\n\t\x00é😀\u2028u{}:d83'), max_size=20) | st.text(max_size=12)
GAPS = st.sampled_from(["", " ", "\n\t "])


def fed(pieces: list[str]) -> tuple[str, str]:
    one = FreeformInput()
    data = "".join(one.feed(piece) for piece in pieces) + one.finish()
    return data, one.left_over


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@given(INPUTS, st.booleans(), GAPS, GAPS, GAPS, GAPS, st.lists(st.integers(0, 60), max_size=6))
def test_freeform_input_is_decoded_from_any_spelling_and_split(
    text: str, escaped: bool, before: str, inside: str, around: str, after: str, places: list[int]
) -> None:
    spelled = json.dumps(text, ensure_ascii=escaped)
    arguments = f'{before}{{{inside}"input"{around}:{around}{spelled}{inside}}}{after}'
    assert fed(cut(arguments, places)) == (text, "")
    assert fed(list(arguments)) == (text, "")


@given(st.text(max_size=40), st.lists(st.integers(0, 60), max_size=6))
def test_freeform_input_is_the_same_for_any_split(arguments: str, places: list[int]) -> None:
    assert fed(cut(arguments, places)) == fed([arguments]) == fed(list(arguments))


@pytest.mark.without_coverage
@given(INPUTS)
def test_wrapped_input_is_json_and_is_unwrapped(text: str) -> None:
    assert json.loads(wrap_input(text)) == {"input": text}
    one = FreeformInput()
    assert one.feed(wrap_input(text)) + one.finish() == text


@given(st.lists(INPUTS, max_size=4))
def test_wrapped_deltas_join_to_whole_arguments(pieces: list[str]) -> None:
    assert ARGUMENTS_PREFIX + "".join(map(wrap_delta, pieces)) + ARGUMENTS_SUFFIX == wrap_input("".join(pieces))


def test_freeform_input_is_streamed() -> None:
    one = FreeformInput()
    assert one.feed('{"input": "*** Beg') == "*** Beg"
    assert one.feed("in \\") == "in "
    assert one.feed("n\\ud83d") == "\n"
    assert one.feed("\\ude") == ""
    assert one.feed('00!"') == "😀!"
    assert one.feed("}") == ""
    assert one.finish() == ""
    assert one.left_over == ""


@pytest.mark.parametrize(
    ("arguments", "expected", "left_over"),
    [
        ("ls -l", "ls -l", ""),
        ("", "", ""),
        ('"just a string"', '"just a string"', ""),
        ('{"patch": "x"}', '{"patch": "x"}', ""),
        ('{"input": 3}', '{"input": 3}', ""),
        ("[" * 2000, "[" * 2000, ""),
        ('{"why": "so", "input": "x"}', "x", '{"why":"so"}'),
        ('{"inp\\u0075t": "x"}', "x", ""),
        ('{"input": "x", "why": "so"}', "x", ', "why": "so"}'),
        ('{"input": "x"', "x", ""),
        ('{"input": "cut \\u00', "cut \\u00", ""),
        ('{"input": "cut \\', "cut \\", ""),
        ('{"input": "no \\escape \\u12 here"}', "no \\escape \\u12 here", ""),
        ('{"input": "half \\ud83d\\u0041 \\ude00 \\ud83d\\n."}', "half \ufffdA \ufffd \ufffd\n.", ""),
        (" " * 300 + '{"input": "x"}', "x", ""),
    ],
)
def test_other_arguments_are_kept_as_left_over(arguments: str, expected: str, left_over: str) -> None:
    assert fed([arguments]) == (expected, left_over)
    assert fed(list(arguments)) == (expected, left_over)


def test_freeform_schema_has_exactly_one_string() -> None:
    assert schema("the patch") == {
        "type": "object",
        "properties": {"input": {"type": "string", "description": "the patch"}},
        "required": ["input"],
        "additionalProperties": False,
    }


GRAMMAR = GrammarFormat(syntax="lark", definition="start: /x/", extra={"x": Raw(b"1")})
RULE = "The input must match this lark grammar:\nstart: /x/"


@pytest.mark.parametrize(
    ("tool", "expected", "lost"),
    [
        (CustomTool(name="patch"), "", []),
        (CustomTool(name="patch", description="so", format=TextFormatOfTool()), "so", []),
        (CustomTool(name="patch", format=GRAMMAR), RULE, ["tools[0].format.x", "tools[0].format"]),
        (
            CustomTool(name="patch", description="so", format=GRAMMAR),
            f"so\n\n{RULE}",
            ["tools[0].format.x", "tools[0].format"],
        ),
    ],
)
def test_description_contains_the_unenforced_grammar(tool: CustomTool, expected: str, lost: list[str]) -> None:
    """TOOL-2, F-4."""
    losses = Losses()
    assert description(tool, "tools[0]", losses) == expected
    assert [loss.path for loss in losses] == lost


@pytest.mark.parametrize(("length", "streamed"), [(MAX_START_LENGTH, "a"), (MAX_START_LENGTH + 1, "")])
def test_beginning_of_the_arguments_has_a_bound(length: int, streamed: str) -> None:
    """A longer beginning is not one string; the input is decided at the end."""
    one = FreeformInput()
    assert one.feed("{" + " " * (length - 1)) == ""
    assert one.feed('"input":"a"}') == streamed
    assert streamed + one.finish() == "a"
