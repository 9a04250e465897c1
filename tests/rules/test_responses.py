"""`rules/responses`: every violation of a body is reported with its path, and whether all servers refuse it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.judging import Collected, findings_of, refusal_of
from tests.testing.responses.test_rules import (
    ANSWER,
    CALL,
    RESULT,
    THOUGHT,
    TOOL,
    USER,
    body_with,
    chosen,
    content,
    full,
)

from antiphon.rules import responses


def violations(change: dict[str, Any], **known: Any) -> list[tuple[str, str, bool]]:
    report = Collected()
    responses.check(full(change), report, **known)
    return [(violation.rule, violation.path, violation.is_certain) for violation in report.violations]


SEARCH = {"type": "tool_search_call", "call_id": CALL["call_id"], "arguments": {}, "execution": "client"}
# (what is wrong, the violations of the body).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "several faults in one call": (
        body_with({"type": "function_call", "id": 1, "arguments": {}}),
        [
            ("value", "input[0].id", True),
            ("missing_field", "input[0].call_id", True),
            ("value", "input[0].arguments", True),
            ("missing_field", "input[0].name", True),
        ],
    ),
    "an empty call_id": (
        body_with({**CALL, "call_id": ""}, {**RESULT, "call_id": 1}),
        [("value", "input[0].call_id", True), ("value", "input[1].call_id", True)],
    ),
    "a call without arguments": (
        body_with({**CALL, "arguments": ...}, RESULT),
        [("missing_field", "input[0].arguments", True)],
    ),
    "a type that is no string": (body_with({"type": 1}), [("discriminator", "input[0].type", True)]),
    "a tool search that a function output answers": (
        body_with(SEARCH, RESULT),
        [("discriminator", "input[0].type", False)],
    ),
    "a tool search that its own output answers": (
        body_with(SEARCH, {"type": "tool_search_output", "call_id": CALL["call_id"], "tools": []}),
        [("discriminator", "input[0].type", False), ("discriminator", "input[1].type", False)],
    ),
    "a tool search without an output": (
        body_with(SEARCH, USER),
        [("discriminator", "input[0].type", False), ("unanswered_call", "input[0]", True)],
    ),
    "a tool search of the server": (
        body_with({**SEARCH, "call_id": None}, USER),
        [("discriminator", "input[0].type", False)],
    ),
    "a compaction without content": (
        body_with({"type": "compaction"}),
        [("reasoning", "input[0].encrypted_content", True)],
    ),
    "a compaction": (body_with({"type": "compaction", "encrypted_content": "x"}), []),
    "reasoning of wrong types": (
        body_with({**THOUGHT, "summary": 1, "content": [1, {"type": "text"}]}, ANSWER),
        [
            ("value", "input[0].summary", True),
            ("content_type", "input[0].content[0]", True),
            ("content_type", "input[0].content[1]", True),
        ],
    ),
    "citations that are no list": (content("assistant", {"type": "output_text", "text": "a", "annotations": 1}), []),
    "citations of other APIs": (
        content("assistant", {"type": "output_text", "text": "a", "annotations": [1, {"type": "char_location"}]}),
        [
            ("discriminator", "input[0].content[0].annotations[0].type", False),
            ("discriminator", "input[0].content[0].annotations[1].type", False),
        ],
    ),
    "reasoning before items that are no answer": (
        body_with(THOUGHT, {"type": "additional_tools", "tools": []}, THOUGHT, 1, THOUGHT),
        [
            ("discriminator", "input[1].type", False),
            ("value", "input[3]", True),
            ("reasoning", "input[4]", False),
            ("reasoning", "input[2]", False),
            ("reasoning", "input[0]", False),
        ],
    ),
    "a tool that is no object": ({"tools": [1]}, [("value", "tools[0]", True)]),
    "a tool without a type": ({"tools": [{"type": 1}]}, [("discriminator", "tools[0].type", True)]),
    "too many tools": ({"tools": [{**TOOL, "name": f"f{at}"} for at in range(129)]}, [("value", "tools", False)]),
    "tools that are no list, and a choice": (
        {"tools": 1, "tool_choice": {"type": "function", "name": "f"}},
        [("value", "tools", True)],
    ),
    "a choice that is a number": ({"tool_choice": 1}, [("discriminator", "tool_choice", True)]),
    "settings of wrong types": (
        {"include": 1, "reasoning": 1, "text": 1},
        [("value", "reasoning", True), ("value", "text", True), ("value", "include", True)],
    ),
    "a schema that is nested, with a name": (
        {"text": {"format": {"type": "json_schema", "name": "n", "json_schema": {}}}},
        [("schema", "text.format.schema", True)],
    ),
    "a format without a type": ({"text": {"format": {}}}, [("discriminator", "text.format", True)]),
    "a reference to a stored item": (body_with({"type": "item_reference", "id": "msg_1"}), []),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


def test_tools_and_models_of_a_server_are_known_to_it() -> None:
    change = {"tools": [{"type": "web_search"}], "include": ["reasoning.encrypted_content"]}
    assert violations(change, own_tools=("web_search",)) == []
    assert violations(change, own_tools=("web_search",), plain_models=("m",)) == [("unsupported", "include", False)]


# Diagnosis and the fake server disagreed on these bodies.


def test_audio_is_refused_by_some_servers() -> None:
    """Diagnosis allowed it; the API's maker and others refuse it."""
    audio = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
    assert violations(content("user", audio)) == [("discriminator", "input[0].content[0].type", False)]
    assert violations(content("system", audio)) == [("discriminator", "input[0].content[0].type", True)]


