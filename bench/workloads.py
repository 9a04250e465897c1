"""The workloads as data, and the load generator that sends them. The model name selects the mock's behaviour."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Literal

import msgspec
from bench import payloads
from bench.payloads import STAMP, TURNS
from bench.servers import Server, start_on_cores
from bench.targets import BIN, Kind
from msgspec import Struct

END_MARKERS: dict[Kind, dict[bool, str]] = {  # by API and by `stream`
    "responses": {True: "response.completed", False: "output_text"},
    "chat": {True: "[DONE]", False: "chat.completion"},
}


class Workload(Struct, frozen=True, kw_only=True):
    """Requests of one kind. Each connection sends its next request as soon as the previous response is complete."""

    name: str
    description: str
    model: str
    stream: bool = True
    connections: int
    requests: int
    body: Literal["long", "growing", "plain"] | bytes = "long"
    conversations: int = 1  # number of interleaved conversations, for a growing body
    store: bool = False  # member `store` of the body; not used if the body is bytes
    end_marker: str = ""  # text that every response contains, instead of that of a complete response
    marker: str = ""  # text that a response of Open Responses must contain, besides the end marker
    goal: float | None = None  # CPU time in multiples of nginx
    naive_goal: float | None = None  # CPU time of the naive stack in multiples of this gateway

    def markers(self, kind: Kind) -> list[str]:
        """Returns the texts that a successful response must contain."""
        marker = [self.marker] if self.marker and kind == "responses" else []
        return [self.end_marker or END_MARKERS[kind][self.stream], *marker]


class Percentiles(Struct, frozen=True):
    p50: float
    p99: float
    n: int = 0
    max: float = 0.0


class Load(Struct, frozen=True):
    """The figures of the load generator. Times are in microseconds."""

    requests: int
    ok: int
    errors: int
    elapsed: float
    ttfb_us: Percentiles
    delay_us: Percentiles  # from the mock's write of a token to the client's read, if the mock stamps its tokens
    total_us: Percentiles  # from a request to the end of its response


def run(server: Server, workload: Workload, *, share: float = 1.0, ramp_ms: int = 0, timeout: float = 120.0) -> Load:
    """Sends a workload and waits for its end."""
    with start_load(server, workload, share=share, ramp_ms=ramp_ms) as process:
        try:
            return read_load(process, workload, timeout)
        finally:
            process.kill()


def start_load(server: Server, workload: Workload, *, share: float = 1.0, ramp_ms: int = 0) -> subprocess.Popen[bytes]:
    """Starts the load generator."""
    target = server.target
    # At least one request per connection: concurrent streams share the cost of a wake-up.
    requests = max(workload.connections, round(workload.requests * share))
    paths = _write_bodies(server.folder, target.kind, workload)
    command = [str(BIN / "loadgen"), "--port", str(server.port), "--path", target.path, "--bearer", server.key]
    for path in paths:
        command += ["--body", str(path)]
    if STAMP.encode() in paths[0].read_bytes():
        command += ["--stamp", STAMP]
    command += ["--conns", str(workload.connections), "--requests", str(requests), "--ramp", str(ramp_ms)]
    command += ["--conversations", str(workload.conversations)]
    for marker in workload.markers(target.kind):
        command += ["--expect", marker]
    return start_on_cores(command, server.cores.load, stdout=subprocess.PIPE)


def read_load(process: subprocess.Popen[bytes], workload: Workload, timeout: float) -> Load:
    """Waits for the load generator and reads its figures. After a timeout all requests count as errors."""
    try:
        return msgspec.json.decode(process.communicate(timeout=timeout)[0], type=Load)
    except subprocess.TimeoutExpired:
        no_samples = Percentiles(0, 0)
        return Load(workload.requests, 0, workload.requests, timeout, no_samples, no_samples, no_samples)


def _write_bodies(folder: Path, kind: Kind, workload: Workload) -> list[Path]:
    """Writes one file per turn of a conversation and returns the paths in the order of the turns."""
    paths = []
    for number, body in enumerate(bodies(kind, workload)):
        path = folder / f"{workload.name}-{number}.json"
        path.write_bytes(body)
        paths.append(path)
    return paths


def bodies(kind: Kind, workload: Workload) -> list[bytes]:
    """Returns one body, or one body per turn of a growing conversation."""
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
        description="64 chunks of text in one write",
        model="mock-n64",
        connections=8,
        requests=800,
        goal=8.0,
        naive_goal=12.0,
    ),
    Workload(
        name="json-new",
        description="no stream",
        model="mock-n64",
        stream=False,
        connections=8,
        requests=2_000,  # nginx needs less than 0.1 s for them
        goal=8.0,
        naive_goal=12.0,
    ),
    Workload(
        name="paced",
        description="32 streams, a chunk every 10 ms",
        model="mock-n64-g10000",
        connections=32,
        requests=96,
        goal=4.0,
    ),
    Workload(
        name="paced-200",
        description="200 streams, a chunk every 20 ms",
        model="mock-n64-g20000",
        connections=200,
        requests=400,
    ),
    Workload(
        name="tools",
        description="64 chunks of two calls in one write",
        model="mock-n64-tools",
        connections=8,
        requests=400,
        marker="response.function_call_arguments.done",
    ),
    Workload(
        name="reasoning",
        description="32 chunks of reasoning and 32 of text in one write",
        model="mock-n64-reasoning",
        connections=8,
        requests=400,
        marker="response.reasoning",
    ),
    Workload(
        name="growing",
        description=f"no stream; 64 interleaved conversations that grow from 1 to {TURNS} turns, each sent as a whole",
        model="mock-n64",
        stream=False,
        connections=8,
        requests=64 * TURNS * 2,
        body="growing",
        conversations=64,
    ),
)
WORKLOADS = {workload.name: workload for workload in _WORKLOADS}
