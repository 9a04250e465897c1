"""Web search in the form of each API, at servers that have a search and at servers that have none (REQ-6)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec import Raw

from antiphon import translate
from antiphon.dialects.chat.request_out import request_from_hub as chat_from_hub
from antiphon.dialects.common.web_search import is_search_choice
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.messages.request_out import request_from_hub as messages_from_hub
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.protocol import codec
from antiphon.protocol.tools import ToolList, UnknownToolChoice

Json = dict[str, Any]

RECORDINGS: Final = Path(__file__).parents[2] / "recordings"
FLAT: Final = {"type": "approximate", "city": "Rome", "country": "IT"}
NESTED: Final = {"type": "approximate", "approximate": {"city": "Rome", "country": "IT"}}
HI: Final = [{"role": "user", "content": "Hi"}]
#: A server of each API that has a search, with a model of it.
SERVERS: Final[dict[ServerDialectName, tuple[str, str]]] = {
    "chat": ("chat", "gpt-4o-search-preview"),
    "responses": ("openai", "gpt-5"),
    "messages": ("anthropic", "claude-opus-4-6"),
    "gemini": ("google", "gemini-2.5-pro"),
}
WITHOUT_SEARCH: Final[dict[ServerDialectName, tuple[str, str]]] = {
    "chat": ("chat", "gpt-5"),
    "responses": ("open-responses", "m"),
    "messages": ("messages", "m"),
    "gemini": ("google", "gemma-3"),
    "ollama": ("ollama-native", "m"),
}


def responses(*tools: Json, **settings: Any) -> Json:
    return {"model": "m", "input": "Hi", "tools": list(tools), **settings}


def messages(*tools: Json, **settings: Any) -> Json:
    return {"model": "m", "max_tokens": 9, "messages": HI, "tools": list(tools), **settings}


def gemini(*tools: Json, **settings: Any) -> Json:
    return {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "tools": list(tools), **settings}


def chat(**settings: Any) -> Json:
    return {"model": "m", "messages": HI, **settings}


def claude_search(**settings: Any) -> Json:
    return {"type": "web_search_20250305", "name": "web_search", **settings}


CLIENTS: Final[dict[str, tuple[ServerDialectName, Json]]] = {
    "chat": ("chat", chat(web_search_options={})),
    "chat, as a tool": ("chat", chat(tools=[{"type": "web_search"}])),
    "responses": ("responses", responses({"type": "web_search"})),
    "responses, older": ("responses", responses({"type": "web_search_preview"})),
    "responses, with a date": ("responses", responses({"type": "web_search_2025_08_26"})),
    "responses, older with a date": ("responses", responses({"type": "web_search_preview_2025_03_11"})),
    "messages": ("messages", messages(claude_search())),
    "messages, newer": ("messages", messages({**claude_search(), "type": "web_search_20260209"})),
    "gemini": ("gemini", gemini({"googleSearch": {}})),
    "gemini, snake case": ("gemini", gemini({"google_search": {}})),
    "gemini, older": ("gemini", gemini({"googleSearchRetrieval": {}})),
}
#: Forms that a server of the same dialect gets in another form.
OTHER_FORMS: Final = ("chat, as a tool", "gemini, snake case")
#: The search of each server without settings.
FORMS: Final[dict[ServerDialectName, Json]] = {
    "chat": {"web_search_options": {}},
    "responses": {"tools": [{"type": "web_search"}]},
    "messages": {"tools": [claude_search()]},
    "gemini": {"tools": [{"googleSearch": {}}]},
}


def sent(
    client: ServerDialectName, body: Json, server: ServerDialectName, at: tuple[str, str]
) -> tuple[Json, list[str]]:
    profile, model = at
    translation = translate.request(body, from_=client, to=server, profile=profile, model=model)
    return translation.json, [loss.path for loss in translation.losses]


def search_in(body: Json) -> Json:
    return {name: body[name] for name in ("web_search_options", "tools") if name in body}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", CLIENTS)
def test_search_of_every_client_reaches_every_server_that_has_one(name: str, server: ServerDialectName) -> None:
    client, body = CLIENTS[name]
    server_body, losses = sent(client, body, server, SERVERS[server])
    if client == server and name not in OTHER_FORMS:  # within a dialect, the request is not changed
        assert search_in(server_body) == search_in(body)
    else:
        assert search_in(server_body) == FORMS[server]
    assert losses == []


@pytest.mark.parametrize("server", WITHOUT_SEARCH)
@pytest.mark.parametrize("name", CLIENTS)
def test_search_is_a_loss_at_servers_that_have_none(name: str, server: ServerDialectName) -> None:
    client, body = CLIENTS[name]
    if client == server or (client in ("chat", "responses") and server == "responses"):
        return  # the client decides what a server of its own API gets; the hub has this form
    server_body, [path] = sent(client, body, server, WITHOUT_SEARCH[server])
    assert search_in(server_body) == {}
    assert path.removeprefix("chat:") in ("tools[0]", "web_search_options")


SETTINGS: Final[dict[str, tuple[ServerDialectName, Json, ServerDialectName, Json, list[str]]]] = {
    "chat to responses": (
        "chat",
        chat(web_search_options={"search_context_size": "low", "user_location": NESTED}),
        "responses",
        {"tools": [{"type": "web_search", "search_context_size": "low", "user_location": FLAT}]},
        [],
    ),
    "chat to messages": (
        "chat",
        chat(web_search_options={"search_context_size": "low", "user_location": NESTED}),
        "messages",
        {"tools": [claude_search(user_location=FLAT)]},
        ["web_search_options.search_context_size"],
    ),
    "chat to gemini": (
        "chat",
        chat(web_search_options={"search_context_size": "low", "user_location": NESTED}),
        "gemini",
        {"tools": [{"googleSearch": {}}]},
        ["web_search_options.search_context_size", "web_search_options.user_location"],
    ),
    "responses to chat": (
        "responses",
        responses(
            {
                "type": "web_search",
                "search_context_size": "high",
                "user_location": FLAT,
                "filters": {"allowed_domains": ["a.example"]},
                "external_web_access": True,
            }
        ),
        "chat",
        {"web_search_options": {"search_context_size": "high", "user_location": NESTED}},
        ["tools[0].filters.allowed_domains"],
    ),
    "responses to messages": (
        "responses",
        responses(
            {
                "type": "web_search",
                "user_location": FLAT,
                "filters": {"allowed_domains": ["a.example"], "blocked_domains": []},
                "external_web_access": False,
            }
        ),
        "messages",
        {"tools": [claude_search(allowed_domains=["a.example"], user_location=FLAT)]},
        ["tools[0].external_web_access"],
    ),
    "allowed and blocked domains": (
        "responses",
        responses(
            {"type": "web_search", "filters": {"allowed_domains": ["a.example"], "blocked_domains": ["b.example"]}}
        ),
        "messages",
        {"tools": [claude_search(allowed_domains=["a.example"])]},
        ["tools[0].filters.blocked_domains"],
    ),
    "messages to responses": (
        "messages",
        messages(claude_search(max_uses=3, blocked_domains=["b.example"], user_location=FLAT)),
        "responses",
        {"tools": [{"type": "web_search", "filters": {"blocked_domains": ["b.example"]}, "user_location": FLAT}]},
        ["tools[0].max_uses"],
    ),
    "messages to gemini": (
        "messages",
        messages(claude_search(max_uses=3)),
        "gemini",
        {"tools": [{"googleSearch": {}}]},
        ["tools[0].max_uses"],
    ),
    "gemini to messages": (
        "gemini",
        gemini({"googleSearch": {"excludeDomains": ["b.example"], "timeRangeFilter": {"startTime": "2026"}}}),
        "messages",
        {"tools": [claude_search(blocked_domains=["b.example"])]},
        ["tools[0].googleSearch.timeRangeFilter"],
    ),
    "gemini with an invalid value": (
        "gemini",
        gemini({"googleSearch": 1}),
        "messages",
        {"tools": [claude_search()]},
        [],
    ),
    "a location that is no object": (
        "responses",
        responses({"type": "web_search_2025_08_26", "user_location": "Rome", "filters": "a"}),
        "chat",
        {"web_search_options": {"user_location": "Rome"}},
        ["tools[0].filters"],
    ),
    "options that are no object": ("chat", chat(web_search_options=1), "messages", {}, ["web_search_options"]),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_both_apis_have_are_carried_and_others_are_losses(name: str) -> None:
    client, body, server, expected, expected_losses = SETTINGS[name]
    server_body, losses = sent(client, body, server, SERVERS[server])
    assert (search_in(server_body), losses) == (expected, expected_losses)


FUNCTION: Final = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
CLAUDE_FUNCTION: Final = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
CHOICE: Final = {"type": "tool", "name": "web_search"}


def test_forced_search_is_the_only_call_that_a_responses_server_can_make() -> None:
    alone, losses = sent("messages", messages(claude_search(), tool_choice=CHOICE), "responses", SERVERS["responses"])
    assert (alone["tool_choice"], losses) == ("required", [])
    body = messages(CLAUDE_FUNCTION, claude_search(), tool_choice=CHOICE)
    beside, losses = sent("messages", body, "responses", SERVERS["responses"])
    assert ("tool_choice" in beside, losses) == (False, ["tool_choice"])


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview", "web_search_preview_2025_03_11"])
def test_forced_search_reaches_a_messages_server(kind: str) -> None:
    body = responses(FUNCTION, {"type": "web_search"}, tool_choice={"type": kind})
    server_body, losses = sent("responses", body, "messages", SERVERS["messages"])
    assert (server_body["tool_choice"], losses) == (CHOICE, [])


def test_choice_of_another_tool_is_no_search() -> None:
    assert not is_search_choice("auto")
    for choice in ({"type": "file_search"}, {"type": "tool", "name": "web_fetch"}):
        assert not is_search_choice(UnknownToolChoice(kind=choice["type"], raw=Raw(codec.encode(choice))))


def test_gemini_server_gets_functions_rather_than_its_search() -> None:
    """The server refuses both together: "Tool use with function calling is unsupported"."""
    body = responses({"type": "web_search"}, FUNCTION)
    server_body, losses = sent("responses", body, "gemini", SERVERS["gemini"])
    assert ([*server_body["tools"][0]], losses) == (["functionDeclarations"], ["tools[0]"])
    body = chat(web_search_options={}, tools=[{"type": "function", "function": {"name": "look"}}])
    server_body, losses = sent("chat", body, "gemini", SERVERS["gemini"])
    assert ([*server_body["tools"][0]], losses) == (["functionDeclarations"], ["web_search_options"])


def test_function_with_the_name_of_the_search_stays() -> None:
    body = responses({**FUNCTION, "name": "web_search"}, {"type": "web_search"})
    server_body, losses = sent("responses", body, "messages", SERVERS["messages"])
    assert ([tool["name"] for tool in server_body["tools"]], losses) == (["web_search"], ["tools[1]"])
    assert "input_schema" in server_body["tools"][0]


def test_search_beside_functions_reaches_chat_and_messages_servers() -> None:
    body = responses(FUNCTION, {"type": "web_search"})
    at_chat, chat_losses = sent("responses", body, "chat", SERVERS["chat"])
    assert ([*at_chat["tools"][0]], at_chat["web_search_options"], chat_losses) == (["type", "function"], {}, [])
    at_messages, losses = sent("responses", body, "messages", SERVERS["messages"])
    assert ([tool["name"] for tool in at_messages["tools"]], losses) == (["look", "web_search"], [])


ANSWERS: Final[dict[ServerDialectName, str]] = {
    "chat": "chat/citations.json",
    "responses": "responses/good_web_search_with_citations_plain.json",
    "messages": "messages/web_search_with_citations.json",
    "gemini": "gemini/grounded_with_citations.json",
}


@pytest.mark.parametrize("client", ["chat", "responses", "messages", "gemini"])
@pytest.mark.parametrize("server", ANSWERS)
def test_answer_with_citations_reaches_every_client_that_has_a_place_for_them(
    server: ServerDialectName, client: ServerDialectName
) -> None:
    answer = (RECORDINGS / ANSWERS[server]).read_bytes()
    [address, *_] = re.findall(r"https?://[^\"]+", answer.decode())
    assert address in translate.response(answer, from_=server, to=client).body.decode()


def test_tools_that_requests_share_are_replaced_once() -> None:
    request = codec.decode_request(msgspec.json.encode(responses({"type": "web_search"}, FUNCTION)))
    shared = msgspec.structs.replace(request, tools=ToolList(request.tools or ()))
    wire = MessagesWire(web_search_models=("*",))
    first, second = messages_from_hub(shared, wire), messages_from_hub(shared, wire)
    assert first[0] == second[0] == messages_from_hub(request, wire)[0]


def test_tool_that_names_the_field_of_chat_is_that_field() -> None:
    request = codec.decode_request(msgspec.json.encode(responses({"type": "chat:web_search_options"})))
    body, losses = chat_from_hub(request)
    assert msgspec.json.decode(body)["web_search_options"] == {}
    assert not [*losses]
