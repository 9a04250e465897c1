"""`rules/chat`: every violation of a body is reported with its path, and whether all servers refuse it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.judging import Collected, findings_of, refusal_of
from tests.testing.chat.test_rules import CALL, CALLED, CUSTOM, PNG, RESULT, TOOL, USER, body_with, full

from antiphon.rules import chat
from antiphon.rules.chat import MAX_CALL_ID_LENGTH


def violations(change: dict[str, Any]) -> list[tuple[str, str, bool]]:
    report = Collected()
    chat.check(full(change), report)
    return [(violation.rule, violation.path, violation.is_certain) for violation in report.violations]


def calling(call: Any) -> dict[str, Any]:
    return body_with(USER, {**CALLED, "tool_calls": [call]})


# (what is wrong, the violations of the body).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "a call that is no object": (calling(1), [("value", "messages[1].tool_calls[0]", True)]),
    "a call without an id": (
        calling({**CALL, "id": ""}),
        [("missing_field", "messages[1].tool_calls[0].id", True)],
    ),
    "a call without anything": (
        calling({}),
        [
            ("missing_field", "messages[1].tool_calls[0].id", True),
            ("tool_form", "messages[1].tool_calls[0]", True),
        ],
    ),
    "a function call without a name, arguments and a type": (
        calling({"id": "c1", "function": {}}),
        [
            ("discriminator", "messages[1].tool_calls[0].type", True),
            ("value", "messages[1].tool_calls[0].function.arguments", True),
            ("missing_field", "messages[1].tool_calls[0].function.name", True),
            ("unanswered_call", "messages[1].tool_calls[0]", True),
        ],
    ),
    "a custom call without a name and input": (
        calling({**CUSTOM, "custom": {}}),
        [
            ("missing_field", "messages[1].tool_calls[0].custom.input", True),
            ("missing_field", "messages[1].tool_calls[0].custom.name", True),
            ("unanswered_call", "messages[1].tool_calls[0]", True),
        ],
    ),
    "several faults in one message": (
        body_with(
            {"role": "user", "name": "a b", "content": [1, {"type": "text"}, {"type": "refusal", "refusal": "no"}]}
        ),
        [
            ("name", "messages[0].name", False),
            ("discriminator", "messages[0].content[0]", True),
            ("value", "messages[0].content[1]", True),
            ("discriminator", "messages[0].content[2].type", True),
        ],
    ),
    "tools that are no list": ({"tools": {}}, [("value", "tools", True)]),
    "tools that are no list, and a choice": (
        {"tools": "f", "tool_choice": {"type": "function", "function": {"name": "f"}}},
        [("value", "tools", True)],
    ),
    "a tool that is no object": ({"tools": [1]}, [("value", "tools[0]", True)]),
    "a tool with nothing in it": ({"tools": [{}]}, [("missing_field", "tools[0]", True)]),
    "a choice in flat form": (
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}},
        [("tool_form", "tool_choice", True)],
    ),
    "allowed tools without names": (
        {
            "tools": [TOOL],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "x"}, 1]}},
        },
        [("name", "tool_choice", True)],
    ),
    "a format without its schema": (
        {"response_format": {"type": "json_schema"}},
        [("missing_field", "response_format.json_schema", True)],
    ),
    "any JSON without messages": (
        {"response_format": {"type": "json_object"}, "messages": 1},
        [("missing_field", "messages", True), ("combination", "messages", False)],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


# Diagnosis and the fake server disagreed on these bodies.


def test_image_in_a_tool_result_is_refused_by_some_servers() -> None:
    """The maker of the API refused it ("Image URLs are only allowed for messages with role 'user'"); newer models and
    other servers accept it."""
    image = {"type": "image_url", "image_url": {"url": PNG}}
    body = full(body_with(USER, CALLED, {**RESULT, "content": [image]}))
    assert refusal_of("chat", body) == "a part of type 'image_url' stands where text may"
    [finding] = [found for found in findings_of("chat", body) if found.path == "messages[2].content[0].type"]
    assert (finding.rule, finding.certain) == ("media", False)


def test_long_call_id_is_accepted_and_suspected() -> None:
    """Servers had limits of 40 and 64 characters, and longer ids are accepted by others."""
    id = "c" * (MAX_CALL_ID_LENGTH + 1)
    body = full(body_with(USER, {**CALLED, "tool_calls": [{**CALL, "id": id}]}, {**RESULT, "tool_call_id": id}))
    assert refusal_of("chat", body) is None
    assert ("long_id", False) in {(found.rule, found.certain) for found in findings_of("chat", body)}


def test_tool_without_its_type_is_refused() -> None:
    assert violations({"tools": [{"function": {"name": "f"}}]}) == [("discriminator", "tools[0].type", True)]


def test_tool_of_the_server_is_refused_by_servers_without_it() -> None:
    assert violations({"tools": [{"type": "web_search"}]}) == [("unsupported", "tools[0].type", False)]


def test_fields_of_some_servers_are_not_certain_to_be_refused() -> None:
    """Diagnosis knew `top_k` and `audio`; a server with strict fields does not."""
    for field in ("top_k", "audio"):
        [finding] = [found for found in findings_of("chat", full({field: 1})) if found.path == field]
        assert (finding.rule, finding.certain) == ("unknown_field", False)


def test_words_of_one_server_are_not_certain_to_be_refused() -> None:
    assert violations({"service_tier": "on_demand"}) == [("value", "service_tier", False)]
    assert violations({"service_tier": 1}) == [("value", "service_tier", True)]
    assert violations({"response_format": {"type": "grammar"}}) == [("discriminator", "response_format", False)]


def test_boolean_is_no_number() -> None:
    """Diagnosis took true for the number 1."""
    assert violations({"temperature": True, "n": True}) == [("value", "temperature", True), ("value", "n", True)]


def test_limits_of_one_provider_are_not_certain() -> None:
    assert violations({"stop": list("abcde")}) == [("value", "stop", False)]
    assert violations({"top_logprobs": 21, "logprobs": True}) == [("value", "top_logprobs", False)]
    assert violations({"user": "u" * 65}) == [("value", "user", False)]


def test_cache_marks_are_allowed_on_parts_except_refusals() -> None:
    """E-4."""
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    user = {"role": "user", "content": [{"type": "text", "text": "a", **mark}]}
    answer = {"role": "assistant", "content": [{"type": "refusal", "refusal": "b", **mark}]}
    assert violations(body_with(user, answer, USER)) == [
        ("unknown_field", "messages[1].content[0].prompt_cache_breakpoint", False)
    ]
