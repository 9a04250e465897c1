"""What an agent pays for a delta, from its own words to the bytes that the gateway reads, beside encoding the same event.

    python bench/producer.py [rounds]

The CPU of a process is measured, and both in one interleaved run. Goal: at most 10 µs a delta beyond the encoding.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time

import msgspec
from bench.report import circumstances, table, write_section

from antiphon.config import Timeouts
from antiphon.dialects import responses
from antiphon.producer import EventCollector, Turn, agent, decode_thread_event
from antiphon.producer.builder import ResponseBuilder
from antiphon.producer.transport import AgentTransport
from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.request import Request
from antiphon.upstream.http import HttpTransport

DELTAS = 20_000
ABOUT = """\
What an agent's delta costs, from its own words to the bytes that the gateway reads, beside encoding the same event: the median of
interleaved rounds, and their range. `@agent` is one `await out.write(…)`; `ResponseBuilder` reads a JSON line with a snapshot of
the message so far. Goal: at most 10 µs beyond the encoding."""


def main(rounds: int = 9) -> None:
    load = os.getloadavg()[0]
    found: dict[str, list[float]] = {"encoding": [], "@agent": [], "ResponseBuilder": []}
    for _ in range(rounds):
        found["encoding"].append(_encoding())
        found["@agent"].append(asyncio.run(_agent()))
        found["ResponseBuilder"].append(_builder())
    base = found["encoding"]
    rows: list[list[str]] = []
    for name in ("@agent", "ResponseBuilder"):
        beyond = sorted(time - encoding for time, encoding in zip(found[name], base, strict=True))
        median = statistics.median
        rows.append(
            [
                name,
                f"{median(found[name]):.1f}",
                f"{median(base):.1f}",
                f"**{median(beyond):.1f}** ({beyond[0]:.1f}–{beyond[-1]:.1f})",
            ]
        )
    text = table(["µs of CPU a delta", "in all", "encoding alone", "beyond it"], rows)
    print(text)
    write_section("Producing", f"{ABOUT}\n\n{text}\n{circumstances([], load)}")


def _encoding() -> float:
    """The bytes of a delta from an event that is there: what nobody can save."""
    write = responses.EventsFromHub(Request(model="m")).feed
    begin = time.process_time_ns()
    for number in range(DELTAS):
        write(
            OutputTextDelta(
                sequence_number=number, item_id="msg_1", output_index=0, content_index=0, delta=" quick", logprobs=[]
            )
        )
    return (time.process_time_ns() - begin) / DELTAS / 1000


async def _agent() -> float:
    @agent(model="bench")
    async def write(turn: Turn) -> None:
        async with turn.message() as out:
            for _ in range(DELTAS):
                await out.write(" quick")

    transport = AgentTransport({"bench": write}, HttpTransport({}))
    body = msgspec.json.encode({"model": "bench", "input": "Hi"})
    begin = time.process_time_ns()
    answer = await transport.send("POST", "agent:bench/responses", {}, body, Timeouts())
    count = 0
    async for piece in answer.pieces():
        count += piece.count(b"event: response.output_text.delta\n")
    assert count == DELTAS
    return (time.process_time_ns() - begin) / DELTAS / 1000


def _builder() -> float:
    """An agent whose snapshots grow by a word, up to a paragraph each."""
    lines = [
        b'{"type":"item.updated","item":{"id":"%d","type":"agent_message","text":"%b"}}'
        % (at // 50, b" quick" * (at % 50 + 1))
        for at in range(DELTAS)
    ]
    builder, collector = ResponseBuilder("bench"), EventCollector()
    write = responses.EventsFromHub(Request(model="m")).feed
    begin = time.process_time_ns()
    for line in lines:
        event = decode_thread_event(line)
        assert event is not None
        builder.process_event(event, collector)
        for told in collector.take():
            write(told)
    return (time.process_time_ns() - begin) / DELTAS / 1000


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
