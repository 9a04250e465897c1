"""Lenient decoding continues where the strict shapes refuse, and names every problem."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.check.lenient_decoding import ShapeProblem, decode_with_problems, join_problems
from antiphon.errors import InvalidValue
from antiphon.protocol.codec import decode_event, decode_response
from antiphon.protocol.items import Message
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response

WHOLE = msgspec.json.decode(msgspec.json.encode(make_initial_response(Request(model="m"), id="resp_1", created_at=1)))


def _paths(problems: list[ShapeProblem]) -> list[str]:
    return [problem.path for problem in problems]


def test_decoding_a_valid_object_reports_no_problems() -> None:
    response, problems = decode_with_problems(msgspec.json.encode(WHOLE), decode_response)
    assert response is not None
    assert (response.id, problems) == ("resp_1", [])


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "object"])
def test_missing_required_field_is_reported_and_replaced(name: str) -> None:
    """HTTP-2"""
    response, problems = decode_with_problems(
        msgspec.json.encode({key: value for key, value in WHOLE.items() if key != name}), decode_response
    )
    assert response is not None
    assert _paths(problems) == [name]


def test_missing_fields_are_all_reported_except_inside_replacements() -> None:
    response, problems = decode_with_problems(
        b'{"object":"response","output":[{"type":"message","role":"assistant","content":[]}]}', decode_response
    )
    assert response is not None
    assert isinstance(response.output[0], Message)
    assert set(_paths(problems)) == {*WHOLE, "output[0].id", "output[0].status"} - {"object", "output"}


def test_wrong_types_are_reported() -> None:
    response, problems = decode_with_problems(
        msgspec.json.encode({**WHOLE, "created_at": "now", "tools": None, "usage": []}), decode_response
    )
    assert response is not None
    assert set(_paths(problems)) == {"created_at", "tools", "usage"}


def test_given_default_replaces_a_missing_field() -> None:
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
def test_undecodable_event_is_reported(value: dict[str, Any]) -> None:
    _, problems = decode_with_problems(msgspec.json.encode(value), decode_event)
    assert problems


def test_problem_at_a_missing_path_ends_decoding() -> None:
    def refuses(data: bytes) -> None:
        raise InvalidValue(f"no: {len(data)}", param="a[3].b")

    assert decode_with_problems(b'{"a":[]}', refuses) == (None, [ShapeProblem("a[3].b", "no: 8")])


@pytest.mark.parametrize("depth", range(900, 1100, 7))
def test_decoding_accepts_any_nesting_depth(depth: int) -> None:
    decode_with_problems(
        msgspec.json.encode({**WHOLE, "metadata": 5}).replace(b":5", b":" + b"[" * depth + b"]" * depth),
        decode_response,
    )


def test_join_problems_shows_three_in_full_and_names_the_rest() -> None:
    problems = [ShapeProblem(name, f"{name} is missing") for name in "abcde"]
    assert join_problems(problems[:1]) == "a is missing"
    assert join_problems(problems) == "a is missing; b is missing; c is missing; the same for d, e"
