"""`antiphon init`: what is found, what is asked, and the file."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from antiphon.cli import init
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.cli.local_servers import AnsweringServer, ServerSearch
from antiphon.config import Config, load_config
from antiphon.config.json_schema import config_schema
from antiphon.profiles.local_servers import builtin_local_servers

OPENAI = {"OPENAI_API_KEY": "sk-0123456789abcdef"}
OLLAMA = AnsweringServer(builtin_local_servers()[0], ["llama3.2:1b", 'odd"name'])


def _init(
    folder: Path,
    *words: str,
    environ: Mapping[str, str] = OPENAI,
    ask: Callable[[str], str] = lambda _: "",
    name: str = "antiphon.toml",
    servers: list[AnsweringServer] = [OLLAMA],  # noqa: B006
) -> tuple[int, str]:
    out = io.StringIO()
    args = make_parser().parse_args(["init", "--no-live", "-o", str(folder / name), *words])
    code = init.run(args, out, io.StringIO(), environ=environ, ask=ask, find_servers=lambda _: ServerSearch(servers))
    return code, out.getvalue()


def _load(folder: Path) -> Config:
    return load_config(folder / "antiphon.toml", OPENAI)


def test_init_writes_everything_that_was_found(tmp_path: Path) -> None:
    code, output = _init(tmp_path, "--yes")
    assert code == 0
    assert "start the gateway with: antiphon serve" in output
    config = _load(tmp_path)
    assert [upstream.name for upstream in config.upstreams] == ["openai", "ollama", "local"]
    assert config.upstreams[1].listed_models() == OLLAMA.models
    assert config.upstreams[0].upstream_model("openai/gpt-6") == "gpt-6"


def test_init_writes_no_key(tmp_path: Path) -> None:
    _init(tmp_path, "--yes")
    text = (tmp_path / "antiphon.toml").read_text()
    assert OPENAI["OPENAI_API_KEY"] not in text
    assert 'api_key_env = "OPENAI_API_KEY"' in text


def test_init_writes_the_schema_that_the_file_names(tmp_path: Path) -> None:
    _init(tmp_path, "--yes")
    assert (tmp_path / "antiphon.toml").read_text().startswith("#:schema antiphon.schema.json\n")
    assert json.loads((tmp_path / "antiphon.schema.json").read_text()) == config_schema()


def test_init_asks_about_each_upstream(tmp_path: Path) -> None:
    questions: list[str] = []

    def answer(question: str) -> str:
        questions.append(question)
        return "n" if "OPENAI" in question else "y"

    _init(tmp_path, ask=answer)
    assert questions == [
        "Use openai (OPENAI_API_KEY is set)? [Y/n] ",
        "Use Ollama at http://127.0.0.1:11434/v1 (2 models)? [Y/n] ",
        "Use the embedded model, which needs no key? [Y/n] ",
    ]
    assert [upstream.name for upstream in _load(tmp_path).upstreams] == ["ollama", "local"]


def test_init_uses_only_the_named_upstreams(tmp_path: Path) -> None:
    _init(tmp_path, "--use", "local")
    assert [upstream.name for upstream in _load(tmp_path).upstreams] == ["local"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("ollama", r"Ollama does not answer at http://127\.0\.0\.1:11434/v1: start it"),
        ("anthropic", "set its key in the variable ANTHROPIC_API_KEY"),
        ("olama", "no such upstream; did you mean 'ollama'?"),
        ("zzz", "no such upstream; available: anthropic, deepseek, "),
    ],
)
def test_init_says_why_an_upstream_cannot_be_used(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(InvalidUsage, match=f"cannot use '{name}': {problem}"):
        _init(tmp_path, "--use", name, servers=[])


def test_init_without_the_embedded_model_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "is_model_installed", lambda: False)
    with pytest.raises(InvalidUsage, match="the embedded model is not installed; install it with: "):
        _init(tmp_path, "--use", "local")
    with pytest.raises(InvalidUsage, match=r"nothing was found: set the key of a provider \(OPENAI_API_KEY, .*Ollama"):
        _init(tmp_path, "--yes", environ={}, servers=[])


def test_init_lists_what_it_uses_without_asking(tmp_path: Path) -> None:
    assert _init(tmp_path, "--yes")[1].splitlines()[:3] == [
        "found openai (OPENAI_API_KEY is set)",
        "found Ollama at http://127.0.0.1:11434/v1 (2 models)",
        "found the embedded model, which needs no key",
    ]


def test_init_names_a_server_that_does_not_answer(tmp_path: Path) -> None:
    err = io.StringIO()
    args = make_parser().parse_args(["init", "--yes", "--no-live", "-o", str(tmp_path / "lab.toml")])
    search = ServerSearch([], [OLLAMA.server])
    init.run(args, io.StringIO(), err, environ=OPENAI, find_servers=lambda _: search)
    assert "the server at http://127.0.0.1:11434/v1 did not answer within 2 s" in err.getvalue()


def test_init_writes_nothing_if_nothing_is_chosen(tmp_path: Path) -> None:
    def end(_: str) -> str:
        raise EOFError

    with pytest.raises(InvalidUsage, match="nothing was written"):
        _init(tmp_path, ask=end)
    assert not list(tmp_path.iterdir())


def test_init_does_not_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").touch()
    with pytest.raises(InvalidUsage, match="exists; replace it with --force"):
        _init(tmp_path, "--yes")
    _init(tmp_path, "--yes", "--force")
    assert _load(tmp_path).upstreams


def test_init_without_a_terminal_needs_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(
        InvalidUsage, match=r"cannot ask what to use, because .*: add --yes, or --use with one of openai"
    ):
        _init(tmp_path, ask=input)


def test_init_names_a_file_that_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="cannot write"):
        _init(tmp_path, "--yes", name="missing/antiphon.toml")


@pytest.mark.io
def test_init_gives_the_gateway_a_port_that_no_server_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llama_cpp = next(server for server in builtin_local_servers() if server.name == "llamacpp")
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        first.listen()
        port = first.getsockname()[1]
        with suppress(OSError):  # somebody else may use it
            second.bind(("127.0.0.1", port + 1))
            second.listen()
        monkeypatch.setattr(init, "DEFAULT_PORT", port)
        server = AnsweringServer(replace(llama_cpp, base_url=f"http://127.0.0.1:{port}/v1"), ["a"])
        args = make_parser().parse_args(["init", "--yes", "--no-live", "-o", str(tmp_path / "antiphon.toml")])
        init.run(args, io.StringIO(), io.StringIO(), environ={}, find_servers=lambda _: ServerSearch([server]))
    config = _load(tmp_path)
    assert config.server.port > port + 1
    assert (config.upstreams[0].dialect, config.upstreams[0].profile_name) == ("responses", "llama.cpp")


@pytest.mark.io
def test_init_asks_the_upstreams_for_their_models(tmp_path: Path) -> None:
    out = io.StringIO()
    args = make_parser().parse_args(["init", "--use", "ollama", "-o", str(tmp_path / "lab.toml")])
    server = AnsweringServer(replace(builtin_local_servers()[0], base_url="http://127.0.0.1:1/v1"), ["a"])
    assert init.run(args, out, io.StringIO(), environ={}, find_servers=lambda _: ServerSearch([server])) == 1
    assert "ollama  the server cannot be reached" in out.getvalue()
    assert f"antiphon serve --config {tmp_path / 'lab.toml'}" in out.getvalue()
