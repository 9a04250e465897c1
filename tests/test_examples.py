"""Runs every example against a gateway with a scripted server. Every example is short."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.running import Running, one_upstream, running

from antiphon import testing
from antiphon.config import Config, StoreConfig
from antiphon.testing import ChatServer, MessagesServer, ReceivedRequest, Reply, turn

pytestmark = pytest.mark.io
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
COUNT = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten "]
TESTED_ELSEWHERE = {"agent"}  # run by the tests of `antiphon.producer`


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with ChatServer(choose_reply) as upstream:
        config = one_upstream(upstream.base_url)
        store = StoreConfig(url=f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db")
        with running(Config(upstreams=config.upstreams, store=store)) as gateway:
            yield gateway


def choose_reply(request: ReceivedRequest) -> Reply:
    """Returns the reply of a typical model."""
    body: Any = request.json
    messages = body["messages"]
    question = str(messages[-1]["content"])
    if body.get("response_format"):
        return turn(testing.text('{"title": "Cold soup", ', '"stars": 4, "mood": "glad"}'))
    if messages[-1]["role"] == "tool":
        return turn(testing.text("It is 21 degrees in Lima."))
    if body.get("tools"):
        calls = (
            testing.tool_call("call_1", "weather", '{"city": "Lima"}'),
            testing.tool_call("call_2", "time_in", '{"zone": "Nowhere"}'),
        )
        return turn(testing.interleaved(*calls))
    if "Who am I?" in question:
        return turn(testing.text("You are Ada."))
    if "Count" in question:
        return turn(testing.text(*COUNT))
    return turn(testing.text("Hello, ", "there."), testing.usage(5, 2))


def run(name: str, *arguments: str, url: str = "", stdin: str = "", **environ: str) -> str:
    """Runs an example, which must succeed, and returns its standard output."""
    environ_without_settings = {key: value for key, value in os.environ.items() if not key.startswith("ANTIPHON_")}
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env={**environ_without_settings, "ANTIPHON_URL": url, "ANTIPHON_MODEL": "mock-1", **environ},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_ask(gateway: Running) -> None:
    """B-9."""
    assert run("ask", "Hi.", url=gateway.url) == "Hello, there.\n"


def test_stream(gateway: Running) -> None:
    """B-9."""
    assert run("stream", "Hi.", url=gateway.url) == "Hello, there.\n"


def test_tools(gateway: Running) -> None:
    """B-9: including a function's error for invalid arguments."""
    output = run("tools", url=gateway.url)
    assert '{"city":"Lima","sky":"clear","temperature":21}' in output
    assert "ValueError: unknown time zone 'Nowhere'" in output
    assert output.endswith("It is 21 degrees in Lima.\n")


def test_background_resume(gateway: Running) -> None:
    """B-9: no event missing, no event twice."""
    output = run("background_resume", url=gateway.url)
    assert output.startswith("disconnected after event ")
    assert output.endswith("\ncompleted\n")


def test_conversation(gateway: Running) -> None:
    output = run("conversation", url=gateway.url, stdin="My name is Ada.\nWho am I?\n")
    assert output == "Hello, there.\nYou are Ada.\n"


def test_websocket_turns(gateway: Running) -> None:
    assert run("websocket_turns", url=gateway.url) == "Hello, there.\nYou are Ada.\n"


def test_structured(gateway: Running) -> None:
    assert run("structured", url=gateway.url) == "Cold soup: 4 stars, glad\n"


def test_any_server() -> None:
    """B-9: without a gateway in between."""
    with MessagesServer([turn(testing.text("Hello, hallo, salut."))]) as server:
        assert run("any_server", server.base_url, "messages", "mock-1", SERVER_KEY="k") == "Hello, hallo, salut.\n"
        assert not server.refusals


def test_translate_dialects() -> None:
    output = run("translate_dialects")
    assert [line.partition(":")[0] for line in output.splitlines() if not line.startswith(" ")] == [
        "chat",
        "messages",
        "gemini",
        "responses",
    ]
    assert "  lost: tools[1]" in output


def test_every_example_has_a_test_and_is_short() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert {f"test_{name}" for name in names - TESTED_ELSEWHERE} <= set(globals())
    for name in names:
        assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 60, name
