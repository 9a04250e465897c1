"""Processes under measurement, as the kernel sees them: CPU and memory of a whole tree, and who listens where. Linux only."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
ESTABLISHED, LISTENING = "01", "0A"


def tree(pid: int) -> list[int]:
    """A process and everything it started."""
    found, todo = [], [pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        with suppress(OSError):  # it ended meanwhile
            for task in (PROC / str(pid) / "task").iterdir():
                todo += map(int, (task / "children").read_text().split())
    return found


def cpu_us(pid: int) -> float:
    """CPU time of the tree so far, in microseconds, of threads that ended too."""
    total = 0
    for member in tree(pid):
        with suppress(OSError):
            total += time.clock_gettime_ns(_cpu_clock(member))
    return total / 1000


def rss_kib(pid: int) -> int:
    """Resident memory of the tree."""
    total = 0
    for member in tree(pid):
        with suppress(OSError):
            lines = (PROC / str(member) / "status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return total


def is_listening(pid: int, port: int) -> bool:
    """Whether a process of the tree listens on the port: a stranger's server there does not count."""
    inodes = _listeners(port)
    return any(inodes & _sockets(member) for member in tree(pid))


def clients(port: int) -> int:
    """Connections to the port that were accepted; those that wait in the kernel for it have no inode yet."""
    return len(_inodes(port, ESTABLISHED) - {"0"})


def free_ports(first: int, count: int) -> list[int]:
    """Ports on which nobody listens; other work may share the machine."""
    found: list[int] = []
    while len(found) < count:
        if not _listeners(first):
            found.append(first)
        first += 1
    return found


def _cpu_clock(pid: int) -> int:
    return (~pid << 3) | 2  # what clock_getcpuclockid(3) gives: nanoseconds, not ticks


def _listeners(port: int) -> set[str]:
    return _inodes(port, LISTENING)


def _inodes(port: int, state: str) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # a machine without IPv6
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == state and int(words[1].rpartition(":")[2], 16) == port:
                    found.add(words[9])
    return found


def _sockets(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
    return found
