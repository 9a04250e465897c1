"""Counts the Python calls of one turn in the gateway's event loop, and the files of the package that they are in.

    python -m bench.walk [--against COMMIT] [--files]

Each turn is measured after two turns of the same kind. A resumed coroutine counts as a call. Threads of the store do
not count, nor does the log, which is written later, for several turns at once, nor do tasks that a timer runs whether
there are turns or not.

Background work is two walks, because the request that queues a response does not wait for it. The request is counted in
a gateway that has no free slot, the job in a second gateway on the same store, which gets no requests.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
from bench import commits
from bench.servers import Server, running
from bench.targets import Target, antiphon
from msgspec import Struct
from msgspec.structs import replace

LIMIT: Final = 20.0  # seconds
PAUSE: Final = 1.0  # seconds
END_PAUSE: Final = 0.1  # seconds; a turn ends shortly after the last byte of its answer
BODY: Final = {"model": "mock-n16", "input": "Say hello."}
ENDLESS_MODEL: Final = "mock-n2-g3600000000"  # its second piece comes after an hour
ONE_SLOT: Final = "[background]\nrunning = 1\n"
# Starts the gateway. SIGUSR1 begins to record the file of every call, SIGUSR2 writes the records to a file. The log
# writes the entries of several turns together, after their answers, so its `flush` is part of no turn. Neither are
# periodic tasks, which run without turns too.
LAUNCHER: Final = """
import os, signal, sys
source, file = sys.argv.pop(1), sys.argv.pop(1)
calls = []
outside = None  # a frame that is part of no turn, nor is what it calls
periodic = {
    ("/ops/supervisor.py", "main_loop"),
    ("/ops/file_descriptors.py", "watch_descriptors"),
    ("/ops/health_checks.py", "run_health_checks"),
    ("/ops/memory.py", "release_memory_after_peaks"),
    ("/ops/readiness.py", "watch_store"),
    ("/ops/retention.py", "run_retention"),
    ("/ops/services.py", "_collect_garbage"),
    ("/ops/usage_counter.py", "run"),
    ("/gateway/background_runner.py", "_renew_leases"),
}
def is_outside(code):
    if code.co_name in ("flush", "_flush_some"):
        return code.co_filename.endswith(("/logger.py", "/logs.py"))
    return any(code.co_name == name and code.co_filename.endswith(file) for file, name in periodic)
def record(frame, event, argument):
    global outside
    code = frame.f_code
    if outside is not None:
        if event == "return" and frame is outside:
            outside = None
    elif event == "call" and code.co_filename.startswith(source):
        if is_outside(code):
            outside = frame
        else:
            calls.append(code.co_filename)
def begin(*_):
    calls.clear()
    sys.setprofile(record)
    open(file, "w").close()
def end(*_):
    sys.setprofile(None)
    with open(file + ".new", "w") as out:
        out.write("\\n".join(calls))
    os.rename(file + ".new", file)
signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, end)
from antiphon.cli.entry import main
sys.exit(main())
"""


class Gateways(Struct, frozen=True):
    """Two gateways with one store. Clients use the first one."""

    first: Server
    second: Server


class Turn(Struct, frozen=True):
    """A turn to measure."""

    name: str
    run: Callable[[Server], None]
    prepare: Callable[[Server], None] | None = None
    runs_in_second: bool = False  # whether the calls of the second gateway are counted


class Walk(Struct, frozen=True):
    """The calls of one turn, each as its file."""

    files: list[str]

    def row(self) -> str:
        changes = sum(before != after for before, after in pairwise(self.files))
        return f"{len(self.files)} calls, {len(set(self.files))} files, {changes} changes of file"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="another commit of this gateway")
    parser.add_argument("--files", action="store_true", help="list the files")
    args = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        checkouts = [stack.enter_context(commits.checked_out(args.against))] if args.against else []
        checkouts.append(commits.working_tree())
        for checkout in checkouts:
            print(f"{checkout.id}: {checkout.subject}")
            for name, walk in measure_turns(checkout, folder).items():
                print(f"  {name}: {walk.row()}")
                if args.files:
                    names = sorted({str(Path(file).relative_to(checkout.source)) for file in walk.files})
                    print(*(f"    {name}" for name in names), sep="\n")
    return 0


def measure_turns(checkout: commits.Checkout, folder: Path, **settings: Any) -> dict[str, Walk]:
    """The walks of all turns, by their names. `settings` are passed to `running`."""
    with running(_targets(checkout, folder), folder, **settings) as (first, second):
        for server in (first, second):
            if not server.wait_until_listening():
                raise SystemExit(server.read_log())
        return {turn.name: _measure(Gateways(first, second), turn) for turn in TURNS}


def _targets(checkout: commits.Checkout, folder: Path) -> list[Target]:
    """The two gateways of a checkout. The first one runs one background response at a time."""
    store = f"sqlite:///{folder}/{checkout.id}.db"
    return [
        _target(f"{checkout.id}-1", checkout, store, ONE_SLOT),
        _target(f"{checkout.id}-2", checkout, store, ""),
    ]


def _target(name: str, checkout: commits.Checkout, store: str, settings: str) -> Target:
    target = antiphon(name, checkout.subject, store=store, source=checkout.source, commit=checkout.id)
    arguments = ["serve", "--config", "{folder}/antiphon.toml"]
    return replace(
        target,
        command=[sys.executable, "{folder}/launcher.py", str(checkout.source), "{folder}/calls", *arguments],
        files={"antiphon.toml": target.files["antiphon.toml"] + settings, "launcher.py": LAUNCHER},
    )


def _measure(gateways: Gateways, turn: Turn) -> Walk:
    server = gateways.second if turn.runs_in_second else gateways.first
    file = server.folder / "calls"
    if turn.prepare is not None:
        turn.prepare(gateways.first)
    for _ in range(2):
        turn.run(gateways.first)
    time.sleep(PAUSE)  # the log and the metrics of earlier turns are written later
    file.unlink(missing_ok=True)
    os.kill(server.pid, signal.SIGUSR1)
    _wait_until(file.exists)
    turn.run(gateways.first)
    time.sleep(END_PAUSE)
    os.kill(server.pid, signal.SIGUSR2)
    _wait_until(lambda: file.stat().st_size > 0)
    return Walk(file.read_text().splitlines())


def _wait_until(is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not is_done():
        if time.monotonic() > end:
            raise SystemExit("the gateway did not answer in time")
        time.sleep(0.01)


def _stream_response(server: Server) -> None:
    """One stored response over HTTP, streamed."""
    body = _send(server, "POST", "/v1/responses", {**BODY, "stream": True, "store": True})
    if b"response.completed" not in body:
        raise SystemExit(f"the stream did not complete: {body[-300:]!r}")


def _run_websocket_turn(server: Server) -> None:
    """One stored response over a new WebSocket."""
    key = b64encode(os.urandom(16)).decode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT) as connection:
        connection.sendall(
            f"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\nauthorization: Bearer {server.key}\r\n"
            "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
            f"sec-websocket-key: {key}\r\n\r\n".encode()
        )
        received = connection.recv(65536)
        message = msgspec.json.encode({"type": "response.create", **BODY, "store": True})
        # A masked text frame; the mask is zero.
        connection.sendall(b"\x81" + bytes([0x80 | len(message)]) + bytes(4) + message)
        while b"response.completed" not in received:
            piece = connection.recv(65536)
            if not piece:
                raise SystemExit(f"the WebSocket was closed: {received[-300:]!r}")
            received += piece


def _fill_background_slot(server: Server) -> None:
    """Starts a background response that does not end, so that the gateway has no free slot."""
    id = _queue(server, {**BODY, "model": ENDLESS_MODEL})
    _wait_until(lambda: b'"in_progress"' in _send(server, "GET", f"/v1/responses/{id}", None))


def _queue_response(server: Server) -> None:
    """One request that queues a background response."""
    _queue(server, BODY)


def _run_background_job(server: Server) -> None:
    """One background response, until it is completed."""
    id = _queue(server, BODY)
    body = _send(server, "GET", f"/v1/responses/{id}?stream=true", None)
    if b"response.completed" not in body:
        raise SystemExit(f"the background response did not complete: {body[-300:]!r}")


def _queue(server: Server, body: dict[str, Any]) -> str:
    id: str = msgspec.json.decode(_send(server, "POST", "/v1/responses", {**body, "background": True}))["id"]
    return id


def _send(server: Server, method: str, path: str, body: dict[str, Any] | None) -> bytes:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=LIMIT)
    headers = {"authorization": f"Bearer {server.key}", "content-type": "application/json"}
    connection.request(method, path, msgspec.json.encode(body) if body is not None else None, headers)
    answer = connection.getresponse().read()
    connection.close()
    return answer


TURNS: Final = (
    Turn("a stored stream over HTTP", _stream_response),
    Turn("a turn of a WebSocket", _run_websocket_turn),
    Turn("a request that queues a background response", _queue_response, _fill_background_slot),
    Turn("a background job", _run_background_job, runs_in_second=True),
)

if __name__ == "__main__":
    sys.exit(main())
