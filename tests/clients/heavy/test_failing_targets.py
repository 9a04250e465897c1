"""Codex and Claude Code over a model whose first target fails in every turn: the agent completes a tool loop with one clean
answer, and sees no error and no piece of the failed attempts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.clients.heavy.behind import CHAT, GEMINI, MESSAGES, RESPONSES, Behind, Conversation, call
from tests.clients.heavy.test_claude_code import place, run_claude
from tests.clients.heavy.test_codex import IN_THE_SHELL, WEBSOCKET, exec_codex, places
from tests.faults.routing_lab import REFUSED_URL, fault_reply
from tests.running import Running, running

from antiphon import testing
from antiphon.config import Config, HealthConfig, ModelConfig, TargetConfig, UpstreamConfig
from antiphon.testing import ReceivedRequest, Reply, ResponsesServer, turn

pytestmark = pytest.mark.heavy
ANSWER = "The note says hello."
FAULTS = pytest.mark.parametrize("fault", ["refused", "500", "cut_before_content", "error_after_opening"])
# With the tools and the fields that Codex sends to OpenAI.
OPENAI = RESPONSES._replace(
    serve=lambda script: ResponsesServer(script, own_tools=["web_search", "namespace", "tool_search"])
)
LOOK: dict[str, dict[str, str]] = {
    "exec_command": {"cmd": "cat greeting.txt"},
    "Bash": {"command": "cat greeting.txt", "description": "Reads"},
}


@contextmanager
def failing_gateway(fault: str, first: Behind, second: Behind, tool: str) -> Iterator[tuple[Running, list[int]]]:
    """A gateway with two targets of different dialects for `mock-1`. The second calls the tool, then answers. At the end,
    each turn of the agent must have been one request of the agent and one of the second target."""
    failures: list[int] = []

    def fail(_: ReceivedRequest) -> Reply:
        failures.append(1)
        return fault_reply(first.dialect, fault, stream=True)

    def reply(received: ReceivedRequest) -> Reply:
        if second.read(received.json).results:
            return turn(testing.text(ANSWER[:9], ANSWER[9:]))
        return turn(testing.reasoning("I look."), call("call_1", tool, **LOOK[tool]))

    with ExitStack() as stack:
        failing, working = (stack.enter_context(each) for each in (first.serve(fail), second.serve(reply)))
        url = REFUSED_URL if fault == "refused" else failing.base_url
        upstreams = [
            _upstream("first", first, url),
            _upstream("second", second, working.base_url),
        ]
        targets = [TargetConfig(upstream="first", model="m"), TargetConfig(upstream="second", model="m", priority=2)]
        config = Config(
            upstreams=upstreams,
            models=[ModelConfig(name="mock-1", targets=targets)],
            health=HealthConfig(min_requests=10_000),  # the first target is asked in every turn
        )
        gateway = stack.enter_context(running(config))
        yield gateway, failures
        check_turns(second.turns(working), second)
        assert working.refusals == []
        failed = [line for line in gateway.log if line["event"] == "attempt_failed"]
        assert {line["upstream"] for line in failed} == {"first"}
        assert len(failures) == (0 if fault == "refused" else len(failed))


def _upstream(name: str, behind: Behind, url: str) -> UpstreamConfig:
    return UpstreamConfig(name=name, dialect=behind.dialect, base_url=url, models=[name], profile=behind.profile)


def check_turns(turns: list[Conversation], behind: Behind) -> None:
    assert [len(each.results) for each in turns] == [0, 1]
    [(_, result)] = turns[-1].results
    assert "hello" in result
    assert turns[-1].thoughts == 1, behind.profile


def check_requests(gateway: Running, path: str) -> None:
    """One request of the agent for each turn, and each with status 200."""
    lines = [line for line in gateway.requests(2) if line["path"] == path]
    assert [line["status"] for line in lines] == [200, 200]


@FAULTS
@pytest.mark.parametrize(("first", "second"), [(CHAT, MESSAGES), (OPENAI, CHAT)], ids=lambda behind: behind.profile)
def test_codex_gets_one_answer_over_a_failing_target(fault: str, first: Behind, second: Behind, tmp_path: Path) -> None:
    with failing_gateway(fault, first, second, "exec_command") as (gateway, _):
        home, workplace = places(tmp_path, gateway.url)
        (workplace / "greeting.txt").write_text("hello\n")
        check_codex(exec_codex(IN_THE_SHELL, home, workplace))
        check_requests(gateway, "/v1/responses")


@pytest.mark.parametrize("fault", ["refused", "cut_before_content"])
def test_codex_on_a_websocket_gets_one_answer_over_a_failing_target(fault: str, tmp_path: Path) -> None:
    with failing_gateway(fault, CHAT, MESSAGES, "exec_command") as (gateway, _):
        home, workplace = places(tmp_path, gateway.url, WEBSOCKET)
        (workplace / "greeting.txt").write_text("hello\n")
        check_codex(exec_codex(IN_THE_SHELL, home, workplace))


def check_codex(events: list[dict[str, Any]]) -> None:
    kinds = [event["type"] for event in events]
    assert [kind for kind in kinds if kind.startswith("turn.")] == ["turn.started", "turn.completed"]
    assert "error" not in kinds
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert [item["text"] for item in items if item["type"] == "agent_message"] == [ANSWER]
    assert [item["exit_code"] for item in items if item["type"] == "command_execution"] == [0]
    # One notice, which has nothing to do with the answer: Codex does not know this model.
    notices = [item["message"] for item in items if item["type"] == "error"]
    assert [notice for notice in notices if not notice.startswith("Model metadata for")] == []


@FAULTS
@pytest.mark.parametrize(("first", "second"), [(MESSAGES, CHAT), (CHAT, GEMINI)], ids=lambda behind: behind.profile)
def test_claude_code_gets_one_answer_over_a_failing_target(
    fault: str, first: Behind, second: Behind, tmp_path: Path
) -> None:
    with failing_gateway(fault, first, second, "Bash") as (gateway, _):
        events = run_claude(gateway.url, place(tmp_path), tmp_path)
        check_requests(gateway, "/v1/messages")
    last = events[-1]
    assert (last["subtype"], last["is_error"], last["result"]) == ("success", False, ANSWER)
    texts = [
        block["text"]
        for event in events
        if event["type"] == "assistant"
        for block in event["message"]["content"]
        if block["type"] == "text"
    ]
    assert texts == [ANSWER]
    assert not [event for event in events if event.get("subtype") == "api_retry"]
