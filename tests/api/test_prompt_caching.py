"""Prompt caching between clients and servers of all dialects, over sockets, with strict servers (E-4, REQ-4).

Cache marks and settings reach every server that has a place for them, in its own form. Counts of tokens that were written
to a cache reach every client that has a place for them, and are absent, null or (where the SDK requires a number) 0 if the
server does not report them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import pytest
from tests.matrix.strict_types import find_type_errors
from tests.running import Running, running

from antiphon import sse, testing
from antiphon.config import Config, UpstreamConfig
from antiphon.testing import (
    ChatServer,
    FakeServer,
    GeminiServer,
    MessagesServer,
    OllamaServer,
    ReceivedRequest,
    ResponsesServer,
    turn,
)
from antiphon.testing.script import ScriptedTurn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
#: The model of each server. Its name chooses the server; `gpt-5.6` is one that accepts cache marks.
SERVERS: Final[dict[str, tuple[Any, str, str, str]]] = {
    "chat": (ChatServer, "chat", "chat", "chat-1"),
    "openrouter": (ChatServer, "chat", "openrouter", "router-1"),
    "responses": (ResponsesServer, "responses", "open-responses", "responses-1"),
    "openai": (ResponsesServer, "responses", "openai", "gpt-5.6"),
    "openai, older model": (ResponsesServer, "responses", "openai", "gpt-4.1"),
    "messages": (MessagesServer, "messages", "messages", "messages-1"),
    "anthropic": (MessagesServer, "messages", "anthropic", "claude-1"),
    "gemini": (GeminiServer, "gemini", "google", "gemini-1"),
    "ollama": (OllamaServer, "ollama", "ollama-native", "ollama-1"),
}
PATHS: Final = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
MARK_NAMES: Final = ("cache_control", "prompt_cache_breakpoint")


class Rig(NamedTuple):
    gateway: Running
    servers: dict[str, FakeServer]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        servers = {name: stack.enter_context(make(_answer)) for name, (make, *_) in SERVERS.items()}
        upstreams = [
            UpstreamConfig(
                name=name.replace(", ", "-").replace(" ", "-"),
                dialect=dialect,  # type: ignore[arg-type]
                base_url=servers[name].base_url,
                models=[model],
                profile=profile,
            )
            for name, (_, dialect, profile, model) in SERVERS.items()
        ]
        yield Rig(stack.enter_context(running(Config(upstreams=upstreams))), servers)


def _answer(request: ReceivedRequest) -> ScriptedTurn:
    """The text of the user decides about the usage: whether tokens were written to the cache."""
    written = 4 if b"write" in request.body else 0
    return turn(testing.text("Hello"), testing.usage(20, 2, cached=3, cache_write=written))


def ask(rig: Rig, client: str, server: str, body: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """What the server received, and the answer."""
    fake, model = rig.servers[server], SERVERS[server][3]
    before = len(fake.received)
    answer = rig.gateway.post({**body, "model": model}, PATHS[client])
    assert answer.status_code == 200, answer.text
    assert fake.refusals == []
    [received] = [each for each in fake.received[before:] if each.method == "POST" and each.body]
    return received.json, answer.content


# Marks and settings of requests (C1)


def find_marks(value: Any, path: str = "") -> dict[str, Any]:
    """The cache marks and settings in a request, by their paths without indexes."""
    found: dict[str, Any] = {}
    if isinstance(value, list):
        for member in value:
            found |= find_marks(member, path)
    elif isinstance(value, dict):
        for name, member in value.items():
            is_setting = name in MARK_NAMES or name.startswith("prompt_cache")
            found |= {f"{path}{name}": member} if is_setting else find_marks(member, f"{path}{name}.")
    return found


SHORT: Final = {"type": "ephemeral"}
HOUR: Final = {"type": "ephemeral", "ttl": "1h"}
BREAKPOINT: Final = {"mode": "explicit"}
LONG_BREAKPOINT: Final = {"mode": "explicit", "ttl": "12h"}


def chat_body(mark: dict[str, Any], **settings: Any) -> dict[str, Any]:
    system = {"role": "system", "content": [{"type": "text", "text": "rules", **mark}]}
    return {"messages": [system, {"role": "user", "content": [{"type": "text", "text": "Hi", **mark}]}], **settings}


def responses_body(mark: dict[str, Any], **settings: Any) -> dict[str, Any]:
    system = {"role": "system", "content": [{"type": "input_text", "text": "rules", **mark}]}
    user = {"role": "user", "content": [{"type": "input_text", "text": "Hi", **mark}]}
    return {"input": [system, user], **settings}


def messages_body(mark: dict[str, Any], **settings: Any) -> dict[str, Any]:
    system = [{"type": "text", "text": "rules", **mark}]
    tools = [{"name": "look", "input_schema": {"type": "object"}, **mark}]
    user = {"role": "user", "content": [{"type": "text", "text": "Hi", **mark}]}
    return {"system": system, "tools": tools, "messages": [user], "max_tokens": 99, **settings}


REQUESTS: Final = {
    "chat, cache_control": ("chat", chat_body({"cache_control": SHORT})),
    "chat, cache_control for an hour": ("chat", chat_body({"cache_control": HOUR})),
    "chat, breakpoint": ("chat", chat_body({"prompt_cache_breakpoint": LONG_BREAKPOINT})),
    "chat, options": ("chat", chat_body({}, prompt_cache_options={"mode": "implicit", "ttl": "30m"})),
    "chat, key and retention": ("chat", chat_body({}, prompt_cache_key="k", prompt_cache_retention="24h")),
    "responses, breakpoint": ("responses", responses_body({"prompt_cache_breakpoint": BREAKPOINT})),
    "responses, breakpoint for 12 hours": ("responses", responses_body({"prompt_cache_breakpoint": LONG_BREAKPOINT})),
    "responses, options": ("responses", responses_body({}, prompt_cache_options={"mode": "implicit", "ttl": "30m"})),
    "responses, key": ("responses", responses_body({}, prompt_cache_key="k")),
    "responses, retention": ("responses", responses_body({}, prompt_cache_retention="24h")),
    "messages, cache_control": ("messages", messages_body({"cache_control": SHORT})),
    "messages, cache_control for an hour": ("messages", messages_body({"cache_control": HOUR})),
    "messages, whole request": ("messages", messages_body({}, cache_control=HOUR)),
}


def on_parts(cache_control: dict[str, Any], breakpoint: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Marks on parts: servers with a place for them get each mark in their own form."""
    messages = {"system.cache_control": cache_control, "messages.content.cache_control": cache_control}
    responses = {"input.content.prompt_cache_breakpoint": breakpoint}
    router = {"messages.content.cache_control": cache_control}
    servers = {"openrouter": router, "responses": responses, "openai": responses}
    return {**servers, "messages": messages, "anthropic": messages}


