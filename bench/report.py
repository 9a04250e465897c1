"""Writes results as Markdown, with versions and machine: one section of `bench/RESULTS.md` per benchmark."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from bench.targets import Target

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
HEAD = """# Benchmark results

This page is written by `make bench`, `make bench-peers`, `make bench-dialects`, `make bench-streams`,
`make bench-store`, `make bench-client` and `make bench-producer`. See `docs/performance.md` for the method.
Compare only figures of the same section: absolute figures are valid for one machine and one run.
"""


def render_table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Renders a Markdown table. The first column has names, the others have figures."""
    lines = [head, ["---", *(["--:"] * (len(head) - 1))], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def render_circumstances(targets: Iterable[Target], load_before: float) -> str:
    """Renders the date, the machine, its load, and the version and description of each target."""
    load_after = os.getloadavg()[0]
    lines = [
        f"Measured on {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores ({_cpu_model()}), "
        f"Linux {platform.release()}, "
        f"CPython {platform.python_version()} ({platform.python_compiler()}), "
        f"load average {load_before:.1f} before and {load_after:.1f} after.\n"
    ]
    lines += [f"- **{target.name}** ({read_version(target)}): {target.description}" for target in targets]
    return "\n".join(lines) + "\n"


def read_version(target: Target) -> str:
    result = subprocess.run(target.version_command, capture_output=True, text=True, check=False)
    return next(iter(result.stdout.splitlines()), "version unknown").strip()


def write_section(title: str, text: str, path: Path = RESULTS) -> None:
    """Replaces the section with the same title, or adds a section at the end."""
    page = path.read_text() if path.exists() else HEAD
    head, *sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    sections_by_title = {section.partition("\n")[0]: section.strip() for section in sections}
    sections_by_title[f"## {title}"] = f"## {title}\n\n{text.strip()}"
    path.write_text("\n\n".join([head.strip(), *sections_by_title.values()]) + "\n")


def _cpu_model() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), flags=re.MULTILINE)
    return match[1] if match else platform.machine()
