"""Budgets for reasoning across dialects: a number of tokens stays the number, and the effort is not a loss (RSN-4)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.generate.events import counting_stamps

from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.messages.wire import MessagesWire, ModelThinking
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.fold import fold_events
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.writer import ResponseWriter

USER = [{"role": "user", "content": "Hi"}]
CONTENTS = [{"role": "user", "parts": [{"text": "Hi"}]}]


def request_of(client: str, budget: int, limit: int) -> bytes:
    match client:
        case "messages":
            thinking = {"type": "enabled", "budget_tokens": budget}
            body: dict[str, Any] = {"model": "m", "max_tokens": limit, "messages": USER, "thinking": thinking}
        case "gemini":
            config = {"maxOutputTokens": limit, "thinkingConfig": {"thinkingBudget": budget}}
            body = {"contents": CONTENTS, "generationConfig": config}
        case _:
            body = {"model": "m", "max_tokens": limit, "messages": USER, "reasoning": {"max_tokens": budget}}
    return json.dumps(body).encode()


def sent(client: Any, body: bytes, server: Any, wire: Any = None) -> tuple[dict[str, Any], list[str]]:
    request, losses = CLIENT_DIALECTS[client].request_to_hub(body)
    dialect = SERVER_DIALECTS[server]
    sent_body, more_losses = dialect.request_from_hub(request, wire or dialect.wire_type())
    return json.loads(sent_body), [loss.path for loss in [*losses, *more_losses]]


def budget_in(server: str, body: dict[str, Any]) -> int:
    budget: int = (
        body["thinking"]["budget_tokens"]
        if server == "messages"
        else body["generationConfig"]["thinkingConfig"]["thinkingBudget"]
    )
    return budget


@pytest.mark.parametrize(("client", "server"), [("messages", "gemini"), ("gemini", "messages")])
@pytest.mark.parametrize(
    ("budget", "limit", "wanted", "lost"),
    [
        (5000, 9000, 5000, []),
        (8192, 8193, 8192, []),  # the smallest room for an answer
        (1024, 1100, 1024, []),
        (9000, 9000, 6750, ["reasoning.effort"]),
    ],
)
def test_budget_in_tokens_stays_the_number_below_the_output_limit(
    client: str, server: str, budget: int, limit: int, wanted: int, lost: list[str]
) -> None:
    body, losses = sent(client, request_of(client, budget, limit), server)
    assert (budget_in(server, body), losses) == (wanted, lost)


def test_budget_below_the_minimum_of_messages_servers_is_raised() -> None:
    body, losses = sent("gemini", request_of("gemini", 500, 9000), "messages")
    assert (budget_in("messages", body), losses) == (1024, ["reasoning.effort"])


def test_budget_is_kept_for_models_that_also_accept_adaptive_thinking() -> None:
    wire = MessagesWire(
        thinking="adaptive", models=(ModelThinking(names=("*",), thinking=("adaptive", "enabled"), efforts=("high",)),)
    )
    body, losses = sent("gemini", request_of("gemini", 5000, 9000), "messages", wire)
    assert (body["thinking"], losses) == ({"type": "enabled", "budget_tokens": 5000}, [])


@pytest.mark.parametrize("client", ["messages", "gemini", "chat"])
@pytest.mark.parametrize("server", SERVER_DIALECTS)
def test_budget_that_is_carried_is_not_a_loss(client: str, server: str) -> None:
    assert sent(client, request_of(client, 5000, 9000), server)[1] == []


@pytest.mark.parametrize("server", [server for server in SERVER_DIALECTS if server != "gemini"])
def test_dynamic_budget_without_an_equivalent_is_a_loss(server: str) -> None:
    assert len(sent("gemini", request_of("gemini", -1, 9000), server)[1]) == 1


@pytest.mark.parametrize(
    ("settings", "effort"),
    [
        ({"effort": "high"}, "high"),
        ({"effort": "none"}, "none"),
        ({"max_tokens": 4000}, "low"),
        ({"effort": None, "max_tokens": 4000}, "low"),
        ({"enabled": True}, "medium"),
        ({"enabled": False}, "none"),
        ({"effort": "low", "exclude": False}, "low"),
    ],
)
def test_reasoning_settings_of_openrouter_are_read_as_effort(settings: dict[str, Any], effort: str) -> None:
    """RSN-4: a chat server gets the client's own settings, and nothing besides."""
    asked = json.dumps({"model": "m", "messages": USER, "reasoning": settings}).encode()
    assert sent("chat", asked, "responses")[0]["reasoning"] == {"effort": effort}
    assert sent("chat", asked, "responses")[1] == []
    body, losses = sent("chat", asked, "chat")
    assert (body["reasoning"], "reasoning_effort" in body, losses) == (settings, False, [])


