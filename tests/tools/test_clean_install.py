"""Tests of the wheels in clean environments: every installer, every supported Python that is installed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from tools.clean_install import Tools
from tools.other_python import find_interpreters

from tools import clean_install

pytestmark = [pytest.mark.io, pytest.mark.heavy]
EXTRA = '"antiphon[local]"'
# The installer → the command that `antiphon serve` advises if the model is missing.
ADVICE = {
    "uv tool install": f"uv tool install {EXTRA}",
    "pipx install": f"pipx install --force {EXTRA}",
    "pip install": f"bin/python -m pip install {EXTRA}",
    "uvx": f"uvx {EXTRA} serve",
}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return clean_install.make_tools(tmp_path_factory.mktemp("tools"))


@pytest.mark.parametrize("installer", clean_install.INSTALLERS)
def test_clean_install_answers_on_every_python(installer: str, tools: Tools, tmp_path: Path) -> None:
    install = clean_install.INSTALLERS[installer]
    for version, python in find_interpreters().items():
        times = clean_install.measure(tools, tmp_path, install, python)
        assert "Lima" in times.text, version


@pytest.mark.parametrize("installer", clean_install.INSTALLERS)
def test_serve_without_the_model_says_how_to_install_it(installer: str, tools: Tools, tmp_path: Path) -> None:
    """The advised command works, except that of uvx, which starts the gateway itself."""
    install = clean_install.INSTALLERS[installer]
    with clean_install.clean_environment(tools, tmp_path) as environment:
        command = install(tools, environment, sys.executable, "antiphon")
        result = environment.run(*command, "serve", "--port", "0")
        assert result.returncode == 2
        advice = result.stderr.partition("install it with: ")[2].partition("; or set")[0]
        assert advice.endswith(ADVICE[installer])
        if installer != "uvx":
            environment.require(*shlex.split(advice))
            assert "Lima" in clean_install.first_answer(environment, command)
