"""Bodies without a server: right ones have no findings, wrong ones have, and no body makes the linter fail (C-3,
C-6)."""

from __future__ import annotations

import json
import tomllib
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.counting import calls_of
from tests.diagnosis.test_refusal import CASES, RULES

from antiphon.diagnosis import guess_dialect, lint_body, lint_for_profile
from antiphon.diagnosis.finding import (
    MAX_COLLECTED_FINDINGS,
    MAX_SCHEMAS,
    MAX_VALUES,
    MISSING,
    paths_overlap,
    resolve_server_path,
)
from antiphon.diagnosis.lint import lint_dialect_rules
from antiphon.diagnosis.traits import TRAIT_KINDS, find_traits
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.profiles import QUIRKS, load_profile, parse_profile
from antiphon.rules.settings import MAX_UNKNOWN_FIELDS

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def wrong(dialect: ServerDialectName, body: Any) -> list[tuple[str, str]]:
    return [
        (finding.rule, finding.path) for finding in lint_body(json.dumps(body).encode(), dialect) if finding.certain
    ]


def perhaps(dialect: ServerDialectName, body: Any) -> dict[str, tuple[str, ...]]:
    return {
        finding.path: finding.settings
        for finding in lint_body(json.dumps(body).encode(), dialect)
        if not finding.certain
    }


@pytest.mark.parametrize(("dialect", "rule"), CASES, ids=str)
def test_lint_accepts_what_strict_servers_accept(dialect: ServerDialectName, rule: str) -> None:
    """C-6: a diagnosis that cries wolf is worth nothing."""
    assert wrong(dialect, RULES[dialect].full(RULES[dialect].RULES[rule][2])) == []


