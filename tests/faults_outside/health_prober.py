"""Asks a gateway's `/health` until its input is closed and a moment longer, then prints how long the slowest answer
took.

    python -m tests.faults_outside.health_prober PORT

Every probe has a connection of its own. `ready` is printed once the first has been answered. It imports nothing slow and nothing of
the gateway's.
"""

from __future__ import annotations

import json
import math
import select
import socket
import sys
import time

PAUSE = 0.01  # seconds between two probes
PATIENCE = 60.0  # seconds after which a probe has failed
AFTERMATH = 0.5  # seconds of probing after the end: the gateway writes its log and closes things a moment later


def main(port: int) -> None:
    worst, probes, failures = 0.0, 0, 0
    _probe(port)
    print("ready", flush=True)
    end = math.inf
    while time.perf_counter() < end:
        started = time.perf_counter()
        failures += not _probe(port)
        worst = max(worst, time.perf_counter() - started)
        probes += 1
        if end < math.inf:
            time.sleep(PAUSE)
        elif select.select([sys.stdin], [], [], PAUSE)[0]:
            end = time.perf_counter() + AFTERMATH
    print(json.dumps({"worst_seconds": worst, "probes": probes, "failures": failures}), flush=True)


def _probe(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            return connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


if __name__ == "__main__":
    main(int(sys.argv[1]))