def with_tools(expected: dict[str, dict[str, Any]], cache_control: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Only Messages servers have marks on tools."""
    mark = {"tools.cache_control": cache_control}
    return {**expected, "messages": expected["messages"] | mark, "anthropic": expected["anthropic"] | mark}


def on_request(cache_control: dict[str, Any], options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A mark of the whole request."""
    whole, own = {"cache_control": cache_control}, {"prompt_cache_options": options}
    return {"openrouter": whole, "responses": own, "openai": own, "messages": whole, "anthropic": whole}


def as_settings(cache_control: dict[str, Any], **settings: str) -> dict[str, dict[str, Any]]:
    """A key and a retention, which Responses servers have. The profile `anthropic` caches the request instead."""
    responses = dict.fromkeys(("responses", "openai", "openai, older model"), settings)
    return {**responses, "anthropic": {"cache_control": cache_control}}


#: The marks and settings that each server gets; the servers that are not named get none.
EXPECTED: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "chat, cache_control": on_parts(SHORT, BREAKPOINT),
    "chat, cache_control for an hour": on_parts(HOUR, LONG_BREAKPOINT),
    "chat, breakpoint": on_parts(HOUR, LONG_BREAKPOINT),
    "chat, options": on_request(HOUR, {"mode": "implicit", "ttl": "30m"}),
    "chat, key and retention": as_settings(HOUR, prompt_cache_key="k", prompt_cache_retention="24h"),
    "responses, breakpoint": on_parts(SHORT, BREAKPOINT),
    "responses, breakpoint for 12 hours": on_parts(HOUR, LONG_BREAKPOINT),
    "responses, options": on_request(HOUR, {"mode": "implicit", "ttl": "30m"}),
    "responses, key": as_settings(SHORT, prompt_cache_key="k"),
    "responses, retention": as_settings(HOUR, prompt_cache_retention="24h"),
    "messages, cache_control": with_tools(on_parts(SHORT, BREAKPOINT), SHORT),
    "messages, cache_control for an hour": with_tools(on_parts(HOUR, LONG_BREAKPOINT), HOUR),
    "messages, whole request": on_request(HOUR, {"mode": "implicit", "ttl": "12h"}),
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", REQUESTS)
def test_marks_reach_servers_with_a_place_for_them(rig: Rig, name: str, server: str) -> None:
    """C1, E-4: carried where the server has a place, else taken out; no server refuses the request."""
    client, body = REQUESTS[name]
    received, _ = ask(rig, client, server, body)
    assert find_marks(received) == EXPECTED[name].get(server, {})


def test_every_mark_has_an_expectation() -> None:
    assert EXPECTED.keys() == REQUESTS.keys()


# Counts of answers (C2)

#: Servers with a count of written tokens; `chat` sends none if nothing was written.
COUNTING: Final = ("openrouter", "openai", "anthropic")


def usage_of(client: str, answer: bytes, is_stream: bool) -> dict[str, Any]:
    if not is_stream:
        usage: dict[str, Any] = json.loads(answer)["usage"]
        return usage
    events = [json.loads(frame.data) for frame in sse.Decoder().feed(answer) if frame.data != sse.DONE]
    match client:
        case "chat":
            return dict(next(event["usage"] for event in events if event.get("usage")))
        case "responses":
            return dict(events[-1]["response"]["usage"])
        case _:
            return dict(events[0]["message"]["usage"] | events[-2]["usage"])


def written_tokens(client: str, usage: dict[str, Any]) -> Any:
    """The count of written tokens; `...` if it is absent."""
    match client:
        case "chat":
            return usage["prompt_tokens_details"].get("cache_write_tokens", ...)
        case "responses":
            return usage["input_tokens_details"].get("cache_write_tokens", ...)
        case _:
            return usage.get("cache_creation_input_tokens", ...)


#: How a client reads that nobody knows the count. The types of the SDK `openai` require a number in Responses.
UNKNOWN: Final[dict[str, Any]] = {"chat": ..., "responses": 0, "messages": None}


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("text", ["write", "only read"])
@pytest.mark.parametrize("server", [*COUNTING, "gemini", "ollama"])
@pytest.mark.parametrize("client", PATHS)
def test_written_tokens_reach_every_client(rig: Rig, client: str, server: str, text: str, is_stream: bool) -> None:
    """C2, REQ-4: the known count, also if it is 0; otherwise what the client reads as unknown."""
    bodies = {"chat": chat_body, "responses": responses_body, "messages": messages_body}
    body = bodies[client]({}, stream=is_stream)
    last = (body.get("messages") or body["input"])[-1]
    last["content"] = text
    if is_stream and client == "chat":
        body["stream_options"] = {"include_usage": True}
    _, answer = ask(rig, client, server, body)
    usage = usage_of(client, answer, is_stream)
    known: Any = UNKNOWN[client]
    if server in COUNTING and text == "write":
        known = 4
    elif server in ("openai", "anthropic"):
        known = 0
    assert written_tokens(client, usage) == known
    cached = 0 if server == "ollama" else 3
    if client == "messages":
        total = usage["input_tokens"] + (usage["cache_creation_input_tokens"] or 0) + usage["cache_read_input_tokens"]
        assert (total, usage["cache_read_input_tokens"]) == (20, cached)
    if server == "anthropic":
        parts = {"ephemeral_5m_input_tokens": 4 if text == "write" else 0, "ephemeral_1h_input_tokens": 0}
        details = {"messages": usage, "responses": usage.get("input_tokens_details", {})}
        assert client not in details or details[client]["cache_creation"] == parts
    assert find_type_errors(client, answer, is_stream=is_stream) == []


# Several answers (B5)


OTHER_PAIRS: Final = [
    (client, server)
    for client in ("chat", "gemini")
    for server, (_, dialect, *_) in SERVERS.items()
    if dialect != client
]


@pytest.mark.parametrize(("client", "server"), OTHER_PAIRS, ids=" to ".join)
def test_several_answers_are_refused_by_name_in_every_other_pair(rig: Rig, client: str, server: str) -> None:
    """B5: within a dialect they pass (`test_upstream_dialects`); across dialects the field is named."""
    model = SERVERS[server][3]
    before = len(rig.servers[server].received)
    if client == "chat":
        answer, name = rig.gateway.post({**chat_body({}), "model": model, "n": 2}, PATHS["chat"]), "n"
    else:
        body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": {"candidateCount": 2}}
        answer = rig.gateway.post(body, f"/v1beta/models/{model}:generateContent")
        name = "generationConfig.candidateCount"
    assert answer.status_code == 400
    assert name in answer.json()["error"]["message"]
    assert len(rig.servers[server].received) == before