# Beyond what the fakes refuse: (dialect, body, what is found).
WRONG: dict[str, tuple[ServerDialectName, dict[str, Any], tuple[str, str]]] = {
    "a chat body at responses": ("responses", {"model": "m", "messages": [USER]}, ("missing_field", "input")),
    "a responses body at chat": ("chat", {"model": "m", "input": "hi"}, ("missing_field", "messages")),
    "a responses body at messages": (
        "messages",
        {"model": "m", "max_tokens": 1, "input": "hi"},
        ("missing_field", "messages"),
    ),
    "a chat body at gemini": ("gemini", {"messages": [USER]}, ("missing_field", "contents")),
    "chat's schema at responses": (
        "responses",
        {
            "model": "m",
            "input": "hi",
            "text": {"format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}},
        },
        ("schema", "text.format.json_schema"),
    ),
    "a call of messages at responses": (
        "responses",
        {"model": "m", "input": [{"type": "tool_use"}]},
        ("discriminator", "input[0].type"),
    ),
    "a slip in a type": (
        "responses",
        {"model": "m", "input": [{"type": "mesage"}]},
        ("discriminator", "input[0].type"),
    ),
    "a call_id that is a number": (
        "responses",
        {"model": "m", "input": [{"type": "function_call", "call_id": 1, "name": "f", "arguments": "{}"}]},
        ("value", "input[0].call_id"),
    ),
    "a tool of messages at responses": (
        "responses",
        {"model": "m", "input": "hi", "tools": [{"name": "f", "input_schema": {"type": "object"}}]},
        ("tool_form", "tools[0]"),
    ),
    "a tool of gemini at chat": (
        "chat",
        {"model": "m", "messages": [USER], "tools": [{"function_declarations": [{"name": "f"}]}]},
        ("tool_form", "tools[0]"),
    ),
    "a tool without a type": (
        "responses",
        {"model": "m", "input": "hi", "tools": [{}]},
        ("discriminator", "tools[0].type"),
    ),
    "a schema that is none": (
        "chat",
        {
            "model": "m",
            "messages": [USER],
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": 1}},
        },
        ("schema", "response_format.json_schema.schema"),
    ),
    "properties that are none": (
        "responses",
        {
            "model": "m",
            "input": "hi",
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": 1}}],
        },
        ("schema", "tools[0].parameters"),
    ),
    "two calls of one id": (
        "chat",
        {"model": "m", "messages": [USER, {"role": "assistant", "tool_calls": [CALL, CALL]}]},
        ("value", "messages[1].tool_calls"),
    ),
    "a call without its type": (
        "chat",
        {
            "model": "m",
            "messages": [USER, {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}],
        },
        ("discriminator", "messages[1].tool_calls[0].type"),
    ),
    "a flat call": (
        "chat",
        {
            "model": "m",
            "messages": [USER, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "name": "f"}]}],
        },
        ("tool_form", "messages[1].tool_calls[0]"),
    ),
    "a call without an id at messages": (
        "messages",
        {
            "model": "m",
            "max_tokens": 1,
            "messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": 1}]}],
        },
        ("missing_field", "messages[0].content[0].id"),
    ),
    "a choice in a word at messages": (
        "messages",
        {"model": "m", "max_tokens": 1, "messages": [USER], "tool_choice": "auto"},
        ("discriminator", "tool_choice"),
    ),
    "a result that names no call": (
        "messages",
        {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
        ("missing_field", "messages[0].content[0].tool_use_id"),
    ),
    "a message of chat at gemini": (
        "gemini",
        {"contents": [{"role": "user", "content": "hi"}]},
        ("unknown_field", "contents[0].content"),
    ),
    "a function without a name": (
        "responses",
        {"model": "m", "input": "hi", "tools": [{"type": "function"}, {"type": "custom", "name": "c"}]},
        ("missing_field", "tools[0].name"),
    ),
    "a list of types": (
        "gemini",
        {
            "contents": [{"parts": [{"text": "a"}]}],
            "tools": [
                {
                    "functionDeclarations": [
                        {
                            "name": "f",
                            "parameters": {"type": "object", "properties": {"a": {"type": ["string"]}, "b": 1}},
                        },
                        {"name": "g", "parameters": None},
                    ]
                }
            ],
        },
        ("schema", "tools[0].functionDeclarations[0].parameters.properties.a.type"),
    ),
    "parameters that are null": (
        "chat",
        {"messages": [USER], "tools": [{"type": "function", "function": {"name": "f", "parameters": None}}]},
        ("missing_field", "model"),
    ),
    "a type at gemini": (
        "gemini",
        {"contents": [{"parts": [{"type": "text", "text": "a"}]}]},
        ("discriminator", "contents[0].parts[0].type"),
    ),
    "two things in one part": (
        "gemini",
        {"contents": {"parts": {"text": "a", "fileData": {}}}},
        ("combination", "contents[0].parts[0]"),
    ),
    "a system content": (
        "gemini",
        {"contents": [{"role": "system", "parts": [{"text": "a"}]}] * 2},
        ("role", "contents[0].role"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_lint_reports_violations_of_a_dialect(case: str) -> None:
    """C-3, C-6."""
    dialect, body, findings = WRONG[case]
    assert findings in wrong(dialect, body)


def test_lint_reports_traits_with_the_settings_that_remove_them() -> None:
    """C-6: every setting that is offered exists, in a quirk or in the wire options of some dialect."""
    body = {
        "model": "m",
        "messages": [
            {
                "role": "developer",
                "content": [{"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://a/b"}},
                    {"type": "file", "file": {"file_id": "f"}},
                ],
            },
            {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
            {"role": "system", "content": "late"},
            {"role": "assistant", "tool_calls": [{"id": "c2", "type": "custom", "custom": {"name": "p", "input": ""}}]},
            {"role": "tool", "tool_call_id": "c2", "content": "1"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "strict": False}}],
        "max_completion_tokens": 5,
    }
    findings = perhaps("chat", body)
    assert findings["messages[0].content[0].cache_control"] == ("quirks: strip_cache_control",)
    assert findings["messages[4]"] == ('wire.system = "first"',)
    assert findings["messages[2].reasoning_content"] == ("quirks: drop_reasoning",)
    assert {"messages[0].role", "messages[1].content[0]", "messages[1].content[1]", "tools[0].function.strict"} <= set(
        findings
    )


def test_traits_of_the_other_dialects() -> None:
    """C-6."""
    history = [
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a"}],
        },
        {"type": "message", "role": "assistant", "content": "b", "phase": "commentary"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
    ]
    findings = perhaps(
        "responses", {"model": "m", "input": history, "instructions": "a", "tools": [{"type": "web_search"}]}
    )
    assert {
        "input[0].id",
        "input[0].status",
        "input[1].phase",
        "input[2]",
        "input[3]",
        "instructions",
        "tools[0].type",
    } <= set(findings)
    thought = {"type": "thinking", "thinking": "a", "signature": "s"}
    tool = {"name": "f", "input_schema": {"type": "object"}, "strict": True}
    messages = [USER, {"role": "assistant", "content": [thought, {"type": "text", "text": "a"}]}, USER, USER]
    findings = perhaps(
        "messages",
        {"model": "m", "max_tokens": 1, "messages": messages, "tools": [tool], "thinking": {"type": "adaptive"}},
    )
    assert {"messages[1].content[0]", "messages[3]", "tools[0].strict", "thinking"} <= set(findings)
    part = {"functionCall": {"id": "1", "name": "f"}, "thoughtSignature": "c2ln"}
    contents = [
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]},
        {"role": "model", "parts": [part]},
        {"role": "user", "parts": [{"functionResponse": {"id": "1", "name": "f", "response": {}}}]},
    ]
    tools = [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object"}}], "googleSearch": {}}]
    config = {"responseMimeType": "application/json", "thinkingConfig": {}}
    findings = perhaps("gemini", {"contents": contents, "tools": tools, "generationConfig": config})
    assert {"contents[0].parts[0]", "contents[1].parts[0].functionCall.id", "generationConfig.responseMimeType"} <= set(
        findings
    )
    pictured = [{**USER, "images": ["iVBORw0KGgo="]}]
    found = perhaps("ollama", {"model": "m", "messages": pictured, "think": "high"})
    assert found == {
        "messages[0].images": ("quirks: images_as_notes", "wire.images = false"),
        "think": ("wire.levels = []", "wire.thinking = false"),
    }
    assert perhaps("ollama", {"model": "m", "messages": [USER], "think": True}) == {"think": ("wire.thinking = false",)}
    assert perhaps("ollama", {"model": "m", "messages": [USER], "think": False}) == {}


@pytest.mark.parametrize("name", TRAIT_KINDS)
def test_every_setting_that_is_offered_exists(name: str) -> None:
    for setting in TRAIT_KINDS[name].settings:
        if setting.startswith("quirks: "):
            assert setting.removeprefix("quirks: ") in QUIRKS
        else:
            wire = tomllib.loads(setting)["wire"]
            assert any(_takes(dialect.wire_type, wire) for dialect in SERVER_DIALECTS.values()), setting


def _takes(kind: type[Any], wire: dict[str, Any]) -> bool:
    try:
        return bool(msgspec.convert(wire, kind))
    except msgspec.ValidationError:
        return False


WORDS = ["", "user", "assistant", "text", "input_text", "function", "c1"]
NAMES = [
    *(
        "role",
        "content",
        "type",
        "text",
        "parts",
        "tool_calls",
        "function",
        "name",
        "parameters",
        "properties",
        "required",
    ),
    *(
        "functionCall",
        "functionResponse",
        "functionDeclarations",
        "input_schema",
        "call_id",
        "id",
        "tool_choice",
        "anyOf",
    ),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 99) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
FIELDS = [
    *(
        "model",
        "input",
        "messages",
        "contents",
        "tools",
        "tool_choice",
        "text",
        "system",
        "generationConfig",
        "thinking",
    ),
    *("toolConfig", "response_format"),
]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", get_args(ServerDialectName))
@settings(max_examples=30, deadline=None)
@given(body=st.dictionaries(st.sampled_from(FIELDS), JSON | st.lists(JSON, max_size=3), max_size=5))
def test_no_body_makes_the_linter_fall(dialect: ServerDialectName, body: dict[str, Any]) -> None:
    for finding in lint_body(json.dumps(body).encode(), dialect):
        assert str(finding)


def test_a_body_that_is_none_is_told_so() -> None:
    assert [finding.path for finding in lint_body(b"[]", "chat")] == [""]


def test_a_schema_without_an_end_is_looked_at_so_far() -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(120):
        deep = {"type": "object", "properties": {"a": deep}}
    tool = {"type": "function", "name": "f", "parameters": deep}
    assert wrong("responses", {"model": "m", "input": "hi", "tools": [tool]}) == []
    declared = {"functionDeclarations": [{"name": "f", "parameters": deep}]}
    assert wrong("gemini", {"contents": [{"parts": [{"text": "a"}]}], "tools": [declared]}) == []


def with_tool(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": "m",
        "input": "hi",
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", **schema}}],
    }


def test_schemas_of_a_body_are_looked_at_up_to_a_bound() -> None:
    """Faults: a refused body of a megabyte is looked through while others wait."""
    body = with_tool({"properties": {f"m{number}": {"required": "a"} for number in range(20_000)}})
    data = json.dumps(body).encode()
    assert len(lint_body(data, "responses")) == MAX_COLLECTED_FINDINGS
    assert calls_of(lambda: lint_body(data, "responses")) < 50 * MAX_SCHEMAS


@pytest.mark.slow
@pytest.mark.parametrize("member", [{}, {"role": "user", "content": "a", "parts": [{"text": "a"}]}])
@pytest.mark.parametrize(
    ("dialect", "field"),
    [
        *(("chat", "messages"), ("responses", "input"), ("messages", "messages"), ("gemini", "contents")),
        ("ollama", "messages"),
        *((dialect, "tools") for dialect in get_args(ServerDialectName)),
    ],
)
def test_values_of_a_body_are_looked_at_up_to_a_bound(
    dialect: ServerDialectName, member: dict[str, Any], field: str
) -> None:
    """Faults: a megabyte of messages or tools, right or wrong."""
    body = {"model": "m", "messages": [USER], "input": "hi", "contents": [{"parts": [{"text": "a"}]}]}
    data = json.dumps({**body, field: [member] * 2 * MAX_VALUES}).encode()
    assert len(lint_body(data, dialect)) <= MAX_COLLECTED_FINDINGS + len(TRAIT_KINDS)
    read = json.loads(data)
    assert calls_of(lambda: lint_dialect_rules(read, data, dialect)) < 60 * MAX_VALUES
    assert calls_of(lambda: find_traits(read, dialect)) < 20 * MAX_VALUES


def test_finding_that_is_repeated_is_kept_once() -> None:
    nested = {"type": "function", "function": {"name": "f"}}
    findings = wrong("gemini", {"contents": [{"parts": [{"text": "a"}]}], "tools": [nested]})
    assert findings.count(("tool_form", "tools[0]")) == 1


def test_path_of_a_schema_does_not_grow_with_long_names() -> None:
    """Faults: a name of a hundred thousand letters, and thousands of schemas below it."""
    inner = {"type": "object", "properties": {f"m{number}": {"required": "a"} for number in range(1000)}}
    assert wrong("responses", with_tool({"properties": {"x" * 100_000: inner}})) == []
    assert len(wrong("responses", with_tool({"properties": {"x": inner}}))) == MAX_COLLECTED_FINDINGS


def test_unknown_fields_are_named_up_to_a_bound() -> None:
    """Faults: for each of them the known name is looked for that was probably meant."""
    body = {"model": "m", "input": "hi", **{f"field_{number}": 1 for number in range(1000)}}
    findings = [
        finding for finding in lint_body(json.dumps(body).encode(), "responses") if finding.rule == "unknown_field"
    ]
    assert len(findings) == MAX_UNKNOWN_FIELDS


@pytest.mark.parametrize(
    ("body", "dialect"),
    [
        ({"contents": []}, "gemini"),
        ({"prompt": "a"}, "ollama"),
        ({"messages": [USER], "options": {}}, "ollama"),
        ({"prompt": {"id": "pmpt_1"}}, "responses"),
        ({"input": "a"}, "responses"),
        ({"messages": [USER]}, "chat"),
        ({"messages": [USER], "system": "a"}, "messages"),
        ({"messages": [USER], "tools": [{"name": "f", "input_schema": {}}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}], "tools": 1}, "messages"),
    ],
)
def test_the_dialect_of_a_body_is_guessed_from_its_fields(body: dict[str, Any], dialect: ServerDialectName) -> None:
    assert guess_dialect(body) == dialect


