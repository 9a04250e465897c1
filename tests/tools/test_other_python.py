"""Tests of tools/other_python.py as a process, with a PATH of programs that the tests write."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.io
REPO = Path(__file__).resolve().parents[2]
SCRIPT = REPO / "tools" / "other_python.py"
RUNNING_VERSION = "{}.{}".format(*sys.version_info[:2])
SUPPORTED_VERSIONS = ["3.11", "3.12", "3.13"]
OTHER_VERSIONS = [version for version in SUPPORTED_VERSIONS if version != RUNNING_VERSION]
TIMEOUT = 60


def _write_program(path: Path, answer: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer}'\nexit {code}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def _run_script(folder: Path) -> tuple[str, str]:
    """Runs the script and returns its standard output and standard error."""
    environment = os.environ | {
        "PATH": f"{folder / 'shims'}{os.pathsep}{folder / 'bin'}",
        "PYENV_ROOT": str(folder / "pyenv"),
    }
    result = subprocess.run(
        [sys.executable, SCRIPT], env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=True
    )
    return result.stdout, result.stderr


def test_classifiers_name_the_tried_versions_and_begin_with_the_oldest_allowed() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [
        name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r":: \d+\.\d+$", name)
    ] == SUPPORTED_VERSIONS
    assert project["requires-python"] == f">={SUPPORTED_VERSIONS[0]}"


def test_other_python_is_the_newest_that_runs(tmp_path: Path) -> None:
    older, newer = OTHER_VERSIONS[0], OTHER_VERSIONS[-1]
    _write_program(tmp_path / "bin" / f"python{older}", f"Python {older}.4")
    assert _run_script(tmp_path)[0] == f"{tmp_path}/bin/python{older}\n"
    _write_program(tmp_path / "bin" / f"python{newer}", f"Python {newer}.4")
    path, message = _run_script(tmp_path)
    assert path == f"{tmp_path}/bin/python{newer}\n"
    assert message == f"found Python {newer}.4 in addition to {sys.version.split()[0]}: {path}"


def test_other_python_passes_over_programs_that_fail_or_are_another_version(tmp_path: Path) -> None:
    version = OTHER_VERSIONS[-1]
    _write_program(tmp_path / "shims" / f"python{version}", "not selected", code=127)
    assert _run_script(tmp_path) == (
        "",
        f"found no Python {' or '.join(reversed(OTHER_VERSIONS))} in addition to {sys.version.split()[0]}\n",
    )
    _write_program(tmp_path / "bin" / f"python{version}", "Python 3.9.1")
    assert _run_script(tmp_path)[0] == ""
    _write_program(tmp_path / "bin" / f"python{version}", f"Python {version}.1")
    assert _run_script(tmp_path)[0] == f"{tmp_path}/bin/python{version}\n"


def test_other_python_is_searched_in_the_pyenv_folder(tmp_path: Path) -> None:
    version = OTHER_VERSIONS[-1]
    for patch in (2, 10):
        _write_program(
            tmp_path / "pyenv" / "versions" / f"{version}.{patch}" / "bin" / f"python{version}",
            f"Python {version}.{patch}",
        )
    _write_program(
        tmp_path / "pyenv" / "versions" / f"{version}.11-dev" / "bin" / f"python{version}", f"Python {version}.11"
    )
    assert _run_script(tmp_path)[0] == f"{tmp_path}/pyenv/versions/{version}.10/bin/python{version}\n"


def test_ci_runs_everything_on_the_default_and_the_first_part_on_the_other(tmp_path: Path) -> None:
    """.ci/run in a copy, with a `make` that only prints its targets."""
    for name in (".ci/run", "tools/other_python.py", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    other = _write_program(tmp_path / "bin" / f"python{OTHER_VERSIONS[-1]}", f"Python {OTHER_VERSIONS[-1]}.4")
    _write_program(tmp_path / "bin" / "make", "").write_text('#!/bin/sh\necho "make $@"\n', encoding="utf-8")
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHON": sys.executable}
    result = subprocess.run(
        [tmp_path / ".ci" / "run"], env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=True
    )
    assert {"make check", "make test", f"make test-within PYTHON={other}"} <= set(result.stdout.splitlines())
    assert f"found Python {OTHER_VERSIONS[-1]}.4 in addition to" in result.stderr
