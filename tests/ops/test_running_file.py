"""`ops/running_file`: the file by which `antiphon reload` finds a gateway."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from antiphon.ops.running_file import (
    ReloadResult,
    RunningFile,
    RunningGateway,
    find_running_gateways,
    remove_old_files,
    state_folder,
)

URL = "http://127.0.0.1:8080"
RESULT = ReloadResult(number=2, problem="line 3", changes=["keys: removed bob"], restart_settings=["server.port"])
# Writes the file of its own process, and ends.
PROGRAM = (
    "import os; from antiphon.ops.running_file import RunningFile; RunningFile('http://x', None, os.environ).write()"
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


def files_in(environ: dict[str, str]) -> list[Path]:
    return list(Path(environ["XDG_STATE_HOME"], "antiphon", "running").iterdir())


def test_running_gateway_is_found_until_it_ends(environ: dict[str, str]) -> None:
    assert find_running_gateways(environ) == []
    file = RunningFile(URL, Path("a.toml"), environ)
    file.write()
    [gateway] = find_running_gateways(environ)
    assert (gateway.pid, gateway.url, gateway.config) == (os.getpid(), URL, str(Path("a.toml").absolute()))
    file.write(RESULT)
    assert find_running_gateways(environ) == [replace(gateway, reload=RESULT)]
    [path] = files_in(environ)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file.remove()
    file.remove()
    assert files_in(environ) == []
    assert find_running_gateways(environ) == []


@pytest.mark.io
def test_files_of_ended_processes_are_ignored_and_removed(environ: dict[str, str]) -> None:
    RunningFile(URL, None, environ).write()
    subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **environ}, check=True)
    assert len(files_in(environ)) == 2
    assert [gateway.pid for gateway in find_running_gateways(environ)] == [os.getpid()]
    remove_old_files(environ)
    assert [file.stem for file in files_in(environ)] == [str(os.getpid())]


def test_file_with_another_content_is_ignored(environ: dict[str, str]) -> None:
    RunningFile(URL, None, environ).write()
    [file] = files_in(environ)
    file.write_bytes(b"{")
    (file.parent / "1.json").write_bytes(msgspec.json.encode({"pid": 1}))
    remove_old_files(environ)
    assert find_running_gateways(environ) == []
    assert len(files_in(environ)) == 2


def test_gateway_without_a_home_has_no_file() -> None:
    file = RunningFile(URL, None, {})
    file.write()
    file.remove()
    assert state_folder({}) is None
    assert find_running_gateways({}) == []


def test_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    RunningFile(URL, None, {"XDG_STATE_HOME": str(tmp_path / "file")}).write()


def test_result_of_a_reload_survives_its_encoding() -> None:
    gateway = RunningGateway(pid=1, process="gateway@x", url=URL, config=None, reload=RESULT)
    assert msgspec.json.decode(msgspec.json.encode(gateway), type=RunningGateway) == gateway
