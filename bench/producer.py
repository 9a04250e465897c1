"""Measures the CPU time of one delta of an agent, from its text to the bytes for the gateway, minus the encoding.

    python bench/producer.py [rounds]

The rounds are interleaved with the encoding of the same event. Goal: at most 10 µs per delta more than the encoding.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time

import msgspec
from bench.report import render_circumstances, render_table, write_section

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
CPU time of one delta of an agent, from its text to the bytes for the gateway, compared with encoding the same event:
the median of interleaved rounds, and their range. `@agent` is one `await out.write(…)`; `ResponseBuilder` reads a JSON
line with a snapshot of the message so far. Goal: at most 10 µs more than the encoding."""


def main(rounds: int = 9) -> None:
    load_before = os.getloadavg()[0]
    times: dict[str, list[float]] = {"encoding": [], "@agent": [], "ResponseBuilder": []}
    for _ in range(rounds):
        times["encoding"].append(_measure_encoding())
        times["@agent"].append(asyncio.run(_measure_agent()))
        times["ResponseBuilder"].append(_measure_builder())
    encoding_times = times["encoding"]
    rows: list[list[str]] = []
    for name in ("@agent", "ResponseBuilder"):
        overheads = sorted(time - encoding for time, encoding in zip(times[name], encoding_times, strict=True))
        median = statistics.median
        rows.append(
            [
                name,
                f"{median(times[name]):.1f}",
                f"{median(encoding_times):.1f}",
                f"**{median(overheads):.1f}** ({overheads[0]:.1f}–{overheads[-1]:.1f})",
            ]
        )
    text = render_table(["CPU µs per delta", "total", "encoding alone", "difference"], rows)
    print(text)
    write_section("Agents", f"{ABOUT}\n\n{text}\n{render_circumstances([], load_before)}")


def _measure_encoding() -> float:
    """Measures the encoding of an event to bytes, which every implementation needs."""
    encode = responses.EventsFromHub(Request(model="m")).feed
    start = time.process_time_ns()
    for number in range(DELTAS):
        encode(
            OutputTextDelta(
                sequence_number=number, item_id="msg_1", output_index=0, content_index=0, delta=" quick", logprobs=[]
            )
        )
    return (time.process_time_ns() - start) / DELTAS / 1000


async def _measure_agent() -> float:
    @agent(model="bench")
    async def write(turn: Turn) -> None:
        async with turn.message() as out:
            for _ in range(DELTAS):
                await out.write(" quick")

    transport = AgentTransport({"bench": write}, HttpTransport({}))
    body = msgspec.json.encode({"model": "bench", "input": "Hi"})
    start = time.process_time_ns()
    response = await transport.send("POST", "agent:bench/responses", {}, body, Timeouts())
    count = 0
    async for piece in response.pieces():
        count += piece.count(b"event: response.output_text.delta\n")
    assert count == DELTAS
    return (time.process_time_ns() - start) / DELTAS / 1000


def _measure_builder() -> float:
    """Measures an agent whose snapshots grow by one word at a time, up to 50 words."""
    lines = [
        b'{"type":"item.updated","item":{"id":"%d","type":"agent_message","text":"%b"}}'
        % (number // 50, b" quick" * (number % 50 + 1))
        for number in range(DELTAS)
    ]
    builder, collector = ResponseBuilder("bench"), EventCollector()
    encode = responses.EventsFromHub(Request(model="m")).feed
    start = time.process_time_ns()
    for line in lines:
        thread_event = decode_thread_event(line)
        assert thread_event is not None
        builder.process_event(thread_event, collector)
        for event in collector.take():
            encode(event)
    return (time.process_time_ns() - start) / DELTAS / 1000


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:2]))
