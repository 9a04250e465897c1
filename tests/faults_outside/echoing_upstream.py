"""A Responses server in a process of its own that answers with a short text, and repeats the tools and instructions of
the request in its response, or in three events of a stream.

    python -m tests.faults_outside.echoing_upstream

Prints its port.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from antiphon.dialects.responses import EventsFromHub
from antiphon.protocol import codec
from antiphon.protocol.content import OutputText
from antiphon.protocol.fold import replay_response
from antiphon.protocol.items import Message
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.status import ItemStatus, ResponseStatus

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
TEXT = OutputText(text="Hello.", annotations=[], logprobs=[])
MESSAGE = Message(id="msg_1", status=ItemStatus.COMPLETED, role="assistant", content=[TEXT])


class Settings(Struct):
    """The members of a request that the answer repeats."""

    tools: Raw = Raw(b"[]")
    instructions: Raw = Raw(b"null")
    stream: bool = False


@contextmanager
def echoing_upstream() -> Iterator[str]:
    """The base URL of a server that runs during the block."""
    command = [sys.executable, "-m", "tests.faults_outside.echoing_upstream"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def answer_to(settings: Settings) -> list[bytes]:
    initial: Response = make_initial_response(Request(model="m"), id="resp_1", created_at=1)
    response = replace(
        initial,
        tools=settings.tools,
        instructions=settings.instructions,
        output=[MESSAGE],
        status=ResponseStatus.COMPLETED,
        completed_at=2,
    )
    if not settings.stream:
        body = codec.encode(response)
        return [HEAD % (b"application/json", len(body)), body]
    writer = EventsFromHub(Request())
    frames = [writer.feed(event) for event in replay_response(response)]
    return [HEAD % (b"text/event-stream", sum(map(len, frames))), *frames]


async def answer_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            body = await reader.readexactly(int(length))
            for piece in answer_to(msgspec.json.decode(body, type=Settings)):
                writer.write(piece)
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve() -> None:
    server = await asyncio.start_server(answer_requests, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
