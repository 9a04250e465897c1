"""What it costs a program to read one stream: `antiphon.client` beside the openai SDK, on the same bytes from the same server.

    python bench/client.py [--rounds 9] [--write]

CPU of this process, its threads included, for streams of 500 deltas; the server runs in a process of its own. Goal: at least five
times cheaper than the SDK, each way of reading against its like.
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
from bench.targets import Target, versions_of

from antiphon.client import AsyncClient, Client
from antiphon.dialects import responses
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage, make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.writer import ResponseWriter

DELTAS = 500
STREAMS = 20  # in a row, for one measurement
GOAL = 5.0
MODEL = "mock-1"
Way = Callable[[str], int]  # reads streams from a server; how many events came


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    if args.serve:
        uvloop.run(_serve())
        return 0
    load_before = os.getloadavg()[0]
    spent: dict[str, list[float]] = {name: [] for name in WAYS}
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            for number in range(args.rounds + 1):
                for name, way in WAYS.items():
                    cost = _cost(way, url)
                    if number:  # the first is for caches and lazy imports
                        spent[name].append(cost)
        finally:
            server.terminate()
    text = _told(spent, load_before)
    print(text)
    if args.write:
        report.write_section("The client", text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="into bench/RESULTS.md")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser


def _told(spent: dict[str, list[float]], load_before: float) -> str:
    rows: list[list[str]] = []
    for ours, theirs in PAIRS:
        ratios = [sdk / own for own, sdk in zip(spent[ours], spent[theirs], strict=True)]
        figures = [f"{statistics.median(spent[name]) / DELTAS:.1f}" for name in (ours, theirs)]
        rows.append(
            [
                f"{ours} : {theirs}",
                *figures,
                f"**{statistics.median(ratios):.1f}** ({min(ratios):.1f}–{max(ratios):.1f})",
                f"≥ {GOAL:g}",
            ]
        )
    return (
        f"CPU of the reading process for a stream of {DELTAS} deltas, {STREAMS} streams in a row; "
        f"the median of {len(spent[ours])} rounds.\n\n"
        + report.table(["way of reading", "antiphon, µs a delta", "SDK, µs a delta", "SDK : antiphon", "goal"], rows)
        + "\n"
        + report.circumstances([ANTIPHON, OPENAI], load_before)
    )


def _cost(way: Way, url: str) -> float:
    """Microseconds for one stream."""
    begun = time.process_time_ns()
    events = way(url)
    spent = (time.process_time_ns() - begun) / 1000 / STREAMS
    assert events >= STREAMS * DELTAS, f"only {events} events came"
    return spent


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
    """Answers anything with the same stream, a chunk for every eight events, as a gateway in a hurry would."""
    frames = _frames()
    pieces = [b"".join(frames[at : at + 8]) for at in range(0, len(frames), 8)]
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                )
                await reader.readexactly(length)
                writer.write(answer)
                for piece in pieces:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
                    await asyncio.sleep(0)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
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
WAYS: dict[str, Way] = {
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
    what="`antiphon.client`: every event mended and typed, the response at its end",
    command=[],
    version=versions_of(sys.executable, "antiphon", "msgspec", "httptools", "uvloop"),
)
OPENAI = Target(
    name="openai SDK",
    what="as it is installed",
    command=[],
    version=versions_of(sys.executable, "openai", "pydantic"),
)

if __name__ == "__main__":
    sys.exit(main())
