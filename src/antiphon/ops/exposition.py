"""Renders metrics in the Prometheus text format (0.0.4), summed over all serving processes.

Each process writes its metrics to its own file in a shared folder, periodically and before each scrape. So a counter
never decreases when the next scrape is answered by another process, or when a process has died.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

Kind = Literal["counter", "gauge", "histogram"]
# By the text after the name of the family: `{model="m"}`, or `_bucket{model="m",le="0.5"}`.
Samples = dict[str, float]

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
#: A label that is not empty. A quote inside a value is escaped.
LABEL: Final = re.compile(r'(?<=[{,])([a-z_]+)="(?:[^"\\]|\\.)+"')


class Family(Struct, frozen=True):
    """One metric with all its samples."""

    name: str
    kind: Kind
    help: str  # one line for people
    samples: Samples


class Histogram:
    """Counts durations in buckets."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def samples(self, labels: str) -> Samples:
        """The samples of the histogram. `labels` is the text between the braces."""
        samples: Samples = {}
        cumulative = 0
        comma = "," if labels else ""
        for bound, count in zip((*map(_format_number, self.bounds), "+Inf"), self.counts, strict=True):
            cumulative += count
            samples[f'_bucket{{{labels}{comma}le="{bound}"}}'] = cumulative
        braced = f"{{{labels}}}" if labels else ""
        samples[f"_sum{braced}"] = self.total
        samples[f"_count{braced}"] = cumulative
        return samples


class SharedMetrics:
    """The shared folder. Each process has one file in it, named after its process id."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder = folder
        self._own_file = folder / f"{pid}.json"

    def write(self, families: list[Family]) -> None:
        """Replaces the file of this process. Errors, such as a full disk, are ignored."""
        temporary_file = self._own_file.with_suffix(".new")
        with suppress(OSError):
            temporary_file.write_bytes(msgspec.json.encode(families))
            os.replace(temporary_file, self._own_file)

    def read_others(self) -> list[list[Family]]:
        """The metrics of the other processes. Gauges of dead processes are omitted."""
        others: list[list[Family]] = []
        for file in sorted(self._folder.glob("*.json")):
            if file == self._own_file:
                continue
            with suppress(OSError, msgspec.DecodeError):
                families = msgspec.json.decode(file.read_bytes(), type=list[Family])
                is_alive = _is_alive(int(file.stem))
                others.append([family for family in families if is_alive or family.kind != "gauge"])
        return others


def render_text(families: Iterable[Family]) -> bytes:
    """The text of all families."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines.append(f"# HELP {family.name} {_escape(family.help)}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines += [f"{family.name}{labels} {_format_number(value)}" for labels, value in family.samples.items()]
    return "".join(f"{line}\n" for line in lines).encode()


def sum_families(processes: Iterable[Iterable[Family]]) -> list[Family]:
    """Sums the metrics of several processes."""
    sums: dict[str, Family] = {}
    for families in processes:
        for family in families:
            family_sum = sums.setdefault(family.name, Family(family.name, family.kind, family.help, {}))
            for labels, value in family.samples.items():
                family_sum.samples[labels] = family_sum.samples.get(labels, 0) + value
    return list(sums.values())


def hide_label(family: Family, name: str, value: str) -> Family:
    """The family with all values of a label replaced by one, and the samples that then are the same summed up. An empty
    value stays empty."""
    hidden_label = format_labels({name: value})
    samples: Samples = {}
    for labels, number in family.samples.items():
        hidden = LABEL.sub(lambda label: hidden_label if label[1] == name else label[0], labels)
        samples[hidden] = samples.get(hidden, 0) + number
    return Family(family.name, family.kind, family.help, samples)


def format_labels(labels: Mapping[str, str]) -> str:
    """The labels as the text between the braces."""
    return ",".join(f'{name}="{_quote(value)}"' for name, value in labels.items())


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quote(text: str) -> str:
    return _escape(text.encode("utf-8", "replace").decode()).replace('"', '\\"')


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
