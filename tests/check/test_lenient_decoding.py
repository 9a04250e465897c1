"""Reading goes on where the shapes refuse, and names every flaw."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.check.lenient_decoding import ShapeProblem, decode_with_problems, join_problems
from antiphon.errors import InvalidValue
from antiphon.protocol.codec import decode_event, decode_response
from antiphon.protocol.items import Message
from antiphon.protocol.request import Request
from antiphon.protocol.response import initial_response

WHOLE = msgspec.json.decode(msgspec.json.encode(initial_response(Request(model="m"), id="resp_1", created_at=1)))


def _paths(problems: list[ShapeProblem]) -> list[str]:
    return [problem.path for problem in problems]


def test_decoding_a_valid_object_reports_no_problems() -> None:
    response, problems = decode_with_problems(msgspec.json.encode(WHOLE), decode_response)
    assert response is not None
    assert (response.id, problems) == ("resp_1", [])


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "object"])
def test_each_required_field_is_missed_and_something_stands_in_for_it(name: str) -> None:
    """HTTP-2"""
    response, problems = decode_with_problems(
        msgspec.json.encode({key: value for key, value in WHOLE.items() if key != name}), decode_response
    )
    assert response is not None
    assert _paths(problems) == [name]


def test_everything_that_is_missing_is_named_and_nothing_inside_what_stands_in() -> None:
    response, problems = decode_with_problems(
        b'{"object":"response","output":[{"type":"message","role":"assistant","content":[]}]}', decode_response
    )
    assert response is not None
    assert isinstance(response.output[0], Message)
    assert set(_paths(problems)) == {*WHOLE, "output[0].id", "output[0].status"} - {"object", "output"}


def test_wrong_types_are_named_too() -> None:
    response, problems = decode_with_problems(
        msgspec.json.encode({**WHOLE, "created_at": "now", "tools": None, "usage": []}), decode_response
    )
    assert response is not None
    assert set(_paths(problems)) == {"created_at", "tools", "usage"}


def test_a_stand_in_of_its_own_comes_first() -> None:
    event, problems = decode_with_problems(
        b'{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"a"}',
        decode_event,
        {"sequence_number": 7},
    )
    assert event is not None
    assert (event.sequence_number, _paths(problems)) == (7, ["sequence_number"])


@pytest.mark.parametrize("data", [b"", b"nonsense", b"[]", b"null", b"[" * 5000, b'{"a":' * 500 + b"1" + b"}" * 500])
def test_decoding_fails_without_a_known_type(data: bytes) -> None:
    event, problems = decode_with_problems(data, decode_event)
    assert event is None
    assert len(problems) == 1


@pytest.mark.parametrize(
    "value",
    [{"type": 5}, {}, {"type": "response.output_item.added", "sequence_number": 0, "output_index": 0, "item": "x"}],
)
def test_an_event_that_cannot_be_read_is_a_problem(value: dict[str, Any]) -> None:
    _, problems = decode_with_problems(msgspec.json.encode(value), decode_event)
    assert problems


def test_a_place_that_is_not_there_cannot_be_filled() -> None:
    def refuses(data: bytes) -> None:
        raise InvalidValue(f"no: {len(data)}", param="a[3].b")

    assert decode_with_problems(b'{"a":[]}', refuses) == (None, [ShapeProblem("a[3].b", "no: 8")])


@pytest.mark.parametrize("depth", range(900, 1100, 7))
def test_no_depth_breaks_the_reading(depth: int) -> None:
    decode_with_problems(
        msgspec.json.encode({**WHOLE, "metadata": 5}).replace(b":5", b":" + b"[" * depth + b"]" * depth),
        decode_response,
    )


def test_a_few_problems_are_told_in_full_and_the_rest_by_name() -> None:
    problems = [ShapeProblem(name, f"{name} is missing") for name in "abcde"]
    assert join_problems(problems[:1]) == "a is missing"
    assert join_problems(problems) == "a is missing; b is missing; c is missing; the same for d, e"
