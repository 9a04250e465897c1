from __future__ import annotations

from typing import Any

import pytest

from antiphon.testing.improvise import OfferedTool, Prompt, improvise, schema_in_instructions
from antiphon.testing.script import Finish, Reasoning, ScriptedTurn, Text, ToolCalls

pytestmark = pytest.mark.without_coverage
PLACE = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
WEATHER = OfferedTool("get_weather", PLACE)
CLOCK = OfferedTool("clock", {})
PATCH = OfferedTool("apply_patch", {}, "custom")


def text_of(turn: ScriptedTurn) -> str:
    return "".join("".join(element.pieces) for element in turn.elements if isinstance(element, Text))


def calls_of(turn: ScriptedTurn) -> list[tuple[str, str, str]]:
    groups = [element.calls for element in turn.elements if isinstance(element, ToolCalls)]
    return [(call.id, call.name, "".join(call.pieces)) for calls in groups for call in calls]


def answer(text: str, **rest: Any) -> ScriptedTurn:
    return improvise(Prompt(text=text, **rest))


def test_it_echoes_in_words() -> None:
    turn = answer("good  morning\n to you ")
    assert text_of(turn) == "You said: good  morning\n to you "
    assert turn.elements == (Text(("You", " said:", " good", "  morning", "\n to", " you", " ")),)


def test_it_says_that_something_is_attached() -> None:
    assert text_of(answer("look", media=2)) == "I see 2 attached. You said: look"


def test_it_calls_the_tool_that_the_user_speaks_of() -> None:
    assert calls_of(answer("What's the weather like?", tools=(CLOCK, WEATHER))) == [
        ("call_1", "get_weather", '{"place":"place"}')
    ]


def test_it_calls_nothing_that_nobody_speaks_of() -> None:
    assert calls_of(answer("What is the time? Get up!", tools=(CLOCK, WEATHER))) == []


def test_it_calls_what_it_must_call() -> None:
    assert calls_of(answer("hello", tools=(CLOCK, WEATHER), choice="required")) == [("call_1", "clock", "{}")]


def test_it_never_calls_what_it_must_not_call() -> None:
    assert calls_of(answer("call clock {}, the weather", tools=(CLOCK, WEATHER), choice="none")) == []


def test_it_makes_the_calls_that_are_spelled_out() -> None:
    text = 'first call get_weather {"place": {"in": "Rome"}} and then call clock, and call nobody {}'
    expected = [("call_4", "get_weather", '{"place": {"in": "Rome"}}'), ("call_5", "clock", "{}")]
    assert calls_of(answer(text, tools=(CLOCK, WEATHER), calls_before=3)) == expected
    assert calls_of(answer(text, tools=(CLOCK, WEATHER), calls_before=3, parallel=False)) == expected[:1]


@pytest.mark.parametrize("rest", ["[1]", "{broken", "", "[" * 100_000])
def test_arguments_that_are_no_object_are_made_up(rest: str) -> None:
    assert calls_of(answer(f"call get_weather {rest}", tools=(WEATHER,))) == [
        ("call_1", "get_weather", '{"place":"place"}')
    ]


def test_a_custom_tool_gets_all_that_follows_its_name() -> None:
    assert calls_of(answer("call apply_patch *** Begin\n+1", tools=(PATCH,))) == [
        ("call_1", "apply_patch", "*** Begin\n+1")
    ]
    assert calls_of(answer("patch it", tools=(PATCH,))) == [("call_1", "apply_patch", "patch it")]


def test_it_sums_up_what_tools_said_and_calls_none_again() -> None:
    turn = answer(
        "weather, clock",
        tools=(CLOCK, WEATHER),
        results=(("get_weather", "sunny"), ("clock", "noon")),
        choice="required",
    )
    assert text_of(turn) == "get_weather says: sunny clock says: noon"


def test_it_answers_in_the_form_that_is_asked_for() -> None:
    assert text_of(answer("json", schema=PLACE)) == '{"place":"place"}'
    assert text_of(answer("json", schema={})) == '{"echo":"json"}'


@pytest.mark.parametrize(
    ("instructions", "schema"),
    [
        ("Be brief.", None),
        ("Answer with one JSON object, and with nothing else.", {}),
        (
            'Answer with one JSON object that obeys this JSON schema, and with nothing else:\n{"type": "object"} Be {brief}.',
            {"type": "object"},
        ),
        ("Answer with one JSON object {like this}", {}),
    ],
)
def test_it_hears_when_instructions_ask_for_json(instructions: str, schema: dict[str, Any] | None) -> None:
    assert schema_in_instructions(instructions) == schema


def test_it_thinks_when_it_is_asked_to() -> None:
    thoughts = answer("hi", thinks=True).elements[0]
    assert isinstance(thoughts, Reasoning)
    assert "".join(thoughts.pieces) == "The user wrote 2 characters."


def test_it_stops_where_the_limit_is() -> None:
    assert answer("a b c", max_pieces=3).elements == (Text(("You", " said:", " a")), Finish("length"))
    assert answer("a b c", max_pieces=5).elements == (Text(("You", " said:", " a", " b", " c")),)
    assert len(answer("a", max_pieces=7, thinks=True).elements) == 3
    assert calls_of(
        answer("weather", max_pieces=1, tools=(WEATHER,))
    )  # arguments are never cut: nobody could read them
