"""Real models refuse parts of a request by their name: the SDKs through a gateway over strict servers with those
rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import anthropic
import openai
import pytest
from msgspec import json
from msgspec.structs import replace
from tests.running import BOUND, Running, one_upstream, running

from antiphon import testing
from antiphon.config.model_rules import ModelRule
from antiphon.testing import (
    ChatServer,
    MessagesServer,
    OllamaServer,
    ReceivedRequest,
    Reply,
    ResponsesServer,
    exactly,
    turn,
)
from antiphon.testing.script import ScriptedTurn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
HELLO = turn(testing.text("Hel", "lo."), testing.usage(5, 2))
CONVERSATION: Any = [{"role": "user", "content": "Say hello."}]
SEALED = "reasoning.encrypted_content"


def answer(received: ReceivedRequest) -> ScriptedTurn:
    del received
    return HELLO


def openai_sdk(gateway: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0, timeout=BOUND)


def anthropic_sdk(gateway: Running) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=gateway.url, api_key="any", max_retries=0, timeout=BOUND)


# Encrypted reasoning


@contextmanager
def over_responses(profile: str, **settings: Any) -> Iterator[tuple[Running, ResponsesServer]]:
    with ResponsesServer(answer, **settings) as server:
        with running(one_upstream(server.base_url, dialect="responses", profile=profile)) as gateway:
            yield gateway, server


def text_by(gateway: Running, client: str, model: str) -> str | None:
    """One turn of an SDK, and the text it got."""
    match client:
        case "responses":
            with openai_sdk(gateway) as sdk:
                return sdk.responses.create(model=model, input="Say hello.").output_text
        case "chat":
            with openai_sdk(gateway) as sdk:
                return sdk.chat.completions.create(model=model, messages=CONVERSATION).choices[0].message.content
        case _:
            with anthropic_sdk(gateway) as sdk:
                block = sdk.messages.create(model=model, max_tokens=100, messages=CONVERSATION).content[0]
                return block.text if block.type == "text" else None


@pytest.mark.parametrize("profile", ["openai", "azure"])
@pytest.mark.parametrize("client", ["responses", "chat", "messages"])
@pytest.mark.parametrize("model", ["gpt-4o", "ft:gpt-4o-2024-08-06:acme::1"])
def test_encrypted_reasoning_is_not_requested_from_models_without_reasoning(
    profile: str, client: str, model: str
) -> None:
    """RSN-2: the profile lists the name."""
    with over_responses(profile) as (gateway, server):
        assert text_by(gateway, client, model) == "Hello."
        assert server.refusals == []
        assert "include" not in server.received[0].json


def test_unsupported_encrypted_reasoning_is_reported_as_a_loss() -> None:
    """REQ-6: in the header, and as a refusal in strict mode; other clients did not request it."""
    asked: dict[str, Any] = {"model": "gpt-4o", "input": "Say hello.", "include": [SEALED]}
    with over_responses("openai") as (gateway, server):
        answered = gateway.post(asked)
        assert (answered.status_code, answered.headers["antiphon-losses"]) == (200, "1; include[0]")
        refused = gateway.post(asked, antiphon_losses="strict")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "include[0]")
        chat = {"model": "gpt-4o", "messages": CONVERSATION}
        taken = gateway.post(chat, "/v1/chat/completions", antiphon_losses="strict")
        assert (taken.status_code, taken.headers.get("antiphon-losses")) == (200, None)
        assert server.refusals == []


@pytest.mark.parametrize("client", ["responses", "chat", "messages"])
def test_refused_encrypted_reasoning_is_retried_without_it_and_remembered(client: str) -> None:
    """RSN-3: the deployment's name does not reveal its model."""
    with over_responses("azure", plain_models=["deployment-1"]) as (gateway, server):
        assert [text_by(gateway, client, "deployment-1") for _ in range(2)] == ["Hello.", "Hello."]
        assert text_by(gateway, client, "deployment-2") == "Hello."
        sent = [(received.json["model"], received.json.get("include")) for received in server.received]
        assert sent == [
            ("deployment-1", [SEALED]),
            ("deployment-1", None),
            ("deployment-1", None),
            ("deployment-2", [SEALED]),
        ]
        lines = [line for line in gateway.log if line["event"] == "reasoning_refused"]
        assert [line["message"] for line in lines] == ["Encrypted content is not supported with this model."]


# Thinking and effort. The SDK warns about models and forms that will be removed.


BUDGET: Any = {"type": "enabled", "budget_tokens": 2048}
ADAPTIVE: Any = {"type": "adaptive"}


@contextmanager
def over_messages(profile: str, rules: Any = ("*",), **settings: Any) -> Iterator[tuple[Running, MessagesServer]]:
    with MessagesServer(answer, system_messages=True, **settings) as server:
        config = one_upstream(server.base_url, dialect="messages", profile=profile)
        upstream = replace(config.upstreams[0], models=list(rules))
        with running(replace(config, upstreams=[upstream])) as gateway:
            yield gateway, server