@pytest.mark.parametrize("settings", [{"effort": "turbo"}, {"enabled": 1}, "on"])
def test_unknown_reasoning_settings_are_a_loss(settings: Any) -> None:
    asked = json.dumps({"model": "m", "messages": USER, "reasoning": settings}).encode()
    assert sent("chat", asked, "responses")[1] == ["reasoning"]


def test_budget_in_tokens_reaches_openrouter_as_a_number() -> None:
    wire = ChatWire(reasoning_budget=True)
    body, losses = sent("messages", request_of("messages", 5000, 9000), "chat", wire)
    assert (body["reasoning"], "reasoning_effort" in body, losses) == ({"max_tokens": 5000}, False, [])
    body, losses = sent("chat", request_of("chat", 5000, 9000), "chat", wire)
    assert (body["reasoning"], "reasoning_effort" in body, losses) == ({"max_tokens": 5000}, False, [])


@pytest.mark.parametrize(("effort", "budget", "lost"), [("high", 24000, []), ("xhigh", 24000, ["reasoning.effort"])])
def test_effort_whose_budget_is_slightly_lower_is_not_lost(effort: str, budget: int, lost: list[str]) -> None:
    """The output limit leaves less room than the usual budget of the effort, and the budget still means this effort."""
    asked = json.dumps({"model": "m", "max_tokens": 32000, "messages": USER, "reasoning": {"effort": effort}}).encode()
    body, losses = sent("chat", asked, "messages")
    assert (body["thinking"]["budget_tokens"], losses) == (budget, lost)


@pytest.mark.parametrize("settings", [{"exclude": True}, {"effort": "low", "exclude": True}])
def test_excluded_reasoning_is_no_loss_and_is_not_shown(settings: Any) -> None:
    asked = json.dumps({"model": "m", "messages": USER, "reasoning": settings}).encode()
    for server in ("responses", "messages", "gemini", "ollama"):
        assert sent("chat", asked, server)[1] == []
    request, _ = CLIENT_DIALECTS["chat"].request_to_hub(asked)
    collector = EventCollector()
    writer = ResponseWriter(make_initial_response(request, id="resp_1", created_at=1), collector, counting_stamps())
    writer.start()
    writer.add_reasoning("r", "hm")
    writer.close_item("r")
    writer.add_text("t", "Hi")
    writer.complete(None)
    stream = CLIENT_DIALECTS["chat"].events_from_hub(request)
    data = b"".join(map(stream.feed, collector.events)) + stream.finish()
    assert (b"hm" in data, b'"Hi"' in data) == (False, True)
    whole, _ = CLIENT_DIALECTS["chat"].response_from_hub(fold_events(collector.events), request)
    assert (b"hm" in whole, b'"Hi"' in whole) == (False, True)


def test_reasoning_effort_precedes_the_settings_of_openrouter() -> None:
    asked = {"model": "m", "messages": USER, "reasoning_effort": "low", "reasoning": {"effort": "high"}}
    body, losses = sent("chat", json.dumps(asked).encode(), "responses")
    assert (body["reasoning"], losses) == ({"effort": "low"}, ["reasoning"])
