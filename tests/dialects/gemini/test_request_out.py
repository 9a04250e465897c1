"""Requests for a gemini server: laws, checked by a fake that refuses what real servers refuse, then each setting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from tests.dialects.gemini.sending import judged, lost, send
from tests.generate.conversations import marks_of, requests

from antiphon.dialects.common.unknown_fields import without_prefix
from antiphon.dialects.gemini.wire import GeminiWire, ModelLevels
from antiphon.errors import InvalidValue, UnsupportedParameter
from antiphon.profiles import load_profile
from antiphon.protocol import codec
from antiphon.protocol.items import MessageParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import MAX_NESTING
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    ReasoningEffort,
    Request,
    TextFormat,
    TextParam,
)
from antiphon.protocol.tools import FunctionToolParam

WIRES = st.builds(
    GeminiWire,
    system=st.sampled_from(["first", "as_user"]),
    call_ids=st.booleans(),
    urls=st.booleans(),
    result_media_models=st.sampled_from([(), ("",)]),
    orphan_outputs=st.sampled_from(["synthesize", "text"]),
    schemas=st.sampled_from(["json_schema", "openapi"]),
    missing_signature=st.just("skip"),
    signed_models=st.just(("",)),
)
# The laws.


@given(requests(orphans=True), WIRES)
def test_sent_body_is_accepted_by_a_strict_server(request: Request, wire: GeminiWire) -> None:
    """Issue 7, point 3: alternation, calls and results in order and number, names, no empty part."""
    body, _ = _sent_if_not_empty(request, wire)
    for name in ("tools", "toolConfig", "generationConfig"):
        body.pop(name, None)
    judged(_with_media_that_pass(body), model="gemini-3-x")


@given(requests(orphans=True), WIRES)
def test_every_text_is_sent_or_named_as_a_loss(request: Request, wire: GeminiWire) -> None:
    """F-4, REQ-6."""
    body, losses = _sent_if_not_empty(request, wire)
    sent = [text for _, text in _strings(body)]
    for path, text in _strings(json.loads(codec.encode(request))):
        # Reasoning that only its maker can read is reported if the item had no other content.
        if marks_of(text) and not path.endswith("encrypted_content"):
            forms = [text, *(inner for _, inner in _strings(_as_json(text)))]
            assert any(one in other for one in forms for other in sent) or _is_named(path, losses), f"{path}: {text!r}"


def _sent_if_not_empty(request: Request, wire: GeminiWire) -> tuple[dict[str, Any], Losses]:
    """A request with only empty messages is refused, which these laws do not cover."""
    try:
        return send(request, wire)
    except InvalidValue:
        reject()


def _strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield path, value
        case dict():
            for name, member in value.items():
                yield from _strings(member, f"{path}.{name}" if path else name)
        case list():
            for at, member in enumerate(value):
                yield from _strings(member, f"{path}[{at}]")


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_named(path: str, losses: Losses) -> bool:
    path = without_prefix(path)
    return any(path == loss.path or path.startswith((f"{loss.path}.", f"{loss.path}[")) for loss in losses)


def _with_media_that_pass(value: Any) -> Any:
    """These laws do not cover the content of media, so it is always an image."""
    match value:
        case {"inlineData": _}:
            return {**value, "inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
        case {"fileData": _}:
            return {**value, "fileData": {"fileUri": "https://a.example/b"}}
        case dict():
            return {name: _with_media_that_pass(member) for name, member in value.items()}
        case list():
            return [_with_media_that_pass(member) for member in value]
        case _:
            return value


# The settings.


def request_with(**members: Any) -> Request:
    return Request(**{"model": "m", "input": "hi", **members})


def test_model_and_stream_are_not_in_the_body() -> None:
    body, losses = send(request_with(stream=True, store=False, truncation="auto", instructions="Be brief."))
    assert body == {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
    }
    assert not list(losses)


def test_empty_input_is_refused() -> None:
    with pytest.raises(InvalidValue):
        send(request_with(input=[MessageParam(role="system", content="Be brief.")]))


def test_settings_are_sent_under_the_names_of_the_api() -> None:
    body, losses = send(
        request_with(
            temperature=0.5,
            top_p=0.9,
            max_output_tokens=100,
            presence_penalty=0.1,
            frequency_penalty=0.2,
            top_logprobs=3,
            include=["message.output_text.logprobs", "reasoning.encrypted_content", ENCRYPTED_IF_ANY],
        )
    )
    assert judged(body)["generationConfig"] == {
        "temperature": 0.5,
        "topP": 0.9,
        "maxOutputTokens": 100,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "responseLogprobs": True,
        "logprobs": 3,
    }
    assert not list(losses)


def test_unsupported_settings_are_losses() -> None:
    """REQ-5, REQ-6."""
    request = request_with(
        temperature=0.5,
        top_logprobs=2,
        metadata={"a": "b"},
        service_tier="flex",
        safety_identifier="s",
        prompt_cache_key="k",
        prompt_cache_retention="24h",
        client_metadata={"c": 1},
        user="u",
        include=["file_search_call.results"],
        text=TextParam(verbosity="low"),
        extra={"mystery": Raw(b"1"), "chat:logit_bias": Raw(b"{}"), "chat:seed": Raw(b"7")},
    )
    assert lost(request, GeminiWire(fields=())) == [
        "mystery",
        "logit_bias",
        "seed",
        "top_logprobs",
        "temperature",
        "metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "client_metadata",
        "user",
        "include[0]",
        "text.verbosity",
    ]


def test_native_fields_of_gemini_clients_are_restored_in_place() -> None:
    """REQ-7."""
    extra = {
        "gemini:topK": Raw(b"40"),
        "gemini:safetySettings": Raw(b"[]"),
        "gemini:cachedContent": Raw(b'"cachedContents/x"'),
        "gemini:thinkingConfig": Raw(b'{"thinkingBudget":-1}'),
        "gemini:temperature": Raw(b"2"),
        "gemini:contents": Raw(b"[]"),
    }
    body, losses = send(request_with(temperature=1, reasoning=ReasoningConfigParam(effort="high"), extra=extra))
    assert judged(body)["generationConfig"] == {"temperature": 1, "topK": 40, "thinkingConfig": {"thinkingBudget": -1}}
    assert (body["safetySettings"], body["cachedContent"]) == ([], "cachedContents/x")
    assert [loss.path for loss in losses] == ["contents", "temperature"]


def test_equivalent_fields_of_other_dialects_are_sent() -> None:
    """REQ-7."""
    extra = {"chat:stop": Raw(b'"END"'), "chat:seed": Raw(b"7"), "messages:top_k": Raw(b"5")}
    extra["chat:stream_options"] = Raw(b'{"include_usage":true}')  # concerns the client's own stream
    body, losses = send(request_with(extra=extra))
    assert judged(body)["generationConfig"] == {"stopSequences": ["END"], "seed": 7, "topK": 5}
    assert not list(losses)
    assert send(request_with(extra={"messages:stop_sequences": Raw(b'["a","b"]')}))[0]["generationConfig"] == {
        "stopSequences": ["a", "b"]
    }


GOOGLE = GeminiWire(
    level_models=("gemini-3",),
    unthinking_models=("gemini-2.0",),
    thinking_models=("gemini-2.5-pro",),
    levels=("low", "medium", "high"),
    models=(
        ModelLevels(names=("gemini-3-pro*",), levels=("low", "high")),
        ModelLevels(names=("gemini-3-flash",), levels=("minimal", "low", "medium", "high")),
    ),
)


@pytest.mark.parametrize(
    ("model", "effort", "expected", "is_exact"),
    [
        ("gemini-2.5-flash", "medium", {"thinkingBudget": 12_288, "includeThoughts": True}, True),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}, True),
        ("gemini-2.5-flash", "max", {"thinkingBudget": 24_576, "includeThoughts": True}, False),
        ("google/gemini-2.5-pro", "none", {"thinkingBudget": 128}, False),
        ("models/gemini-3-pro", "high", {"thinkingLevel": "high", "includeThoughts": True}, True),
        ("gemini-3-pro", "none", {"thinkingLevel": "low"}, False),
        ("gemini-3-pro-x", "medium", {"thinkingLevel": "high", "includeThoughts": True}, False),
        ("gemini-3.1-pro", "medium", {"thinkingLevel": "medium", "includeThoughts": True}, True),
        ("gemini-3-flash", "minimal", {"thinkingLevel": "minimal", "includeThoughts": True}, True),
        ("gemini-2.0-flash", "high", None, False),
        ("gemini-2.0-flash", "none", None, True),
    ],
)
def test_effort_is_sent_in_the_form_of_the_model(
    model: str, effort: ReasoningEffort, expected: dict[str, Any] | None, is_exact: bool
) -> None:
    """RSN-4."""
    body, losses = send(request_with(model=model, reasoning=ReasoningConfigParam(effort=effort)), GOOGLE)
    judged(body, model=model.rpartition("/")[2])
    assert body.get("generationConfig", {}).get("thinkingConfig") == expected
    assert [loss.path for loss in losses] == ([] if is_exact else ["reasoning.effort"])


def test_summary_setting_requests_thoughts() -> None:
    """RSN-4."""
    body, _ = send(request_with(reasoning=ReasoningConfigParam(summary="auto")))
    assert body["generationConfig"] == {"thinkingConfig": {"includeThoughts": True}}
    assert "generationConfig" not in send(request_with(reasoning=ReasoningConfigParam()))[0]
    level = send(request_with(reasoning=ReasoningConfigParam(effort="low")), GeminiWire(thinking="level"))[0]
    assert level["generationConfig"]["thinkingConfig"]["thinkingLevel"] == "low"
    assert lost(request_with(reasoning=ReasoningConfigParam(effort="low")), GeminiWire(thinking="none")) == [
        "reasoning.effort"
    ]


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "multipleOf": 2}},
    "required": ["n"],
    "additionalProperties": False,
}
BY_SCHEMA = TextParam(format=JsonSchemaFormatParam(name="n", schema=SCHEMA, strict=True))


def test_output_schema_is_sent_in_the_form_of_the_server() -> None:
    """REQ-1: as JSON schema, or in the older form; unsupported keywords are losses."""
    body, losses = send(request_with(text=BY_SCHEMA))
    narrow = {**SCHEMA, "properties": {"n": {"type": "integer"}}}
    assert judged(body)["generationConfig"] == {"responseMimeType": "application/json", "responseJsonSchema": narrow}
    assert [loss.path for loss in losses] == ["text.format.schema.properties.n.multipleOf"]
    body, _ = send(request_with(text=BY_SCHEMA), GeminiWire(schemas="openapi"))
    assert judged(body)["generationConfig"]["responseSchema"] == {
        "type": "OBJECT",
        "properties": {"n": {"type": "INTEGER"}},
        "required": ["n"],
    }


@pytest.mark.parametrize(
    ("model", "is_wide"), [("gemini-3-pro-preview", True), ("gemini-9", True), ("gemini-2.5-pro", False)]
)
def test_output_schema_has_what_the_model_accepts(model: str, is_wide: bool) -> None:
    """REQ-1: references may be recursive; `default` and `pattern` from the third generation on."""
    node = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}
    name = {"type": "string", "pattern": "a+", "default": "a"}
    properties = {"name": name, "node": {"$ref": "#/$defs/node"}}
    schema = {"type": "object", "properties": properties, "$defs": {"node": node}}
    format = JsonSchemaFormatParam(name="n", schema=schema)
    wire: Any = load_profile("google").wire
    body, losses = send(Request(model=model, input="q", text=TextParam(format=format)), wire)
    sent = judged(body)["generationConfig"]["responseJsonSchema"]
    assert sent["$defs"] == {"node": node}
    assert sent["properties"]["name"] == (name if is_wide else {"type": "string"})
    assert (list(losses) == []) == is_wide


def test_format_description_is_in_the_schema() -> None:
    """REQ-1, F-4."""
    format = JsonSchemaFormatParam(name="n", description="A number.", schema={"type": "object"})
    assert (
        send(request_with(text=TextParam(format=format)))[0]["generationConfig"]["responseJsonSchema"]["description"]
        == "A number."
    )
    twice = JsonSchemaFormatParam(name="n", description="A number.", schema={"type": "object", "description": "N."})
    assert lost(request_with(text=TextParam(format=twice))) == ["text.format.description"]


def test_json_object_and_text_formats_are_sent() -> None:
    """REQ-1."""
    body, _ = send(request_with(text=TextParam(format=JsonObjectFormat())))
    assert body["generationConfig"] == {"responseMimeType": "application/json"}
    assert "generationConfig" not in send(request_with(text=TextParam(format=TextFormat())))[0]


def test_schema_that_is_not_enforced_is_in_the_system_text_and_a_loss() -> None:
    """REQ-1."""
    body, losses = send(request_with(text=BY_SCHEMA), GeminiWire(json_output="json_object"))
    assert body["generationConfig"] == {"responseMimeType": "application/json"}
    assert '"multipleOf":2' in body["systemInstruction"]["parts"][0]["text"]
    assert [loss.path for loss in losses] == ["text.format"]


@pytest.mark.parametrize("format", [BY_SCHEMA.format, JsonObjectFormat()])
def test_tools_have_priority_over_json_output_if_exclusive(format: Any) -> None:
    """REQ-1, REQ-6: the system text describes the format, and the loss is named."""
    request = request_with(
        text=TextParam(format=format), tools=[FunctionToolParam(name="f", strict=False)], instructions="Hi."
    )
    body, losses = send(request, GeminiWire(json_with_tools=("gemini-3",)))
    assert "generationConfig" not in body
    assert body["systemInstruction"]["parts"][0]["text"].startswith("Hi.\n\nAnswer with one JSON object")
    assert [loss.path for loss in losses] == ["text.format"]


def test_json_output_is_refused_for_servers_without_json() -> None:
    """REQ-1."""
    with pytest.raises(UnsupportedParameter):
        send(request_with(text=BY_SCHEMA), GeminiWire(json_output="none"))


@pytest.mark.parametrize("wire", [GeminiWire(), GeminiWire(schemas="openapi")])
def test_schema_of_the_deepest_allowed_nesting_is_sent(wire: GeminiWire) -> None:
    """Faults: whatever was decoded can be encoded again."""
    deep: Any = []
    for _ in range(MAX_NESTING):
        deep = [deep]
    tools = [FunctionToolParam(name="f", parameters={"type": "object", "properties": {"a": {"default": deep}}})]
    body, _ = send(request_with(tools=tools), wire)
    assert json.dumps(body["tools"]).count("[") >= MAX_NESTING


def test_field_after_stream_options_is_sent() -> None:
    """REQ-7."""
    extra = {"chat:stream_options": Raw(b'{"include_usage":true}'), "chat:stop": Raw(b'"END"')}
    body, losses = send(request_with(extra=extra))
    assert body["generationConfig"] == {"stopSequences": ["END"]}
    assert list(losses) == []


@pytest.mark.parametrize(("least", "budget", "lost_paths"), [(4096, 4096, []), (4097, 4097, ["reasoning.effort"])])
def test_least_budget_is_no_loss_where_the_effort_has_it(least: int, budget: int, lost_paths: list[str]) -> None:
    """RSN-4."""
    wire = replace(GOOGLE, least_budget=least)
    asked = request_with(model="gemini-2.5-pro", reasoning=ReasoningConfigParam(effort="low"))
    body, losses = send(asked, wire)
    assert body["generationConfig"]["thinkingConfig"]["thinkingBudget"] == budget
    assert [loss.path for loss in losses] == lost_paths
