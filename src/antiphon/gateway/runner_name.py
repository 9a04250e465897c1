"""Names of runners of background work. A name tells which process the runner is, so that another process of the same
machine can see that it has ended, whatever the clock says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

ReadText = Callable[[str], str]


class ProcessIdentity(NamedTuple):
    """A process, as unique as the operating system tells. Unknown parts are empty."""

    machine: str
    boot: str  # of the machine
    namespace: str  # of process ids: containers have their own
    pid: str
    started: str  # in ticks since the boot: process ids are used again


def read_text(path: str) -> str:
    """The text of a file, or the target of a link; empty if there is none."""
    try:
        return os.readlink(path) if os.path.islink(path) else Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def current_process(read: ReadText = read_text) -> ProcessIdentity:
    return ProcessIdentity(
        machine=_digest(read("/etc/machine-id") or os.uname().nodename),
        boot=_digest(read("/proc/sys/kernel/random/boot_id")),
        namespace="".join(DIGITS.findall(read("/proc/self/ns/pid"))),
        pid=str(os.getpid()),
        started=_start_time(os.getpid(), read),
    )


def make_runner_name(id: str, process: ProcessIdentity) -> str:
    return f"{id}@{'.'.join(process)}"


def has_ended(runner: str, own: ProcessIdentity, read: ReadText = read_text) -> bool:
    """Whether the process of a runner has ended. False if that is not known: it runs on another machine or in another
    container, or its name is of another form."""
    match = NAME.fullmatch(runner)
    if match is None or not all(own):
        return False
    process = ProcessIdentity(*match.groups())
    if process.machine != own.machine:
        return False
    if process.boot != own.boot:
        return True
    return process.namespace == own.namespace and _start_time(int(process.pid), read) != process.started


def _start_time(pid: int, read: ReadText) -> str:
    """The start of a process in ticks since the boot; empty if it does not exist. The name of its program, in
    parentheses, may contain anything."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[START_TIME_FIELD] if len(fields) > START_TIME_FIELD else ""


def _digest(text: str) -> str:
    return sha256(text.strip().encode()).hexdigest()[:12] if text.strip() else ""


DIGITS: Final = re.compile(r"\d+")
START_TIME_FIELD: Final = 19  # after the program's name
NAME: Final = re.compile(r"[^@]+@([0-9a-f]+)\.([0-9a-f]+)\.(\d+)\.(\d+)\.(\d+)")
