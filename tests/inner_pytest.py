"""Runs pytest in a process of its own, for tests of the pytest plugins in this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.sources import REPO

SECONDS = 100.0


def run_pytest(folder: Path, *arguments: str, plugin: str, files: dict[str, str]) -> tuple[int, str]:
    """Writes test files into an empty folder and runs them with a plugin. Returns the exit status and the output."""
    (folder / "pytest.ini").write_text(INI, encoding="utf-8")
    (folder / "conftest.py").write_text(f'pytest_plugins = ["{plugin}"]\n', encoding="utf-8")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(REPO), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "pytest", "-p", "xdist.plugin", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return done.returncode, done.stdout + done.stderr


INI = """[pytest]
addopts = -n0 -q -rA --strict-markers
markers =
    io: opens a socket
    slow: takes long
    without_coverage: run without coverage
    time_limit(seconds): ends the test
"""
