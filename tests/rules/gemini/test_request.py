"""`rules/gemini`: every violation of a body is reported with its path, and whether all servers refuse it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.judging import Collected, findings_of, refusal_of
from tests.testing.gemini.test_rules import (
    F_SAYS,
    G_SAYS,
    MODEL,
    USER,
    F,
    G,
    asked,
    config,
    full,
    function,
    identified,
    model,
    part,
    says,
    takes,
    user,
)

from antiphon.rules import gemini
from antiphon.testing.gemini.rules import GeminiLimits
from antiphon.testing.gemini.server import GeminiBehavior


def violations(change: dict[str, Any]) -> list[tuple[str, str, bool]]:
    report = Collected()
    gemini.check(full(change), report)
    return [(violation.rule, violation.path, violation.certain) for violation in report.violations]


SCHEMA = "tools[0].function_declarations[0].parameters"
# (what is wrong, the violations of the body, in the spelling of these servers).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "unknown fields do not end the check": (
        {**says({"role": "user", "content": "hi"}), "messages": []},
        [
            ("unknown_field", "contents[0].content", True),
            ("unknown_field", "messages", True),
            ("missing_field", "contents[0].parts", True),
        ],
    ),
    "values of wrong types end the check": (
        {**says({"role": 1, "parts": []}), "systemInstruction": {"parts": []}},
        [("value", "contents[0].role", True)],
    ),
    "a tool of chat": (
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        [("tool_form", "tools[0]", True), ("tool_form", "tools[0]", True), ("missing_field", "tools[0]", True)],
    ),
    "a list for one value": (config(temperature=[1]), [("value", "generation_config.temperature", True)]),
    "a type of a part": (
        part({"type": "text", "text": "a"}),
        [("discriminator", "contents[0].parts[0].type", True)],
    ),
    "two faults of one part": (
        part({"text": "", "fileData": {}}),
        [
            ("combination", "contents[0].parts[0]", True),
            ("missing_field", "contents[0].parts[0]", True),
            ("media", "contents[0].parts[0].file_data.file_uri", True),
        ],
    ),
    "a role of another dialect": (says({**USER, "role": "system"}, USER), [("role", "contents[0].role", True)]),
    "a result too many": (
        says(USER, model(F), user(F_SAYS, G_SAYS)),
        [("orphan_result", "contents[2].parts[1]", True)],
    ),
    "results of nothing": (
        says(user(F_SAYS, G_SAYS)),
        [("orphan_result", "contents[0].parts[0]", True), ("orphan_result", "contents[0].parts[1]", True)],
    ),
    "several faults of one schema": (
        takes(type="array", enum=["a"], format="x", properties={"b": {"type": "string"}}),
        [
            ("schema", f"{SCHEMA}.properties[a].properties", True),
            ("schema", f"{SCHEMA}.properties[a].items", True),
            ("schema", f"{SCHEMA}.properties[a].enum", True),
        ],
    ),
    "a reference where definitions are no object": (
        function(parametersJsonSchema={"type": "object", "$defs": [], "anyOf": [[{"$ref": "#/$defs/A"}]]}),
        [("schema", "tools[0].function_declarations[0].parametersJsonSchema.anyOf[0][0].$ref", True)],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


def test_paths_are_those_of_the_body_in_either_spelling() -> None:
    for spelled in ("generationConfig", "generation_config"):
        for name in ("topP", "top_p"):
            body = full({spelled: {name: 2}})
            assert [found.path for found in findings_of("gemini", body) if found.certain] == [f"{spelled}.{name}"]


# Diagnosis and the fake server disagreed on these bodies.


def test_call_at_the_end_waits_for_its_result() -> None:
    """The fake server took it if the model may have the last word."""
    assert violations(says(USER, model(F))) == [
        ("order", "contents[1]", False),
        ("unanswered_call", "contents[1].parts[0]", True),
    ]
    server = GeminiBehavior(GeminiLimits(last_word=False))
    assert server.find_refusal(asked(full(says(USER, model(F))))) is not None
    assert server.find_refusal(asked(full(says(USER, MODEL)))) is None


def test_results_are_matched_by_their_ids() -> None:
    """Diagnosis passed over results with ids."""
    calls, results = (
        model(identified(F, "1"), identified(G, "2")),
        user(identified(F_SAYS, "1"), identified(G_SAYS, "3")),
    )
    assert violations(says(USER, calls, results)) == [("orphan_result", "contents[2].parts[1]", True)]


def test_required_name_without_a_property_is_refused() -> None:
    """ "required[0]: property is not defined": diagnosis knew the rule for other dialects only."""
    assert violations(
        function(parameters={"type": "object", "properties": {"a": {"type": "string"}}, "required": "b"})
    ) == [("schema", f"{SCHEMA}.required[0]", True)]


def test_rules_of_older_versions_are_not_certain() -> None:
    """Only the fake server knew them."""
    assert violations(function(parameters={"type": "object"})) == [("schema", f"{SCHEMA}.properties", False)]
    assert violations(part({"inlineData": {"mimeType": "image/gif", "data": "AAAA"}})) == [
        ("media", "contents[0].parts[0].inline_data.mime_type", False)
    ]
    both = {**function(), **config(responseMimeType="application/json")}
    assert violations(both) == [("combination", "generation_config.response_mime_type", False)]
    assert refusal_of("gemini", full(both)) is not None


def test_words_of_json_schema_are_refused_in_the_older_kind_of_schema() -> None:
    """Both knew the list of words, each its own."""
    assert violations(takes(type="string", const="a")) == [("schema", f"{SCHEMA}.properties[0].value.const", True)]
