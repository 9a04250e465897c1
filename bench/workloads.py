"""What is asked: workloads as data, and the load generator that sends them. Model names choose the mock's behaviour."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Literal

import msgspec
from bench import payloads
from bench.payloads import STAMP
from bench.servers import Server, pinned
from bench.targets import BIN, Kind
from msgspec import Struct
from msgspec.structs import replace

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
    body: Literal["long", "plain"] | bytes = "long"
    store: bool = False  # of a body that is made here
    new: bool = False  # whether nobody has sent the long body's conversation before
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
    requests = max(workload.connections, round(workload.requests * share))  # never fewer streams at once: a wake-up is shared
    path = _body(server.folder, target.kind, workload)
    command = [str(BIN / "loadgen"), "--port", str(server.port), "--path", target.path, "--bearer", server.key]
    command += ["--body", str(path), "--ramp", str(ramp_ms), *(["--stamp", STAMP] if STAMP.encode() in path.read_bytes() else [])]
    command += ["--conns", str(workload.connections), "--requests", str(requests)]
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


def _body(folder: Path, kind: Kind, workload: Workload) -> Path:
    path = folder / f"{workload.name}.json"
    path.write_bytes(_bytes(kind, workload))
    return path


def _bytes(kind: Kind, workload: Workload) -> bytes:
    if isinstance(workload.body, bytes):
        return workload.body
    if workload.body == "plain":
        return payloads.plain_body(workload.model, stream=workload.stream, store=workload.store)
    if kind == "responses":
        return payloads.responses_body(workload.model, stream=workload.stream, store=workload.store, new=workload.new)
    return payloads.chat_body(workload.model, stream=workload.stream, new=workload.new)


BURST = Workload(
    name="burst",
    what="64 chunks of text in one write",
    model="mock-n64",
    connections=8,
    requests=800,
    goal=8.0,
    goal_naive=12.0,
)
JSON = Workload(
    name="json",
    what="no stream",
    model="mock-n64",
    stream=False,
    connections=8,
    requests=2_000,  # nginx takes less than a tenth of a second for them
    goal=8.0,
    goal_naive=12.0,
)
NO_GOALS: dict[str, None] = {"goal": None, "goal_naive": None}
WORKLOADS = {
    workload.name: workload
    for workload in (
        BURST,
        JSON,
        replace(BURST, name="burst-new", what="a burst for a conversation that nobody sent before", new=True, **NO_GOALS),
        replace(JSON, name="json-new", what="no stream, for a conversation that nobody sent before", new=True, **NO_GOALS),
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
    )
}
