"""Requests for a Messages server: the laws over generated conversations, then settings one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, reject
from msgspec import Raw
from tests.dialects.messages.asking import RICH, ask, wires
from tests.generate.conversations import marks_of, requests

from antiphon.dialects.common.unknown_fields import is_handled_by_gateway, without_prefix
from antiphon.dialects.messages import request_from_hub, request_to_hub
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.errors import InvalidValue
from antiphon.profiles import load_profile
from antiphon.profiles.quirks.items import StripCacheControlOptions, strip_cache_control
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import MAX_NESTING
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    PromptCacheOptions,
    ReasoningConfigParam,
    Request,
    TextFormat,
    TextParam,
)
from antiphon.protocol.tools import FunctionToolParam

# The laws. Cache hints are random in these conversations, and no server would accept them.


@given(requests(orphans=True), wires())
def test_sent_body_is_accepted_by_servers_of_every_habit_E5(request: Request, wire: MessagesWire) -> None:
    _ask_if_not_empty(_without_hints(request), wire)


@given(requests(orphans=True), wires())
def test_every_text_is_sent_or_named_as_a_loss_E5_F4(request: Request, wire: MessagesWire) -> None:
    request = _without_hints(request)
    body, losses = _ask_if_not_empty(request, wire)
    sent = [text for _, text in _strings(body)]
    for path, text in _strings(json.loads(codec.encode(request))):
        # Reasoning that is only sealed is reported as a whole.
        if marks_of(text):
            assert any(text.strip() in other for other in sent) or _is_named(path, losses), f"{path}: {text!r}"


def _ask_if_not_empty(request: Request, wire: MessagesWire) -> tuple[dict[str, Any], Losses]:
    """Requests with only empty messages are refused, which these laws do not cover."""
    try:
        return ask(request, wire)
    except InvalidValue:
        reject()


# Settings.


def sent(wire: MessagesWire = RICH, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    """The settings of the sent body, and the paths of the losses."""
    body, losses = ask(Request(**{"model": "m", "input": "q", **fields}), wire)
    return {name: value for name, value in body.items() if name not in ("model", "messages")}, [
        loss.path for loss in losses
    ]


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def test_max_tokens_is_always_sent() -> None:
    assert sent() == ({"max_tokens": 32_000}, [])
    assert sent(max_output_tokens=100)[0] == {"max_tokens": 100}
    assert sent(MessagesWire(max_tokens=5))[0] == {"max_tokens": 5}


@pytest.mark.parametrize(
    ("fields", "settings", "lost"),
    [
        ({"temperature": 0.5}, {"temperature": 0.5}, []),
        ({"temperature": 1.7}, {"temperature": 1}, ["temperature"]),
        ({"temperature": 0, "top_p": 0.9}, {"temperature": 0}, ["top_p"]),
        ({"top_p": 0.9}, {"top_p": 0.9}, []),
        ({"safety_identifier": "s"}, {"metadata": {"user_id": "s"}}, []),
        ({"user": "u"}, {"metadata": {"user_id": "u"}}, []),
        ({"safety_identifier": "s", "user": "u"}, {"metadata": {"user_id": "s"}}, ["user"]),
        ({"metadata": {"a": "b"}}, {}, ["metadata"]),
        ({"service_tier": "auto"}, {"service_tier": "auto"}, []),
        ({"service_tier": "default"}, {"service_tier": "standard_only"}, []),
        ({"service_tier": "priority"}, {"service_tier": "auto"}, ["service_tier"]),
        ({"service_tier": "flex"}, {}, ["service_tier"]),
        ({"prompt_cache_key": "k"}, {"cache_control": {"type": "ephemeral"}}, ["prompt_cache_key"]),
        ({"prompt_cache_retention": "24h"}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}, []),
        ({"stream": True}, {"stream": True}, []),
        ({"stream": None}, {}, []),
        ({"presence_penalty": 1, "frequency_penalty": 1}, {}, ["presence_penalty", "frequency_penalty"]),
        ({"top_logprobs": 3, "client_metadata": {"a": 1}}, {}, ["top_logprobs", "client_metadata"]),
        (
            {"include": ["reasoning.encrypted_content", "message.output_text.logprobs", ENCRYPTED_IF_ANY]},
            {},
            ["include[1]"],
        ),
        ({"text": TextParam(verbosity="low", extra={"x": Raw(b"1")})}, {}, ["text.x", "text.verbosity"]),
        ({"reasoning": ReasoningConfigParam(extra={"x": Raw(b"1")})}, {}, ["reasoning.x"]),
    ],
)
def test_setting_is_sent_or_named_as_a_loss_REQ5_REQ6(
    fields: dict[str, Any], settings: dict[str, Any], lost: list[str]
) -> None:
    assert sent(**fields) == ({"max_tokens": 32_000, **settings}, lost)


def test_unsupported_settings_are_not_sent_REQ6() -> None:
    bare = MessagesWire(fields=())
    asked = {"temperature": 1, "top_p": 1, "user": "u", "service_tier": "auto", "prompt_cache_key": "k"}
    body, lost = sent(bare, **asked, extra={"chat:stop": raw("x"), "messages:top_k": raw(4)})
    assert body == {"max_tokens": 32_000}
    assert lost == ["temperature", "top_p", "top_k", "stop", "user", "service_tier", "prompt_cache_key"]


def test_temperature_and_top_p_are_both_sent_if_supported() -> None:
    body, _ = request_from_hub(Request(model="m", input="q", temperature=0.5, top_p=0.5), MessagesWire())
    assert (json.loads(body)["temperature"], json.loads(body)["top_p"]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("extra", "settings", "lost"),
    [
        ({"messages:stop_sequences": ["a", "b"]}, {"stop_sequences": ["a", "b"]}, []),
        ({"chat:stop": "a"}, {"stop_sequences": ["a"]}, []),
        ({"gemini:stopSequences": ["a", " "]}, {"stop_sequences": ["a"]}, ["stopSequences"]),
        ({"chat:stop": {"no": "text"}}, {}, ["stop"]),
        ({"messages:top_k": 4}, {"top_k": 4}, []),
        ({"chat:top_k": "many"}, {}, ["top_k"]),
        ({"messages:speed": "fast"}, {"speed": "fast"}, []),
        ({"messages:model": "other", "seed": 1, "chat:seed": 1}, {}, ["model", "seed"]),
        ({"messages:output_config": {"effort": "max"}}, {"output_config": {"effort": "max"}}, []),
        ({"messages:context_management": {"edits": []}}, {"context_management": {"edits": []}}, []),
    ],
)
def test_native_fields_are_sent_under_their_own_names_REQ7(
    extra: dict[str, Any], settings: dict[str, Any], lost: list[str]
) -> None:
    given = {name: raw(value) for name, value in extra.items()}
    assert sent(extra=given) == ({"max_tokens": 32_000, **settings}, lost)


def test_native_fields_are_not_sent_twice() -> None:
    """REQ-7."""
    body, lost = sent(extra={"messages:service_tier": raw("auto")}, service_tier="default")
    assert (body["service_tier"], lost) == ("auto", [])


def test_cache_options_become_a_mark_of_the_request() -> None:
    """E-4: a lifetime is not shortened without a report."""
    long = {"type": "ephemeral", "ttl": "1h"}
    own = PromptCacheOptions(mode="implicit", extra={"cache_control": raw(long)})
    body, lost = sent(MessagesWire(), prompt_cache_options=own, prompt_cache_key="k")
    assert (body["cache_control"], lost) == (long, ["prompt_cache_key"])
    body, lost = sent(MessagesWire(), prompt_cache_options=PromptCacheOptions(ttl="30m"))
    assert (body["cache_control"], lost) == (long, [])
    asked = PromptCacheOptions(ttl="12h", extra={"prewarm": raw(True)})
    body, lost = sent(MessagesWire(), prompt_cache_options=asked)
    assert body["cache_control"] == long
    assert sorted(lost) == [
        "prompt_cache_options.prompt_cache_breakpoint.prewarm",
        "prompt_cache_options.prompt_cache_breakpoint.ttl",
    ]
    body, lost = sent(prompt_cache_options=PromptCacheOptions(mode="explicit"), prompt_cache_key="k")
    assert ("cache_control" in body, lost) == (False, ["prompt_cache_key"])


def test_stream_options_of_chat_clients_are_no_loss() -> None:
    """F-4."""
    assert sent(extra={"chat:stream_options": raw({"include_usage": True})}) == ({"max_tokens": 32_000}, [])


def test_unknown_fields_pass_if_the_profile_allows() -> None:
    """REQ-7."""
    body, losses = request_from_hub(
        Request(model="m", input="q", extra={"seed": raw(1)}), MessagesWire(extra_fields=("seed",))
    )
    assert (json.loads(body)["seed"], list(losses)) == (1, [])


@pytest.mark.parametrize("name", ["context_management", "mcp_servers", "compaction", "container", "inference_geo"])
def test_fields_of_messages_clients_are_sent_to_every_messages_server(name: str) -> None:
    """REQ-7: the client's header requests the beta features."""
    request = Request(model="m", input="q", extra={f"messages:{name}": raw({"a": 1})})
    body, losses = request_from_hub(request, MessagesWire())
    assert (json.loads(body)[name], list(losses)) == ({"a": 1}, [])
    assert load_profile("messages").pass_headers == ("anthropic-beta",)


