"""A gateway is killed with `kill -9` again and again while many clients have responses stored, and started anew on the same store.

Whatever a client saw finished must be there afterwards, equal to what it saw, and must have everything it continued; the store must
be sound, and the gateway up again soon. What was under way when the gateway died may be lost.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import msgspec
import uvloop
from msgspec import Struct

CONFIG: Final = """
[server]
port = 0
log = "json"
[store]
url = "{store}"
[[upstreams]]
name = "fakes"
dialect = "chat"
base_url = "{upstream}"
models = ["*"]
"""
CLIENTS: Final = 32
LONGEST: Final = 8  # turns of a chain, since the upstream is told all of them each time
BOUND: Final = 60.0  # seconds after which an answer that did not come is a hang
SOON: Final = 2.0  # seconds in which a gateway is up again


class Seen(Struct, frozen=True):
    """A response whose end a client saw, and the one that it continued."""

    response: dict[str, Any]
    previous: str | None

    @property
    def id(self) -> str:
        return str(self.response["id"])


class Answer(Struct, frozen=True):
    """All that came, be it the whole or not; a status of 0 is none at all."""

    status: int
    body: bytes
    is_whole: bool

    @property
    def response(self) -> dict[str, Any] | None:
        """The response, if its end came."""
        if found := COMPLETED.search(self.body):
            response: dict[str, Any] = msgspec.json.decode(found[1])["response"]
            return response
        if self.status == 200 and self.is_whole and self.body.startswith(b"{"):
            return msgspec.json.decode(self.body, type=dict[str, Any])
        return None


class Round:
    """The life of one gateway, from its start to its death: what clients saw of it."""

    def __init__(self, port: int, chance: Random) -> None:
        self.seen: list[Seen] = []
        self.wrong: list[str] = []
        self._port = port
        self._chance = chance
        self._is_over = False

    async def load(self, responses: int, process: subprocess.Popen[bytes]) -> None:
        """Clients ask, until so many responses have come to their end; a moment later the gateway is dead."""
        clients = [asyncio.create_task(self._talk(responses)) for _ in range(CLIENTS)]
        while len(self.seen) < responses and not all(client.done() for client in clients):
            await asyncio.sleep(0.002)
        await asyncio.sleep(self._chance.random() * 0.05)
        self._is_over = True
        process.kill()
        await asyncio.gather(*clients)
        process.wait()

    async def check(self, seen: Sequence[Seen]) -> list[str]:
        """What is wrong with what an earlier gateway had acknowledged, as this one tells it."""
        continued = {one.previous for one in seen}
        queue = list(seen)
        lost: list[str] = []

        async def work() -> None:
            async with _connected(self._port) as line:
                while queue:
                    one = queue.pop()
                    found = await line.ask("GET", f"/v1/responses/{one.id}")
                    if found.response != one.response:
                        lost.append(f"{one.id}: {found.status} {found.body[:300]!r}")
                    elif one.id not in continued:  # with it everything before it
                        body = {"model": "soak-text", "input": "And?", "previous_response_id": one.id, "store": False}
                        more = await line.ask("POST", "/v1/responses", body)
                        if more.response is None:
                            lost.append(f"{one.id} cannot be continued: {more.status} {more.body[:300]!r}")

        await asyncio.gather(*(work() for _ in range(CLIENTS)))
        return lost

    async def _talk(self, responses: int) -> None:
        previous: str | None = None
        turns = 0
        async with _connected(self._port) as line:
            while len(self.seen) < 2 * responses and line.is_open:
                if turns == LONGEST:
                    previous, turns = None, 0
                body: dict[str, Any] = {"model": "soak-text", "input": "Go on.", "stream": self._chance.random() < 0.5}
                if previous is not None:
                    body["previous_response_id"] = previous
                answer = await line.ask("POST", "/v1/responses", body)
                response = answer.response
                if response is not None:
                    self.seen.append(Seen(response, previous))
                    previous, turns = str(response["id"]), turns + 1
                elif not self._is_over:
                    self.wrong.append(f"{answer.status} {answer.body[-300:]!r}")
                    return


class _Line(asyncio.Protocol):
    """A connection that forgets nothing of what came, however it ends."""

    def __init__(self) -> None:
        self.is_open = False
        self._data = b""
        self._news = asyncio.Event()

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        self._data = b""
        content = b"" if body is None else msgspec.json.encode(body)
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
        self.transport.write(f"{head}\r\n\r\n".encode() + content)
        async with asyncio.timeout(BOUND):
            while self.is_open and not _is_whole(self._data):
                self._news.clear()
                await self._news.wait()
        return _answer(self._data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # one end is like another
        self.is_open = False
        self._news.set()


@asynccontextmanager
async def _connected(port: int) -> AsyncIterator[_Line]:
    _, line = await asyncio.get_running_loop().create_connection(_Line, "127.0.0.1", port)
    try:
        yield line
    finally:
        line.transport.close()


def _is_whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return False
    length = LENGTH.search(head)
    return len(body) == int(length[1]) if length else body.endswith(b"0\r\n\r\n")


def _answer(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    if not LENGTH.search(head):
        body = CHUNK.sub(b"", body)
    return Answer(int(head.split(b" ", 2)[1]) if head else 0, body, _is_whole(data))


class Kills:
    """Many rounds, and what came of them."""

    def __init__(self, seed: int) -> None:
        self.rounds = 0
        self.acknowledged = 0
        self.lost: list[str] = []
        self.wrong: list[str] = []
        self.slowest = 0.0  # start, in seconds
        self._chance = Random(seed)
        self._before: list[Seen] = []  # what the gateway of the round before acknowledged

    def run(self, config: Path, rounds: int, responses: int) -> None:
        """Each gateway is asked for what the one before it acknowledged, and the last one only for that."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for number in range(rounds + 1):
                with _gateway(config) as (process, port, seconds):
                    self.slowest = max(self.slowest, seconds)
                    round = Round(port, self._chance)
                    self.lost += runner.run(round.check(self._before))
                    if number < rounds:
                        runner.run(round.load(responses, process))
                self._note(round)
                self._verify(config)

    def _note(self, round: Round) -> None:
        self._before = round.seen
        self.wrong += round.wrong
        self.acknowledged += len(round.seen)
        self.rounds += bool(round.seen)
        if self.rounds % 10 == 0 and round.seen:
            print(f"{self.rounds:>5} rounds  {self.acknowledged:>8} acknowledged  {len(self.lost)} lost", flush=True)

    def _verify(self, config: Path) -> None:
        command = [sys.executable, "-m", "antiphon", "store", "verify", "--config", str(config)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            self.wrong.append(f"after round {self.rounds}: {ended.stdout}{ended.stderr}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.kills", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--responses", type=int, default=1000, help="that come to their end in each round, at least")
    parser.add_argument("--soon", type=float, default=SOON, help="seconds in which a gateway must be up")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    kills = Kills(asked.seed)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="antiphon-kills-") as folder, _upstream() as base_url:
        left = asked.rounds
        while left:  # a new store now and then: to verify one takes longer the more there is
            rounds = min(left, FRESH)
            config = Path(folder, f"{left}.toml")
            config.write_text(
                CONFIG.format(store=_fresh_store(asked.store, Path(folder, f"{left}.db")), upstream=base_url)
            )
            kills.run(config, rounds, asked.responses)
            left -= rounds
    if kills.slowest > asked.soon:
        kills.wrong.append(f"a gateway was up after {kills.slowest:.2f} s only; wanted {asked.soon:g} s")
    print(
        f"{asked.store}: {kills.rounds} rounds, {kills.acknowledged} acknowledged, "
        f"{len(kills.lost)} lost, {len(kills.wrong)} wrong, "
        f"the slowest start {kills.slowest:.2f} s; {time.monotonic() - started:.0f} s in all"
    )
    for complaint in [*kills.lost, *kills.wrong][:20]:
        print("WRONG", complaint)
    return 1 if kills.lost or kills.wrong else 0


def _fresh_store(kind: str, file: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{file}"
    from tests.store.postgres_server import fresh_url  # a server of its own, which ends with this process

    return fresh_url()


@contextmanager
def _upstream() -> Iterator[str]:
    command = [sys.executable, "-m", "soak.upstream"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.stdin.close()


@contextmanager
def _gateway(config: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, float]]:
    """A gateway that listens, its port, and how long that took."""
    started = time.monotonic()
    command = [sys.executable, "-m", "antiphon", "serve", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, _port_of(process), time.monotonic() - started
        finally:
            process.kill()


def _port_of(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if found := ADDRESS.search(line):
            return int(found[1])
    raise RuntimeError("the gateway did not start")


FRESH: Final = 20  # rounds
ADDRESS: Final = re.compile(rb"http://127\.0\.0\.1:(\d+)")
LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)")
CHUNK: Final = re.compile(rb"(?:^|\r\n)[0-9a-f]+\r\n")  # no event holds a CR
COMPLETED: Final = re.compile(rb"event: response\.completed\ndata: (.*)\n\n")


if __name__ == "__main__":
    sys.exit(main())
