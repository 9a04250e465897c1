"""`antiphon serve`: which configuration is read, what is printed at the start, how it ends. The server is a fake
here."""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.cli.network import Terminal

from antiphon.cli import serve
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed
from antiphon.config import Config
from antiphon.errors import ConfigError
from antiphon.store.opening import default_path

LAB = """
[[upstreams]]
name = "lab"
dialect = "chat"
base_url = "http://127.0.0.1:9001/v1"
models = ["mock-*", { from = "fast", to = "mock-1" }]
"""
KEYS = '[[keys]]\nname = "alice"\nenv = "ALICE_KEY"\n'
URL = "http://127.0.0.1:8080"


class FakeServer:
    """Announces itself and then runs the given action."""

    def __init__(self, url: str | None = URL, then: Callable[[], None] = lambda: None) -> None:
        self.config = Config()
        self.debug = False
        self._url = url
        self._then = then

    def __call__(
        self, config: Config, *, debug: bool, announce: Callable[[str], None], source: serve.CommandLineSource
    ) -> None:
        del source
        self.config, self.debug = config, debug
        if self._url:
            announce(self._url)
        self._then()


def _serve(
    server: FakeServer, cwd: Path, *words: str, environ: dict[str, str] | None = None, out: io.StringIO | None = None
) -> tuple[int, str]:
    out = out or io.StringIO()
    args = make_parser().parse_args(["serve", *words])
    return serve.run(
        args, out, io.StringIO(), environ={"HOME": "/home/ada"} | (environ or {}), cwd=cwd, serve=server
    ), out.getvalue()


def test_serve_without_a_configuration_serves_the_embedded_model(tmp_path: Path) -> None:
    server = FakeServer()
    code, output = _serve(server, tmp_path)
    assert code == 0
    assert [upstream.embedded for upstream in server.config.upstreams] == [True]
    assert (server.config.server.host, server.config.server.port, server.debug) == ("127.0.0.1", 8080, False)
    assert '"model":"local"' in output


