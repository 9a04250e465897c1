"""The newest response, which `--continue` continues."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from antiphon.cli.exits import InvalidUsage
from antiphon.cli.last_response import LastResponse, load_last_response, save_last_response, state_file

URL = "http://127.0.0.1:8080"
LAST = LastResponse(URL, "resp_1", "mock-1")


def test_state_file_is_in_the_state_folder() -> None:
    assert state_file({"XDG_STATE_HOME": "/state", "HOME": "/home/ada"}) == Path("/state/antiphon/last-response.json")
    assert state_file({"XDG_STATE_HOME": "relative", "HOME": "/home/ada"}) == Path(
        "/home/ada/.local/state/antiphon/last-response.json"
    )
    assert state_file({}) is None


def test_last_response_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    save_last_response(LAST, environ)
    save_last_response(LastResponse(URL, "resp_2", "mock-2"), environ)
    assert load_last_response(URL, environ) == LastResponse(URL, "resp_2", "mock-2")
    file = state_file(environ)
    assert file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("content", [None, b"{", b'{"url":"http://other","id":"resp_1","model":"mock-1"}'])
def test_nothing_to_continue_is_an_error(content: bytes | None, tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    file = state_file(environ)
    if content is not None and file is not None:
        file.parent.mkdir()
        file.write_bytes(content)
    with pytest.raises(InvalidUsage, match="nothing to continue: no stored answer of the gateway at http://127"):
        load_last_response(URL, environ)


def test_last_response_without_a_home_is_not_saved() -> None:
    save_last_response(LAST, {})
    with pytest.raises(InvalidUsage):
        load_last_response(URL, {})


def test_state_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    save_last_response(LAST, {"XDG_STATE_HOME": str(tmp_path / "file")})
