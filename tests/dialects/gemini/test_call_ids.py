"""Ids for calls that have none."""

from __future__ import annotations

from typing import Any

from tests.dialects.gemini.asking import ask, call, model, result, user

from antiphon.protocol.items import FunctionCallOutputParam, FunctionCallParam


def ids_of(*contents: dict[str, Any]) -> list[tuple[str, str]]:
    """Calls and results with their ids."""
    collected = []
    for item in ask(*contents).items:
        match item:
            case FunctionCallParam():
                collected.append((item.name, item.call_id))
            case FunctionCallOutputParam(output=str() as output):
                collected.append((output, item.call_id))
    return collected


def test_call_ids_of_one_name_match_results_in_order() -> None:
    """The same body always has the same ids."""
    conversation = [
        model(call("look"), call("read"), call("look")),
        user(result("look", {"output": "1"}), result("look", {"output": "3"}), result("read", {"output": "2"})),
    ]
    expected = [
        ("look", "call_1"),
        ("read", "call_2"),
        ("look", "call_3"),
        ("1", "call_1"),
        ("3", "call_3"),
        ("2", "call_2"),
    ]
    assert ids_of(*conversation) == expected
    assert ids_of(*conversation, model({"text": "x"}), user({"text": "y"})) == expected


def test_call_ids_skip_numbers_that_the_client_used() -> None:
    assert ids_of(model(call("a"), call("b", id="call_1"))) == [("a", "call_2"), ("b", "call_1")]


def test_result_matches_only_calls_of_its_turn() -> None:
    """An unanswered call of an earlier turn does not match it."""
    assert ids_of(
        model(call("a"), call("b")),
        user(result("b", {"output": "first"})),
        model(call("a")),
        user(result("a", {"output": "second"})),
    ) == [("a", "call_1"), ("b", "call_2"), ("first", "call_2"), ("a", "call_3"), ("second", "call_3")]


def test_calls_in_the_pieces_of_a_stream_are_one_turn() -> None:
    assert ids_of(
        model(call("a")),
        model(call("a")),
        user(result("a", {"output": "1"}), result("a", {"output": "2"})),
    ) == [("a", "call_1"), ("a", "call_2"), ("1", "call_1"), ("2", "call_2")]


def test_result_with_unknown_id_matches_by_name() -> None:
    """Clients that give ids to results alone."""
    assert ids_of(model(call("a")), user(result("a", {"output": "1"}, id="x"))) == [("a", "call_1"), ("1", "call_1")]


def test_result_without_call_keeps_its_id_or_gets_a_new_one() -> None:
    """The dialect of the server reports that its call is missing."""
    assert ids_of(user(result("a", {"output": "1"}, id="x"), result("a", {"output": "2"}))) == [
        ("1", "x"),
        ("2", "call_1"),
    ]


def test_second_result_keeps_the_id_of_its_call() -> None:
    given = ids_of(
        model(call("a", id="x"), call("a", id="y")), user(*(result("a", {"output": "1"}, id="x") for _ in range(2)))
    )
    assert given[2:] == [("1", "x"), ("1", "x")]
