"""Tests of `make install` in a small project, offline: the pins are wheels that are rebuilt from installed packages.

The tests use the real make, Makefile, script, pip and uv. uv comes from the environment of the tests.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib.metadata import Distribution, PackagePath, distribution
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
REPO = Path(__file__).resolve().parents[2]
TIMEOUT = 600
INTERPRETER = os.path.realpath(sys.executable)
VERSION = platform.python_version()
OWN_VENV = ".venv-{}.{}".format(*sys.version_info[:2])
# The second has dependencies that are not in the folder of wheels.
PACKAGE, MODEL = "iniconfig", "trustme"
NOT_INHERITED = ("PIP_", "UV_", "MAKE", "MFLAGS", "PYTHON", "VIRTUAL_ENV")
NOT_IN_A_WHEEL = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"}


class Project(NamedTuple):
    folder: Path
    environment: Mapping[str, str]

    def make(self, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *arguments],
            cwd=self.folder,
            env={**self.environment, **changes},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )

    def install(self, *arguments: str, **changes: str) -> str:
        result = self.make("install", *arguments, **changes)
        assert result.returncode == 0, result.stdout
        return result.stdout

    def installers(self, venv: str) -> set[str]:
        """Which program installed the package, the model and the project itself."""
        files = {
            name: list(_packages(self.folder / venv).glob(f"{name}-*.dist-info/INSTALLER"))
            for name in (PACKAGE, MODEL, "small")
        }
        return {file.read_text(encoding="utf-8").strip() for [file] in files.values()}

    def bytecode(self, venv: str) -> list[Path]:
        return list((_packages(self.folder / venv) / PACKAGE / "__pycache__").glob("*.pyc"))

    def python(self, name: str, version: str = VERSION) -> str:
        """This interpreter under another name. It may claim another version; the programs that it starts do not."""
        folder = self.folder / "pythons" / version
        folder.mkdir(parents=True, exist_ok=True)
        numbers = (*map(int, version.split(".")), "final", 0)
        (folder / "sitecustomize.py").write_text(
            f"import os, sys\nsys.version_info = {numbers}\n"
            f"sys.version = sys.version.replace({VERSION!r}, {version!r})\n"
            "del os.environ['PYTHONPATH']\n",
            encoding="utf-8",
        )
        program = folder / name
        program.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {INTERPRETER} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        return str(program)

    def path_with(self, program: str) -> str:
        return f"{Path(program).parent}{os.pathsep}{os.environ['PATH']}"


def _packages(venv: Path) -> Path:
    [folder] = venv.glob("lib/python*/site-packages")
    return folder


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("uv", "setuptools", PACKAGE, MODEL):
        _make_wheel(distribution(name), folder)
    return folder


@pytest.fixture
def project(tmp_path: Path, wheels: Path) -> Project:
    """pip and uv search only the folder of wheels."""
    (tmp_path / "tools").mkdir()
    for name in ("Makefile", "tools/install.py"):
        shutil.copy(REPO / name, tmp_path / name)
    for name, pins in {"uv": ["uv"], "dev": [PACKAGE, "setuptools"], "local": [MODEL]}.items():
        (tmp_path / f"requirements-{name}.txt").write_text("".join(_pin(pin, wheels) for pin in pins), encoding="utf-8")
    (tmp_path / "small.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[tool.setuptools]\npy-modules = ["small"]\n'
        '[project]\nname = "small"\nversion = "1"\n'
        f'classifiers = ["Programming Language :: Python :: {".".join(VERSION.split(".")[:2])}"]\n',
        encoding="utf-8",
    )
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1", "PIP_FIND_LINKS": str(wheels)}
    uv = {"UV_NO_CONFIG": "1", "UV_OFFLINE": "1", "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_FIND_LINKS": str(wheels)}
    return Project(tmp_path, inherited | pip | uv)


def _make_wheel(installed: Distribution, folder: Path) -> None:
    tag = next(
        line.removeprefix("Tag: ")
        for line in (installed.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag: ")
    )
    stem = f"{installed.name}-{installed.version}"
    record = io.StringIO()
    rows = csv.writer(record)
    with zipfile.ZipFile(folder / f"{stem}-{tag}.whl", "w") as wheel:
        for file in installed.files or []:
            if (wheel_path := _path_in_wheel(file, stem)) is not None:
                wheel.write(str(file.locate()), wheel_path)
                rows.writerow((wheel_path, "", ""))
        wheel.writestr(f"{stem}.dist-info/RECORD", record.getvalue())


def _path_in_wheel(file: PackagePath, stem: str) -> str | None:
    if file.suffix == ".pyc" or (file.parent.name == f"{stem}.dist-info" and file.name in NOT_IN_A_WHEEL):
        return None
    return f"{stem}.data/scripts/{file.name}" if file.parts[0] == ".." else file.as_posix()


def _pin(name: str, wheels: Path) -> str:
    [wheel] = wheels.glob(f"{name}-*.whl")
    return f"{name}=={wheel.name.split('-')[1]} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def test_install_uses_uv_and_installs_again_only_when_pins_change(project: Project) -> None:
    path = project.path_with(project.python("python3"))
    output = project.install(PATH=path)
    assert f"installing into .venv with Python {VERSION}\n" in output
    assert "2 packages of requirements-dev.txt, with uv ... " in output
    assert output.count("with pip") == 1, "pip installs uv and nothing else"
    assert project.installers(".venv") == {"uv"}
    assert project.bytecode(".venv")
    assert project.install(PATH=path) == ""
    assert project.make("test", PATH=path).stdout.startswith(f"testing on Python {VERSION}, .venv\n")
    with (project.folder / "requirements-dev.txt").open("a", encoding="utf-8") as pins:
        pins.write("# changed\n")
    output = project.install(PATH=path)
    assert "2 packages of requirements-dev.txt, with uv ... " in output
    assert "new virtualenv" not in output


def test_install_falls_back_to_pip_when_uv_cannot_resolve(project: Project) -> None:
    """uv does not read the configuration of pip."""
    output = project.install(f"PYTHON={INTERPRETER}", UV_FIND_LINKS="")
    assert output.count("pip installs instead") == 1
    assert "uv cannot install them (error: No solution found" in output
    assert project.installers(OWN_VENV) == {"pip"}
    assert project.bytecode(OWN_VENV)
    assert project.install(f"PYTHON={INTERPRETER}", UV_FIND_LINKS="") == ""


def test_install_falls_back_to_pip_when_uv_cannot_be_installed(project: Project) -> None:
    (project.folder / "requirements-uv.txt").write_text(f"uv==0.0.0 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    output = project.install(f"PYTHON={INTERPRETER}")
    assert output.count("pip installs instead") == 1
    assert "uv cannot be installed (ERROR: Could not find a version that satisfies the requirement uv==0.0.0" in output
    assert project.installers(OWN_VENV) == {"pip"}


def test_install_refuses_a_package_with_another_hash(project: Project) -> None:
    pins = project.folder / "requirements-dev.txt"
    name, _, _ = pins.read_text(encoding="utf-8").partition("sha256:")
    pins.write_text(f"{name}sha256:{'0' * 64}\n", encoding="utf-8")
    result = project.make("install", f"PYTHON={INTERPRETER}")
    assert result.returncode != 0
    assert "install failed: ERROR: THESE PACKAGES DO NOT MATCH THE HASHES" in result.stdout
    assert not list(_packages(project.folder / OWN_VENV).glob(f"{PACKAGE}*"))
    assert not (project.folder / OWN_VENV / "installed").exists(), "the next installation starts over"


def test_install_replaces_the_virtualenv_when_python3_becomes_another_version(project: Project) -> None:
    """The other version has no classifier, so it is not tested."""
    project.install(PATH=project.path_with(project.python("python3")))
    output = project.install(PATH=project.path_with(project.python("python3", "3.99.1")))
    assert output.startswith(f"Python 3.99.1 is not tested: antiphon is tested on {'.'.join(VERSION.split('.')[:2])}\n")
    assert "installing into .venv with Python 3.99.1\n  new virtualenv ..." in output


def test_each_version_of_python_has_its_own_virtualenv(project: Project) -> None:
    """With any existing .venv, and for any path of the interpreter."""
    (project.folder / ".venv").mkdir()
    for interpreter in (project.python("python3.99", "3.99.1"), project.python("any-name", "3.99.1")):
        commands = project.make("-n", "test", f"PYTHON={interpreter}").stdout
        assert ".venv-3.99/bin/coverage run" in commands
        assert ".venv/" not in commands


def test_python_below_3_11_is_refused(project: Project) -> None:
    result = project.make("install", f"PYTHON={project.python('python3.10', '3.10.1')}")
    assert result.returncode != 0
    assert result.stdout.startswith("Python 3.10 is too old: antiphon needs 3.11 or newer; name one with PYTHON=\n")
    assert not list(project.folder.glob(".venv*"))


def test_python_that_does_not_run_is_refused(project: Project) -> None:
    result = project.make("install", "PYTHON=/bin/false")
    assert result.returncode != 0
    assert result.stdout.startswith("PYTHON=/bin/false does not run; name another")
    assert not list(project.folder.glob(".venv*"))


def test_install_does_not_empty_a_folder_that_is_no_virtualenv(project: Project) -> None:
    own_file = project.folder / OWN_VENV / "mine.txt"
    own_file.parent.mkdir()
    own_file.touch()
    result = project.make("install", f"PYTHON={INTERPRETER}")
    assert result.returncode != 0
    assert f"install failed: {own_file.parent} exists and is not a virtualenv" in result.stdout
    assert own_file.exists()


def test_pins_have_hashes_and_name_no_index() -> None:
    for file in sorted([*REPO.glob("requirements*.txt"), *REPO.glob("tests/clients/requirements/*.txt")]):
        text = file.read_text(encoding="utf-8")
        assert "://" not in text, file.name
        pins = text.replace("\\\n", "").splitlines()
        assert all("--hash=sha256:" in line for line in pins if line and not line.lstrip().startswith("#")), file.name
