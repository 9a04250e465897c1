"""`rules/messages`: every violation of a body is reported with its path, and whether all servers refuse it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.judging import Collected, findings_of, refusal_of
from tests.testing.messages.test_rules import (
    ANSWER,
    CALL,
    CALLED,
    CLOSED,
    RESULT,
    RESULTS,
    SYSTEM,
    TEXT,
    TOOL,
    USER,
    choice,
    format,
    full,
    says,
    tool,
    user,
    with_part,
)

from antiphon.rules import messages
from antiphon.rules.messages import MessagesOptions


def violations(change: dict[str, Any], **options: Any) -> list[tuple[str, str, bool]]:
    report = Collected()
    messages.check(full(change), report, MessagesOptions(**options))
    return [(violation.rule, violation.path, violation.certain) for violation in report.violations]


# (what is wrong, the violations of the body, in the spelling of these servers).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "several faults in one block": (
        user({"type": "tool_result", "is_error": 1, "more": 2}),
        [
            ("missing_field", "messages.0.content.0.tool_result.tool_use_id", True),
            ("unknown_field", "messages.0.content.0.tool_result.more", True),
        ],
    ),
    "a document of an unknown source": (
        user({"type": "document", "source": {"type": "bucket"}}),
        [("discriminator", "messages.0.content.0.document.source.type", True)],
    ),
    "an image without data": (
        user({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}),
        [("missing_field", "messages.0.content.0.image.source.base64.data", True)],
    ),
    "content of another type": (says({"role": "user", "content": 1}), [("value", "messages.0.content", True)]),
    "an answer of another type at the end": (
        says(USER, {"role": "assistant", "content": 1}),
        [("value", "messages.1.content", True)],
    ),
    "messages without any role": (
        says({"content": "a"}, 1),
        [("missing_field", "messages.0.role", True), ("value", "messages.1", True)],
    ),
    "a broken block before thoughts are expected": (
        {
            **says(USER, {"role": "assistant", "content": [{"type": "thinking"}, CALL]}, RESULTS),
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
        [
            ("reasoning", "messages.1.content.0.thinking.thinking", True),
            ("reasoning", "messages.1.content.0.thinking.signature", True),
        ],
    ),
    "results alone, with thinking": (
        {**says(RESULTS), "thinking": {"type": "enabled", "budget_tokens": 1024}},
        [("orphan_result", "messages.0.content.0", True)],
    ),
    "an error that is no boolean, and no content": (
        says(USER, CALLED, {"role": "user", "content": [{**RESULT, "is_error": 1, "content": {}}]}),
        [
            ("value", "messages.2.content.0.tool_result.is_error", True),
            ("value", "messages.2.content.0.tool_result.content", True),
        ],
    ),
    "a broken block inside an error": (
        says(USER, CALLED, {"role": "user", "content": [{**RESULT, "is_error": True, "content": [1]}]}),
        [("discriminator", "messages.2.content.0.tool_result.content.0", True)],
    ),
    "an output_config that is no object": ({"output_config": 1}, [("value", "output_config", True)]),
    "a format without a schema": (
        {"output_config": {"format": {"type": "json_schema"}}},
        [("missing_field", "output_config.format.schema", True)],
    ),
    "an unknown type in a format": (
        with_part({"type": "STRING"}),
        [("schema", "output_config.format.schema.properties.a.type", True)],
    ),
    "a union that is no list": (
        with_part({"anyOf": 1}),
        [("schema", "output_config.format.schema.properties.a.anyOf", True)],
    ),
    "definitions that are no object": (
        format({**CLOSED, "$defs": 1, "properties": {"a": {"$ref": "#/$defs/A"}}}),
        [
            ("schema", "output_config.format.schema.$defs", True),
            ("schema", "output_config.format.schema.properties.a", True),
        ],
    ),
    "a definition that is no object": (
        format({**CLOSED, "$defs": {"A": True}, "properties": {"a": {"$ref": "#/$defs/A"}}}),
        [
            ("schema", "output_config.format.schema.$defs.A", True),
            ("schema", "output_config.format.schema.properties.a", True),
        ],
    ),
    "a reference that is no string": (
        with_part({"$ref": 1}),
        [("schema", "output_config.format.schema.properties.a", True)],
    ),
    "an input of true": (tool(input_schema={"type": "object", "properties": {"a": True}}), []),
    "a tool without a name": (
        {"tools": [{"input_schema": {"type": "object"}}], "tool_choice": {"type": "tool", "name": "f"}},
        [("missing_field", "tools.0.custom.name", True)],
    ),
    "a tool with a bad name": (
        {"tools": [{**TOOL, "name": "a b"}], "tool_choice": {"type": "tool", "name": "f"}},
        [("name", "tools.0.custom.name", True)],
    ),
    "a tool of chat": (
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        [("tool_form", "tools.0", True)],
    ),
    "a tool of chat without a type": ({"tools": [{"function": {"name": "f"}}]}, [("tool_form", "tools.0", True)]),
    "a tool of gemini": ({"tools": [{"functionDeclarations": []}]}, [("tool_form", "tools.0", True)]),
    "a tool of an unknown type": ({"tools": [{"type": "web"}]}, [("discriminator", "tools.0", True)]),
    "a tool that is no object": ({"tools": [1]}, [("value", "tools.0.custom", True)]),
    "tools that are no list, and a choice": (
        {"tools": 1, "tool_choice": {"type": "tool", "name": "f"}},
        [("value", "tools", True)],
    ),
    "a choice without a name": (choice(type="tool"), [("missing_field", "tool_choice.tool.name", True)]),
    "a system of another type": ({"system": 1}, [("value", "system", True)]),
    "marks of wrong types": (
        {
            **user({**TEXT, "cache_control": 1}),
            "system": [{**TEXT, "cache_control": {"type": "ephemeral", "ttl": []}}],
        },
        [
            ("value", "system.0.text.cache_control", True),
            ("value", "messages.0.content.0.text.cache_control", True),
        ],
    ),
    "a budget without a limit": (
        {"max_tokens": ..., "thinking": {"type": "enabled", "budget_tokens": 1}},
        [("missing_field", "max_tokens", True), ("value", "thinking.enabled.budget_tokens", True)],
    ),
    "thinking without a budget": (
        {"thinking": {"type": "enabled"}, "top_p": "a"},
        [("value", "top_p", True), ("missing_field", "thinking.enabled.budget_tokens", True)],
    ),
    "a field with a slip": ({"max_token": 1}, [("unknown_field", "max_token", True)]),
    "chat's messages of chat": (
        {"messages": ..., "input": "hi"},
        [("missing_field", "messages", True), ("unknown_field", "input", True), ("missing_field", "messages", True)],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


def test_definition_is_entered_once() -> None:
    """A schema of references that fork at every level has no exponential number of paths."""
    forks = {f"A{number}": {"anyOf": [{"$ref": f"#/$defs/A{number + 1}"}] * 9} for number in range(40)}
    schema = {**CLOSED, "properties": {"a": {"$ref": "#/$defs/A0"}}, "$defs": {**forks, "A40": {"type": "string"}}}
    assert violations(format(schema)) == []


def test_rules_of_a_server_are_options() -> None:
    assert violations(says(USER, USER), alternating=False) == []
    assert violations(says(USER, SYSTEM), system_messages=True) == []
    assert violations(says(USER, SYSTEM, SYSTEM, ANSWER, USER), system_messages=True) == [
        ("order", "messages.1", True),
        ("order", "messages.2", True),
    ]
    assert violations({"thinking": {"type": "adaptive"}}, thinking=("enabled",)) == [
        ("reasoning", "thinking.type", False)
    ]


# Diagnosis and the fake server disagreed on these bodies.


def test_long_call_id_is_accepted() -> None:
    """Diagnosis refused ids of more than 64 characters; servers accept 128 and more."""
    id = "t" * 129
    body = full(
        says(
            USER,
            {**CALLED, "content": [{**CALL, "id": id}]},
            {"role": "user", "content": [{**RESULT, "tool_use_id": id}]},
        )
    )
    assert refusal_of("messages", body) is None
    assert [found for found in findings_of("messages", body) if found.certain] == []


def test_system_message_is_refused_by_older_models() -> None:
    """Diagnosis took it for certain; newer models accept it after a message of the user."""
    assert violations(says(USER, SYSTEM)) == [("role", "messages.1.role", False)]


@pytest.mark.parametrize("field", ["context_management", "mcp_servers", "compaction"])
def test_field_of_a_beta_needs_its_header(field: str) -> None:
    """Diagnosis took it for a field of the dialect, or for none; the header is not in the body."""
    assert violations({field: {}}) == [("unknown_field", field, False)]


def test_any_number_of_tools_is_accepted() -> None:
    """Diagnosis suspected more than 128 tools, and none; the API has no such limit."""
    for tools in ([], [{**TOOL, "name": f"f{at}"} for at in range(200)]):
        body = full({"tools": tools})
        assert refusal_of("messages", body) is None
        assert findings_of("messages", body) == []


def test_required_name_without_a_property_is_accepted() -> None:
    """Diagnosis refused it; JSON schema allows it."""
    assert violations(tool(input_schema={"type": "object", "required": ["a"]})) == []


def test_models_refuse_thinking_that_they_do_not_have() -> None:
    """Only the fake server knew the models; a server may offer others under these names."""
    assert violations({"model": "claude-3-5-haiku-latest", "thinking": {"type": "adaptive"}}) == [
        ("reasoning", "thinking.type", False)
    ]


def test_result_after_text_does_not_answer_its_call() -> None:
    """Diagnosis looked for the result anywhere in the message."""
    assert violations(says(USER, CALLED, {"role": "user", "content": [TEXT, RESULT]})) == [
        ("unanswered_call", "messages.1.content.0", True)
    ]


def test_null_is_no_setting() -> None:
    """Diagnosis passed over it."""
    assert violations({"temperature": None}) == [("value", "temperature", True)]
