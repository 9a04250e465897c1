"""Programs as models: their input, their output, and that no process outlives the turn (F-5)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

import pytest
from tests.producer.served import serving
from tests.running import until

from antiphon.producer import Agent, EventCollector, command_agent
from antiphon.protocol.items import FunctionCallParam, ItemParam, MessageParam
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
RECORDING = Path(__file__).parents[1] / "recordings" / "codex" / "command_and_patch.jsonl"
TELLER = """
import json, sys
asked = sys.stdin.read()
print("Reading from stdin...")
for event in ({"type": "turn.started"}, {"type": "item.completed", "item": {"id": "0", "type": "agent_message", "text": asked}}):
    print(json.dumps(event), flush=True)
print('{"type": "turn.completed"}', end="")
"""


def program(code: str, **settings: object) -> Agent:
    return command_agent([sys.executable, "-c", code], model="lab", **settings)  # type: ignore[arg-type]


def answer(agent: Agent, input: str | list[ItemParam] = "Hi", instructions: str | None = None) -> Response:
    return asyncio.run(agent.answer(Request(model="lab", input=input, instructions=instructions), EventCollector()))


def text_of(response: Response) -> str:
    return str(response.output[0].content[0].text)  # type: ignore[union-attr, index]


def test_program_with_codex_output_is_served_as_a_model() -> None:
    """F-5: its own recording, behind `/v1/chat/completions`."""
    agent = program(f"import sys; sys.stdout.write(open({str(RECORDING)!r}, encoding='utf-8').read())")
    with serving(agent) as gateway:
        response = gateway.post(
            {"model": "lab", "messages": [{"role": "user", "content": "Hi"}]}, "/v1/chat/completions"
        ).json()
    assert response["choices"][0]["message"]["content"] == "Let me look.\n\nThe greeting is friendlier now."


@pytest.mark.parametrize(
    ("input", "instructions", "asked"),
    [
        ("Hi; rm -rf /", None, "Hi; rm -rf /"),
        ("Hi", "Be brief.", "[system]\nBe brief.\n\n[user]\nHi"),
        (
            [
                MessageParam(role="user", content="One."),
                FunctionCallParam(call_id="c", name="f", arguments="{}"),
                MessageParam(role="assistant", content="Two."),
                MessageParam(role="user", content="Three."),
            ],
            None,
            "[user]\nOne.\n\n[assistant]\nTwo.\n\n[user]\nThree.",
        ),
    ],
)
def test_program_gets_the_conversation_as_input(
    input: str | list[ItemParam], instructions: str | None, asked: str
) -> None:
    response = answer(program(TELLER), input, instructions)
    assert response.status == "completed"
    assert text_of(response) == asked


def test_lines_that_are_no_events_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """F-4."""
    with caplog.at_level(logging.WARNING, logger="antiphon.agent"):
        answer(program(TELLER))
    assert "a line: its content (it is not an event)" in caplog.text


def test_program_runs_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "asked.txt").touch()
    code = TELLER.replace("sys.stdin.read()", "' '.join(__import__('os').listdir())")
    assert text_of(answer(program(code, folder=tmp_path))) == "asked.txt"


def test_program_gets_no_keys_of_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTIPHON_KEY", "CODEX_API_KEY"):
        monkeypatch.setenv(name, f"secret-{name}")
    code = TELLER.replace("sys.stdin.read()", "json.dumps(dict(__import__('os').environ))")
    environ = json.loads(text_of(answer(program(code, inherit=["CODEX_API_KEY"], environ={"EXTRA": "more"}))))
    assert environ["CODEX_API_KEY"] == "secret-CODEX_API_KEY"
    assert (environ["EXTRA"], environ["PATH"]) == ("more", os.environ["PATH"])
    assert not {"OPENAI_API_KEY", "ANTIPHON_KEY"} & environ.keys()


def test_program_that_exits_early_fails_the_response() -> None:
    response = answer(program("import sys; sys.stdin.close()"), "x" * 1_000_000)
    assert response.error is not None
    assert response.error.code == "upstream_disconnected"


def test_missing_program_fails_the_response(caplog: pytest.LogCaptureFixture) -> None:
    response = answer(command_agent(["/nowhere/agent"], model="lab"))
    assert response.error is not None
    assert response.error.code == "upstream_unavailable"
    assert "/nowhere/agent" not in response.error.message
    assert "/nowhere/agent" in caplog.text


def test_cancelled_turn_kills_the_program_and_its_children(tmp_path: Path) -> None:
    """Cancelling the turn kills the whole process group: the pipe that only the grandchild holds is closed."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    grandchild = f"import time; held = open({str(pipe)!r}, 'w'); held.write('x'); held.flush(); time.sleep(600)"
    code = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {grandchild!r}])\ntime.sleep(600)\n"

    async def run() -> None:
        task = asyncio.ensure_future(program(code).answer(Request(model="lab", input="Hi"), EventCollector()))
        while _held(reader) != b"x":
            await asyncio.sleep(0.01)
        assert _held(reader) is None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    until(lambda: _held(reader) == b"")
    os.close(reader)


def _held(reader: int) -> bytes | None:
    """The content of a pipe: None if there is none yet, empty if its other end is closed."""
    try:
        return os.read(reader, 1)
    except BlockingIOError:
        return None
