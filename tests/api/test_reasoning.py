"""Reasoning over sockets: it returns to the server that made it, never to another, and is restored where a client
dropped it (RSN-1 … RSN-4).

The upstream servers refuse what real ones refuse: sealed reasoning that is not their own or was changed, and a tool
loop without it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from tests.api.stateful import TOOLS, Lab, events_in, lab, message, output, text_of
from tests.running import until

from antiphon import testing
from antiphon.config import Config
from antiphon.dialects.common.envelope import seal_reasoning, unseal_reasoning
from antiphon.testing import ChatServer, ReceivedRequest, ResponsesServer, turn
from antiphon.testing.script import ScriptedTurn

pytestmark = pytest.mark.io
SEALED = "reasoning.encrypted_content"
CODEX: dict[str, Any] = {"model": "other-1", "store": False, "include": [SEALED], "tools": TOOLS}
NUMBERS = itertools.count()
Ask = Callable[..., dict[str, Any]]


def calls_once(received: ReceivedRequest) -> ScriptedTurn:
    """A model that reasons and calls a tool, and answers once it has the result."""
    sent = received.json.get("messages") or received.json.get("input")
    done = isinstance(sent, list) and any(
        each.get("role") == "tool" or each.get("type") == "function_call_output" for each in sent
    )
    if done:
        return turn(testing.text("42."))
    return turn(testing.reasoning("Hm, ", "f."), testing.tool_call(f"call_{next(NUMBERS)}", "f", "{}"))


@contextmanager
def pair() -> Iterator[tuple[Lab, ChatServer, ResponsesServer]]:
    """`mock-…` is a chat server that requires its reasoning back, `other-…` a responses server that seals it."""
    with ChatServer(calls_once, wants_reasoning=True) as chat, ResponsesServer(calls_once, maker="second") as other:

        def placed(config: Config) -> Config:
            places = {"chat": (chat.base_url, "deepseek"), "other": (other.base_url, "openai")}
            upstreams = [
                replace(each, base_url=places[each.name][0], profile=places[each.name][1])
                for each in config.upstreams
                if each.name in places
            ]
            return replace(config, upstreams=upstreams)

        with lab(config=placed) as here:
            yield here, chat, other


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Lab, ChatServer, ResponsesServer]]:
    with pair() as running:
        yield running


@pytest.fixture
def here(shared: tuple[Lab, ChatServer, ResponsesServer]) -> Lab:
    running, chat, other = shared
    for server in (chat, other):
        server.received.clear()
        server.refusals.clear()
    return running


@pytest.fixture
def chat(shared: tuple[Lab, ChatServer, ResponsesServer]) -> ChatServer:
    return shared[1]


@pytest.fixture
def other(shared: tuple[Lab, ChatServer, ResponsesServer]) -> ResponsesServer:
    return shared[2]


def asker(here: Lab, how: str) -> Ask:
    ask: Ask = getattr(here, how)
    return ask


def reasoning_in(server: ResponsesServer) -> list[dict[str, Any]]:
    return [item for item in server.received[-1].json["input"] if item["type"] == "reasoning"]


@pytest.mark.parametrize("how", ["told", "streamed"])
def test_sealed_reasoning_returns_to_the_responses_server_without_a_store(
    here: Lab, other: ResponsesServer, how: str
) -> None:
    """RSN-2: like an agent that sends its whole history each time."""
    ask = asker(here, how)
    first = ask([message("user", "Go.")], **CODEX)
    thought, call = first["output"]
    assert unseal_reasoning(thought["encrypted_content"]) is None  # it is the server's own
    second = ask([message("user", "Go."), thought, call, output(call["call_id"])], **CODEX)
    assert text_of(second) == "42."
    assert other.refusals == []
    assert [item["encrypted_content"] for item in reasoning_in(other)] == [thought["encrypted_content"]]


@pytest.mark.parametrize("how", ["told", "streamed"])
def test_chat_server_gets_its_reasoning_text_from_the_sealed_form(here: Lab, chat: ChatServer, how: str) -> None:
    """RSN-2."""
    ask = asker(here, how)
    settings = {**CODEX, "model": "mock-1"}
    thought, call = ask([message("user", "Go.")], **settings)["output"]
    bare = {"type": "reasoning", "summary": [], "encrypted_content": thought["encrypted_content"]}
    assert text_of(ask([message("user", "Go."), bare, call, output(call["call_id"])], **settings)) == "42."
    assert chat.refusals == []
    assert chat.received[-1].json["messages"][1]["reasoning_content"] == "Hm, f."


def test_reasoning_is_never_sent_to_another_server(here: Lab, other: ResponsesServer) -> None:
    """RSN-3: the client changes the model in the middle of a conversation, and the loss is reported."""
    first = here.told([message("user", "Go.")], **{**CODEX, "model": "mock-1"})
    asked = here.ask([message("user", "Go."), *first["output"], output(first["output"][1]["call_id"])], **CODEX)
    assert text_of(asked.json()) == "42."
    assert reasoning_in(other) == []
    assert other.refusals == []
    assert "input[1]" in asked.headers["antiphon-losses"]


@pytest.mark.parametrize("model", ["mock-1", "other-1"])
@pytest.mark.parametrize("how", ["told", "streamed"])
def test_store_restores_reasoning_that_the_client_dropped(
    here: Lab, chat: ChatServer, other: ResponsesServer, model: str, how: str
) -> None:
    """RSN-2: all of the reasoning, or its sealed form alone; the client did not request the sealed form."""
    ask = asker(here, how)
    thought, call = ask([message("user", "Go.")], model=model, tools=TOOLS)["output"]
    assert "encrypted_content" not in thought
    for history in ([call], [thought, call]):
        assert (
            text_of(ask([message("user", "Go."), *history, output(call["call_id"])], model=model, tools=TOOLS)) == "42."
        )
        if model == "other-1":
            assert len(reasoning_in(other)) == 1
    assert chat.refusals == other.refusals == []


@pytest.mark.parametrize("model", ["mock-1", "other-1"])
def test_chain_includes_sealed_reasoning_that_the_client_never_received(
    here: Lab, chat: ChatServer, other: ResponsesServer, model: str
) -> None:
    """RSN-2, PREV-1."""
    first = here.told([message("user", "Go.")], model=model, tools=TOOLS)
    second = here.told(
        [output(first["output"][1]["call_id"])], previous_response_id=first["id"], model=model, tools=TOOLS
    )
    assert text_of(second) == "42."
    assert chat.refusals == other.refusals == []


def refused_history() -> list[dict[str, Any]]:
    """Reasoning that claims to be the server's own, and is not."""
    forged = {
        "type": "reasoning",
        "summary": [],
        "encrypted_content": seal_reasoning("openai", {"encrypted_content": "forged"}),
    }
    return [message("user", "Go."), forged, message("assistant", "So."), message("user", "And?")]


