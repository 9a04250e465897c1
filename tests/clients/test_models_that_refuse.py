"""Real models refuse parts of a request by their name: the SDKs through a gateway over strict servers that know those rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
import pytest
from tests.running import BOUND, Running, one_upstream, running

from antiphon import fakes
from antiphon.fakes import Received, ResponsesServer, turn
from antiphon.fakes.script import Turn

HELLO = turn(fakes.text("Hel", "lo."), fakes.usage(5, 2))
SAID: Any = [{"role": "user", "content": "Say hello."}]
SEALED = "reasoning.encrypted_content"


def answer(received: Received) -> Turn:
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
                return sdk.chat.completions.create(model=model, messages=SAID).choices[0].message.content
        case _:
            with anthropic_sdk(gateway) as sdk:
                block = sdk.messages.create(model=model, max_tokens=100, messages=SAID).content[0]
                return block.text if block.type == "text" else None


@pytest.mark.parametrize("profile", ["openai", "azure"])
@pytest.mark.parametrize("client", ["responses", "chat", "messages"])
@pytest.mark.parametrize("model", ["gpt-4o", "ft:gpt-4o-2024-08-06:acme::1"])
def test_a_model_that_does_not_reason_is_not_asked_for_encrypted_reasoning(profile: str, client: str, model: str) -> None:
    """RSN-2: the profile knows the name."""
    with over_responses(profile) as (gateway, server):
        assert text_by(gateway, client, model) == "Hello."
        assert server.refusals == []
        assert "include" not in server.received[0].json


def test_a_responses_client_that_asked_for_encrypted_reasoning_is_told_of_the_loss() -> None:
    """REQ-6: in the header, and by a refusal where nothing may be lost; nobody else asked for it."""
    asked: dict[str, Any] = {"model": "gpt-4o", "input": "Say hello.", "include": [SEALED]}
    with over_responses("openai") as (gateway, server):
        answered = gateway.post(asked)
        assert (answered.status_code, answered.headers["antiphon-losses"]) == (200, "1; include[0]")
        refused = gateway.post(asked, antiphon_losses="strict")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "include[0]")
        chat = {"model": "gpt-4o", "messages": SAID}
        taken = gateway.post(chat, "/v1/chat/completions", antiphon_losses="strict")
        assert (taken.status_code, taken.headers.get("antiphon-losses")) == (200, None)
        assert server.refusals == []


@pytest.mark.parametrize("client", ["responses", "chat", "messages"])
def test_a_deployment_that_refuses_encrypted_reasoning_is_asked_once_more_and_remembered(client: str) -> None:
    """RSN-3: its name says nothing of the model behind it."""
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
