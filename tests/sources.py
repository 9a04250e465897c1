"""The text files that belong to the repository, for tests of what they cite and what they name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

REPO: Final = Path(__file__).resolve().parents[1]


def source_files(*places: str) -> list[Path]:
    """The files under these folders, and single files by their name. Files that a build or an installation makes are
    left out."""
    found = [path for place in places for path in _below(REPO / place)]
    assert found, f"nothing is at {', '.join(places)}"
    return sorted(found)


def _below(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    for path in place.iterdir():
        if path.is_dir() and path.name not in MADE and path.suffix != ".egg-info" and path != RECORDINGS:
            yield from _below(path)
        elif path.suffix in TEXTS:
            yield path


RECORDINGS: Final = REPO / "tests" / "recordings"  # of servers and programs: their text, not ours
MADE: Final = {"__pycache__", "node_modules", "out"}
TEXTS: Final = {".py", ".md", ".toml", ".json", ".c", ".ts", ".mjs"}
