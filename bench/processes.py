"""Reads the CPU time, memory and sockets of a process and its descendants from /proc. Linux only."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
ESTABLISHED, LISTENING = "01", "0A"


def tree(pid: int) -> list[int]:
    """Returns the ids of a process and of all its descendants."""
    pids, unvisited = [], [pid]
    while unvisited:
        pid = unvisited.pop()
        pids.append(pid)
        with suppress(OSError):  # the process has ended
            for task in (PROC / str(pid) / "task").iterdir():
                unvisited += map(int, (task / "children").read_text().split())
    return pids


def cpu_us(pid: int) -> float:
    """Returns the CPU time of the process tree in microseconds, including threads that have ended."""
    total = 0
    for member in tree(pid):
        with suppress(OSError):
            total += time.clock_gettime_ns(_cpu_clock(member))
    return total / 1000


def rss_kib(pid: int) -> int:
    """Returns the resident memory of the process tree."""
    total = 0
    for member in tree(pid):
        with suppress(OSError):
            lines = (PROC / str(member) / "status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return total


def is_listening(pid: int, port: int) -> bool:
    """Tells whether a process of the tree listens on the port. Other servers on the port do not count."""
    inodes = _listeners(port)
    return any(inodes & _socket_inodes(member) for member in tree(pid))


def count_accepted_connections(port: int) -> int:
    """Counts the accepted connections to the port. A connection that is not accepted yet has the inode 0."""
    return len(_inodes(port, ESTABLISHED) - {"0"})


def free_ports(first: int, count: int) -> list[int]:
    """Returns ports from `first` on that have no listener, because other programs may use some of them."""
    ports: list[int] = []
    port = first
    while len(ports) < count:
        if not _listeners(port):
            ports.append(port)
        port += 1
    return ports


def _cpu_clock(pid: int) -> int:
    return (~pid << 3) | 2  # the clock that clock_getcpuclockid(3) returns; it counts nanoseconds, not ticks


def _listeners(port: int) -> set[str]:
    return _inodes(port, LISTENING)


def _inodes(port: int, state: str) -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # a machine without IPv6
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == state and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(fields[9])
    return inodes


def _socket_inodes(pid: int) -> set[str]:
    inodes = set()
    with suppress(OSError):
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                inodes.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
    return inodes
