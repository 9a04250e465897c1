"""Measurements as text, in the form that Prometheus reads (0.0.4), and as one sum where several processes serve.

Each process writes what it has to a file of its own in a folder that they share: now and then, and whenever it is asked for all of
them. So no number that was ever told is larger than what is on disk, and none goes back when the next question goes to another
process, or when one has died.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

Kind = Literal["counter", "gauge", "histogram"]
# By what follows the family's name: `{model="m"}`, or `_bucket{model="m",le="0.5"}`.
Samples = dict[str, float]

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class Family(Struct, frozen=True):
    """What is measured, and how often or how much of it there was."""

    name: str
    kind: Kind
    help: str  # one line for people
    samples: Samples


class Histogram:
    """How often something took how long."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def samples(self, labels: str) -> Samples:
        """`labels` is what stands between the braces."""
        samples: Samples = {}
        below = 0
        comma = "," if labels else ""
        for bound, count in zip((*map(_number, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            samples[f'_bucket{{{labels}{comma}le="{bound}"}}'] = below
        braced = f"{{{labels}}}" if labels else ""
        samples[f"_sum{braced}"] = self.total
        samples[f"_count{braced}"] = below
        return samples


class SharedMetrics:
    """The folder that processes share; each has its own place in it, under its process id."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder = folder
        self._own = folder / f"{pid}.json"

    def write(self, families: list[Family]) -> None:
        """Takes the place of what this process wrote before. A disk that is full must not end an answer."""
        beside = self._own.with_suffix(".new")
        with suppress(OSError):
            beside.write_bytes(msgspec.json.encode(families))
            os.replace(beside, self._own)

    def read_others(self) -> list[list[Family]]:
        """What the other processes wrote. Of one that is dead, only what it counted still holds."""
        found: list[list[Family]] = []
        for file in sorted(self._folder.glob("*.json")):
            if file == self._own:
                continue
            with suppress(OSError, msgspec.DecodeError):
                families = msgspec.json.decode(file.read_bytes(), type=list[Family])
                is_alive = _is_alive(int(file.stem))
                found.append([family for family in families if is_alive or family.kind != "gauge"])
        return found


def render_text(families: Iterable[Family]) -> bytes:
    """The page."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines.append(f"# HELP {family.name} {_escaped(family.help)}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines += [f"{family.name}{labels} {_number(value)}" for labels, value in family.samples.items()]
    return "".join(f"{line}\n" for line in lines).encode()


def sum_families(processes: Iterable[Iterable[Family]]) -> list[Family]:
    """What several processes measured, as if it had been one."""
    sums: dict[str, Family] = {}
    for families in processes:
        for family in families:
            sum = sums.setdefault(family.name, Family(family.name, family.kind, family.help, {}))
            for labels, value in family.samples.items():
                sum.samples[labels] = sum.samples.get(labels, 0) + value
    return list(sums.values())


def format_labels(labels: Mapping[str, str]) -> str:
    """What stands between the braces."""
    return ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text.encode("utf-8", "replace").decode()).replace('"', '\\"')


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
