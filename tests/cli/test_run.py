"""`antiphon run`: a program in place of the agent reports how it was started."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.running import until

from antiphon.cli import run
from antiphon.cli.entry import parse_arguments
from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.testing import ResponsesServer

pytestmark = pytest.mark.io
# Reports its arguments, its variables and the files of the run, and ends with the code that its last argument names.
PROGRAM = f"""#!{sys.executable}
import json, os, pathlib, sys
folder = pathlib.Path(os.environ.get("CODEX_HOME", "/nowhere"))
files = {{str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}}
report = {{"arguments": sys.argv[1:], "variables": dict(os.environ), "files": files, "folder": str(folder)}}
pathlib.Path(os.environ["REPORT"]).write_text(json.dumps(report))
sys.exit(int(sys.argv[-1]))
"""


@pytest.fixture
def server() -> Iterator[ResponsesServer]:
    with ResponsesServer() as server:
        yield server


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Variables with a folder of programs, which has `codex` only."""
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "REPORT": str(tmp_path / "report.json"),
        "ANTIPHON_API_KEY": "sk-test",
    }


def _run(environ: dict[str, str], *words: str) -> tuple[int, str]:
    err = io.StringIO()
    code = run.run(parse_arguments(["run", *words]), io.StringIO(), err, environ=environ)
    return code, err.getvalue()


def test_run_starts_the_agent_with_its_own_configuration(server: ResponsesServer, environ: dict[str, str]) -> None:
    code, notes = _run(environ, "codex", "--url", server.origin, "--model", "mock-1", "--", "exec", "--json", "3")
    report = json.loads(Path(environ["REPORT"]).read_text())
    assert code == 3
    assert report["arguments"] == ["exec", "--json", "3"]
    assert report["variables"]["ANTIPHON_API_KEY"] == "sk-test"
    assert f'base_url = "{server.origin}/v1"' in report["files"]["config.toml"]
    assert not Path(report["folder"]).exists(), "the folder of the run is removed"
    assert f"codex with mock-1 at {server.origin}" in notes


