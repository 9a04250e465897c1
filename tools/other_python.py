"""Prints the path of the newest supported interpreter whose version differs from that of the running interpreter.

The classifiers in pyproject.toml name the supported versions. Candidates are on PATH and in the folder of pyenv. Each
candidate is run first, because a command of a version manager may fail. Messages go to stderr. Without a second
interpreter stdout is empty.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parent.parent / "pyproject.toml"
TIMEOUT: Final = 30  # seconds
#: Prints the version if the interpreter can create a virtualenv with pip.
VERSION_PROGRAM: Final = 'import ensurepip, platform, venv; print("Python", platform.python_version())'


def main() -> None:
    running_version = "{}.{}".format(*sys.version_info[:2])
    others = [version for version in _supported_versions() if version != running_version]
    for version in others:
        for candidate, found_version in _interpreters(version):
            print(f"found {found_version} in addition to {platform.python_version()}: {candidate}", file=sys.stderr)
            print(candidate)
            return
    print(f"found no Python {' or '.join(others)} in addition to {platform.python_version()}", file=sys.stderr)


def find_interpreters() -> dict[str, str]:
    """Returns the path of an installed interpreter of each supported version, newest first."""
    candidates = {version: next(_interpreters(version), None) for version in _supported_versions()}
    return {version: str(candidate[0]) for version, candidate in candidates.items() if candidate}


def _supported_versions() -> list[str]:
    versions = re.findall(r'"Programming Language :: Python :: (\d+\.\d+)"', PROJECT.read_text(encoding="utf-8"))
    return sorted(versions, key=_numbers, reverse=True)


def _interpreters(version: str) -> Iterator[tuple[Path, str]]:
    """Yields the interpreters that run, each with its exact version."""
    for candidate in _candidates(version):
        output = _run_version_program(candidate)
        if output.startswith(f"Python {version}."):
            yield candidate, output


def _candidates(version: str) -> Iterator[Path]:
    for folder in os.get_exec_path():
        yield Path(folder, f"python{version}")
    folders = (path for path in _pyenv_versions().glob(f"{version}.*") if re.fullmatch(r"[\d.]+", path.name))
    for path in sorted(folders, key=lambda path: _numbers(path.name), reverse=True):
        yield path / "bin" / f"python{version}"


def _pyenv_versions() -> Path:
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"


def _run_version_program(candidate: Path) -> str:
    """Returns the output, or an empty string if the candidate fails."""
    try:
        result = subprocess.run(
            [candidate, "-c", VERSION_PROGRAM],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if result.returncode else result.stdout.strip()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    main()
