"""Runs the drivers of clients, in the environments that `make test-clients` installs into `.clients`, and finds their
versions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
from tests.clients.heavy.npm_programs import CLIENTS, run

PYTHONS: Final = CLIENTS.parent / "python"
DRIVERS: Final = Path(__file__).with_name("drivers")
#: An environment of Python packages in `.clients/python`, or the Node packages in `.clients`.
Environment = Literal["sdks", "frameworks", "aider", "node"]


class Result(NamedTuple):
    """What a driver reports of one feature."""

    text: str = ""
    pieces: Sequence[str] = ()
    parsed: Any = None
    reasoning: str = ""
    error: str = ""


def run_driver(
    environment: Environment,
    driver: str,
    folder: Path,
    features: Sequence[str],
    environ: Mapping[str, str],
) -> dict[str, Result]:
    """The results by feature. The set-ups of the client are in the folder."""
    if environment == "node":
        program = ["node", str(_beside_packages(folder) / "run.mjs")]
    else:
        program = [str(PYTHONS / environment / "bin" / "python"), "-X", "utf8", str(DRIVERS / "run.py")]
    run([*program, driver, str(folder), *features], folder, folder, {**QUIET, **environ})
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    results = [json.loads(line) for line in lines]
    return {
        result.pop("feature"): Result(
            **{name: value or "" if name in TEXTS else value for name, value in result.items()}
        )
        for result in results
    }


def _beside_packages(folder: Path) -> Path:
    """A copy of the drivers, in a folder from which Node finds the packages."""
    drivers = folder / "drivers"
    shutil.copytree(DRIVERS, drivers, dirs_exist_ok=True)
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(CLIENTS)
    return drivers


def version(environment: Environment, package: str) -> str:
    """The installed version of a package."""
    if environment == "node":
        path = CLIENTS / package / "package.json"
        return str(msgspec.json.decode(path.read_bytes())["version"])
    [path] = (PYTHONS / environment / "lib").glob(f"python3.*/site-packages/{package.replace('-', '_')}-*.dist-info")
    return path.name.removesuffix(".dist-info").rpartition("-")[2]


TEXTS: Final = ("text", "reasoning", "error")
#: No telemetry, no model lists of other hosts, no coloured output.
QUIET: Final = {
    "NO_COLOR": "1",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "DSPY_CACHEDIR": "dspy-cache",
    "PYTHONDONTWRITEBYTECODE": "1",
}
