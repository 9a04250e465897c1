"""The AI SDK runs a loop of two tools through the gateway, with each of its providers, streaming and plain, over a
server of each dialect. Some of its providers drop reasoning that a server requires back; the gateway stores responses
here and restores it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clients.blocks import block
from tests.clients.heavy.behind import CHAT, OPEN_RESPONSES, SERVERS, Behind, call
from tests.clients.heavy.npm_programs import CLIENTS, run

from antiphon import testing
from antiphon.testing import turn

pytestmark = pytest.mark.heavy

LAST_WORDS = "The greeting is friendlier now."
THOUGHTS = ("I look first.", "Now I know.")
WORDS = '"friendlier" \\o/ 👋\n'
PLAN = {
    0: turn(
        testing.reasoning("I look ", "first."),
        testing.text("Let me ", "look."),
        call("call_1", "look", path="greeting.txt"),
        testing.usage(100, 10),
    ),
    1: turn(
        testing.reasoning("Now I know."),
        call("call_2", "put", path="greeting.txt", text=WORDS),
        call("call_3", "put", path="why.txt", text="Friendlier."),
        testing.usage(200, 20),
    ),
    3: turn(testing.text(LAST_WORDS[:12], LAST_WORDS[12:]), testing.usage(300, 30)),
}


@pytest.mark.parametrize("how", ["stream", "generate"])
@pytest.mark.parametrize("provider", ["open-responses", "openai", "openai-chat", "anthropic"])
@pytest.mark.parametrize("behind", SERVERS, ids=lambda behind: behind.profile)
def test_ai_sdk_completes_a_tool_loop(behind: Behind, provider: str, how: str, tmp_path: Path) -> None:
    """RSN-2, API-6: three calls, two of them at once; results in order, reasoning returned to its server, usage
    summed."""
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    with behind.gateway(PLAN, f"sqlite:///{tmp_path}/antiphon.db") as (gateway, upstream):
        options = {"store": True} if provider == "openai-chat" else {}
        output = run_ai_sdk(provider, how, gateway.url, workplace, tmp_path, options)
        turns = behind.turns(upstream)
    assert (workplace / "greeting.txt").read_text() == WORDS
    assert (workplace / "why.txt").read_text() == "Friendlier."
    assert output["heard"] == "Let me look." + LAST_WORDS
    assert [step["finish"] for step in output["steps"]] == ["tool-calls", "tool-calls", "stop"]
    assert [step["calls"] for step in output["steps"]] == [["call_1"], ["call_2", "call_3"], []]
    in_order = [{"written": "greeting.txt"}, {"written": "why.txt"}]
    assert output["steps"][1]["results"] == (in_order[::-1] if how == "stream" else in_order)
    assert (output["usage"]["inputTokens"], output["usage"]["outputTokens"]) == (600, 60)
    assert [len(each.results) for each in turns] == [0, 1, 3]
    last = turns[-1]
    assert [(made.id, made.name) for made in last.calls] == [("call_1", "look"), ("call_2", "put"), ("call_3", "put")]
    assert [id for id, _ in last.results] == ["call_1", "call_2", "call_3"]
    assert last.results[0][1] == "hello\n"
    assert last.thoughts == 2


@pytest.mark.parametrize("how", ["stream", "generate"])
@pytest.mark.parametrize("store", [True, False], ids=["stored", "not-stored"])
def test_ai_sdk_shows_open_reasoning_as_a_summary(store: bool, how: str, tmp_path: Path) -> None:
    """RSN-2, RSN-4: its openai provider shows summaries only. The text of the server's reasoning comes once, as the summary
    that was requested, and reaches the server as its reasoning again: as an item by reference, or as the item itself."""
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    options = {"reasoningSummary": "auto", "forceReasoning": True, "store": store}
    with CHAT.gateway(PLAN, f"sqlite:///{tmp_path}/antiphon.db" if store else "off") as (gateway, upstream):
        output = run_ai_sdk("openai", how, gateway.url, workplace, tmp_path, options)
        messages = upstream.received[-1].json["messages"]
    assert [step["reasoning"] for step in output["steps"]] == [*THOUGHTS, None]
    assert [message["reasoning_content"] for message in messages if message["role"] == "assistant"] == list(THOUGHTS)
    for body, thought in zip(output["bodies"], THOUGHTS, strict=False):
        assert reasoning_in(body) == ([thought], [])


@pytest.mark.parametrize("how", ["stream", "generate"])
def test_ai_sdk_shows_open_reasoning_of_a_responses_server_as_a_summary(how: str, tmp_path: Path) -> None:
    """RSN-4: the text comes once, and reaches the server as its content again."""
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    options = {"reasoningSummary": "auto", "forceReasoning": True, "store": True}
    with OPEN_RESPONSES.gateway(PLAN, f"sqlite:///{tmp_path}/antiphon.db") as (gateway, upstream):
        output = run_ai_sdk("openai", how, gateway.url, workplace, tmp_path, options)
        items = [item for item in upstream.received[-1].json["input"] if item.get("type") == "reasoning"]
    assert [step["reasoning"] for step in output["steps"]] == [*THOUGHTS, None]
    assert [(item["summary"], [part["text"] for part in item["content"]]) for item in items] == [
        ([], [thought]) for thought in THOUGHTS
    ]
    for body, thought in zip(output["bodies"], THOUGHTS, strict=False):
        assert reasoning_in(body) == ([thought], [])


def test_ai_sdk_without_a_summary_shows_no_open_reasoning(tmp_path: Path) -> None:
    """RSN-4: who requests no summary gets reasoning as content, which this provider does not show."""
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    with CHAT.gateway(PLAN, f"sqlite:///{tmp_path}/antiphon.db") as (gateway, _):
        output = run_ai_sdk("openai", "generate", gateway.url, workplace, tmp_path, {"store": True})
    assert not any(step["reasoning"] for step in output["steps"])
    for body, thought in zip(output["bodies"], THOUGHTS, strict=False):
        assert reasoning_in(body) == ([], [thought])


def reasoning_in(body: str) -> tuple[list[str], list[str]]:
    """The texts of reasoning in an answer: of summaries, and of contents. In a stream the pieces, the ends and the items must
    have the same texts."""
    if body.startswith("{"):
        return _reasoning_of(msgspec.json.decode(body))
    lines = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: {")]
    events = [msgspec.json.decode(line) for line in lines]
    [response] = [event["response"] for event in events if event["type"] == "response.completed"]
    summaries, contents = _reasoning_of(response)
    pieces = [event["delta"] for event in events if event["type"] == "response.reasoning_summary_text.delta"]
    ends = [event["text"] for event in events if event["type"] == "response.reasoning_summary_text.done"]
    assert "".join(pieces) == "".join(ends) == "".join(summaries)
    assert bool(contents) is any(event["type"].startswith("response.reasoning_text.") for event in events)
    return summaries, contents


def _reasoning_of(response: dict[str, Any]) -> tuple[list[str], list[str]]:
    items = [item for item in response["output"] if item.get("type") == "reasoning"]
    return (
        [part["text"] for item in items for part in item["summary"]],
        [part["text"] for item in items for part in item.get("content") or ()],
    )


def run_ai_sdk(
    provider: str, how: str, gateway: str, workplace: Path, home: Path, options: dict[str, Any]
) -> dict[str, Any]:
    """The output of the program, which is placed beside its packages."""
    if not (CLIENTS / "ai").exists():
        pytest.fail("the AI SDK is not installed; run `make test-clients`")
    (home / "node_modules").symlink_to(CLIENTS)
    program = shutil.copy(Path(__file__).with_name("ai_sdk.mjs"), home)
    (home / "models.mjs").write_text(block("createOpenResponses").replace("http://127.0.0.1:8080", gateway))
    arguments = [provider, how, msgspec.json.encode(options).decode()]
    output = run(["node", str(program), *arguments], workplace, home, {})
    decoded: dict[str, Any] = msgspec.json.decode(output)
    return decoded
