"""A Chat Completions server in a process of its own that answers every request with the same short text at once.

    python -m tests.faults_outside.quick_upstream [CERTIFICATE]

Prints its port. With a certificate (a file with its key) it uses TLS. It takes little time of the machine, so it does
not delay what is measured.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

ANSWER = msgspec.json.encode(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello."}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)


@contextmanager
def quick_upstream(certificate: Path | None = None) -> Iterator[str]:
    """The base URL of a server that runs during the block."""
    scheme, arguments = ("http", []) if certificate is None else ("https", [str(certificate)])
    command = [sys.executable, "-m", "tests.faults_outside.quick_upstream", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        try:
            assert process.stdout is not None
            yield f"{scheme}://localhost:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


async def answer_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            writer.write(HEAD + ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def serve(certificate: str | None) -> None:
    context: ssl.SSLContext | None = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    server = await asyncio.start_server(answer_requests, "127.0.0.1", 0, backlog=1024, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1] if len(sys.argv) > 1 else None))
