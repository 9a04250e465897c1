"""Tools that the client itself runs, over sockets, before servers of every dialect that have only functions.

The servers are strict. Each test runs whole, streamed, on a WebSocket and in the background."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from tests.api.stateful import Lab, events_in, lab, message
from tests.running import until

from antiphon import testing
from antiphon.config import Config, UpstreamConfig
from antiphon.testing import (
    ChatServer,
    GeminiServer,
    MessagesServer,
    OllamaServer,
    ReceivedRequest,
    ResponsesServer,
    turn,
)
from antiphon.testing.script import ScriptedTurn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
PATCH = {"type": "update_file", "path": "a.py", "diff": "@@\n-1\n+2"}
SHELL = {"commands": ["ls", "pwd"], "timeout_ms": 1000}
LOCAL = {"command": ["ls", "-l"], "working_directory": "/tmp"}
#: The arguments of the model, the item of the call without its ids, and the output of the client.
CALLS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "apply_patch": (
        PATCH,
        {"type": "apply_patch_call", "status": "completed", "operation": PATCH},
        {"type": "apply_patch_call_output", "status": "failed", "output": "no such file"},
    ),
    "shell": (
        SHELL,
        {"type": "shell_call", "status": "completed", "action": SHELL, "environment": {"type": "local"}},
        {
            "type": "shell_call_output",
            "output": [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ),
    "local_shell": (
        LOCAL,
        {"type": "local_shell_call", "status": "completed", "action": {"type": "exec", "env": {}, **LOCAL}},
        {"type": "local_shell_call_output", "output": '{"output": "a.py"}'},
    ),
}
SERVERS: dict[str, Any] = {
    "chat": (ChatServer, "chat", "chat"),
    "messages": (MessagesServer, "messages", "messages"),
    "gemini": (GeminiServer, "gemini", "gemini"),
    "ollama": (OllamaServer, "ollama", "ollama-native"),
    "flat": (ResponsesServer, "responses", "llama.cpp"),
}


def answer(received: ReceivedRequest) -> ScriptedTurn:
    """Calls the tool that the user names, until there is a result."""
    body = received.body.decode()
    if "no such file" in body or "a.py" in body.replace(json.dumps(PATCH)[1:-1], ""):
        return turn(testing.text("Done."))
    kind = next(kind for kind in (*CALLS, "find") if f"use {kind}." in body)
    arguments = CALLS[kind][0] if kind in CALLS else {"q": "x"}
    return turn(testing.text("So: "), testing.tool_call("call_1", kind, json.dumps(arguments)))


@contextmanager
def before_all() -> Iterator[tuple[Lab, dict[str, Any]]]:
    servers = {name: make(answer) for name, (make, _, _) in SERVERS.items()}
    for server in servers.values():
        server.__enter__()
    try:

        def placed(config: Config) -> Config:
            upstreams = [
                UpstreamConfig(
                    name=name,
                    dialect=dialect,
                    profile=profile,
                    base_url=servers[name].base_url,
                    models=[f"{name}-1"],
                )
                for name, (_, dialect, profile) in SERVERS.items()
            ]
            return replace(config, upstreams=upstreams)

        with lab(config=placed) as here:
            yield here, servers
    finally:
        for server in servers.values():
            server.__exit__(None, None, None)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Lab, dict[str, Any]]]:
    with before_all() as running:
        yield running


def ask(here: Lab, how: str, input: Any, **settings: Any) -> dict[str, Any]:
    match how:
        case "socket":
            with here.socket() as talk:
                return talk.told(input, **settings)
        case "background":
            id = here.told(input, background=True, **settings)["id"]
            until(lambda: here.kept(id)["status"] == "completed")
            return here.kept(id)
        case "streamed":
            return here.streamed(input, **settings)
        case _:
            return here.told(input, **settings)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("how", ["told", "streamed", "socket", "background"])
def test_client_runs_its_tool_and_the_model_gets_the_result(shared: Any, server: str, kind: str, how: str) -> None:
    """TOOL-8."""
    here, servers = shared
    upstream = servers[server]
    upstream.refusals.clear()
    _, expected, result = CALLS[kind]
    settings: dict[str, Any] = {"model": f"{server}-1", "tools": [{"type": kind}]}
    first = ask(here, how, f"use {kind}.", **settings)
    text, call = first["output"]
    assert text["type"] == "message"
    assert {name: value for name, value in call.items() if name not in ("id", "call_id")} == expected
    answered = {**result, "call_id": call["call_id"], "id": call["call_id"]}
    if kind == "local_shell":
        del answered["call_id"]  # the SDK names the call by `id`
    for history in ([answered], [message("user", f"use {kind}."), *first["output"], answered]):
        chained = {"previous_response_id": first["id"]} if len(history) == 1 else {}
        second = ask(here, how, history, **settings, **chained)
        assert second["output"][-1]["content"][0]["text"] == "Done."
    assert upstream.refusals == []


@pytest.mark.parametrize("server", SERVERS)
def test_nothing_is_lost_in_strict_mode(shared: Any, server: str) -> None:
    """TOOL-8, F-4."""
    here, _ = shared
    asked = {"model": f"{server}-1", "input": "use shell.", "tools": [{"type": kind} for kind in CALLS]}
    answer = here.gateway.post(asked, authorization="Bearer alice-key-0123456789", antiphon_losses="strict")
    assert answer.status_code == 200, answer.text


FIND = {"type": "function", "name": "find", "parameters": {"type": "object"}, "defer_loading": True}
SEARCH = {"type": "tool_search"}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("how", ["told", "streamed", "socket", "background"])
def test_search_comes_before_the_first_call_of_a_deferred_tool(shared: Any, server: str, how: str) -> None:
    """TOOL-9: with the tool in its output; once in a conversation."""
    here, servers = shared
    settings: dict[str, Any] = {"model": f"{server}-1", "tools": [SEARCH, FIND]}
    first = ask(here, how, "use find.", **settings)
    assert [item["type"] for item in first["output"]] == [
        "message",
        "tool_search_call",
        "tool_search_output",
        "function_call",
    ]
    _, search, result, call = first["output"]
    assert (search["execution"], search["call_id"], search["arguments"]) == ("server", None, {"paths": ["find"]})
    assert (result["execution"], result["status"]) == ("server", "completed")
    assert [(tool["name"], tool["defer_loading"]) for tool in result["tools"]] == [("find", True)]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "nothing"}
    again = ask(here, how, [message("user", "use find."), *first["output"], output], **settings)
    assert [item["type"] for item in again["output"]] == ["message", "function_call"]
    assert servers[server].refusals == []


def test_stream_of_a_client_call_has_no_function_events(shared: Any) -> None:
    here, _ = shared
    events = events_in(here.ask("use shell.", model="chat-1", tools=[{"type": "shell"}], stream=True))
    kinds = [event["type"] for event in events]
    assert not any("function_call" in kind for kind in kinds)
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert [(item["type"], item["status"]) for item in added] == [
        ("message", "in_progress"),
        ("shell_call", "in_progress"),
    ]
