"""Runs the soak test: sends 200,000 requests to `antiphon serve`, a third of them with a fault, and watches its memory.

It fails if an answer is wrong or missing, or if the gateway ends, keeps files open, logs an exception, or grows by 1 MB
or more per 100,000 requests. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

import uvloop
from bench.processes import rss_kib
from msgspec import Struct
from soak.client import Answer, Client, SoakRequest
from soak.requests import KEY, new_agent_request, random_request

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
ANSWER_TIMEOUT: Final = 30.0  # seconds
CLIENTS: Final = 64
NEW_AGENTS: Final = 2_000
ROUNDS: Final = 50
WARM_UP: Final = 0.2  # share of the rounds
MIN_REQUESTS_FOR_SLOPE: Final = 50_000
MAX_SLOPE: Final = 1.0  # MB per 100,000 requests


class Sample(Struct, frozen=True):
    """Memory and open files of the idle gateway after a number of requests."""

    requests: int
    mb: float
    files: int


class Soak:
    """Sends the requests, checks the answers and samples the gateway."""

    def __init__(self, port: int, pid: int, seed: int) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()  # by kind of request and outcome
        self.wrong_answers: list[str] = []
        self.samples: list[Sample] = []
        self._pid = pid
        self._rng = Random(seed)
        self._clients = [Client(port) for _ in range(CLIENTS)]
        self._remaining_requests = 0
        self._finished_requests = 0

    async def run(self, requests: int, new_agents: int) -> None:
        """Sends the requests in rounds and takes a sample after each round, while the gateway is idle.

        The new agents fill all bounded caches before the first round, so that the growth of a cache is not measured.
        """
        numbers = itertools.count(1)
        await self._send_requests(new_agents, lambda: new_agent_request(self._rng, next(numbers)))
        self._finished_requests = 0
        for number in range(ROUNDS):
            count = requests * (number + 1) // ROUNDS - requests * number // ROUNDS
            await self._send_requests(count, lambda: random_request(self._rng))
            self._take_sample()
            if number % 5 == 4:
                sample = self.samples[-1]
                print(
                    f"{sample.requests:>8} requests  {sample.mb:7.2f} MB  {sample.files} files  "
                    f"{len(self.wrong_answers)} wrong answers",
                    flush=True,
                )
        for client in self._clients:
            client.disconnect()

    async def _send_requests(self, count: int, create_request: Callable[[], SoakRequest]) -> None:
        self._remaining_requests = count
        await asyncio.gather(*(self._run_client(client, create_request) for client in self._clients))

    async def _run_client(self, client: Client, create_request: Callable[[], SoakRequest]) -> None:
        while self._remaining_requests > 0:
            self._remaining_requests -= 1
            request = create_request()
            try:
                answer = await asyncio.wait_for(client.send(request), ANSWER_TIMEOUT)
            except (TimeoutError, OSError, EOFError, ValueError) as error:
                client.disconnect()
                outcome = "hang" if isinstance(error, TimeoutError) else repr(error)
                self._count_outcome(request.kind, outcome, None, is_expected=False)
            else:
                outcome = "disconnected" if answer is None else str(answer.status)
                is_expected = answer is None or request.is_expected(answer)
                self._count_outcome(request.kind, outcome, answer, is_expected=is_expected)

    def _count_outcome(self, kind: str, outcome: str, answer: Answer | None, *, is_expected: bool) -> None:
        self._finished_requests += 1
        self.counts[kind, outcome] += 1
        if not is_expected:
            self.wrong_answers.append(f"{kind}: {outcome}: {answer.body[-300:] if answer else b''!r}")

    def _take_sample(self) -> None:
        files = len(os.listdir(f"/proc/{self._pid}/fd"))
        self.samples.append(Sample(self._finished_requests, rss_kib(self._pid) / 1024, files))


def memory_slope(samples: Sequence[Sample]) -> tuple[float, float]:
    """Returns the growth in MB per 100,000 requests, by least squares, and its standard error."""
    n = len(samples)
    mean_requests = sum(sample.requests for sample in samples) / n
    mean_mb = sum(sample.mb for sample in samples) / n
    spread = sum((sample.requests - mean_requests) ** 2 for sample in samples)
    slope = sum((sample.requests - mean_requests) * (sample.mb - mean_mb) for sample in samples) / spread
    residuals = sum((sample.mb - mean_mb - slope * (sample.requests - mean_requests)) ** 2 for sample in samples)
    return slope * 100_000, (residuals / (n - 2) / spread) ** 0.5 * 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.run", description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="antiphon-soak-") as folder, _gateway(Path(folder)) as (process, port, log):
        start = time.monotonic()
        soak = Soak(port, process.pid, args.seed)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(soak.run(args.requests, min(NEW_AGENTS, args.requests)))
        seconds = time.monotonic() - start
        problems = soak.wrong_answers[:20] + _find_problems(process, soak, log)
    return _print_report(soak, seconds, problems)


def _find_problems(process: subprocess.Popen[bytes], soak: Soak, log: Path) -> list[str]:
    problems = []
    if process.poll() is not None:
        problems.append(f"the gateway ended with exit code {process.returncode}")
    with log.open("rb") as lines:
        problems += [line.decode()[:500] for line in lines if b'"exception"' in line or b'"Traceback' in line][:5]
    first, last = soak.samples[int(ROUNDS * WARM_UP)], soak.samples[-1]
    if last.files > first.files + CLIENTS:
        problems.append(f"the gateway has {last.files} open files; after the warm-up it had {first.files}")
    return problems


def _print_report(soak: Soak, seconds: float, problems: list[str]) -> int:
    total = soak.samples[-1].requests
    samples = soak.samples[int(ROUNDS * WARM_UP) :]
    slope, error = memory_slope(samples)
    for (kind, outcome), count in sorted(soak.counts.items()):
        print(f"{count:>8}  {kind}: {outcome}")
    print(f"{total} requests in {seconds:.0f} s ({total / seconds:.0f}/s), {len(soak.wrong_answers)} wrong answers")
    print(
        f"memory: {samples[0].mb:.1f} MB after the warm-up, {samples[-1].mb:.1f} MB at the end; "
        f"open files: {samples[-1].files}"
    )
    print(f"slope: {slope:+.2f} ± {error:.2f} MB per 100,000 requests")
    if total < MIN_REQUESTS_FOR_SLOPE:
        print(f"the slope is not checked with fewer than {MIN_REQUESTS_FOR_SLOPE} requests")
    elif slope >= MAX_SLOPE:
        problems.append(f"memory grows by {slope:.2f} MB per 100,000 requests: expected less than {MAX_SLOPE}")
    for problem in problems:
        print("PROBLEM", problem)
    return 1 if problems else 0


@contextmanager
def _gateway(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """Starts the scripted upstream and a gateway, and yields the gateway's process, port and log."""
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
                yield process, _read_port(process), log
            finally:
                process.send_signal(signal.SIGTERM)
                assert upstream.stdin is not None
                upstream.stdin.close()


def _read_port(process: subprocess.Popen[bytes]) -> int:
    """Reads the output of the gateway until it prints its address, and returns the port."""
    assert process.stdout is not None
    for line in process.stdout:
        for word in line.decode().split():
            if word.startswith("http://127.0.0.1:"):
                return int(word.removeprefix("http://127.0.0.1:").partition("/")[0])
    raise RuntimeError("the gateway did not start")


if __name__ == "__main__":
    sys.exit(main())
