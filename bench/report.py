"""Results as Markdown: what was measured, with which versions, on what machine. A section of `bench/RESULTS.md` for each tool."""

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
HEAD = """# Results

Written by `make bench`, `make bench-peers`, `make bench-dialects`, `make bench-streams`, `make bench-store` and
`make bench-client`; `docs/performance.md` says how to read it.
Absolute figures belong to one machine and one hour; only figures of one section may be compared.
"""


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table; the first column holds names, the others figures."""
    lines = [head, ["---", *(["--:"] * (len(head) - 1))], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def circumstances(targets: Iterable[Target], load_before: float) -> str:
    """When and where it was measured, and what exactly."""
    load_after = os.getloadavg()[0]
    lines = [
        f"Measured on {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores ({_cpu_model()}), Linux {platform.release()}, "
        f"CPython {platform.python_version()} ({platform.python_compiler()}), "
        f"load average {load_before:.1f} before and {load_after:.1f} after.\n"
    ]
    lines += [f"- **{target.name}** ({version_of(target)}): {target.what}" for target in targets]
    return "\n".join(lines) + "\n"


def version_of(target: Target) -> str:
    told = subprocess.run(target.version, capture_output=True, text=True, check=False)
    return next(iter(told.stdout.splitlines()), "version unknown").strip()


def write_section(title: str, text: str, path: Path = RESULTS) -> None:
    """Puts a section in the place of the one with the same title, or at the end."""
    before = path.read_text() if path.exists() else HEAD
    head, *sections = re.split(r"^(?=## )", before, flags=re.MULTILINE)
    found = {section.partition("\n")[0]: section.strip() for section in sections}
    found[f"## {title}"] = f"## {title}\n\n{text.strip()}"
    path.write_text("\n\n".join([head.strip(), *found.values()]) + "\n")


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), flags=re.MULTILINE)
    return found[1] if found else platform.machine()
