"""The soak: a real `antiphon serve` is asked two hundred thousand things, a third of them faulty, while its memory is watched.

It fails if an answer is not what it should be, if one does not come, if the gateway dies, keeps sockets, or grows by a megabyte or
more for every hundred thousand requests. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

import uvloop
from bench.processes import rss_kib
from msgspec import Struct
from soak.asks import KEY, ask, newcomer
from soak.client import Answer, Ask, Client

CONFIG: Final = """
[server]
port = 0
[store]
url = "sqlite:///{store}"
[[keys]]
name = "soak"
sha256 = "{key}"
[[upstreams]]
name = "hanging"
dialect = "chat"
base_url = "{upstream}"
models = ["soak-hang", "soak-silent"]
timeouts = {{ first_byte = 0.5, idle = 0.5 }}
[[upstreams]]
name = "absent"
dialect = "chat"
base_url = "http://127.0.0.1:1/v1"
models = ["soak-refused"]
[[upstreams]]
name = "fakes"
dialect = "chat"
base_url = "{upstream}"
models = ["*"]
"""
BOUND: Final = 30.0  # seconds after which an answer that did not come is a hang
CLIENTS: Final = 64
NEWCOMERS: Final = 2_000
ROUNDS: Final = 50
WARM_UP: Final = 0.2  # of the rounds
ENOUGH: Final = 50_000  # requests from which the slope says something
MOST_SLOPE: Final = 1.0  # MB for every 100,000 requests


class Sample(Struct, frozen=True):
    """The gateway at rest, after so many requests."""

    requests: int
    mb: float
    files: int


class Soak:
    """What is asked, and what came of it."""

    def __init__(self, port: int, pid: int, seed: int) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self.samples: list[Sample] = []
        self._pid = pid
        self._chance = Random(seed)
        self._clients = [Client(port) for _ in range(CLIENTS)]
        self._newcomers: int | None = None  # that came, while nobody else does
        self._left = 0
        self._done = 0

    async def run(self, requests: int, newcomers: int) -> None:
        """All of them, in rounds; after each the gateway is looked at while nobody asks. What it remembers up to a bound is full
        before the first: to see that fill up is not to see a leak."""
        self._newcomers, self._left = 0, newcomers
        await asyncio.gather(*map(self._work, self._clients))
        self._newcomers, self._done = None, 0
        for number in range(ROUNDS):
            self._left = requests * (number + 1) // ROUNDS - requests * number // ROUNDS
            await asyncio.gather(*map(self._work, self._clients))
            self._sample()
            if number % 5 == 4:
                told = self.samples[-1]
                print(
                    f"{told.requests:>8} requests  {told.mb:7.2f} MB  {told.files} files  {len(self.wrong)} wrong",
                    flush=True,
                )
        for client in self._clients:
            client.leave()

    async def _work(self, client: Client) -> None:
        while self._left > 0:
            self._left -= 1
            asked = self._next()
            try:
                answer = await asyncio.wait_for(client.ask(asked), BOUND)
            except (TimeoutError, OSError, EOFError, ValueError) as failure:
                client.leave()
                self._note(
                    asked.kind, "hang" if isinstance(failure, TimeoutError) else repr(failure), None, is_right=False
                )
            else:
                told = "left" if answer is None else str(answer.status)
                self._note(asked.kind, told, answer, is_right=answer is None or asked.is_right(answer))

    def _next(self) -> Ask:
        if self._newcomers is None:
            return ask(self._chance)
        self._newcomers += 1
        return newcomer(self._chance, self._newcomers)

    def _note(self, kind: str, outcome: str, answer: Answer | None, *, is_right: bool) -> None:
        self._done += 1
        self.counts[kind, outcome] += 1
        if not is_right:
            self.wrong.append(f"{kind}: {outcome}: {answer.body[-300:] if answer else b''!r}")

    def _sample(self) -> None:
        files = len(os.listdir(f"/proc/{self._pid}/fd"))
        self.samples.append(Sample(self._done, rss_kib(self._pid) / 1024, files))


def slope(samples: Sequence[Sample]) -> tuple[float, float]:
    """MB for every 100,000 requests by least squares, and its standard error."""
    n = len(samples)
    middle = sum(sample.requests for sample in samples) / n
    mean = sum(sample.mb for sample in samples) / n
    spread = sum((sample.requests - middle) ** 2 for sample in samples)
    steep = sum((sample.requests - middle) * (sample.mb - mean) for sample in samples) / spread
    rest = sum((sample.mb - mean - steep * (sample.requests - middle)) ** 2 for sample in samples)
    return steep * 100_000, (rest / (n - 2) / spread) ** 0.5 * 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.run", description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="antiphon-soak-") as folder, _gateway(Path(folder)) as (process, port, log):
        started = time.monotonic()
        soak = Soak(port, process.pid, asked.seed)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(soak.run(asked.requests, min(NEWCOMERS, asked.requests)))
        seconds = time.monotonic() - started
        complaints = soak.wrong[:20] + _complaints(process, soak, log)
    return _report(soak, seconds, complaints)


def _complaints(process: subprocess.Popen[bytes], soak: Soak, log: Path) -> list[str]:
    found = []
    if process.poll() is not None:
        found.append(f"the gateway ended with {process.returncode}")
    with log.open("rb") as lines:
        found += [line.decode()[:500] for line in lines if b'"exception"' in line or b'"Traceback' in line][:5]
    after = soak.samples[int(ROUNDS * WARM_UP)]
    if soak.samples[-1].files > after.files + CLIENTS:
        found.append(f"{soak.samples[-1].files} files are open; after the warm-up there were {after.files}")
    return found


def _report(soak: Soak, seconds: float, complaints: list[str]) -> int:
    total = soak.samples[-1].requests
    watched = soak.samples[int(ROUNDS * WARM_UP) :]
    steep, error = slope(watched)
    for (kind, outcome), count in sorted(soak.counts.items()):
        print(f"{count:>8}  {kind}: {outcome}")
    print(f"{total} requests in {seconds:.0f} s ({total / seconds:.0f}/s), {len(soak.wrong)} wrong")
    print(
        f"memory: {watched[0].mb:.1f} MB after the warm-up, {watched[-1].mb:.1f} MB at the end; open files {watched[-1].files}"
    )
    print(f"slope: {steep:+.2f} ± {error:.2f} MB per 100,000 requests")
    if total < ENOUGH:
        print(f"too few requests to judge the slope: that takes {ENOUGH}")
    elif steep >= MOST_SLOPE:
        complaints.append(f"it grows by {steep:.2f} MB per 100,000 requests; {MOST_SLOPE} is too much")
    for complaint in complaints:
        print("WRONG", complaint)
    return 1 if complaints else 0


@contextmanager
def _gateway(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """A gateway over the fakes, each a process: the first with its port and its log."""
    log = folder / "log"
    command = [sys.executable, "-m", "soak.upstream"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as upstream, log.open("wb") as lines:
        assert upstream.stdout is not None
        base_url = upstream.stdout.readline().decode().strip()
        config = folder / "antiphon.toml"
        config.write_text(
            CONFIG.format(store=folder / "antiphon.db", upstream=base_url, key=sha256(KEY.encode()).hexdigest())
        )
        command = [sys.executable, "-m", "antiphon", "serve", "--config", str(config)]
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=lines, env=environ) as process:
            try:
                yield process, _port_of(process), log
            finally:
                process.send_signal(signal.SIGTERM)
                assert upstream.stdin is not None
                upstream.stdin.close()


def _port_of(process: subprocess.Popen[bytes]) -> int:
    """Where it says that it listens."""
    assert process.stdout is not None
    for line in process.stdout:
        for word in line.decode().split():
            if word.startswith("http://127.0.0.1:"):
                return int(word.removeprefix("http://127.0.0.1:").partition("/")[0])
    raise RuntimeError("the gateway did not start")


if __name__ == "__main__":
    sys.exit(main())