def test_run_keeps_the_sessions_of_claude(server: ResponsesServer, environ: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "bin" / "claude"
    program.write_text(
        '#!/bin/sh\ncat "$CLAUDE_CONFIG_DIR/projects/session" > "$REPORT"\necho one >> "$CLAUDE_CONFIG_DIR/projects/session"\n'
    )
    program.chmod(0o755)
    _run(environ, "claude", "--url", server.origin)
    assert (tmp_path / ".local/state/antiphon/run/claude/projects/session").read_text() == "one\n"
    _run(environ, "claude", "--url", server.origin)
    assert Path(environ["REPORT"]).read_text() == "one\n"


def test_run_names_a_state_folder_that_it_cannot_use(
    server: ResponsesServer, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "bin" / "claude").symlink_to("codex")
    (tmp_path / ".local").touch()
    with pytest.raises(CommandFailed, match="the folder of the sessions: Not a directory"):
        _run(environ, "claude", "--url", server.origin, "--", "0")


def test_run_leaves_the_handler_of_interrupts_as_it_was(server: ResponsesServer, environ: dict[str, str]) -> None:
    handler = signal.getsignal(signal.SIGINT)
    _run(environ, "codex", "--url", server.origin, "--", "0")
    assert signal.getsignal(signal.SIGINT) is handler


def test_run_of_a_missing_program_says_how_to_install_it(environ: dict[str, str]) -> None:
    with pytest.raises(InvalidUsage, match="opencode is not installed; install it with: npm install -g opencode-ai"):
        _run({**environ, "PATH": environ["PATH"].partition(os.pathsep)[0]}, "opencode")


def test_run_suggests_a_listed_model(server: ResponsesServer, environ: dict[str, str]) -> None:
    with pytest.raises(InvalidUsage, match="unknown model 'mock-l'; did you mean 'mock-1'"):
        _run(environ, "codex", "--url", server.origin, "-m", "mock-l", "--", "0")


def test_run_warns_about_the_embedded_model(environ: dict[str, str]) -> None:
    with ResponsesServer(models=("local",)) as server:
        notes = _run(environ, "codex", "--url", server.origin, "--", "0")[1]
    assert "the embedded model `local` is too small for agents" in notes


def test_run_does_not_start_a_gateway_in_place_of_a_named_one(environ: dict[str, str]) -> None:
    with pytest.raises(CommandFailed, match="no gateway answers at"):
        _run(environ, "codex", "--url", "http://127.0.0.1:1", "--", "0")
    with pytest.raises(CommandFailed, match="no gateway answers at"):
        _run({**environ, "ANTIPHON_URL": "http://127.0.0.1:1"}, "codex", "--", "0")


def test_run_starts_and_stops_a_gateway(
    server: ResponsesServer, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab.toml").write_text(
        f'[[upstreams]]\nname = "lab"\ndialect = "responses"\nbase_url = "{server.base_url}"\nmodels = ["mock-1"]\n'
    )
    monkeypatch.setattr("antiphon.cli.gateway_address.DEFAULT_URL", "http://127.0.0.1:1")
    code, notes = _run({**environ, "ANTIPHON_CONFIG": str(tmp_path / "lab.toml")}, "codex", "--", "0")
    assert code == 0
    assert "no gateway answers at http://127.0.0.1:1: starting one" in notes
    url = notes.partition("codex with mock-1 at ")[2].strip()
    with pytest.raises(CommandFailed, match="no gateway answers"):
        run.served_models(url, {})


def test_run_starts_a_gateway_beside_another_server(
    server: ResponsesServer, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model server at the default address lists models too."""
    (tmp_path / "lab.toml").write_text(
        f'[[upstreams]]\nname = "lab"\ndialect = "responses"\nbase_url = "{server.base_url}"\nmodels = ["mock-1"]\n'
    )
    monkeypatch.setattr("antiphon.cli.gateway_address.DEFAULT_URL", server.origin)
    _, notes = _run({**environ, "ANTIPHON_CONFIG": str(tmp_path / "lab.toml")}, "codex", "--", "0")
    assert f"no gateway answers at {server.origin}: starting one" in notes


def test_run_shows_why_its_gateway_did_not_start(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.toml").write_text("[server]\nhots = 1\n")
    monkeypatch.setattr("antiphon.cli.gateway_address.DEFAULT_URL", "http://127.0.0.1:1")
    with pytest.raises(CommandFailed, match=r"the gateway did not start:\n.*hots"):
        _run({**environ, "ANTIPHON_CONFIG": str(tmp_path / "bad.toml")}, "codex", "--", "0")


# Signals: the command runs in a process of its own, with a gateway that it starts.

MAIN = """
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests may run under nohup
from antiphon.cli import entry, gateway_address
gateway_address.DEFAULT_URL = "http://127.0.0.1:1"
sys.exit(entry.main(["run", "codex"]))
"""
# Reports its process id and the URL of its gateway, and what it got; it ends with SIGTERM and SIGHUP, late.
WAITING_PROGRAM = f"""#!{sys.executable}
import os, pathlib, signal, sys, tomllib
report = pathlib.Path(os.environ["REPORT"])
config = tomllib.loads((pathlib.Path(os.environ["CODEX_HOME"]) / "config.toml").read_text())
def end(number, _):
    report.write_text(signal.Signals(number).name)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGHUP, end)
pathlib.Path(f"{{report}}.new").write_text(f"{{os.getpid()}} {{config['model_providers']['antiphon']['base_url']}}")
os.rename(f"{{report}}.new", report)
while True:
    signal.pause()
"""


class Command:
    """`antiphon run codex` in a process of its own, and the processes that it started."""

    def __init__(self, environ: dict[str, str], folder: Path) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.report = Path(environ["REPORT"])
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN],
            env={**environ, "TMPDIR": str(self.temporary), "ANTIPHON_CONFIG": str(folder / "lab.toml")},
            stdin=subprocess.DEVNULL,
        )
        until(self.report.exists)
        pid, self.url = self.report.read_text().split()
        self.agent_pid = int(pid)

    def is_gateway_running(self) -> bool:
        try:
            run.served_models(self.url.removesuffix("/v1"), {})
        except CommandFailed:
            return False
        return True


@pytest.fixture
def command(server: ResponsesServer, environ: dict[str, str], tmp_path: Path) -> Iterator[Command]:
    (tmp_path / "lab.toml").write_text(
        f'[[upstreams]]\nname = "lab"\ndialect = "responses"\nbase_url = "{server.base_url}"\nmodels = ["mock-1"]\n'
    )
    (tmp_path / "bin" / "codex").write_text(WAITING_PROGRAM)
    command = Command(environ, tmp_path)
    yield command
    for pid in (command.process.pid, command.agent_pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    command.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_stop_signal_ends_the_agent_the_gateway_and_the_files(command: Command, number: signal.Signals) -> None:
    assert command.is_gateway_running()
    command.process.send_signal(number)
    assert command.process.wait(30) == 128 + number
    assert command.report.read_text() == number.name, "the agent got the signal"
    assert not command.is_gateway_running()
    assert list(command.temporary.iterdir()) == []


def test_gateway_of_a_killed_run_ends(command: Command) -> None:
    command.process.kill()
    until(lambda: not command.is_gateway_running(), 30)


def test_agent_that_a_signal_ended_has_the_exit_code_of_shells(
    server: ResponsesServer, environ: dict[str, str]
) -> None:
    Path(environ["PATH"].partition(os.pathsep)[0], "codex").write_text("#!/bin/sh\nkill -KILL $$\n")
    assert _run(environ, "codex", "--url", server.origin)[0] == 128 + signal.SIGKILL
