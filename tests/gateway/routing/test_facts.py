"""What a request needs, and which targets cannot carry it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.config import Config, UpstreamConfig
from antiphon.dialects import messages
from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.gateway.routes import Routes
from antiphon.gateway.routing.facts import RequestFacts, depends_on_history, facts_of, find_obstacle, with_history
from antiphon.gateway.upstreams import Target
from antiphon.protocol.codec import decode_request

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}


def facts(**fields: Any) -> RequestFacts:
    return facts_of(decode_request(msgspec.json.encode({"model": "m", "input": "Hi", **fields})))


def message(*parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [*parts]}


def target(dialect: str = "chat", **settings: Any) -> Target:
    upstream = UpstreamConfig(name="lab", dialect=dialect, base_url="http://lab/v1", models=["*"], **settings)  # type: ignore[arg-type]
    return Routes(Config(upstreams=[upstream]), {}, {}).find("m")


def reasoning(maker: str | None) -> dict[str, Any]:
    sealed = "opaque" if maker is None else seal_reasoning(maker, {"signature": "s"})
    return {"type": "reasoning", "summary": [], "encrypted_content": sealed}


def test_facts_name_what_a_request_needs() -> None:
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    plain, rich = (
        facts(),
        facts(
            input=[message({"type": "input_text", "text": "Hi"}, IMAGE), reasoning("messages"), reasoning("gemini")],
            tools=[{"type": "function", "name": "f"}],
            text={"format": schema},
            prompt_cache_key="k",
            conversation="conv_1",
        ),
    )
    assert (plain.has_images, plain.has_tools, plain.has_schema, plain.maker) == (False, False, False, None)
    assert (rich.has_images, rich.has_tools, rich.has_schema, rich.maker) == (True, True, True, "gemini")
    assert (rich.prompt_cache_key, rich.conversation_id) == ("k", "conv_1")
    assert rich.tokens > plain.tokens > 0


def test_image_in_a_tool_output_is_an_image() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": [IMAGE]}
    assert facts(input=[call, output]).has_images


def test_reasoning_without_an_envelope_is_for_responses_servers() -> None:
    """A Responses client gets and returns the content of its server as it is."""
    sealed = facts(input=[reasoning("gemini"), reasoning(None), message()])
    assert sealed.maker == "any-responses"
    assert find_obstacle(target("responses"), sealed) == ""
    assert "sealed reasoning" in find_obstacle(target("chat"), sealed)
    open_reasoning: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": None}
    assert facts(input=[open_reasoning]).maker is None


def text_message(role: str, text: str, **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text" if role == "assistant" else "input_text", "text": text, **fields}
    return {"type": "message", "role": role, "content": [part]}


@pytest.mark.parametrize(
    "opening",
    [
        [text_message("user", "one")],
        [text_message("developer", "Be brief."), text_message("user", "one")],
        [text_message("assistant", "Hello?"), text_message("user", "one")],
        [message(IMAGE)],
        [text_message("developer", "Go on.")],
        [{"type": "function_call_output", "call_id": "c", "output": "1"}],
    ],
)
def test_opening_is_the_same_in_every_turn_of_a_conversation(opening: list[Any]) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "1"}
    second = [*opening, call, output]
    third = [*second, text_message("assistant", "two"), text_message("developer", "three")]
    first_turn, *others = (facts(input=items).opening for items in (opening, second, third))
    assert others == [first_turn, first_turn]


def test_opening_does_not_depend_on_the_form_of_a_text_or_on_its_cache_mark() -> None:
    marked = text_message("user", "one", prompt_cache_breakpoint={"mode": "explicit"})
    openings = [facts(input=input).opening for input in ("one", [text_message("user", "one")], [marked])]
    assert len(set(openings)) == 1


def test_other_openings_have_other_hashes() -> None:
    others = [
        facts(input="one"),
        facts(input="two"),
        facts(input="one", instructions="Be brief."),
        facts(input=[text_message("developer", "Be brief."), text_message("user", "one")]),
        facts(input=[text_message("assistant", "one")]),
        facts(input=[]),
    ]
    assert len({other.opening for other in others}) == len(others)


def test_invalid_conversation_is_left_to_the_preparation() -> None:
    assert facts(conversation={"id": 3}).conversation_id is None


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, None),
        ({"prompt_cache_options": {"ttl": "30m"}}, 1800.0),
        ({"prompt_cache_retention": "24h"}, 86_400.0),
        ({"prompt_cache_retention": "in_memory"}, None),
        ({"prompt_cache_options": {"ttl": "30m"}, "prompt_cache_retention": "24h"}, 86_400.0),
        ({"prompt_cache_options": {"ttl": None}}, None),
        ({"input": [text_message("user", "Hi", prompt_cache_breakpoint={"mode": "explicit", "ttl": "30m"})]}, 1800.0),
        ({"input": [text_message("user", "Hi", prompt_cache_breakpoint=3)]}, None),
        ({"tools": [{"type": "function", "name": "f", "prompt_cache_breakpoint": {"ttl": "1h"}}]}, 3600.0),
        ({"tools": [{"type": "made-up"}]}, None),
    ],
)
def test_lifetime_of_the_cache_is_read(fields: dict[str, Any], seconds: float | None) -> None:
    assert facts(**fields).cache_seconds == seconds


HOUR = {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"cache_control": HOUR}, 3600.0),
        ({"system": [{"type": "text", "text": "S", "cache_control": HOUR}]}, 3600.0),
        ({"tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": HOUR}]}, 3600.0),
        ({"system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]}, None),
    ],
)
def test_lifetime_of_a_cache_mark_of_a_messages_client_is_read(fields: dict[str, Any], seconds: float | None) -> None:
    part = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": "5m"}} if seconds else "Hi"
    content = [part] if isinstance(part, dict) else part
    body = {"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": content}], **fields}
    request, _ = messages.request_to_hub(msgspec.json.encode(body))
    assert facts_of(request).cache_seconds == seconds


def test_history_changes_what_a_request_needs_and_not_what_identifies_it() -> None:
    request = facts(input="And?", conversation="conv_1")
    body = {"model": "m", "input": [text_message("user", "x" * 1000), reasoning("gemini"), message(IMAGE)]}
    whole = with_history(request, decode_request(msgspec.json.encode(body)))
    assert (whole.opening, whole.conversation_id) == (request.opening, "conv_1")
    assert (whole.maker, whole.has_images, whole.tokens > request.tokens) == ("gemini", True, True)


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (target(), False),
        (target("messages"), True),
        (target(profile="local"), True),
        (target(context=400), True),
    ],
)
def test_targets_that_carry_the_same_do_not_depend_on_history(other: Target, differs: bool) -> None:
    assert depends_on_history([target(), other]) == differs


@pytest.mark.parametrize(
    ("wanted", "chosen", "words"),
    [
        (RequestFacts(), target(), ""),
        (RequestFacts(maker="chat"), target(), ""),
        (RequestFacts(maker="any-chat"), target(), ""),
        (RequestFacts(maker="gemini"), target(), "sealed reasoning"),
        (RequestFacts(has_images=True), target(), ""),
        (RequestFacts(has_images=True), target(profile="local"), "no images"),
        (RequestFacts(has_schema=True), target(), ""),
        (RequestFacts(has_schema=True), target("messages"), "no structured output"),
        (RequestFacts(tokens=300), target(context=400), ""),
        (RequestFacts(tokens=500), target(context=400), "about 500 tokens, and its context 400"),
        (RequestFacts(has_tools=True), target(), ""),
        (RequestFacts(has_tools=True), target(profile="local"), "no tools"),
    ],
)
def test_target_that_cannot_carry_a_request_has_an_obstacle(wanted: RequestFacts, chosen: Target, words: str) -> None:
    obstacle = find_obstacle(chosen, wanted)
    assert words in obstacle
    assert bool(obstacle) == bool(words)
