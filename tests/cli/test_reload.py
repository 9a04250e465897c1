"""`antiphon reload`: how the gateway is found, and what is printed. The gateway is a thread of this process here; real
gateways are in `tests/ops/test_reload.py`."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon.cli import reload
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.errors import ConfigError
from antiphon.ops.running_file import ReloadResult, RunningFile

URL = "http://127.0.0.1:8080"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


@contextmanager
def on_hangup(action: Callable[[], None]) -> Iterator[None]:
    previous_handler = signal.signal(signal.SIGHUP, lambda *_: action())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, previous_handler)


def run(environ: dict[str, str], *words: str) -> str:
    out = io.StringIO()
    args = make_parser(["reload"]).parse_args(["reload", *words])
    assert reload.run(args, out, io.StringIO(), environ=environ) == 0
    return out.getvalue()


def test_result_is_printed(environ: dict[str, str]) -> None:
    file = RunningFile(URL, Path("/etc/antiphon.toml"), environ)
    file.write()
    result = ReloadResult(number=1, changes=["keys: removed bob"], restart_settings=["server.port"])
    with on_hangup(lambda: file.write(result)):
        printed = run(environ, "--url", "127.0.0.1:8080/v1")
    assert printed.splitlines() == [
        f"reloaded /etc/antiphon.toml at {URL}",
        "  keys: removed bob",
        "  server.port: needs a restart of the gateway",
    ]


def test_reload_without_a_change_says_so(environ: dict[str, str]) -> None:
    file = RunningFile(URL, None, environ)
    file.write()
    with on_hangup(lambda: file.write(ReloadResult(number=1))):
        printed = run(environ)
    assert printed == f"reloaded the default configuration at {URL}\n  nothing has changed\n"


def test_problem_is_an_error_of_the_configuration(environ: dict[str, str]) -> None:
    file = RunningFile(URL, None, environ)
    file.write()
    with on_hangup(lambda: file.write(ReloadResult(number=1, problem="line 3: no"))):
        with pytest.raises(ConfigError, match="line 3: no"):
            run(environ)


def test_missing_gateway_is_a_failure(environ: dict[str, str]) -> None:
    with pytest.raises(CommandFailed, match="no gateway of this user runs on this machine"):
        run(environ)
    RunningFile(URL, None, environ).write()
    with pytest.raises(CommandFailed, match=r"no gateway of this user listens on http://127.0.0.1:9"):
        run({**environ, "ANTIPHON_URL": "http://127.0.0.1:9"})


def test_several_gateways_are_listed(environ: dict[str, str], tmp_path: Path) -> None:
    RunningFile(URL, None, environ).write()
    [file] = (tmp_path / "antiphon" / "running").iterdir()
    (file.parent / "1.json").write_bytes(file.read_bytes().replace(b"8080", b"8081"))
    with pytest.raises(InvalidUsage, match=r"select one of http://127.0.0.1:8081, http://127.0.0.1:8080 with --url"):
        run(environ)


def test_gateway_that_stops_or_does_not_answer_is_a_failure(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RunningFile(URL, None, environ)
    file.write()
    with on_hangup(file.remove), pytest.raises(CommandFailed, match="stopped during the reload"):
        run(environ)
    file.write()
    monkeypatch.setattr(reload, "TIMEOUT", 0.05)
    with on_hangup(lambda: None), pytest.raises(CommandFailed, match=r"did not reload within 0.05 s"):
        run(environ)


def test_gateway_that_cannot_be_signalled_is_a_failure(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    RunningFile(URL, None, environ).write()
    monkeypatch.setattr(os, "kill", refuse)
    with pytest.raises(CommandFailed, match=r"cannot signal the gateway .*: Operation not permitted"):
        run(environ)