@pytest.mark.parametrize("how", ["told", "streamed", "socket", "background"])
def test_refused_reasoning_is_dropped_and_the_request_retried(here: Lab, other: ResponsesServer, how: str) -> None:
    """RSN-3: plain, streamed, on a WebSocket and in the background; the client gets an answer and a loss."""
    before = len([line for line in here.gateway.log if line["event"] == "reasoning_refused"])
    match how:
        case "socket":
            with here.socket() as talk:
                response = talk.told(refused_history(), model="other-1")
        case "background":
            id = here.told(refused_history(), model="other-1", background=True)["id"]
            until(lambda: here.kept(id)["status"] == "completed")
            response = here.kept(id)
        case _:
            response = asker(here, how)(refused_history(), model="other-1")
    assert [item["type"] for item in response["output"]] == ["reasoning", "function_call"]
    assert [bool(reasoning_in_body(received)) for received in other.received] == [True, False]
    assert len(other.refusals) == 1
    lines = [line for line in here.gateway.log if line["event"] == "reasoning_refused"][before:]
    assert [(line["upstream"], line["code"]) for line in lines] == [("other", "invalid_encrypted_content")]


def reasoning_in_body(received: ReceivedRequest) -> list[Any]:
    return [item for item in received.json["input"] if item["type"] == "reasoning"]


def test_dropped_reasoning_is_reported_as_a_loss_or_refused_in_strict_mode(here: Lab, other: ResponsesServer) -> None:
    """RSN-3, F-4; REQ-6: in strict mode the client gets the refusal instead."""
    assert here.ask(refused_history(), model="other-1").headers["antiphon-losses"] == "1; input"
    asked = len(other.received)
    answer = here.gateway.post(
        {"model": "other-1", "input": refused_history()},
        authorization="Bearer alice-key-0123456789",
        antiphon_losses="strict",
    )
    assert answer.status_code == 400
    assert len(other.received) == asked + 1


