"""Compares the CPU time of reading a stream with `antiphon.client` and with the openai SDK, from the same server.

    python bench/client.py [--rounds 9] [--write]

Measures the CPU time of this process with all its threads, for streams of 500 deltas. The server is another process.
Goal: each way of reading uses at most a fifth of the CPU time of the same way in the SDK.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import openai
import uvloop
from bench import report
from bench.targets import Target, package_versions_command

from antiphon.client import AsyncClient, Client
from antiphon.dialects import responses
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage, make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.writer import ResponseWriter

DELTAS = 500
STREAMS = 20  # streams of one measurement, one after the other
GOAL = 5.0
MODEL = "mock-1"
Reader = Callable[[str], int]  # reads all streams of one measurement from a URL, returns the number of events


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    if args.serve:
        uvloop.run(_serve())
        return 0
    load_before = os.getloadavg()[0]
    costs: dict[str, list[float]] = {name: [] for name in READERS}
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            for number in range(args.rounds + 1):
                for name, read_streams in READERS.items():
                    cost = _measure_cost(read_streams, url)
                    if number:  # the first round warms up caches and lazy imports
                        costs[name].append(cost)
        finally:
            server.terminate()
    text = _render_report(costs, load_before)
    print(text)
    if args.write:
        report.write_section("The client", text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="write the results to bench/RESULTS.md")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser


def _render_report(costs: dict[str, list[float]], load_before: float) -> str:
    rows: list[list[str]] = []
    for antiphon_name, sdk_name in PAIRS:
        cost_pairs = zip(costs[antiphon_name], costs[sdk_name], strict=True)
        ratios = [sdk_cost / antiphon_cost for antiphon_cost, sdk_cost in cost_pairs]
        figures = [f"{statistics.median(costs[name]) / DELTAS:.1f}" for name in (antiphon_name, sdk_name)]
        rows.append(
            [
                f"{antiphon_name} : {sdk_name}",
                *figures,
                f"**{statistics.median(ratios):.1f}** ({min(ratios):.1f}–{max(ratios):.1f})",
                f"≥ {GOAL:g}",
            ]
        )
    return (
        f"CPU time of the reading process for a stream of {DELTAS} deltas, {STREAMS} streams one after the other; "
        f"the median of {len(costs[antiphon_name])} rounds.\n\n"
        + report.render_table(["reader", "antiphon, µs per delta", "SDK, µs per delta", "SDK : antiphon", "goal"], rows)
        + "\n"
        + report.render_circumstances([ANTIPHON, OPENAI], load_before)
    )


def _measure_cost(read_streams: Reader, url: str) -> float:
    """Returns the CPU time of one stream in microseconds."""
    start = time.process_time_ns()
    events = read_streams(url)
    cost = (time.process_time_ns() - start) / 1000 / STREAMS
    assert events >= STREAMS * DELTAS, f"the stream had only {events} events"
    return cost


def _antiphon_events(url: str) -> int:
    with Client(url, model=MODEL, environ={}) as client:
        return sum(1 for _ in range(STREAMS) for _ in client.stream("Hi."))


def _antiphon_snapshot(url: str) -> int:
    events = 0
    with Client(url, model=MODEL, environ={}) as client:
        for _ in range(STREAMS):
            with client.stream("Hi.") as stream:
                events += sum(1 for _ in stream)
                assert stream.response.usage is not None
    return events


def _antiphon_async(url: str) -> int:
    async def read() -> int:
        events = 0
        async with AsyncClient(url, model=MODEL, environ={}) as client:
            for _ in range(STREAMS):
                async with client.stream("Hi.") as stream:
                    async for _ in stream:
                        events += 1
        return events

    return asyncio.run(read())


def _openai_events(url: str) -> int:
    with openai.OpenAI(base_url=url, api_key="k") as client:
        return sum(1 for _ in range(STREAMS) for _ in client.responses.create(model=MODEL, input="Hi.", stream=True))


def _openai_snapshot(url: str) -> int:
    events = 0
    with openai.OpenAI(base_url=url, api_key="k") as client:
        for _ in range(STREAMS):
            with client.responses.stream(model=MODEL, input="Hi.") as stream:
                events += sum(1 for _ in stream)
                assert stream.get_final_response().usage is not None
    return events


def _openai_async(url: str) -> int:
    async def read() -> int:
        events = 0
        async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
            for _ in range(STREAMS):
                async for _ in await client.responses.create(model=MODEL, input="Hi.", stream=True):
                    events += 1
        return events

    return asyncio.run(read())


async def _serve() -> None:
    """Answers every request with the same stream. One HTTP chunk has eight events, as from a gateway under load."""
    frames = _frames()
    pieces = [b"".join(frames[index : index + 8]) for index in range(0, len(frames), 8)]
    response_head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

    async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                )
                await reader.readexactly(length)
                writer.write(response_head)
                for piece in pieces:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
                    await asyncio.sleep(0)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve_connection, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


def _frames() -> list[bytes]:
    events: list[StreamEvent] = []
    numbers = iter(range(10**6))
    stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers):032d}", lambda: 1_760_000_000)
    request = Request(model=MODEL, input="Hi.")
    writer = ResponseWriter(
        make_initial_response(request, id="resp_" + "0" * 32, created_at=1_760_000_000), events.append, stamps
    )
    writer.start()
    for number in range(DELTAS):
        writer.add_text("message", f" word{number % 10}")
    writer.complete(USAGE)
    from_hub = responses.EventsFromHub(request)
    return [*map(from_hub.feed, events), from_hub.finish()]


USAGE = Usage(
    input_tokens=5,
    output_tokens=DELTAS,
    total_tokens=DELTAS + 5,
    input_tokens_details=InputTokensDetails(cached_tokens=0),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
)
READERS: dict[str, Reader] = {
    "events": _antiphon_events,
    "`create(stream=True)`": _openai_events,
    "events and snapshot": _antiphon_snapshot,
    "`stream()`": _openai_snapshot,
    "async events": _antiphon_async,
    "async `create(stream=True)`": _openai_async,
}
PAIRS = [
    ("events", "`create(stream=True)`"),
    ("events and snapshot", "`stream()`"),
    ("async events", "async `create(stream=True)`"),
]
ANTIPHON = Target(
    name="antiphon",
    description="`antiphon.client`: every event normalized and typed, the response at the end",
    command=[],
    version_command=package_versions_command(sys.executable, "antiphon", "msgspec", "httptools", "uvloop"),
)
OPENAI = Target(
    name="openai SDK",
    description="the installed version",
    command=[],
    version_command=package_versions_command(sys.executable, "openai", "pydantic"),
)

if __name__ == "__main__":
    sys.exit(main())
