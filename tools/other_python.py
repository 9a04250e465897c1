"""Print the path of the newest interpreter that the classifiers name, of another version than the one that runs this script.

Each candidate is run before it is believed: a version manager's command may be on PATH and run nothing. Versions that pyenv keeps
are found even if none is selected. stderr says what was found; without a second interpreter, stdout is empty.
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
SECONDS: Final = 30
#: What it is, if it can make a virtualenv with pip in it.
ASK: Final = 'import ensurepip, platform, venv; print("Python", platform.python_version())'


def main() -> None:
    versions = re.findall(r'"Programming Language :: Python :: (\d+\.\d+)"', PROJECT.read_text(encoding="utf-8"))
    own = "{}.{}".format(*sys.version_info[:2])
    others = sorted((version for version in versions if version != own), key=_numbers, reverse=True)
    for version in others:
        for candidate in _candidates(version):
            answer = _answer(candidate)
            if answer.startswith(f"Python {version}."):
                print(f"found {answer} beside {platform.python_version()}: {candidate}", file=sys.stderr)
                print(candidate)
                return
    print(f"found no Python {' or '.join(others)} beside {platform.python_version()}", file=sys.stderr)


def _candidates(version: str) -> Iterator[Path]:
    for folder in os.get_exec_path():
        yield Path(folder, f"python{version}")
    kept = (path for path in _pyenv_versions().glob(f"{version}.*") if re.fullmatch(r"[\d.]+", path.name))
    for path in sorted(kept, key=lambda path: _numbers(path.name), reverse=True):
        yield path / "bin" / f"python{version}"


def _pyenv_versions() -> Path:
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"


def _answer(candidate: Path) -> str:
    """Nothing, if it does not run."""
    try:
        done = subprocess.run(
            [candidate, "-c", ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.strip()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    main()