@pytest.mark.parametrize("tier", ["auto", "standard_only", "new"])
def test_service_tier_of_a_messages_client_is_sent_to_every_messages_server(tier: str) -> None:
    """REQ-7: it is no loss where the hub has it too."""
    body = {"max_tokens": 1, "messages": [{"role": "user", "content": "q"}], "service_tier": tier}
    request, losses = request_to_hub(json.dumps(body).encode())
    sent_body, sent_losses = request_from_hub(request, MessagesWire())
    assert (json.loads(sent_body)["service_tier"], list(losses), list(sent_losses)) == (tier, [], [])
    assert is_handled_by_gateway("messages:service_tier", raw(tier), request) is (tier != "new")


def test_effort_is_a_loss_if_the_server_has_no_levels() -> None:
    """RSN-4."""
    body, lost = sent(MessagesWire(), extra={"messages:output_config": raw({"effort": "max"})})
    assert (body, lost) == ({"max_tokens": 32_000}, ["output_config.effort"])


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("format", "settings", "lost"),
    [
        (TextFormat(), {}, []),
        (None, {}, []),
        (
            JsonSchemaFormatParam(name="n", schema=SCHEMA),
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            [],
        ),
        (
            JsonSchemaFormatParam(schema=SCHEMA, description="d"),
            {"output_config": {"format": {"type": "json_schema", "schema": {**SCHEMA, "description": "d"}}}},
            [],
        ),
    ],
)
def test_output_format_is_sent_REQ1(format: Any, settings: dict[str, Any], lost: list[str]) -> None:
    assert sent(text=TextParam(format=format)) == ({"max_tokens": 32_000, **settings}, lost)