@pytest.mark.filterwarnings("ignore:The model", "ignore:Using Claude with")
@pytest.mark.parametrize("profile", ["anthropic", "messages"])
@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        # Kept where the model accepts it.
        ("claude-haiku-4-5", BUDGET, BUDGET),
        ("claude-sonnet-4-5-20250929", BUDGET, BUDGET),
        ("claude-opus-4-5", BUDGET, BUDGET),
        ("claude-opus-4-6", BUDGET, BUDGET),
        ("claude-opus-4-6", ADAPTIVE, ADAPTIVE),
        ("claude-sonnet-4-6", BUDGET, BUDGET),
        ("claude-opus-4-7", ADAPTIVE, ADAPTIVE),
        ("claude-sonnet-5-5", {"type": "between_tools"}, {"type": "between_tools"}),
        # Converted where it does not.
        ("claude-haiku-4-5", ADAPTIVE, {"type": "enabled", "budget_tokens": 12_000}),
        ("claude-opus-4-7", BUDGET, ADAPTIVE),
        ("claude-opus-4-8", BUDGET, ADAPTIVE),
        ("claude-sonnet-5", BUDGET, ADAPTIVE),
        ("claude-sonnet-5-5", {"type": "disabled"}, {"type": "between_tools"}),
        ("claude-opus-4-7", {"type": "between_tools"}, {"type": "disabled"}),
        ("claude-fable-5", {"type": "disabled"}, None),
        ("claude-next-9", BUDGET, ADAPTIVE),
    ],
)
def test_thinking_of_the_anthropic_sdk_is_sent_in_the_form_of_the_model(
    profile: str, model: str, asked: Any, sent: Any
) -> None:
    """RSN-4: names that begin with `claude-` follow one table in both profiles."""
    with over_messages(profile) as (gateway, server), anthropic_sdk(gateway) as sdk:
        message = sdk.messages.create(model=model, max_tokens=16_000, messages=CONVERSATION, thinking=asked)
        assert [block.text for block in message.content if block.type == "text"] == ["Hello."]
        assert server.refusals == []
        assert server.received[0].json.get("thinking") == sent


@pytest.mark.parametrize("profile", ["anthropic", "messages"])
@pytest.mark.parametrize("client", ["chat", "responses"])
@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh"])
@pytest.mark.parametrize(
    "model", ["claude-haiku-4-5", "claude-opus-4-5", "claude-opus-4-6", "claude-opus-4-7", "claude-fable-5"]
)
def test_effort_of_the_openai_sdk_is_accepted_by_every_model(
    profile: str, client: str, effort: Any, model: str
) -> None:
    """RSN-4."""
    with over_messages(profile) as (gateway, server), openai_sdk(gateway) as sdk:
        if client == "chat":
            sdk.chat.completions.create(model=model, messages=CONVERSATION, reasoning_effort=effort)
        else:
            sdk.responses.create(model=model, input="Say hello.", reasoning={"effort": effort})
        assert server.refusals == []
        assert len(server.received) == 1


@pytest.mark.filterwarnings("ignore:Using Claude with")
@pytest.mark.parametrize("profile", ["anthropic", "messages"])
def test_effort_of_the_anthropic_sdk_is_mapped_to_the_levels_of_the_model(profile: str) -> None:
    """RSN-4: the nearest level elsewhere; none where the model has no levels."""
    asked = [
        ("claude-opus-4-6", "xhigh"),
        ("claude-opus-4-7", "xhigh"),
        ("claude-opus-4-5", "max"),
        ("claude-haiku-4-5", "high"),
    ]
    with over_messages(profile) as (gateway, server), anthropic_sdk(gateway) as sdk:
        for model, effort in asked:
            config: Any = {"effort": effort}
            sdk.messages.create(
                model=model, max_tokens=16_000, messages=CONVERSATION, thinking=BUDGET, output_config=config
            )
        assert server.refusals == []
        sent = [received.json.get("output_config", {}).get("effort") for received in server.received]
        assert sent == ["max", "xhigh", "high", None]


def test_thinking_form_follows_the_upstream_model_name() -> None:
    """RSN-4: clients may use any other name."""
    rules = [ModelRule(from_="claude-opus-4-7", to="claude-haiku-4-5"), ModelRule(from_="lab/*", to="*")]
    with over_messages("anthropic", rules) as (gateway, server), anthropic_sdk(gateway) as sdk:
        for model in ("claude-opus-4-7", "lab/claude-opus-4-7"):
            sdk.messages.create(model=model, max_tokens=16_000, messages=CONVERSATION, thinking=BUDGET)
        assert server.refusals == []
        assert [received.json["thinking"]["type"] for received in server.received] == ["enabled", "adaptive"]


