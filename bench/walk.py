"""Counts the Python calls of one turn in the gateway's event loop, and the files of the package that they are in.

    python -m bench.walk [--against COMMIT] [--files]

Each turn is measured after two turns of the same kind. A resumed coroutine counts as a call. Threads of the store do
not count.
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
BODY: Final = {"model": "mock-n16", "input": "Say hello."}
# Starts the gateway. SIGUSR1 begins to record the file of every call, SIGUSR2 writes the records to a file.
LAUNCHER: Final = """
import os, signal, sys
source, file = sys.argv.pop(1), sys.argv.pop(1)
calls = []
def record(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(source):
        calls.append(frame.f_code.co_filename)
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
        targets = [_target(checkout) for checkout in checkouts]
        servers = stack.enter_context(running(targets, folder))
        for checkout, server in zip(checkouts, servers, strict=True):
            if not server.wait_until_listening():
                raise SystemExit(server.read_log())
            print(f"{checkout.id}: {checkout.subject}")
            for name, run_turn in TURNS.items():
                walk = _measure(server, run_turn)
                print(f"  {name}: {walk.row()}")
                if args.files:
                    names = sorted({str(Path(file).relative_to(checkout.source)) for file in walk.files})
                    print(*(f"    {name}" for name in names), sep="\n")
    return 0


def _target(checkout: commits.Checkout) -> Target:
    target = antiphon(checkout.id, checkout.subject, source=checkout.source, commit=checkout.id)
    arguments = ["serve", "--config", "{folder}/antiphon.toml"]
    return replace(
        target,
        command=[sys.executable, "{folder}/launcher.py", str(checkout.source), "{folder}/calls", *arguments],
        files={**target.files, "launcher.py": LAUNCHER},
    )


def _measure(server: Server, run_turn: Callable[[Server], None]) -> Walk:
    file = server.folder / "calls"
    for _ in range(2):
        run_turn(server)
    time.sleep(PAUSE)  # the log and the metrics of earlier turns are written later
    file.unlink(missing_ok=True)
    os.kill(server.pid, signal.SIGUSR1)
    _wait_until(file.exists)
    run_turn(server)
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


def _run_background_job(server: Server) -> None:
    """One background response, until it is completed."""
    id = msgspec.json.decode(_send(server, "POST", "/v1/responses", {**BODY, "background": True}))["id"]
    # The live stream ends with the response, so no polling is counted.
    body = _send(server, "GET", f"/v1/responses/{id}?stream=true", None)
    if b"response.completed" not in body:
        raise SystemExit(f"the background response did not complete: {body[-300:]!r}")


def _send(server: Server, method: str, path: str, body: dict[str, Any] | None) -> bytes:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=LIMIT)
    headers = {"authorization": f"Bearer {server.key}", "content-type": "application/json"}
    connection.request(method, path, msgspec.json.encode(body) if body is not None else None, headers)
    answer = connection.getresponse().read()
    connection.close()
    return answer


TURNS: Final = {
    "a stored stream over HTTP": _stream_response,
    "a turn of a WebSocket": _run_websocket_turn,
    "a background job, with its live stream": _run_background_job,
}

if __name__ == "__main__":
    sys.exit(main())