def test_output_format_field_is_used_if_configured_REQ1() -> None:
    wire = MessagesWire(json_output="output_format")
    body, lost = sent(wire, text=TextParam(format=JsonSchemaFormatParam(schema=SCHEMA)))
    assert (body["output_format"], lost) == ({"type": "json_schema", "schema": SCHEMA}, [])


@pytest.mark.parametrize(
    ("wire", "format", "expected"),
    [
        (RICH, JsonObjectFormat(), "Answer with one JSON object and with nothing else."),
        (RICH, JsonSchemaFormatParam(), '{"type":"object"}'),
        (
            MessagesWire(),
            JsonSchemaFormatParam(schema={"type": "string", "description": "s"}, description="d"),
            '"description":"s"',
        ),
    ],
)
def test_format_that_is_not_enforced_is_in_the_system_text_REQ1(wire: MessagesWire, format: Any, expected: str) -> None:
    body, lost = sent(wire, text=TextParam(format=format))
    assert expected in body["system"][0]["text"]
    assert lost == ["text.format"]


def test_schema_of_the_deepest_allowed_nesting_is_sent() -> None:
    """REQ-8."""
    schema: dict[str, Any] = {}
    for _ in range(MAX_NESTING):
        schema = {"items": schema}
    tool = FunctionToolParam(name="look", parameters={"properties": {"a": schema}})
    body, _ = request_from_hub(Request(model="m", input="q", tools=[tool]))
    assert body.count(b'"items"') == MAX_NESTING


def _without_hints(request: Request) -> Request:
    return strip_cache_control(request, Losses(), StripCacheControlOptions())


def _strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    match value:
        case str() if path.endswith(".arguments") and value.startswith("{"):
            yield from _strings(json.loads(value), path)
        case str():
            yield path, value
        case dict():
            for name, member in value.items():
                yield from _strings(member, f"{path}.{name}" if path else name)
        case list():
            for at, member in enumerate(value):
                yield from _strings(member, f"{path}[{at}]")


def _is_named(path: str, losses: Losses) -> bool:
    return any(without_prefix(path).startswith(loss.path) for loss in losses)


def test_field_after_stream_options_is_sent() -> None:
    """REQ-7."""
    caching = {"type": "ephemeral"}
    extra = {"chat:stream_options": raw({"include_usage": True}), "messages:cache_control": raw(caching)}
    assert sent(extra=extra) == ({"max_tokens": 32_000, "cache_control": caching}, [])
