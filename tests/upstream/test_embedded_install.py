"""The command that installs the embedded model, for each way to install antiphon."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from antiphon.upstream import embedded_install
from antiphon.upstream.embedded_install import Installation, current_installation, install_command


def installation(prefix: Path, *, has_pip: bool = True, source: Path | None = None) -> Installation:
    return Installation(prefix=prefix, python=str(prefix / "bin" / "python"), has_pip=has_pip, source=source)


def test_pip_environment_installs_with_its_own_pip(tmp_path: Path) -> None:
    command = install_command(installation(tmp_path))
    assert command == f'{tmp_path}/bin/python -m pip install "antiphon[local]"'


def test_environment_without_pip_installs_with_uv(tmp_path: Path) -> None:
    command = install_command(installation(tmp_path, has_pip=False))
    assert command == f'uv pip install --python {tmp_path}/bin/python "antiphon[local]"'


def test_uv_tool_is_installed_again_with_the_extra(tmp_path: Path) -> None:
    (tmp_path / "uv-receipt.toml").touch()
    assert install_command(installation(tmp_path, has_pip=False)) == 'uv tool install "antiphon[local]"'


def test_pipx_tool_is_installed_again_with_the_extra(tmp_path: Path) -> None:
    (tmp_path / "pipx_metadata.json").touch()
    assert install_command(installation(tmp_path)) == 'pipx install --force "antiphon[local]"'


def test_environment_of_uvx_is_named_with_the_extra() -> None:
    prefix = Path("/home/ada/.cache/uv/archive-v0/Ab-12")
    assert install_command(installation(prefix, has_pip=False)) == 'uvx "antiphon[local]" serve'


def test_editable_installation_uses_the_pins_of_the_project(tmp_path: Path) -> None:
    command = install_command(installation(tmp_path, source=Path("/src/my project")))
    assert command == f"{tmp_path}/bin/python -m pip install --no-deps -r '/src/my project/requirements-local.txt'"


def test_current_installation_is_the_environment_of_the_tests() -> None:
    current = current_installation(lambda _: None)
    assert (current.prefix, current.python, current.has_pip) == (Path(sys.prefix), sys.executable, False)
    assert current.source is not None
    assert (current.source / "requirements-local.txt").is_file()


@pytest.mark.parametrize("text", [None, "", '{"url": "file:///x", "dir_info": {}}', '{"url": "x", "archive_info": {}}'])
def test_installation_from_a_wheel_has_no_source(text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_install, "distributions", lambda **_: [Metadata(text)])
    assert current_installation().source is None


def test_package_without_metadata_has_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_install, "distributions", lambda **_: [])
    assert current_installation().source is None


class Metadata:
    """The metadata of an installed distribution, of which one file is read."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self._text
