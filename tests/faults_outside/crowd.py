"""Many requests of one tenant at once, over new connections, from a process of their own.

    python -m tests.faults_outside.crowd PORT KEY COUNT

Prints `ready`, waits for a line, sends all requests, and prints the number of answers with status 200.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec


def turn_request(key: str) -> bytes:
    """A small turn whose connection is closed after the answer."""
    body = msgspec.json.encode({"model": "m", "input": "Hi", "store": False})
    head = (
        f"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def send_turn(port: int, key: str) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(turn_request(key))
    answer = await reader.read()
    writer.close()
    return answer.startswith(b"HTTP/1.1 200")


async def send_turns(port: int, key: str, count: int) -> int:
    return sum(await asyncio.gather(*(send_turn(port, key) for _ in range(count))))


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    print(asyncio.run(send_turns(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))), flush=True)
