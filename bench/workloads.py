"""What is asked: workloads as data, and the load generator that sends them. Model names choose the mock's behaviour."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Literal

import msgspec
from bench import payloads
from bench.payloads import STAMP, TURNS
from bench.servers import Server, pinned
from bench.targets import BIN, Kind
from msgspec import Struct

END: dict[Kind, dict[bool, str]] = {
    "responses": {True: "response.completed", False: "output_text"},
    "chat": {True: "[DONE]", False: "chat.completion"},
}


class Workload(Struct, frozen=True, kw_only=True):
    """Requests of one kind: so many connections, each of which asks again as soon as it is answered."""

    name: str
    what: str
    model: str
    stream: bool = True
    connections: int
    requests: int
    body: Literal["long", "growing", "plain"] | bytes = "long"
    conversations: int = 1  # that take turns, if they grow
    store: bool = False  # of a body that is made here
    marker: str = ""  # what a response in Open Responses must have in it besides its end
    goal: float | None = None  # CPU in multiples of nginx
    goal_naive: float | None = None  # how many times cheaper than the naive stack

    def markers(self, kind: Kind) -> list[str]:
        """What an answer must contain to count as one."""
        marker = [self.marker] if self.marker and kind == "responses" else []
        return [END[kind][self.stream], *marker]


class Percentiles(Struct, frozen=True):
    p50: float
    p99: float
    n: int = 0
    max: float = 0.0


class Load(Struct, frozen=True):
    """What the load generator saw; times in microseconds."""

    requests: int
    ok: int
    errors: int
    elapsed: float
    ttfb_us: Percentiles
    delay_us: Percentiles  # of tokens, from the mock's write to the client's read, if the mock stamps them
    total_us: Percentiles  # from a request to the end of its answer


def run(server: Server, workload: Workload, *, share: float = 1.0, ramp_ms: int = 0, timeout: float = 120.0) -> Load:
    """Sends a workload and waits for its end."""
    with start(server, workload, share=share, ramp_ms=ramp_ms) as process:
        try:
            return read(process, workload, timeout)
        finally:
            process.kill()


def start(server: Server, workload: Workload, *, share: float = 1.0, ramp_ms: int = 0) -> subprocess.Popen[bytes]:
    """The load generator, under way."""
    target = server.target
    requests = max(
        workload.connections, round(workload.requests * share)
    )  # never fewer streams at once: a wake-up is shared
    paths = _bodies(server.folder, target.kind, workload)
    command = [str(BIN / "loadgen"), "--port", str(server.port), "--path", target.path, "--bearer", server.key]
    for path in paths:
        command += ["--body", str(path)]
    if STAMP.encode() in paths[0].read_bytes():
        command += ["--stamp", STAMP]
    command += ["--conns", str(workload.connections), "--requests", str(requests), "--ramp", str(ramp_ms)]
    command += ["--conversations", str(workload.conversations)]
    for marker in workload.markers(target.kind):
        command += ["--expect", marker]
    return pinned(command, server.cores.load, stdout=subprocess.PIPE)


def read(process: subprocess.Popen[bytes], workload: Workload, timeout: float) -> Load:
    """What it saw, once it is over. What takes too long has failed as a whole."""
    try:
        return msgspec.json.decode(process.communicate(timeout=timeout)[0], type=Load)
    except subprocess.TimeoutExpired:
        nothing = Percentiles(0, 0)
        return Load(workload.requests, 0, workload.requests, timeout, nothing, nothing, nothing)


def _bodies(folder: Path, kind: Kind, workload: Workload) -> list[Path]:
    """Files with the bodies that a conversation sends one after the other."""
    paths = []
    for number, body in enumerate(bodies(kind, workload)):
        path = folder / f"{workload.name}-{number}.json"
        path.write_bytes(body)
        paths.append(path)
    return paths


def bodies(kind: Kind, workload: Workload) -> list[bytes]:
    """One body, or one for each turn of a conversation that grows."""
    if isinstance(workload.body, bytes):
        return [workload.body]
    if workload.body == "plain":
        return [payloads.plain_body(workload.model, stream=workload.stream, store=workload.store)]
    lengths = range(1, TURNS + 1) if workload.body == "growing" else [TURNS]
    if kind == "responses":
        return [
            payloads.responses_body(workload.model, stream=workload.stream, store=workload.store, turns=turns)
            for turns in lengths
        ]
    return [payloads.chat_body(workload.model, stream=workload.stream, turns=turns) for turns in lengths]


_WORKLOADS = (
    Workload(
        name="burst-new",
        what="64 chunks of text in one write",
        model="mock-n64",
        connections=8,
        requests=800,
        goal=8.0,
        goal_naive=12.0,
    ),
    Workload(
        name="json-new",
        what="no stream",
        model="mock-n64",
        stream=False,
        connections=8,
        requests=2_000,  # nginx takes less than a tenth of a second for them
        goal=8.0,
        goal_naive=12.0,
    ),
    Workload(
        name="paced",
        what="32 streams, a chunk every 10 ms",
        model="mock-n64-g10000",
        connections=32,
        requests=96,
        goal=4.0,
    ),
    Workload(
        name="paced-200",
        what="200 streams, a chunk every 20 ms",
        model="mock-n64-g20000",
        connections=200,
        requests=400,
    ),
    Workload(
        name="tools",
        what="64 chunks of two calls in one write",
        model="mock-n64-tools",
        connections=8,
        requests=400,
        marker="response.function_call_arguments.done",
    ),
    Workload(
        name="reasoning",
        what="32 chunks of reasoning and 32 of text in one write",
        model="mock-n64-reasoning",
        connections=8,
        requests=400,
        marker="response.reasoning",
    ),
    Workload(
        name="growing",
        what=f"no stream; 64 conversations that grow from 1 to {TURNS} turns, interleaved, each turn sent whole",
        model="mock-n64",
        stream=False,
        connections=8,
        requests=64 * TURNS * 2,
        body="growing",
        conversations=64,
    ),
)
WORKLOADS = {workload.name: workload for workload in _WORKLOADS}
