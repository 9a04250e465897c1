"""Upstreams of every dialect behind one gateway, over sockets: called at their own address, with their own headers, for
any client.

The translation of bodies is tested in `tests/dialects`; every pair of client and server, in the matrix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.api.askers import ASKERS, CHAT, GEMINI, MESSAGES, Asker
from tests.running import Running, one_upstream, running

from antiphon import testing
from antiphon.config import StoreConfig
from antiphon.testing import ChatServer, GeminiServer, MessagesServer, turn
from antiphon.testing.harness import FakeServer

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
HELLO = turn(testing.text("Hel", "lo."), testing.usage(5, 2))
SERVERS: dict[str, Any] = {"messages": MessagesServer, "gemini": GeminiServer}
KEY = "lab-key-that-nobody-may-see-0123456789"

each = pytest.mark.parametrize("dialect", SERVERS)


@contextmanager
def meeting(dialect: str, script: Any = lambda _: HELLO, **settings: Any) -> Iterator[tuple[Running, FakeServer]]:
    """A gateway before a strict server that requires a key. A request that the server refuses fails the test."""
    with SERVERS[dialect](script, key=KEY) as upstream:
        config = one_upstream(upstream.base_url, dialect=dialect, api_key_env="LAB_KEY", **settings)
        with running(config, environ={"LAB_KEY": KEY}) as gateway:
            yield gateway, upstream
        assert upstream.refusals == []


@each
@pytest.mark.parametrize("asker", ASKERS, ids=lambda asker: asker.dialect)
def test_upstream_of_any_dialect_answers_clients_of_any_dialect(dialect: str, asker: Asker) -> None:
    with meeting(dialect) as (gateway, upstream):
        assert asker.text_in(asker.ask(gateway).json()) == "Hello."
        assert asker.text_of(asker.stream(gateway)) == "Hello."
        if dialect == "gemini":
            assert [received.path for received in upstream.received] == [
                "/v1beta/models/mock-1:generateContent",
                "/v1beta/models/mock-1:streamGenerateContent?alt=sse",
            ]


@each
def test_upstream_answer_becomes_a_response_with_usage(dialect: str) -> None:
    with meeting(dialect) as (gateway, _):
        response = gateway.post({"model": "mock-1", "input": "Say hello."}).json()
        assert (response["output"][0]["content"][0]["text"], response["usage"]["input_tokens"]) == ("Hello.", 5)


@each
def test_upstream_models_are_listed(dialect: str) -> None:
    """API-5."""
    with SERVERS[dialect](key=KEY, models=["mock-1", "mock-2"]) as upstream:
        config = one_upstream(upstream.base_url, dialect=dialect, api_key_env="LAB_KEY")
        with running(config, environ={"LAB_KEY": KEY}) as gateway:
            assert [model["id"] for model in gateway.get("/v1/models").json()["data"]] == ["mock-1", "mock-2"]


@pytest.mark.parametrize(("dialect", "profile"), [("messages", "anthropic"), ("gemini", "google")])
@pytest.mark.parametrize("asker", [MESSAGES, GEMINI], ids=lambda asker: asker.dialect)
def test_upstream_token_count_is_used_where_it_exists(dialect: str, profile: str, asker: Asker) -> None:
    """API-3: with every field that makes a prompt longer, and no other."""
    with meeting(dialect, profile=profile) as (gateway, upstream):
        answer = gateway.post({**asker.asked, **asker.tools}, asker.count_path)
        assert answer.status_code == 200, answer.text
        assert "antiphon-estimated" not in answer.headers
        [(_, count)] = answer.json().items()
        assert count > 0
        sent = upstream.received[0]
    if dialect == "messages":
        assert sent.path == "/v1/messages/count_tokens"
        assert set(sent.json) == {"model", "messages", "tools"}
    else:
        assert sent.path == "/v1beta/models/mock-1:countTokens"
        assert sent.json["generateContentRequest"]["model"] == "models/mock-1"
        assert "tools" in sent.json["generateContentRequest"]


# Betas


def test_beta_headers_pass_only_from_messages_clients_to_messages_servers() -> None:
    betas = {
        "anthropic-beta": "context-management-2025-06-27,interleaved-thinking-2025-05-14",
        "anthropic-version": "2023-06-01",
    }
    with meeting("messages", profile="anthropic") as (gateway, upstream):
        assert MESSAGES.ask(gateway, **betas).status_code == 200
        assert upstream.received[-1].headers["anthropic-beta"] == betas["anthropic-beta"]
        assert MESSAGES.ask(gateway).status_code == 200
        assert "anthropic-beta" not in upstream.received[-1].headers
        assert CHAT.ask(gateway, **betas).status_code == 200
        assert "anthropic-beta" not in upstream.received[-1].headers
        odd = MESSAGES.ask(gateway, **{"anthropic-beta": "a\x7fb"})
        assert (odd.status_code, MESSAGES.error_in(odd)["code"]) == (400, "invalid_value")
    with ChatServer([HELLO]) as chat, running(one_upstream(chat.base_url)) as gateway:
        answer = MESSAGES.ask(gateway, **betas)
        assert (answer.status_code, "antiphon-losses" in answer.headers) == (200, False)
        assert not [name for name in chat.received[0].headers if name.startswith("anthropic")]


def test_beta_of_the_profile_is_joined_with_those_of_the_client(tmp_path: Any) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text('about = "x; facts from y"\nextends = "anthropic"\n[headers]\nanthropic-beta = "own-1"\n')
    with meeting("messages", profile=str(profile)) as (gateway, upstream):
        MESSAGES.ask(gateway, **{"anthropic-beta": "theirs-1"})
        CHAT.ask(gateway)
        assert [received.headers["anthropic-beta"] for received in upstream.received] == ["own-1,theirs-1", "own-1"]


# Model names in upstream addresses


def test_model_with_path_traversal_is_refused() -> None:
    """Security: the path of an upstream is chosen by its configuration."""
    with meeting("gemini") as (gateway, upstream):
        for model in ("../files", "a/../../b", ".."):
            answer = gateway.post({**CHAT.asked, "model": model}, CHAT.path)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
        assert upstream.received == []


# Losses of answers


def test_losses_of_the_answer_are_reported_even_in_strict_mode() -> None:
    """REQ-6: the answer exists already, so it is not refused."""
    logprobs = {"token": "Hello.", "logprob": -0.1, "bytes": None, "top_logprobs": []}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "Hello."},
        "logprobs": {"content": [logprobs]},
        "finish_reason": "stop",
    }
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice, {**choice, "index": 1}],
    }
    with (
        ChatServer([testing.whole(body)]) as upstream,
        running(one_upstream(upstream.base_url, losses="strict")) as gateway,
    ):
        answer = MESSAGES.ask(gateway)
    assert (answer.status_code, MESSAGES.text_in(answer.json())) == (200, "Hello.")
    assert "choices[1]" in answer.headers["antiphon-losses"]


def _answers(count: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hello.", "refusal": None, "unknown": 1}
    choices = [{"index": index, "message": message, "finish_reason": "stop"} for index in range(count)]
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "provider": "p"}


def test_several_answers_pass_within_a_dialect() -> None:
    body = _answers(2)
    with (
        ChatServer([testing.whole(body)], strict=False) as upstream,
        running(one_upstream(upstream.base_url)) as gateway,
    ):
        answer = gateway.post({**CHAT.asked, "n": 2}, CHAT.path)
        assert upstream.received[0].json["n"] == 2
    assert answer.json() == body | {"model": answer.json()["model"]}
    assert "antiphon-losses" not in answer.headers


def test_several_answers_are_refused_where_they_cannot_pass(tmp_path: Path) -> None:
    """Across dialects, and if the answer is stored."""
    with meeting("messages") as (gateway, upstream):
        answer = gateway.post({**CHAT.asked, "n": 2}, CHAT.path)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")
        assert upstream.received == []
    with (
        ChatServer([], strict=False) as chat_server,
        running(
            replace(one_upstream(chat_server.base_url), store=StoreConfig(url=f"sqlite:///{tmp_path}/a.db"))
        ) as gateway,
    ):
        answer = gateway.post({**CHAT.asked, "n": 2, "store": True}, CHAT.path)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")


def test_client_keeps_the_form_of_its_request_in_strict_mode() -> None:
    """Unknown members that are sent are no losses."""
    body = {**_answers(1), "unknown": {"a": None}}
    message = {"role": "user", "content": [{"type": "text", "text": "Hi", "unknown": 1}], "name": None}
    with (
        ChatServer([testing.whole(body)], strict=False) as upstream,
        running(one_upstream(upstream.base_url, losses="strict")) as gateway,
    ):
        answer = gateway.post({**CHAT.asked, "messages": [message]}, CHAT.path)
        assert upstream.received[0].json["messages"] == [message]
    assert answer.json()["unknown"] == {"a": None}


def test_json_object_with_a_schema_keeps_its_schema() -> None:
    """REQ-1: a chat server gets the client's own form, a server of another dialect enforces the schema."""
    format = {"type": "json_object", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    with ChatServer(strict=False) as upstream, running(one_upstream(upstream.base_url, losses="strict")) as gateway:
        assert gateway.post({**CHAT.asked, "response_format": format}, CHAT.path).status_code == 200
        assert upstream.received[0].json["response_format"] == format
    with meeting("gemini", losses="strict") as (gateway, server):
        assert gateway.post({**CHAT.asked, "response_format": format}, CHAT.path).status_code == 200
        assert server.received[0].json["generationConfig"]["responseJsonSchema"] == format["schema"]


EXTRA_FIELDS: dict[str, Any] = {
    "top_k": 5,
    "seed": 7,
    "structured_outputs": {"choice": ["a", "b"]},
    "chat_template_kwargs": {"enable_thinking": False},
    "repetition_penalty": 1.1,
}


@pytest.mark.parametrize("stream", [False, True])
def test_extra_fields_of_a_responses_client_reach_a_chat_server(stream: bool) -> None:
    """REQ-6, F-4: those that the profile lists; all others are losses."""
    asked = {"model": "mock-1", "input": "Hi", "stream": stream, **EXTRA_FIELDS}
    with ChatServer() as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post({**asked, "made_up": 1})
        assert answer.headers["antiphon-losses"] == "1; made_up"
        assert EXTRA_FIELDS.items() <= upstream.received[0].json.items()
        assert "made_up" not in upstream.received[0].json
    with ChatServer(strict_fields=True) as upstream:
        with running(one_upstream(upstream.base_url, profile="groq")) as gateway:
            answer = gateway.post(asked)
            assert (answer.status_code, answer.headers["antiphon-losses"][:3]) == (200, "5; ")
        assert upstream.refusals == []