@pytest.mark.parametrize(
    ("profile", "takes", "first", "second"),
    [
        ("anthropic", ["enabled", "disabled"], "adaptive", "enabled"),
        ("messages", ["adaptive", "disabled"], "enabled", "adaptive"),
    ],
)
def test_refused_thinking_form_is_retried_in_the_other_form_and_remembered(
    profile: str, takes: list[str], first: str, second: str
) -> None:
    """RSN-3, RSN-4: a name in no table uses the form of the profile."""
    with over_messages(profile, thinking=takes) as (gateway, server), anthropic_sdk(gateway) as sdk:
        thinking: Any = BUDGET if first == "enabled" else ADAPTIVE
        for _ in range(2):
            sdk.messages.create(model="our-model", max_tokens=16_000, messages=CONVERSATION, thinking=thinking)
        assert [received.json["thinking"]["type"] for received in server.received] == [first, second, second]


@pytest.mark.parametrize("profile", ["anthropic", "messages"])
def test_thinking_is_left_out_for_models_without_it_and_remembered(profile: str) -> None:
    """RSN-3, RSN-4: a Messages server whose model has another name than in any table."""
    with over_messages(profile, thinking=["disabled"]) as (gateway, server), anthropic_sdk(gateway) as sdk:
        for thinking in (ADAPTIVE, BUDGET, ADAPTIVE):
            sdk.messages.create(model="our-model", max_tokens=16_000, messages=CONVERSATION, thinking=thinking)
        lines = [line for line in gateway.log if line["event"] == "reasoning_refused"]
        assert [line["message"] for line in lines] == ["'our-model' does not support thinking."]
    assert ["thinking" in received.json for received in server.received] == [True, False, False, False]


def test_refused_system_messages_are_sent_as_user_text_and_remembered() -> None:
    """RSN-3: Claude Code sends system messages and thinking to every server. Each is refused once, in one turn."""
    system = {"role": "system", "content": "Be brief."}
    body = {"model": "m", "max_tokens": 16_000, "messages": [*CONVERSATION, system], "thinking": ADAPTIVE}
    with MessagesServer(answer, thinking=["disabled"]) as server:
        with running(one_upstream(server.base_url, dialect="messages")) as gateway:
            for _ in range(2):
                assert gateway.post(body, "/v1/messages").status_code == 200
            lines = [line for line in gateway.log if line["event"] == "reasoning_refused"]
    assert len(lines) == 2
    sent = [(each.json["messages"][-1]["role"], "thinking" in each.json) for each in server.received]
    assert sent == [("system", True), ("system", False), ("user", False), ("user", False)]
    assert "Be brief." in str(server.received[-1].json["messages"])


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/chat"])
def test_refused_thinking_is_retried_without_it_and_remembered(path: str) -> None:
    """RSN-3: servers of Ollama refuse `think` for a model that cannot think. The lost effort is reported."""
    with OllamaServer(answer, plain_models=["plain"]) as server:
        with running(one_upstream(server.base_url, dialect="ollama", profile="ollama-native")) as gateway:
            setting = {"think": "high"} if path == "/api/chat" else {"reasoning_effort": "high"}
            for model in ("plain", "plain", "thinking"):
                body = {"model": model, "messages": CONVERSATION, "stream": False, **setting}
                assert gateway.post(body, path).status_code == 200
        sent = [(received.json["model"], received.json.get("think")) for received in server.received]
        assert sent == [("plain", "high"), ("plain", None), ("plain", None), ("thinking", "high")]
        lines = [line for line in gateway.log if line["event"] == "reasoning_refused"]
        assert [line["message"] for line in lines] == ['"plain" does not support thinking']


REFUSED_EFFORTS = {
    "ollama": (400, {"error": {"message": '"m" does not support thinking', "type": "invalid_request_error"}}),
    "groq": (400, {"error": {"message": "`reasoning_effort` is not supported with this model"}}),
    "mistral": (422, {"detail": [{"loc": ["body", "reasoning_effort"], "msg": "Extra inputs are not permitted"}]}),
    "chat": (400, {"error": {"message": "Unrecognized request argument supplied: reasoning_effort"}}),
}


def refuse_effort(profile: str, received: ReceivedRequest) -> Reply:
    status, body = REFUSED_EFFORTS[profile]
    content = json.encode(body)
    head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(content))
    return exactly(head + content) if "reasoning_effort" in received.json else HELLO


@pytest.mark.parametrize("profile", REFUSED_EFFORTS)
def test_refused_effort_is_left_out_at_chat_servers_and_remembered(profile: str) -> None:
    """RSN-3: Claude Code asks every model for thinking. The loss is reported, and refused in strict mode."""
    body = {"model": "m", "max_tokens": 16_000, "messages": CONVERSATION, "thinking": BUDGET}
    with ChatServer(partial(refuse_effort, profile), strict=False) as server:
        with running(one_upstream(server.base_url, profile=profile)) as gateway:
            strict = gateway.post(body, "/v1/messages", **{"antiphon-losses": "strict"})
            answers = [gateway.post(body, "/v1/messages") for _ in range(2)]
    assert strict.status_code == 400
    for answer in answers:
        assert (answer.status_code, "reasoning.effort" in answer.headers["antiphon-losses"]) == (200, True)
    assert ["reasoning_effort" in received.json for received in server.received][-3:] == [True, False, False]
