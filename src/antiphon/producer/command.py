"""`command_agent`: a program that tells thread events as JSON lines, as a model behind `/v1/responses` (F-5).

The conversation is written to its standard input as text; no word of a client's is ever part of the command line. The program and
all it started end with the turn.
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

from antiphon.dialects.common.json_lines import JsonLines
from antiphon.dialects.common.thread_events import decode_thread_event
from antiphon.dialects.common.thread_to_hub import ThreadToHub, ThreadWire
from antiphon.errors import UpstreamFault
from antiphon.producer.agent import LOG, Agent
from antiphon.producer.turn import Turn, message_text
from antiphon.protocol.items import MessageParam

PIECE: Final = 64 * 1024


def command_agent(
    command: Sequence[str],
    *,
    model: str,
    slug: str = "codex",
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Agent:
    """An agent that runs `command` for each turn, in `folder`. `slug` is whose extensions the items of its own kinds are."""

    async def run(turn: Turn) -> None:
        process = await _started(command, folder, environ)
        thread = ThreadToHub(turn.writer, ThreadWire(slug=slug))
        asking = asyncio.ensure_future(_ask(process, format_prompt(turn)))
        try:
            await _read(process, thread, turn)
            await asking
            thread.finish()
        finally:
            asking.cancel()
            await _end(process)
            for loss in thread.losses:
                LOG.warning("the agent %r: %s", model, loss)

    return Agent(run, model)


def format_prompt(turn: Turn) -> str:
    """The conversation as text: the user's words alone if there is nothing else, and who said what otherwise."""
    told = [(item.role, message_text(item)) for item in turn.input if isinstance(item, MessageParam)]
    if turn.request.instructions:
        told.insert(0, ("system", turn.request.instructions))
    if len(told) == 1:
        return told[0][1]
    return "\n\n".join(f"[{role}]\n{text}" for role, text in told)


async def _started(command: Sequence[str], folder: Path | None, environ: Mapping[str, str] | None) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cwd=folder, env=environ, start_new_session=True
        )
    except OSError as error:
        LOG.error("the agent's program %r cannot be started: %s", command[0], error)
        raise UpstreamFault("the agent's program cannot be started; its log says why", code="upstream_unavailable") from None


async def _ask(process: Process, prompt: str) -> None:
    assert process.stdin is not None  # it is a pipe
    process.stdin.write(prompt.encode())
    with suppress(ConnectionError):  # a program need not listen to the end
        await process.stdin.drain()
    process.stdin.close()


async def _read(process: Process, thread: ThreadToHub, turn: Turn) -> None:
    assert process.stdout is not None  # it is a pipe
    lines = JsonLines()
    while piece := await process.stdout.read(PIECE):
        await _tell(lines.feed(piece), thread, turn)
    await _tell(lines.finish(), thread, turn)


async def _tell(lines: list[bytes], thread: ThreadToHub, turn: Turn) -> None:
    for line in lines:
        event = decode_thread_event(line)
        if event is None:
            thread.losses.add("a line", "it was not told", "it is no event")
        else:
            thread.feed(event)
            await turn.wait_for_reader()


async def _end(process: Process) -> None:
    """Whatever of it is left, what it started included."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
