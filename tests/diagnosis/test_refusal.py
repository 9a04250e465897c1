"""Each rule that the strict servers of all dialects have, refused by them and explained here (C-6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.testing.chat import test_rules as test_chat_rules
from tests.testing.gemini import test_rules as test_gemini_rules
from tests.testing.messages import test_rules as test_messages_rules
from tests.testing.ollama import test_rules as test_ollama_rules
from tests.testing.requests import make_request
from tests.testing.responses import test_rules as test_responses_rules

from antiphon.diagnosis import Finding, diagnose, named_findings, summary_sentence
from antiphon.diagnosis.finding import paths_overlap, resolve_server_path
from antiphon.diagnosis.refusal import MAX_FINDINGS, MAX_SENTENCE_LENGTH, SERVER_POINTS_TO, parse_refusal
from antiphon.dialects.dialect import ServerDialectName
from antiphon.profiles import parse_profile
from antiphon.testing.chat.server import ChatBehavior
from antiphon.testing.gemini.server import GeminiBehavior
from antiphon.testing.messages.server import MessagesBehavior
from antiphon.testing.ollama.server import OllamaBehavior
from antiphon.testing.responses.server import ResponsesBehavior
from antiphon.testing.script import PlainReply

RULES: dict[ServerDialectName, Any] = {
    "chat": test_chat_rules,
    "responses": test_responses_rules,
    "messages": test_messages_rules,
    "gemini": test_gemini_rules,
    "ollama": test_ollama_rules,
}
REFUSALS: dict[ServerDialectName, Callable[[Any], PlainReply | None]] = {
    "chat": lambda body: ChatBehavior().find_refusal(make_request(body)),
    "responses": lambda body: ResponsesBehavior().find_refusal(make_request(body)),
    "messages": lambda body: MessagesBehavior().find_refusal(make_request(body, **test_messages_rules.VERSION)),
    "gemini": lambda body: GeminiBehavior().find_refusal(test_gemini_rules.model_request(body)),
    "ollama": lambda body: OllamaBehavior().find_refusal(make_request(body)),
}
CASES = [(dialect, rule) for dialect, module in RULES.items() for rule in module.RULES]
# What the first finding is about, for every kind of mistake that the mission names (C-3, C-6).
EXPECTED: dict[tuple[ServerDialectName, str], tuple[str, str]] = {
    ("responses", "an unknown type of item"): ("discriminator", "input[0].type"),
    ("responses", "an item without a type"): ("discriminator", "input[0].type"),
    ("responses", "the word of the assistant from the user"): ("content_type", "input[0].content[0].type"),
    ("responses", "the word of the user from the assistant"): ("content_type", "input[0].content[0].type"),
    ("responses", "the word of chat"): ("content_type", "input[0].content[0].type"),
    ("responses", "tools in nested form"): ("tool_form", "tools[0]"),
    ("responses", "an output without a call"): ("orphan_result", "input[1]"),
    ("responses", "a call without an output"): ("unanswered_call", "input[0]"),
    ("responses", "a long call_id"): ("long_id", "input[0].call_id"),
    ("responses", "an unknown role"): ("role", "input[0].role"),
    ("responses", "no input"): ("missing_field", "input"),
    ("chat", "a result without a call"): ("orphan_result", "messages[1].tool_call_id"),
    ("chat", "a call not answered before the next message"): ("unanswered_call", "messages[1].tool_calls[0]"),
    ("chat", "the role of old"): ("role", "messages[0].role"),
    ("chat", "a strict tool with an open schema"): ("schema", "tools[0].function.parameters"),
    ("messages", "no max_tokens"): ("missing_field", "max_tokens"),
    ("messages", "an unknown field"): ("unknown_field", "seed"),
    ("messages", "a system message"): ("role", "messages[0].role"),
    ("messages", "a part of another API"): ("content_type", "messages[0].content[0].type"),
    ("messages", "an unknown member"): ("unknown_field", "messages[0].content[0].detail"),
    ("gemini", "an unknown field further in"): ("unknown_field", "contents[0].content"),
    ("gemini", "a result without a call"): ("orphan_result", "contents[0].parts[0]"),
    ("ollama", "arguments as a text"): ("value", "messages[1].tool_calls[0].function.arguments"),
    ("ollama", "a tool in flat form"): ("tool_form", "tools[0]"),
    ("gemini", "no type"): ("missing_field", "tools[0].functionDeclarations[0].parameters.properties.a.type"),
}


def refused(dialect: ServerDialectName, rule: str) -> tuple[bytes, str]:
    """A body and what the strict server of its dialect says to it."""
    body = RULES[dialect].full(RULES[dialect].RULES[rule][0])
    reply = REFUSALS[dialect](body)
    assert reply is not None
    return json.dumps(body).encode(), reply.body.decode()


@pytest.mark.parametrize(("dialect", "rule"), CASES, ids=str)
def test_whatever_a_strict_server_refuses_has_a_diagnosis(dialect: ServerDialectName, rule: str) -> None:
    """C-6: the place that the server names is in it, or one that leads there; a server that names none is helped all
    the same."""
    body, error_text = refused(dialect, rule)
    findings = diagnose(dialect, body, 400, error_text)
    assert findings
    assert len(findings) <= MAX_FINDINGS
    error = json.loads(error_text)["error"]
    param = None if isinstance(error, str) else error.get("param")
    if param:
        place = resolve_server_path(param, json.loads(body))[0]
        # Where a call has no result, the server names what stands in the result's place, and we name the call.
        assert any(
            paths_overlap(finding.path, place) or finding.rule == "unanswered_call" for finding in findings[:3]
        ), findings


@pytest.mark.parametrize(("dialect", "rule"), EXPECTED, ids=str)
def test_the_first_finding_names_the_mistake_and_its_place(dialect: ServerDialectName, rule: str) -> None:
    """C-3, C-6: wrong discriminators, mixed content types, nested tools, missing fields, and the rest of the usual
    ones."""
    first = diagnose(dialect, *_refused_request(dialect, rule))[0]
    assert (first.rule, first.path) == EXPECTED[dialect, rule]


def _refused_request(dialect: ServerDialectName, rule: str) -> tuple[bytes, int, str]:
    body, error_text = refused(dialect, rule)
    return body, 400, error_text


def test_diagnosis_names_the_setting_for_a_server_specific_refusal() -> None:
    """C-6, D-2: the body is right, the server does not take such items; what it says leads to the quirk."""
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    body = {"model": "m", "input": [{"role": "user", "content": "hi"}, call, output]}
    error_text = '{"error":{"message":"Invalid input","param":"input[1]","type":"invalid_request_error"}}'
    first = diagnose("responses", json.dumps(body).encode(), 400, error_text)[0]
    assert first.path == "input[1]"
    assert "quirks: tool_history_as_text" in first.settings
    assert "a profile with quirks: tool_history_as_text" in summary_sentence([first])


def test_a_setting_that_the_profile_has_is_not_offered() -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "developer", "content": "hi"}]}).encode()
    error_text = '{"error":{"message":"unknown role"}}'
    newer_profile = parse_profile('about = "a"\ndialect = "chat"\n[wire]\ndeveloper = "developer"\n', "newer")
    assert diagnose("chat", body, 400, error_text, newer_profile)[0].settings == (
        'wire.developer = "system"',
        "quirks: developer_as_system",
    )
    corrected_profile = parse_profile(
        'about = "a"\ndialect = "chat"\nquirks = ["developer_as_system"]\n[wire]\ndeveloper = "system"\n', "mended"
    )
    assert diagnose("chat", body, 400, error_text, corrected_profile)[0].settings == ()


def test_a_server_that_says_nothing_leaves_suspects() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "developer", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    }
    rules = {finding.rule for finding in diagnose("chat", json.dumps(body).encode(), 422, "nope")}
    assert {"role", "discriminator"} <= rules


def test_diagnosis_is_empty_for_other_statuses() -> None:
    assert diagnose("chat", b"{}", 500, "oops") == []
    assert diagnose("chat", b"[", 400, "oops") == []


@pytest.mark.parametrize(
    ("error_text", "paths"),
    [
        ('{"detail":[{"loc":["body","messages",0,"role"],"msg":"bad"}]}', ["body.messages.0.role"]),
        ('{"error":"Missing required parameter: \'tools[0].name\'."}', ["tools[0].name"]),
        ("[{'type': 'x'}] at messages[1].content", ["messages[1].content"]),
        ("nothing to see", []),
        ('{"error":{"details":[{"fieldViolations":[{"field":"contents[0]","description":"bad"}]}]}}', ["contents[0]"]),
        ('{"a":' * 20 + '"x"' + "}" * 20, []),
        ('{"error":null,"code":3}', []),
    ],
)
def test_places_are_found_however_a_server_tells_them(error_text: str, paths: list[str]) -> None:
    assert parse_refusal(error_text).paths == paths


def test_a_sentence_says_more_than_the_server_did_or_nothing() -> None:
    pointing = Finding(rule="value", path="a", problem=f"{SERVER_POINTS_TO}, where 1 stands")
    assert summary_sentence([]) == summary_sentence([pointing]) == ""
    wrong = Finding(rule="value", path="", problem="is empty")
    assert summary_sentence([pointing, wrong]) == "Diagnosis: the body: is empty."
    assert len(summary_sentence([Finding(rule="value", path="a", problem="x" * 999)])) == MAX_SENTENCE_LENGTH + 1


def test_refusal_without_end_is_read_up_to_its_bounds() -> None:
    """An upstream may write what it likes: so many places and words are looked at, each cut, and numbers of any
    length."""
    details = [{"loc": ["body", "messages", "9" * 6_000], "msg": f"{at} " + "word " * 1_000} for at in range(500)]
    refusal = parse_refusal(json.dumps({"detail": details}))
    assert len(refusal.paths) <= 50
    assert max(map(len, refusal.paths)) == 512
    assert len(refusal.text) == 4_000
    assert diagnose("chat", b'{"messages": []}', 400, json.dumps({"detail": details}))
    assert len(parse_refusal(" ".join(f"'input[{at}].a'" for at in range(5_000))).paths) == 50


# Texts of refusals that providers sent, and the member that the client's error may name besides: none means that the
# server's own words stand alone. Each is the start of a text that public reports and tests of several clients quote.


def _gemini(message: str) -> str:
    return json.dumps({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})


def _openai(message: str, param: str | None = None) -> str:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}})


def _anthropic(message: str) -> str:
    return json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}})


DECLARATION = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
REFUSED_BODIES: dict[ServerDialectName, dict[str, Any]] = {
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "tools": [{"functionDeclarations": [DECLARATION]}],
        "generationConfig": {"thinkingConfig": {"thinkingBudget": 1000}, "responseMimeType": "application/json"},
    },
    "chat": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "x"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}],
        "temperature": 0.5,
        "max_tokens": 5,
    },
    "responses": {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "temperature": 0.5,
        "include": ["reasoning.encrypted_content"],
    },
    "messages": {
        "model": "m",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "thinking": {"type": "enabled", "budget_tokens": 5000},
    },
}
UNNAMED = ""
PROVIDER_TEXTS: list[tuple[ServerDialectName, str, str]] = [
    ("gemini", _gemini("Request contains an invalid argument."), UNNAMED),
    (
        "gemini",
        _gemini("Function calling with a response mime type: 'application/json' is unsupported"),
        "generationConfig.responseMimeType",
    ),
    ("gemini", _gemini("* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.\n"), UNNAMED),
    (
        "gemini",
        _gemini(
            "* GenerateContentRequest.tools[0].function_declarations[72].name: Invalid function name. Must start with a "
            "letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.) or dashes (-)"
        ),
        UNNAMED,
    ),
    (
        "gemini",
        _gemini(
            'Invalid JSON payload received. Unknown name "additionalProperties" at '
            "'tools[0].function_declarations[0].parameters': Cannot find field."
        ),
        UNNAMED,
    ),
    (
        "gemini",
        _gemini("thinking_budget is out of range; supported values are integers from 512 to 24576"),
        "generationConfig.thinkingConfig",
    ),
    ("gemini", _gemini("Please ensure that the number of function response parts is equal to the number"), UNNAMED),
    ("gemini", _gemini("User location is not supported for the API use."), UNNAMED),
    ("gemini", _gemini("Unsupported MIME type: text/html"), UNNAMED),
    ("gemini", _gemini("Function call is missing a thought_signature in functionCall parts."), UNNAMED),
    ("gemini", _gemini("The document has no pages."), UNNAMED),
    ("gemini", _gemini("Penalty is not enabled for models/gemini-2.5-pro"), UNNAMED),
    ("chat", _openai("Unsupported value: 'temperature' does not support 0.5 with this model.", "temperature"), UNNAMED),
    (
        "chat",
        _openai(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "max_tokens",
        ),
        "max_tokens",
    ),
    ("chat", _openai("Unrecognized request argument supplied: reasoning_effort"), UNNAMED),
    (
        "chat",
        _openai(
            "Invalid schema for function 'f': In context=(), object schema missing properties.",
            "tools[0].function.parameters",
        ),
        "tools[0].function.parameters",
    ),
    ("chat", _openai("An assistant message with 'tool_calls' must be followed by tool messages", "messages"), UNNAMED),
    ("chat", _openai("Your organization must be verified to stream this model.", "stream"), UNNAMED),
    ("chat", _openai("Provider returned error"), UNNAMED),
    (
        "chat",
        json.dumps({"detail": [{"loc": ["body", "messages", 3, "tool", "name"], "msg": "field required"}]}),
        UNNAMED,
    ),
    ("chat", _openai('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'), UNNAMED),
    ("responses", _openai("Unsupported parameter: 'temperature' is not supported", "temperature"), UNNAMED),
    ("responses", _openai("Encrypted content is not supported with this model.", "include"), UNNAMED),
    (
        "responses",
        _openai("Invalid 'input[0].id': 'resp_1'. Expected an ID that begins with 'msg'.", "input[0].id"),
        UNNAMED,
    ),
    ("messages", _anthropic("messages.0.content.0.text.cache_control: Extra inputs are not permitted"), UNNAMED),
    (
        "messages",
        _anthropic("`temperature` and `top_p` cannot both be specified for this model. Please use only one."),
        "top_p",
    ),
    (
        "messages",
        _anthropic("`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation"),
        "thinking.budget_tokens",
    ),
    ("messages", _anthropic("Your credit balance is too low to access the Anthropic API."), UNNAMED),
    ("messages", _anthropic("Output blocked by content filtering policy"), UNNAMED),
]


@pytest.mark.parametrize(("dialect", "error_text", "path"), PROVIDER_TEXTS)
def test_client_is_told_what_the_server_named_or_nothing(
    dialect: ServerDialectName, error_text: str, path: str
) -> None:
    body = json.dumps(REFUSED_BODIES[dialect]).encode()
    sentence = summary_sentence(named_findings(dialect, body, 400, error_text))
    assert sentence.startswith(f"Diagnosis: {path}: ") if path else sentence == ""


def test_named_findings_are_empty_for_other_statuses() -> None:
    assert named_findings("chat", b"{}", 500, "oops") == named_findings("chat", b"[", 400, "oops") == []