@pytest.mark.parametrize("kind", ["web_search_call", "acme:thing"])
def test_items_of_some_servers_are_not_certain_to_be_refused(kind: str) -> None:
    """Diagnosis allowed them, and the fake server knows none of them."""
    assert refusal_of("responses", full(body_with({"type": kind}))) == f"{kind!r} is no known type of item"
    assert violations(body_with({"type": kind})) == [("discriminator", "input[0].type", False)]


def test_unknown_item_is_certain_to_be_refused() -> None:
    assert violations(body_with({"type": "mesage"})) == [("discriminator", "input[0].type", True)]


def test_empty_list_of_tools_is_accepted() -> None:
    """Diagnosis took it for a suspect; the API accepts it, and clients send it."""
    body = full({"tools": []})
    assert refusal_of("responses", body) is None
    assert findings_of("responses", body) == []


def test_unknown_members_of_items_are_refused_by_strict_servers() -> None:
    """Diagnosis passed over them."""
    assert violations(body_with({**USER, "cache_control": {}})) == [("unknown_field", "input[0].cache_control", False)]


def test_cache_marks_are_allowed_on_parts_of_the_input() -> None:
    """E-4."""
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a", **mark}]}
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b", **mark}]}
    assert violations(body_with(user, answer)) == [
        ("unknown_field", "input[1].content[0].prompt_cache_breakpoint", False)
    ]
    assert violations({"prompt_cache_options": {"mode": "implicit"}, "prompt_cache_retention": "24h"}) == []


def test_unknown_values_of_include_are_refused_by_strict_servers() -> None:
    assert violations({"include": ["web_search_call.action.sources", 1]}) == [
        ("value", "include[0]", False),
        ("value", "include[1]", True),
    ]


def test_deferred_tool_needs_a_search_for_tools() -> None:
    deferred = {**TOOL, "defer_loading": True}
    assert violations({"tools": [deferred]}) == [("combination", "tools[0].defer_loading", False)]
    assert violations({"tools": [deferred, {"type": "tool_search"}]}, own_tools=["tool_search"]) == []


def test_choice_of_a_tool_of_the_server_is_not_certain_to_be_refused() -> None:
    assert violations(chosen({"type": "web_search"})) == [("discriminator", "tool_choice", False)]


def test_least_number_of_tokens_is_a_limit_of_one_provider() -> None:
    assert violations({"max_output_tokens": 1}) == [("value", "max_output_tokens", False)]
