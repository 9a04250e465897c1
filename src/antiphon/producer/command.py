"""`command_agent`: makes a model of a program that writes thread events as JSON lines (F-5).

The conversation is written to its standard input as text; no client data is ever part of the command line. The program
gets only a few variables of the gateway's environment, so that it cannot read the keys of upstreams. The program and
all its child processes end with the turn.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from antiphon.dialects.agent_log.stream_in import ThreadToHub
from antiphon.dialects.agent_log.wire import ThreadWire, decode_thread_event
from antiphon.dialects.common.json_lines import JsonLines
from antiphon.errors import UpstreamFault
from antiphon.producer.agent import LOG, Agent
from antiphon.producer.turn import Turn, message_text
from antiphon.protocol.items import MessageParam

READ_SIZE: Final = 64 * 1024
#: Variables that every program gets. None of them holds a key.
BASIC_VARIABLES: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TERM"}
)


def command_agent(
    command: Sequence[str],
    *,
    model: str,
    slug: str = "codex",
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    inherit: Sequence[str] = (),
) -> Agent:
    """An agent that runs `command` in `folder` for each turn. `slug` is the prefix of its own item types. The program
    gets the variables in `BASIC_VARIABLES` of the gateway's environment, those that `inherit` names, and `environ`."""

    async def run(turn: Turn) -> None:
        process = await _start_process(command, folder, make_environment(os.environ, inherit, environ or {}))
        thread = ThreadToHub(turn.writer, ThreadWire(slug=slug))
        prompt_task = asyncio.ensure_future(_write_prompt(process, format_prompt(turn)))
        try:
            await _read_output(process, thread, turn)
            await prompt_task
            thread.finish()
        finally:
            prompt_task.cancel()
            await _kill_process(process)
            for loss in thread.losses:
                LOG.warning("the agent %r: %s", model, loss)

    return Agent(run, model)


def format_prompt(turn: Turn) -> str:
    """The conversation as text: the text of a single message alone, several messages with their roles."""
    messages = [(item.role, message_text(item)) for item in turn.input if isinstance(item, MessageParam)]
    if turn.request.instructions:
        messages.insert(0, ("system", turn.request.instructions))
    if len(messages) == 1:
        return messages[0][1]
    return "\n\n".join(f"[{role}]\n{text}" for role, text in messages)


def make_environment(own: Mapping[str, str], inherit: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the program, from the gateway's own and the settings of the agent."""
    names = {*BASIC_VARIABLES, *inherit}
    return {**{name: value for name, value in own.items() if name in names}, **environ}


async def _start_process(command: Sequence[str], folder: Path | None, environ: Mapping[str, str]) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cwd=folder, env=environ, start_new_session=True
        )
    except OSError as error:
        LOG.error("cannot start the agent's program %r: %s", command[0], error)
        raise UpstreamFault(
            "the agent's program cannot be started; see the log of the gateway", code="upstream_unavailable"
        ) from None


async def _write_prompt(process: Process, prompt: str) -> None:
    assert process.stdin is not None  # a pipe
    process.stdin.write(prompt.encode())
    with suppress(ConnectionError):  # the program may close its input early
        await process.stdin.drain()
    process.stdin.close()


async def _read_output(process: Process, thread: ThreadToHub, turn: Turn) -> None:
    assert process.stdout is not None  # it is a pipe
    lines = JsonLines()
    while piece := await process.stdout.read(READ_SIZE):
        await _feed_lines(lines.feed(piece), thread, turn)
    await _feed_lines(lines.finish(), thread, turn)


async def _feed_lines(lines: list[bytes], thread: ThreadToHub, turn: Turn) -> None:
    for line in lines:
        event = decode_thread_event(line)
        if event is None:
            thread.losses.add("a line", "its content", "it is not an event")
        else:
            thread.feed(event)
            await turn.wait_for_reader()


async def _kill_process(process: Process) -> None:
    """Kills the process group: the program and its child processes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