def test_chat_client_returns_the_signatures_of_a_responses_server(here: Lab, other: ResponsesServer) -> None:
    """RSN-2: in the details that it echoes."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    body: dict[str, Any] = {"model": "other-1", "tools": tools, "messages": [{"role": "user", "content": "Go."}]}
    reply = here.call("POST", "/v1/chat/completions", json=body).json()["choices"][0]["message"]
    call_id = reply["tool_calls"][0]["id"]
    assert reply["reasoning_details"][0]["id"] == call_id
    result = {"role": "tool", "tool_call_id": call_id, "content": "42"}
    again = here.call("POST", "/v1/chat/completions", json={**body, "messages": [*body["messages"], reply, result]})
    assert again.json()["choices"][0]["message"]["content"] == "42."
    assert other.refusals == []
    assert len(reasoning_in(other)) == 1


@pytest.mark.parametrize(("model", "asked", "expected"), [("mock-1", "xhigh", "xhigh"), ("other-1", "max", "xhigh")])
def test_effort_reaches_each_server_in_its_own_form(
    shared: Any, here: Lab, model: str, asked: str, expected: str
) -> None:
    """RSN-4: a server that knows fewer levels gets the nearest."""
    here.told("Go.", model=model, reasoning={"effort": asked, "summary": "auto"}, tools=TOOLS)
    _, chat, other = shared
    if model == "mock-1":
        assert chat.received[-1].json["reasoning_effort"] == expected
    else:
        assert other.received[-1].json["reasoning"] == {"effort": expected, "summary": "auto"}


SUMMARY: dict[str, Any] = {"reasoning": {"summary": "auto"}, "tools": TOOLS}
SUMMARY_EVENTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")


def in_each_way(here: Lab, how: str, input: Any, **settings: Any) -> dict[str, Any]:
    """The response: whole, streamed, on a WebSocket, or made in the background."""
    match how:
        case "socket":
            with here.socket() as talk:
                return talk.told(input, **settings)
        case "background":
            id = here.told(input, background=True, **settings)["id"]
            until(lambda: here.kept(id)["status"] == "completed")
            return here.kept(id)
        case _:
            return asker(here, how)(input, **settings)


@pytest.mark.parametrize("how", ["told", "streamed", "socket", "background"])
def test_open_reasoning_is_the_summary_and_returns_as_reasoning(here: Lab, chat: ChatServer, how: str) -> None:
    """RSN-4: the client asked for a summary; the text comes once, and the server gets it back as its reasoning."""
    response = in_each_way(here, how, [message("user", "Go.")], model="mock-1", **SUMMARY)
    thought, call = response["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "Hm, f."}]
    assert not thought.get("content")
    history = [message("user", "Go."), {**thought, "id": "rs_unknown"}, call, output(call["call_id"])]
    assert text_of(in_each_way(here, how, history, model="mock-1", store=how == "background", **SUMMARY)) == "42."
    assert chat.refusals == []
    assert chat.received[-1].json["messages"][1]["reasoning_content"] == "Hm, f."


@pytest.mark.parametrize("reasoning", [None, {}, {"summary": None}, {"effort": "low"}])
def test_reasoning_stays_content_without_a_request_for_a_summary(here: Lab, reasoning: Any) -> None:
    """RSN-4."""
    thought, _ = here.told("Go.", reasoning=reasoning, tools=TOOLS)["output"]
    assert thought["summary"] == []
    assert [part["text"] for part in thought["content"]] == ["Hm, f."]


def test_stream_has_the_reasoning_once_as_summary(here: Lab) -> None:
    """RSN-4, STR-10."""
    events = events_in(here.ask("Go.", stream=True, **SUMMARY))
    deltas = [(event["type"], event["delta"]) for event in events if event["type"] in SUMMARY_EVENTS]
    assert deltas == [(SUMMARY_EVENTS[0], "Hm, "), (SUMMARY_EVENTS[0], "f.")]


def test_request_for_a_summary_is_no_loss_at_a_chat_server(here: Lab) -> None:
    """RSN-4, F-4: strict mode accepts it."""
    answer = here.gateway.post(
        {"model": "mock-1", "input": "Go.", **SUMMARY},
        authorization="Bearer alice-key-0123456789",
        antiphon_losses="strict",
    )
    assert answer.status_code == 200, answer.text


WAYS = ["told", "streamed", "socket", "background"]


@contextmanager
def open_server(profile: str, **settings: Any) -> Iterator[tuple[Lab, ResponsesServer]]:
    """`other-…` is a responses server that sends its reasoning as open text."""
    with ResponsesServer(calls_once, **settings) as server:

        def placed(config: Config) -> Config:
            return replace(
                config,
                upstreams=[
                    replace(each, base_url=server.base_url, profile=profile)
                    for each in config.upstreams
                    if each.name == "other"
                ],
            )

        with lab(config=placed) as here:
            yield here, server


@pytest.fixture(scope="module", params=["open-responses", "llama.cpp"])
def open_pair(request: pytest.FixtureRequest) -> Iterator[tuple[Lab, ResponsesServer]]:
    with open_server(request.param) as running:
        yield running


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("history", ["stateless", "without id", "chain", "conversation"])
def test_open_reasoning_of_a_responses_server_is_the_summary_and_returns_as_reasoning(
    open_pair: tuple[Lab, ResponsesServer], how: str, history: str
) -> None:
    """RSN-4: once, also when it is read again; the next turn has it as the content that the server sent."""
    here, server = open_pair
    ask: dict[str, Any] = {"model": "other-1", **SUMMARY}
    if history == "conversation":
        ask["conversation"] = here.call("POST", "/v1/conversations", json={}).json()["id"]
    response = in_each_way(here, how, [message("user", "Go.")], **ask)
    thought, call = response["output"]
    assert thought["summary"] == [{"type": "summary_text", "text": "Hm, f."}]
    assert not thought.get("content")
    assert here.kept(response["id"])["output"][0] == thought
    result = output(call["call_id"])
    match history:
        case "chain":
            input, ask = [result], {**ask, "previous_response_id": response["id"]}
        case "conversation":
            input = [result]
        case _:
            sent = {name: value for name, value in thought.items() if history == "stateless" or name != "id"}
            input, ask = [message("user", "Go."), sent, call, result], {**ask, "store": how == "background"}
    assert text_of(in_each_way(here, how, input, **ask)) == "42."
    (returned,) = reasoning_in(server)
    assert returned["summary"] == []
    assert returned["content"] == [{"type": "reasoning_text", "text": "Hm, f."}]
    assert server.refusals == []


def test_request_for_a_summary_is_no_loss_at_a_responses_server(open_pair: tuple[Lab, ResponsesServer]) -> None:
    """RSN-4: in the first turn and in the next one, in strict mode too."""
    here, _ = open_pair
    strict = {"authorization": "Bearer alice-key-0123456789", "antiphon_losses": "strict"}
    first = here.gateway.post({"model": "other-1", "input": [message("user", "Go.")], **SUMMARY}, **strict)
    assert first.status_code == 200, first.text
    thought, call = first.json()["output"]
    history = [message("user", "Go."), thought, call, output(call["call_id"])]
    second = here.gateway.post({"model": "other-1", "input": history, "store": False, **SUMMARY}, **strict)
    assert second.status_code == 200, second.text
    assert "antiphon-losses" not in second.headers


def test_stream_of_a_responses_server_has_the_reasoning_once_as_summary(
    open_pair: tuple[Lab, ResponsesServer],
) -> None:
    """RSN-4, STR-10: also when the stored stream is read again."""
    here, _ = open_pair
    events = events_in(here.ask("Go.", model="other-1", stream=True, background=True, **SUMMARY))
    again = events_in(here.get(f"{events[-1]['response']['id']}?stream=true"))
    for stream in (events, again):
        kinds = [event["type"] for event in stream if "reasoning" in event["type"]]
        prefix = "response.reasoning_summary_"
        assert kinds == [
            f"{prefix}{kind}" for kind in ("part.added", "text.delta", "text.delta", "text.done", "part.done")
        ]
        assert not any("content_part" in event["type"] for event in stream)


@pytest.mark.parametrize("how", WAYS)
def test_reasoning_of_a_responses_server_stays_content_without_a_request_for_a_summary(
    open_pair: tuple[Lab, ResponsesServer], how: str
) -> None:
    """RSN-4: and in the next turn."""
    here, server = open_pair
    thought, call = in_each_way(here, how, [message("user", "Go.")], model="other-1", tools=TOOLS)["output"]
    assert (thought["summary"], [part["text"] for part in thought["content"]]) == ([], ["Hm, f."])
    history = [message("user", "Go."), thought, call, output(call["call_id"])]
    in_each_way(here, how, history, model="other-1", tools=TOOLS)
    assert [item["content"][0]["text"] for item in reasoning_in(server)] == ["Hm, f."]


def test_sealed_reasoning_is_shown_as_a_summary_and_returns_sealed(here: Lab, other: ResponsesServer) -> None:
    """RSN-2, RSN-4: the server reads its own sealed form."""
    settings = {**CODEX, **SUMMARY}
    thought, call = here.told([message("user", "Go.")], **settings)["output"]
    assert [part["text"] for part in thought["summary"]] == ["Hm, f."]
    assert text_of(here.told([message("user", "Go."), thought, call, output(call["call_id"])], **settings)) == "42."
    assert other.refusals == []
    assert [item["encrypted_content"] for item in reasoning_in(other)] == [thought["encrypted_content"]]