def test_lint_reports_the_errors_of_the_gateway() -> None:
    assert wrong("responses", {"model": "m", "input": "hi", "stream": 3}) == [("value", "stream")]
    assert wrong("chat", {"model": "m", "messages": [USER], "response_format": {"type": "json_schema"}}) == [
        ("missing_field", "response_format.json_schema")
    ]
    long = {**CALL, "id": "c" * 65}
    history = [
        USER,
        {"role": "assistant", "tool_calls": [long]},
        {"role": "tool", "tool_call_id": "c" * 65, "content": "1"},
    ]
    assert "messages[1].tool_calls[0].id" in perhaps("chat", {"model": "m", "messages": history})


# Against a profile


def test_a_body_is_held_against_what_a_server_of_a_profile_takes() -> None:
    """C-6, D-2: what the gateway would change, and where."""
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    body: dict[str, Any] = {"model": "m", "input": [{"role": "user", "content": "hi"}, call, output]}
    findings = lint_for_profile(json.dumps(body).encode(), "responses", load_profile("vercel-ai-gateway-2026-01"))
    assert [finding.path for finding in findings if "tool_history_as_text" in finding.problem] == ["input[1].type"]
    plain = parse_profile('about = "a"\ndialect = "chat"\n[wire]\nfields = []\n', "plain")
    findings = lint_for_profile(
        json.dumps({"model": "m", "input": "hi", "temperature": 1}).encode(), "responses", plain
    )
    assert [finding.path for finding in findings] == ["temperature"]
    assert lint_for_profile(b'{"model":"m","input":"hi"}', "responses", load_profile("open-responses")) == []
    short = parse_profile(
        'about = "a"\ndialect = "responses"\nquirks = [{name = "only_items", types = ["message"]}]\n', "short"
    )
    thought = {"type": "reasoning", "summary": []}
    body = {"model": "m", "input": [{"role": "user", "content": "hi"}, thought]}
    assert [finding.path for finding in lint_for_profile(json.dumps(body).encode(), "responses", short)] == ["input[1]"]
    pictured = parse_profile(
        'about = "a"\ndialect = "chat"\nquirks = ["drop_item_ids"]\n[wire]\nfields = []\nimages = false\n', "pictured"
    )
    body = {
        "model": "m",
        "input": [{"type": "message", "id": "msg_1", "role": "user", "content": "hi"}],
        "temperature": 1,
    }
    findings = lint_for_profile(json.dumps(body).encode(), "responses", pictured)
    assert [finding.path for finding in findings] == ["input[0].id", "temperature"]
    system = parse_profile('about = "a"\ndialect = "responses"\nquirks = ["system_to_instructions"]\n', "system")
    body = {"model": "m", "input": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]}
    assert lint_for_profile(json.dumps(body).encode(), "responses", system)