@pytest.mark.parametrize(
    ("words", "line"),
    [((), "starting the gateway and the embedded model …\n"), (("--config", "lab.toml"), "starting the gateway …\n")],
)
def test_serve_says_on_a_terminal_what_it_starts_before_it_does(
    tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    """A proxy for the limit of 300 ms: the line stands there before the server starts, which takes seconds."""
    (tmp_path / "lab.toml").write_text(LAB)
    for err, expected in ((Terminal(), line), (io.StringIO(), "")):
        shown: list[str] = []
        server = FakeServer(then=lambda err=err, shown=shown: shown.append(err.getvalue()))  # type: ignore[misc]
        args = make_parser().parse_args(["serve", *words])
        environ = {"HOME": "/home/ada", "NO_COLOR": "1"}
        serve.run(args, io.StringIO(), err, environ=environ, cwd=tmp_path, serve=server)
        assert shown == [expected]


def test_serve_reads_config_from_option_then_environment_then_folder(tmp_path: Path) -> None:
    for name in ("antiphon", "named", "variable"):
        (tmp_path / f"{name}.toml").write_text(LAB.replace('"lab"', f'"{name}"'))
    environ = {"ANTIPHON_CONFIG": "variable.toml"}
    for words, variables, chosen in (
        (["--config", "named.toml"], environ, "named"),
        ([], environ, "variable"),
        ([], {}, "antiphon"),
    ):
        server = FakeServer()
        _serve(server, tmp_path, *words, environ=variables)
        assert server.config.upstreams[0].name == chosen


def test_serve_options_override_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(f"[server]\nport = 9000\n[trace]\nmax_days = 1.0\n{LAB}")
    server = FakeServer()
    _serve(server, tmp_path, "--host", "::1", "--port", "0", "--trace", "seen", "--debug")
    assert (server.config.server.host, server.config.server.port, server.debug) == ("::1", 0, True)
    assert server.config.trace.dir == str(tmp_path / "seen")
    assert server.config.trace.max_days == 1.0


def test_serve_refuses_a_public_host_option_without_keys(tmp_path: Path) -> None:
    """docs/errors.md, "Security": it refuses to start and names the remedy."""
    (tmp_path / "antiphon.toml").write_text(LAB)
    server = FakeServer(then=lambda: pytest.fail("it was started"))
    with pytest.raises(ConfigError, match="add a key"):
        _serve(server, tmp_path, "--host", "0.0.0.0")


def test_serve_accepts_a_public_host_with_keys(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(LAB + KEYS)
    server = FakeServer()
    _serve(server, tmp_path, "--host", "0.0.0.0", environ={"ALICE_KEY": "sk-alice-0123456789"})
    assert server.config.server.host == "0.0.0.0"


def test_greeting_names_address_upstreams_and_commands_to_try(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(LAB)
    (tmp_path / "antiphon").touch(mode=0o755)
    _, output = _serve(FakeServer(), tmp_path, environ={"PATH": str(tmp_path)})
    assert "listens on http://127.0.0.1:8080/v1\n" in output
    assert "http://127.0.0.1:9001/v1" in output
    curl = shlex.split(next(line for line in output.splitlines() if "curl" in line))
    assert curl[:3] == ["curl", "-N", "http://127.0.0.1:8080/v1/responses"]
    assert msgspec.json.decode(curl[-1]) == {"model": "fast", "input": "Say hello.", "stream": True}
    assert "Authorization" not in output
    assert '  antiphon ask --model fast "Say hello."\n' in output
    assert "\x1b" not in output


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", f"responses: stored for 30 days, in {default_path({'HOME': '/home/ada'})}"),
        ('url = "sqlite:////data/a.db"\nretention_days = 1\n', "responses: stored for 1 day, in /data/a.db"),
        (
            'url = "postgresql://ada:sesame@db/antiphon"\nmax_responses = 5000\n',
            "responses: stored for 30 days, at most 5,000, in PostgreSQL",
        ),
        ('url = "off"\n', "responses: not stored, because [store] url is off"),
    ],
)
def test_greeting_names_the_store(tmp_path: Path, settings: str, expected: str) -> None:
    (tmp_path / "antiphon.toml").write_text(f"{LAB}[store]\n{settings}")
    _, output = _serve(FakeServer(), tmp_path)
    assert f"  {expected}\n" in output
    assert "sesame" not in output


def test_greeting_commands_contain_address_but_no_key(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(LAB + KEYS)
    _, output = _serve(FakeServer("http://127.0.0.1:9000"), tmp_path, environ={"ALICE_KEY": "sk-alice"})
    assert '-H "Authorization: Bearer $YOUR_KEY"' in output
    command = f'ANTIPHON_API_KEY=$YOUR_KEY {shlex.quote(sys.argv[0])} ask --url http://127.0.0.1:9000 --model fast "Say hello."'
    assert command in output
    assert "sk-alice" not in output


def test_greeting_has_a_placeholder_if_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(LAB.replace(', { from = "fast", to = "mock-1" }', ""))
    assert '"model":"MODEL"' in _serve(FakeServer(), tmp_path)[1]


def test_greeting_is_coloured_on_a_terminal(tmp_path: Path) -> None:
    assert "\x1b[1m" in _serve(FakeServer(), tmp_path, out=Terminal())[1]


def _interrupt() -> None:
    raise KeyboardInterrupt


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("stop", [_interrupt, _terminate])
def test_serve_exits_with_0_when_stopped(stop: Callable[[], None], tmp_path: Path) -> None:
    """Exit code 0; and SIGTERM unwinds, so that everything that was started is stopped."""
    before = signal.getsignal(signal.SIGTERM)
    assert _serve(FakeServer(then=stop), tmp_path)[0] == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_serve_exits_with_130_if_interrupted_before_listening(tmp_path: Path) -> None:
    """Exit code 130."""
    assert _serve(FakeServer(url=None, then=_interrupt), tmp_path)[0] == 130


def test_serve_fails_if_the_server_never_listened(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="did not start"):
        _serve(FakeServer(url=None), tmp_path)


@pytest.mark.parametrize("given", ["-1", "65536", "http", "٨٠", ""])
def test_serve_rejects_invalid_ports(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        make_parser().parse_args(["serve", f"--port={given}"])
    assert raised.value.code == 2
    assert ": expected 0–65535" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "models"), [({}, ["local"]), ({"GROQ_API_KEY": "gsk-1"}, ["groq"])])
def test_serve_without_the_packages_of_the_model_serves_the_providers(
    key: dict[str, str], models: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without providers the embedded model stays, so that its error has the command that installs it."""
    monkeypatch.setattr("antiphon.upstream.embedded.is_model_installed", lambda: False)
    server = FakeServer()
    _serve(server, tmp_path, environ=key)
    assert [upstream.name for upstream in server.config.upstreams] == models
