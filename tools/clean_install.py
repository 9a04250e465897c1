"""Installs the built wheels into clean environments with each installer, and measures the time to the first answer.

    python tools/clean_install.py [--python PATH ...] [--write]

Builds both wheels, then runs `uv tool install`, `pipx install`, `pip install` and `uvx` for each interpreter, with
empty caches and tool folders. Every environment starts the gateway and asks the embedded model. `--write` writes the
table of times into docs/install.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "install.md"
INSTALL_LIMIT: Final = 900  # seconds
START_LIMIT: Final = 120  # seconds
LISTENS: Final = re.compile(r"listens on (http://[\d.]+:\d+)")
MARKS: Final = ("<!-- times -->", "<!-- end of times -->")
QUESTION: Final = "What is the capital of Peru?"
# What a new machine does not have: settings of this environment that point to other folders.
DROPPED: Final = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PIPX_", "UV_TOOL", "UV_CACHE", "XDG_")


class Tools(NamedTuple):
    """The installers, which are themselves installed in a virtualenv, and the folder of our wheels."""

    bin: Path
    wheels: Path


class Environment(NamedTuple):
    """A clean home of one installation."""

    folder: Path
    variables: Mapping[str, str]

    def run(self, *command: str, limit: int = INSTALL_LIMIT) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=dict(self.variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )

    def require(self, *command: str) -> None:
        result = self.run(*command)
        if result.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {result.returncode}: {result.stdout}{result.stderr}")


class Times(NamedTuple):
    """The seconds of an installation, from its end to the first answer, and the answer."""

    install: float
    answer: float
    text: str


#: An installer: gets the tools, an environment, an interpreter and a requirement; returns the command `antiphon`.
Install = Callable[[Tools, Environment, str, str], tuple[str, ...]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures clean installations.")
    parser.add_argument("--python", action="append", default=[], help="an interpreter; may be repeated")
    parser.add_argument("--write", action="store_true", help="write the table into docs/install.md")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        tools = make_tools(Path(work))
        rows = [
            (name, _version(python), measure(tools, Path(work), install, python))
            for python in args.python or [sys.executable]
            for name, install in INSTALLERS.items()
        ]
    print(table := make_table(rows))
    if args.write:
        write_table(table)


def make_tools(work: Path) -> Tools:
    """Installs uv and pipx, and builds the wheels."""
    subprocess.run([sys.executable, "-m", "venv", str(work / "tools")], check=True)
    tools = Tools(work / "tools" / "bin", work / "wheels")
    subprocess.run(
        [str(tools.bin / "python"), "-m", "pip", "install", "-q", "uv", "pipx", "setuptools>=77", "wheel"], check=True
    )
    build = [str(tools.bin / "python"), str(ROOT / "tools" / "build_model_package.py"), "--out", str(tools.wheels)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    options = ["-q", "--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", str(tools.wheels)]
    subprocess.run([str(tools.bin / "python"), "-m", "pip", "wheel", *options, str(ROOT)], check=True)
    return tools


@contextmanager
def clean_environment(tools: Tools, work: Path) -> Iterator[Environment]:
    """Creates folders and variables for one installation: empty caches, our wheels beside the index."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        folder = Path(name)
        variables = {key: value for key, value in os.environ.items() if not key.startswith(DROPPED)}
        links = [*variables.get("PIP_FIND_LINKS", "").split(), str(tools.wheels)]
        variables |= {
            "PATH": f"{tools.bin}{os.pathsep}{variables['PATH']}",
            "PIP_FIND_LINKS": " ".join(links),
            "UV_FIND_LINKS": str(tools.wheels),
            "PIP_NO_CACHE_DIR": "1",
            "UV_CACHE_DIR": str(folder / "cache"),
            "UV_TOOL_DIR": str(folder / "tools"),
            "UV_TOOL_BIN_DIR": str(folder / "bin"),
            "PIPX_HOME": str(folder / "pipx"),
            "PIPX_BIN_DIR": str(folder / "bin"),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        yield Environment(folder, variables)


def measure(tools: Tools, work: Path, install: Install, python: str) -> Times:
    """Installs antiphon with the embedded model into a clean environment, and asks the model."""
    with clean_environment(tools, work) as environment:
        start = time.monotonic()
        command = install(tools, environment, python, "antiphon[local]")
        installed = time.monotonic()
        text = first_answer(environment, command)
        return Times(installed - start, time.monotonic() - installed, text)


def first_answer(environment: Environment, command: Sequence[str]) -> str:
    """Starts a gateway, asks its model, and stops it."""
    with serving(environment, command) as url:
        return environment.run(*command, "ask", "--url", url, QUESTION, limit=START_LIMIT).stdout.strip()


@contextmanager
def serving(environment: Environment, command: Sequence[str]) -> Iterator[str]:
    """Runs `antiphon serve` on a free port, and yields its URL."""
    log = environment.folder / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "serve", "--port", "0"],
            cwd=environment.folder,
            env=dict(environment.variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield _await_url(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_LIMIT)


def _await_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + INSTALL_LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        if match := LISTENS.search(log.read_text(encoding="utf-8", errors="replace")):
            return match.group(1)
        time.sleep(0.05)
    raise SystemExit(f"the gateway did not start: {log.read_text(encoding='utf-8', errors='replace')}")


def install_with_pip(tools: Tools, environment: Environment, python: str, requirement: str) -> tuple[str, ...]:
    del tools
    environment.require(python, "-m", "venv", "venv")
    environment.require("venv/bin/python", "-m", "pip", "install", "-q", requirement)
    return (str(environment.folder / "venv" / "bin" / "antiphon"),)


def install_with_uv(tools: Tools, environment: Environment, python: str, requirement: str) -> tuple[str, ...]:
    environment.require(str(tools.bin / "uv"), "tool", "install", "-q", "--python", python, requirement)
    return (str(environment.folder / "bin" / "antiphon"),)


def install_with_pipx(tools: Tools, environment: Environment, python: str, requirement: str) -> tuple[str, ...]:
    environment.require(str(tools.bin / "pipx"), "install", "--quiet", "--python", python, requirement)
    return (str(environment.folder / "bin" / "antiphon"),)


def install_with_uvx(tools: Tools, environment: Environment, python: str, requirement: str) -> tuple[str, ...]:
    """Returns the command that installs and runs in one step; the first start includes the installation."""
    del environment
    return (str(tools.bin / "uvx"), "-q", "--python", python, "--from", requirement, "antiphon")


def make_table(rows: Iterable[tuple[str, str, Times]]) -> str:
    lines = ["| installed with | Python | installation | start and first answer |", "|---|---|--:|--:|"]
    for name, version, times in rows:
        if "Lima" not in times.text:
            raise SystemExit(f"{name} on {version}: unexpected answer {times.text!r}")
        install = "in the next column" if name == "uvx" else f"{times.install:.1f} s"
        lines.append(f"| `{name}` | {version} | {install} | {times.answer:.1f} s |")
    return "\n".join(lines)


def write_table(table: str) -> None:
    """Replaces the table in the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    cores = os.cpu_count()
    note = (
        f"Measured on {cores} cores ({platform.machine()}), with empty caches, packages from a mirror on the network."
    )
    PAGE.write_text(f"{before}{MARKS[0]}\n{note}\n\n{table}\n\n{MARKS[1]}{after}", encoding="utf-8")


def _version(python: str) -> str:
    program = "import platform; print(platform.python_version())"
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


INSTALLERS: Final[dict[str, Install]] = {
    "uvx": install_with_uvx,
    "uv tool install": install_with_uv,
    "pipx install": install_with_pipx,
    "pip install": install_with_pip,
}

if __name__ == "__main__":
    main()
