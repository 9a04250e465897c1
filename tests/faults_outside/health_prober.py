"""Asks a gateway's `/health` until its input is closed and a moment longer, then prints how long the slowest answer
took, and how much CPU time the gateway's process used during one probe at most: other programs of a loaded machine
change the first number, and hardly the second.

    python -m tests.faults_outside.health_prober PORT PROCESS_ID

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
from contextlib import suppress
from pathlib import Path

PAUSE = 0.01  # seconds between two probes
PATIENCE = 60.0  # seconds after which a probe has failed
AFTERMATH = 0.5  # seconds of probing after the end: the gateway writes its log and closes things a moment later


def main(port: int, process_id: int) -> None:
    worst, worst_cpu, probes, failures = 0.0, 0.0, 0, 0
    _probe(port)
    print("ready", flush=True)
    end = math.inf
    while time.perf_counter() < end:
        started, cpu_before = time.perf_counter(), _cpu_seconds(process_id)
        failures += not _probe(port)
        worst = max(worst, time.perf_counter() - started)
        worst_cpu = max(worst_cpu, _cpu_seconds(process_id) - cpu_before)
        probes += 1
        if end < math.inf:
            time.sleep(PAUSE)
        elif select.select([sys.stdin], [], [], PAUSE)[0]:
            end = time.perf_counter() + AFTERMATH
    measured = {"worst_seconds": worst, "worst_cpu_seconds": worst_cpu, "probes": probes, "failures": failures}
    print(json.dumps(measured), flush=True)


def _probe(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            return connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def _cpu_seconds(process_id: int) -> float:
    """The CPU time of the process so far, of all its threads."""
    nanoseconds = 0
    for task in Path(f"/proc/{process_id}/task").iterdir():
        with suppress(OSError):  # the thread has ended
            nanoseconds += int((task / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
