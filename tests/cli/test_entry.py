"""The entry point: help, exit codes, and output of real processes. Every exit code that the help names has its test
here."""

from __future__ import annotations

import importlib
import io
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from itertools import takewhile
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.cli.network import MODELS

import antiphon
from antiphon.cli import main
from antiphon.cli.entry import COMMANDS, parse_arguments
from antiphon.cli.exits import EXIT_CODES

pytestmark = pytest.mark.io
ANTIPHON = [sys.executable, "-m", "antiphon"]
LAB = '[[upstreams]]\nname = "lab"\ndialect = "chat"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["mock-1"]\n'


def _environ(more: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a process, without the owner's settings for this command."""
    others = {
        name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_") and name != "NO_COLOR"
    }
    return {**others, "TERM": "xterm", **(more or {})}


@contextmanager
def _started(
    *words: str, cwd: Path | None = None, out: int = PIPE, err: int = PIPE, more: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process of the command, which ends with the test."""
    with subprocess.Popen(
        [*ANTIPHON, *words], stdout=out, stderr=err, text=True, cwd=cwd, env=_environ(more)
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ANTIPHON, *words], capture_output=True, text=True, cwd=cwd, env=_environ(), timeout=60, check=False
    )


def test_version_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    ended = _run("--version")
    assert (ended.returncode, ended.stdout) == (0, f"antiphon {antiphon.__version__}\n")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"antiphon {antiphon.__version__}\n"


def test_importing_main_module_runs_no_command() -> None:
    assert importlib.import_module("antiphon.__main__").main is main


def test_main_writes_to_redirected_output() -> None:
    with redirect_stdout(io.StringIO()) as out:
        assert main(["--version"]) == 0
    assert out.getvalue() == f"antiphon {antiphon.__version__}\n"


def test_output_replaces_characters_the_terminal_lacks(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(LAB.replace('"mock-1"', '{ from = "fast", to = "mock-1" }'))
    command = [*ANTIPHON, "config", "check"]
    environ = _environ({"PYTHONIOENCODING": "ascii"})
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "fast ? mock-1" in ended.stdout


def test_installed_command_prints_the_version() -> None:
    command = Path(sys.executable).with_name("antiphon")
    ended = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, f"antiphon {antiphon.__version__}\n")


def test_help_names_every_command_and_every_exit_code() -> None:
    ended = _run("--help")
    assert ended.returncode == 0
    assert all(f"\n    {command} " in ended.stdout for command in COMMANDS)
    assert EXIT_CODES in ended.stdout


@pytest.mark.parametrize("command", ["serve", "ask", "models", "config check"])
def test_help_of_a_command_has_examples_and_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    output = capsys.readouterr().out
    assert f"examples:\n  antiphon {command}" in output
    assert EXIT_CODES in output


def test_missing_command_prints_help_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "commands:" in captured.err


@pytest.mark.parametrize("words", [["sreve"], ["serve", "--prot", "1"], ["config"], ["ask", "hi", "--mod", "x"]])
def test_invalid_command_line_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "usage: antiphon" in capsys.readouterr().err


def test_config_check_exits_with_0_or_2_without_traceback(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(LAB)
    good = _run("config", "check", "good.toml", cwd=tmp_path)
    assert (good.returncode, good.stderr) == (0, "")
    assert ": valid" in good.stdout
    (tmp_path / "bad.toml").write_text(LAB.replace("dialect", "dialetc"))
    bad = _run("config", "check", "bad.toml", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("antiphon: ")
    assert "did you mean 'dialect'?" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_unreachable_gateway_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    with _listening() as (_, url):
        pass  # then it is closed
    assert main(["ask", "hi", "--url", url]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (
        "",
        f"antiphon: no gateway answers at {url}; start one with `antiphon serve`\n",
    )
    assert main(["models", "--url", url]) == 1


def test_invalid_url_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--url", "ftp://x"]) == 2
    assert capsys.readouterr().err.startswith("antiphon: invalid gateway URL 'ftp://x'")


def test_port_in_use_exits_with_2_and_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(LAB)
    with _listening() as (taken, _):
        ended = _run("serve", "--port", str(taken.getsockname()[1]), cwd=tmp_path)
    assert ended.returncode == 2
    assert "in use" in ended.stderr
    assert "--port" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_interrupted_ask_exits_with_130_without_traceback() -> None:
    with _listening() as (silent, url), _started("ask", "hi", "--url", url) as process:
        connection, _ = silent.accept()
        with connection:
            connection.settimeout(60)
            assert connection.recv(1000).startswith(b"GET /v1/models HTTP/1.1\r\n")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


#: Interrupts itself when the named module is imported.
INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
from antiphon.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("module", ["antiphon.cli.entry", "argparse", "antiphon.cli.ask", "msgspec"])
def test_interrupt_during_imports_exits_with_130_without_traceback(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, module, "ask", "hi", "--url", "http://127.0.0.1:9"]
    ended = subprocess.run(command, capture_output=True, text=True, env=_environ(), timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_interrupt_during_imports_of_the_server_exits_with_130(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(LAB)
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, "antiphon.api.serve_api", "serve", "--port", "0"]
    ended = subprocess.run(
        command, capture_output=True, text=True, env=_environ(), timeout=60, check=False, cwd=tmp_path
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_ignored_interrupt_stays_ignored() -> None:
    program = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{INTERRUPTED_IMPORT}"
    command = [sys.executable, "-c", program, "antiphon.cli.models", "models", "--url", "ftp://x"]
    ended = subprocess.run(command, capture_output=True, text=True, env=_environ(), timeout=60, check=False)
    assert ended.returncode == 2


def test_closed_output_pipe_exits_with_1_without_message() -> None:
    """Exit code 1: output that `| head` did not read was not printed."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with _listening() as (server, url), _started("models", "--url", url, out=write_end) as process:
        os.close(write_end)
        _answer_once(server, MODELS)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "")


@pytest.mark.parametrize(("more", "painted"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colours_are_used_only_on_terminals_that_support_them(more: dict[str, str], painted: bool) -> None:
    ours, theirs = pty.openpty()
    with _listening() as (server, url), _started("models", "--url", url, out=theirs, err=theirs, more=more) as process:
        os.close(theirs)
        _answer_once(server, MODELS)
        shown = _all_of(ours)
        assert process.wait(timeout=60) == 0
    assert "mock-1  lab" in shown
    assert ("\x1b[1mMODEL" in shown) is painted
    assert ("\x1b" in shown) is painted


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_server_process_prints_a_greeting_and_stops_on_signal(stop: signal.Signals, tmp_path: Path) -> None:
    """Exit code 0: the normal end of a server."""
    (tmp_path / "antiphon.toml").write_text(LAB)
    with _started("serve", "--port", "0", cwd=tmp_path) as process:
        assert process.stdout is not None
        greeting = list(takewhile(lambda line: "Ctrl-C" not in line, process.stdout))
        assert greeting, process.communicate()
        url = greeting[0].split()[-1]
        listed = _run("models", "--url", url)
        assert (listed.returncode, listed.stdout) == (0, "mock-1  lab\n")
        process.send_signal(stop)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err


def test_interrupted_server_says_that_it_finishes_requests(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with _listening() as (upstream, url):
        (tmp_path / "antiphon.toml").write_text(LAB.replace("http://127.0.0.1:9", url))
        with _started("serve", "--port", "0", cwd=tmp_path, err=theirs) as process:
            os.close(theirs)
            assert process.stdout is not None
            greeting = list(takewhile(lambda line: "Ctrl-C" not in line, process.stdout))
            host, port = greeting[0].split()[-1].removeprefix("http://").removesuffix("/v1").split(":")
            body = b'{"model": "mock-1", "input": "hi"}'
            head = b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            with socket.create_connection((host, int(port)), timeout=60) as client:
                client.sendall(head + b"content-length: %d\r\n\r\n%b" % (len(body), body))
                connection, _ = upstream.accept()
                with connection:
                    process.send_signal(signal.SIGINT)
                    shown = b""
                    while b"finishing 1 request; press Ctrl-C again to stop now" not in shown:
                        shown += os.read(ours, 4096)
                    process.send_signal(signal.SIGINT)
                    shown += _all_of(ours).encode()
            assert process.wait(timeout=60) == 0
    assert b"running task" not in shown
    assert b"Traceback" not in shown


@contextmanager
def _listening() -> Iterator[tuple[socket.socket, str]]:
    """A server of the test's own, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server, f"http://127.0.0.1:{server.getsockname()[1]}"


def _answer_once(server: socket.socket, body: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.settimeout(60)
        assert connection.recv(4000)
        connection.sendall(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )


def _all_of(terminal: int) -> str:
    """Everything written to a terminal until its other end is closed."""
    shown = b""
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError:
        pass  # the error with which Linux reports that the other end is closed
    finally:
        os.close(terminal)
    return shown.decode()


@pytest.mark.parametrize(
    ("word", "hint"), [("srve", "did you mean serve?"), ("xyzzy", "antiphon --help lists the commands")]
)
def test_unknown_command_gets_a_suggestion(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "--port", "1"]) == 2
    assert f"unknown command {word!r}: {hint}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["config", "check", "--liv"],
            "antiphon config check: error: unrecognized arguments: --liv; did you mean --live?",
        ),
        (["serve", "--prot=1"], "antiphon serve: error: unrecognized arguments: --prot=1; did you mean --port?"),
        (["models", "extra"], "antiphon models: error: unrecognized arguments: extra"),
    ],
)
def test_unknown_option_gets_a_suggestion(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.endswith(f"{message}\n")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["config", "chek"], "did you mean check?"),
        (["trace", "lst"], "did you mean list?"),
        (["run", "claud"], "did you mean claude?"),
        (["completion", "bsh"], "did you mean bash?"),
        (["usage", "--by", "modle"], "did you mean model?"),
        (["translate", "--from", "chatt", "--to", "chat"], "did you mean chat?"),
        (["completion", "xyzzy"], "expected one of bash, zsh, fish"),
    ],
)
def test_unknown_value_gets_a_suggestion(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.endswith(f": {hint}\n")


@pytest.mark.parametrize("words", [["help"], ["help", "ask"], ["help", "config", "check"]])
def test_help_command_prints_the_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    output = capsys.readouterr().out
    assert main([*words[1:], "--help"]) == 0
    assert output == capsys.readouterr().out


def test_short_version_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-V"]) == 0
    assert capsys.readouterr().out == f"antiphon {antiphon.__version__}\n"


def test_arguments_after_two_dashes_belong_to_the_started_program() -> None:
    args = parse_arguments(["run", "codex", "--model", "m", "--", "exec", "--", "serve"])
    assert (args.command, args.agent, args.model, args.passed) == ("run", "codex", "m", ["exec", "--", "serve"])
    args = parse_arguments(["ask", "--", "-1 + 1?"])
    assert (args.prompt, args.passed) == (["-1 + 1?"], [])


#: Runs a command with a terminal as standard error, and reports the modules that were imported at its first output.
FIRST_OUTPUT = """
import io, os, sys

own = set(sys.modules)
modules = []

class Terminal(io.StringIO):
    def isatty(self):
        return True
    def write(self, text):
        if text and not modules:
            modules.extend(set(sys.modules) - own)
        return len(text)

sys.stderr = sys.stdout = Terminal()
from antiphon.cli import main
main(sys.argv[1:])
os.write(1, " ".join(modules).encode())
"""


@pytest.mark.without_coverage
@pytest.mark.parametrize("command", COMMANDS)
def test_command_says_what_it_does_before_it_imports_anything_slow(command: str) -> None:
    """The first line is on the terminal within 300 ms; `tests/faults_outside/test_first_output.py` measures the time."""
    ended = subprocess.run(
        [sys.executable, "-c", FIRST_OUTPUT, command, "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    modules = set(ended.stdout.split())
    assert f"antiphon.cli.{command}" not in modules
    assert not modules & {"asyncio", "msgspec", "ssl", "antiphon.config", "antiphon.client", "antiphon.protocol"}
    assert len(modules) <= 60
