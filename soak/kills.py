"""Kills a gateway repeatedly with `kill -9` while many clients store responses, and starts it again on the same store.

Every response whose end reached a client must be stored unchanged, and its chain can be continued. The store must have
no problem, and the gateway must start in time. Responses in flight at the time of the kill may be lost.
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
MAX_TURNS: Final = 8  # of a chain, because every turn sends the whole chain to the upstream
ANSWER_TIMEOUT: Final = 60.0  # seconds
START_LIMIT: Final = 2.0  # seconds until a restarted gateway listens


class AcknowledgedResponse(Struct, frozen=True):
    """A response whose end reached a client, and the id of the response that it continued."""

    response: dict[str, Any]
    previous_id: str | None

    @property
    def id(self) -> str:
        return str(self.response["id"])


class Answer(Struct, frozen=True):
    """The received part of an answer. The status is 0 if nothing was received."""

    status: int
    body: bytes
    is_complete: bool

    @property
    def response(self) -> dict[str, Any] | None:
        """The response, or None if its end was not received."""
        if match := COMPLETED.search(self.body):
            response: dict[str, Any] = msgspec.json.decode(match[1])["response"]
            return response
        if self.status == 200 and self.is_complete and self.body.startswith(b"{"):
            return msgspec.json.decode(self.body, type=dict[str, Any])
        return None


class Round:
    """The requests to one gateway, from its start until it is killed."""

    def __init__(self, port: int, rng: Random) -> None:
        self.acknowledged: list[AcknowledgedResponse] = []
        self.problems: list[str] = []
        self._port = port
        self._rng = rng
        self._is_killed = False

    async def load_and_kill(self, responses: int, process: subprocess.Popen[bytes]) -> None:
        """Lets clients create responses until enough are acknowledged, then kills the gateway after a random delay."""
        clients = [asyncio.create_task(self._run_client(responses)) for _ in range(CLIENTS)]
        while len(self.acknowledged) < responses and not all(client.done() for client in clients):
            await asyncio.sleep(0.002)
        await asyncio.sleep(self._rng.random() * 0.05)
        self._is_killed = True
        process.kill()
        await asyncio.gather(*clients)
        process.wait()

    async def find_losses(self, acknowledged: Sequence[AcknowledgedResponse]) -> list[str]:
        """Returns a message for each acknowledged response that is missing or changed, or cannot be continued."""
        continued_ids = {response.previous_id for response in acknowledged}
        unchecked = list(acknowledged)
        losses: list[str] = []

        async def check_responses() -> None:
            async with _connect(self._port) as connection:
                while unchecked:
                    expected = unchecked.pop()
                    stored = await connection.send("GET", f"/v1/responses/{expected.id}")
                    if stored.response != expected.response:
                        losses.append(f"{expected.id}: {stored.status} {stored.body[:300]!r}")
                    elif expected.id not in continued_ids:  # the end of a chain; continuing it reads the whole chain
                        body = {
                            "model": "soak-text",
                            "input": "And?",
                            "previous_response_id": expected.id,
                            "store": False,
                        }
                        answer = await connection.send("POST", "/v1/responses", body)
                        if answer.response is None:
                            losses.append(f"{expected.id} cannot be continued: {answer.status} {answer.body[:300]!r}")

        await asyncio.gather(*(check_responses() for _ in range(CLIENTS)))
        return losses

    async def _run_client(self, responses: int) -> None:
        previous_id: str | None = None
        turns = 0
        async with _connect(self._port) as connection:
            while len(self.acknowledged) < 2 * responses and connection.is_open:
                if turns == MAX_TURNS:
                    previous_id, turns = None, 0
                body: dict[str, Any] = {"model": "soak-text", "input": "Go on.", "stream": self._rng.random() < 0.5}
                if previous_id is not None:
                    body["previous_response_id"] = previous_id
                answer = await connection.send("POST", "/v1/responses", body)
                response = answer.response
                if response is not None:
                    self.acknowledged.append(AcknowledgedResponse(response, previous_id))
                    previous_id, turns = str(response["id"]), turns + 1
                elif not self._is_killed:
                    self.problems.append(f"{answer.status} {answer.body[-300:]!r}")
                    return


class _Connection(asyncio.Protocol):
    """A connection that keeps all received bytes of an answer, also when it is closed."""

    def __init__(self) -> None:
        self.is_open = False
        self._data = b""
        self._has_changed = asyncio.Event()

    async def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        self._data = b""
        content = b"" if body is None else msgspec.json.encode(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        async with asyncio.timeout(ANSWER_TIMEOUT):
            while self.is_open and not _is_complete(self._data):
                self._has_changed.clear()
                await self._has_changed.wait()
        return _parse_answer(self._data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._has_changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.is_open = False
        self._has_changed.set()


@asynccontextmanager
async def _connect(port: int) -> AsyncIterator[_Connection]:
    _, connection = await asyncio.get_running_loop().create_connection(_Connection, "127.0.0.1", port)
    try:
        yield connection
    finally:
        connection.transport.close()


def _is_complete(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return False
    length = LENGTH.search(head)
    return len(body) == int(length[1]) if length else body.endswith(b"0\r\n\r\n")


def _parse_answer(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    if not LENGTH.search(head):
        body = CHUNK.sub(b"", body)
    return Answer(int(head.split(b" ", 2)[1]) if head else 0, body, _is_complete(data))


class Kills:
    """The totals of many rounds."""

    def __init__(self, seed: int) -> None:
        self.rounds = 0
        self.acknowledged_count = 0
        self.losses: list[str] = []
        self.problems: list[str] = []
        self.slowest_start = 0.0  # seconds
        self._rng = Random(seed)
        self._previously_acknowledged: list[AcknowledgedResponse] = []  # by the gateway of the previous round

    def run(self, config: Path, rounds: int, responses: int) -> None:
        """Runs the rounds. Each gateway must have the responses of the previous one; the last one is only checked."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for number in range(rounds + 1):
                with _gateway(config) as (process, port, seconds):
                    self.slowest_start = max(self.slowest_start, seconds)
                    round = Round(port, self._rng)
                    self.losses += runner.run(round.find_losses(self._previously_acknowledged))
                    if number < rounds:
                        runner.run(round.load_and_kill(responses, process))
                self._add_round(round)
                self._verify_store(config)

    def _add_round(self, round: Round) -> None:
        self._previously_acknowledged = round.acknowledged
        self.problems += round.problems
        self.acknowledged_count += len(round.acknowledged)
        self.rounds += bool(round.acknowledged)
        if self.rounds % 10 == 0 and round.acknowledged:
            print(
                f"{self.rounds:>5} rounds  {self.acknowledged_count:>8} acknowledged  {len(self.losses)} lost",
                flush=True,
            )

    def _verify_store(self, config: Path) -> None:
        command = [sys.executable, "-m", "antiphon", "store", "verify", "--config", str(config)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            self.problems.append(f"after round {self.rounds}: {result.stdout}{result.stderr}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.kills", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--responses", type=int, default=1000, help="minimum of acknowledged responses per round")
    parser.add_argument("--soon", type=float, default=START_LIMIT, help="seconds in which a gateway must start")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    kills = Kills(args.seed)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="antiphon-kills-") as folder, _upstream() as base_url:
        remaining_rounds = args.rounds
        while remaining_rounds:  # with a new store each time, because a large store takes long to verify
            rounds = min(remaining_rounds, ROUNDS_PER_STORE)
            config = Path(folder, f"{remaining_rounds}.toml")
            store = _new_store_url(args.store, Path(folder, f"{remaining_rounds}.db"))
            config.write_text(CONFIG.format(store=store, upstream=base_url))
            kills.run(config, rounds, args.responses)
            remaining_rounds -= rounds
    if kills.slowest_start > args.soon:
        kills.problems.append(
            f"a gateway needed {kills.slowest_start:.2f} s to start: expected at most {args.soon:g} s"
        )
    print(
        f"{args.store}: {kills.rounds} rounds, {kills.acknowledged_count} acknowledged, "
        f"{len(kills.losses)} lost, {len(kills.problems)} other problems, "
        f"the slowest start {kills.slowest_start:.2f} s; {time.monotonic() - start:.0f} s in total"
    )
    for problem in [*kills.losses, *kills.problems][:20]:
        print("PROBLEM", problem)
    return 1 if kills.losses or kills.problems else 0


def _new_store_url(store: str, file: Path) -> str:
    if store == "sqlite":
        return f"sqlite:///{file}"
    from tests.store.postgres_server import fresh_durable_url  # starts a server that ends with this process

    return fresh_durable_url()


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
    """Starts a gateway and yields its process, its port and the seconds until it listened. Kills it at the end."""
    start = time.monotonic()
    command = [sys.executable, "-m", "antiphon", "serve", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield process, _read_port(process), time.monotonic() - start
        finally:
            process.kill()


def _read_port(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if match := ADDRESS.search(line):
            return int(match[1])
    raise RuntimeError("the gateway did not start")


ROUNDS_PER_STORE: Final = 20
ADDRESS: Final = re.compile(rb"http://127\.0\.0\.1:(\d+)")
LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)")
CHUNK: Final = re.compile(rb"(?:^|\r\n)[0-9a-f]+\r\n")  # no event contains a CR
COMPLETED: Final = re.compile(rb"event: response\.completed\ndata: (.*)\n\n")


if __name__ == "__main__":
    sys.exit(main())