def test_profile_lint_reports_requests_that_cannot_be_translated() -> None:
    body = {"model": "m", "input": [{"type": "function_call_output", "call_id": "c1", "output": "1"}]}
    [findings] = lint_for_profile(json.dumps(body).encode(), "responses", load_profile("chat"))
    assert findings.path == "input[0].call_id"
    assert "cannot be sent to such a server" in findings.problem


# Paths


@pytest.mark.parametrize(
    ("place", "path", "value"),
    [
        ("messages.0.content.1.text.detail", "messages[0].content[1].detail", "low"),
        ("body -> messages -> 0 -> role", "messages[0].role", "user"),
        ("messages[0].content[1].text", "messages[0].content[1].text", "b"),
        ("generation_config.top_p", "generationConfig.topP", 1),
        ("messages[9].role", "messages[9].role", MISSING),
        ("properties[0].value.type", "properties.a.type", "string"),
        ("nothing", "nothing", MISSING),
        ("model.7", "model[7]", MISSING),
    ],
)
def test_a_place_leads_to_what_stands_there(place: str, path: str, value: Any) -> None:
    parts = ["a", {"type": "text", "text": "b", "detail": "low"}]
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": parts}],
        "generationConfig": {"topP": 1},
        "properties": {"a": {"type": "string"}},
    }
    assert resolve_server_path(place, body) == (path, value)


def test_paths_are_near_where_one_leads_to_the_other() -> None:
    assert paths_overlap("a[0].b", "a[0]")
    assert paths_overlap("a", "a")
    assert not paths_overlap("ab", "a")
    assert not paths_overlap("", "a")
