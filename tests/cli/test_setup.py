"""`antiphon setup`: shows the change, writes it, and undoes it."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from antiphon.cli import setup
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.testing import ResponsesServer

pytestmark = pytest.mark.io


class Home:
    """A home folder, and the command in it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.environ = {"HOME": str(folder), "ANTIPHON_URL": url, "ANTIPHON_API_KEY": "sk-test"}

    def run(self, *words: str, ask: Callable[[str], str] = lambda _: "y") -> tuple[int, str]:
        out = io.StringIO()
        args = make_parser().parse_args(["setup", *words])
        return setup.run(args, out, io.StringIO(), environ=self.environ, ask=ask), out.getvalue()

    @property
    def settings(self) -> Path:
        return self.folder / ".claude" / "settings.json"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with ResponsesServer() as server:
        yield Home(tmp_path, server.origin)


def test_setup_shows_the_change_writes_it_and_undoes_it(home: Home) -> None:
    home.settings.parent.mkdir()
    home.settings.write_text('{"theme": "dark"}')
    code, output = home.run("claude", "--model", "mock-1")
    assert code == 0
    assert '-{"theme": "dark"}' in output
    assert '+  "model": "mock-1"' in output
    assert json.loads(home.settings.read_text())["theme"] == "dark"
    assert "undo with: antiphon setup claude --undo" in output
    assert home.run("claude", "--undo") == (0, f"restored {home.settings}\n")
    assert home.settings.read_text() == '{"theme": "dark"}'


def test_setup_of_new_files_is_undone_by_removing_them(home: Home) -> None:
    home.run("codex", "--yes")
    file = home.folder / ".codex" / "antiphon.config.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    home.run("codex", "--undo")
    assert not file.exists()
    with pytest.raises(InvalidUsage, match="nothing to undo"):
        home.run("codex", "--undo")


@pytest.mark.parametrize("answer", ["n", "", "maybe"])
def test_setup_writes_nothing_without_a_yes(home: Home, answer: str) -> None:
    assert home.run("claude", ask=lambda _: answer)[0] == 1
    assert not home.settings.exists()


def test_setup_takes_the_end_of_the_input_as_no(home: Home) -> None:
    def end(_: str) -> str:
        raise EOFError

    assert home.run("claude", ask=end)[0] == 1


def test_setup_without_a_terminal_needs_yes(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(InvalidUsage, match="add --yes"):
        home.run("claude", ask=input)


def test_setup_refuses_a_server_that_is_no_gateway(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody named this server: it is at the default address."""
    monkeypatch.setattr("antiphon.cli.gateway_address.DEFAULT_URL", home.environ.pop("ANTIPHON_URL"))
    with pytest.raises(CommandFailed, match="is not an Antiphon gateway; name one with --url"):
        home.run("claude", "--yes")


def test_setup_twice_says_so(home: Home) -> None:
    home.run("codex", "--yes", "-m", "mock-1")
    code, output = home.run("codex", "--yes", "-m", "mock-1")
    assert (code, output) == (
        0,
        "codex is set up already; start it with: codex -p antiphon (it reads the key from ANTIPHON_API_KEY)\n",
    )


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "gemini", "aider", "llm"])
def test_setup_can_be_repeated_with_another_model(home: Home, agent: str) -> None:
    home.run(agent, "--yes", "-m", "mock-1")
    code, output = home.run(agent, "--yes", "-m", "mock-1")
    assert (code, "is set up already" in output) == (0, True)
    assert home.run(agent, "--yes", "-m", "other")[0] == 0
    texts = [file.read_text() for file in home.folder.rglob("*") if file.is_file() and ".local" not in file.parts]
    assert "other" in "".join(texts)
    assert "mock-1" not in "".join(texts)
    home.run(agent, "--undo")
    assert [file for file in home.folder.rglob("*") if file.is_file()] == []


def test_undo_restores_line_ends_and_comments(home: Home) -> None:
    home.settings.parent.mkdir()
    before = b'{\r\n\t// mine\r\n\t"theme": "dark",\r\n}'
    home.settings.write_bytes(before)
    output = home.run("claude", "--yes", "-m", "mock-1")[1]
    assert b'\r\n\t// mine\r\n\t"theme": "dark",\r\n' in home.settings.read_bytes()
    assert "// mine" in output
    home.run("claude", "--undo")
    assert home.settings.read_bytes() == before


def test_setup_that_cannot_write_one_file_changes_none(home: Home) -> None:
    """The second of two files is a link to nowhere that can be written."""
    folder = home.folder / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text("{}")
    (folder / ".env").symlink_to("/proc/version/x")
    with pytest.raises(CommandFailed, match=r"cannot (read|write) .*\.env"):
        home.run("gemini", "--yes")
    assert (folder / "settings.json").read_text() == "{}"


def test_setup_changes_the_file_that_has_priority(home: Home) -> None:
    folder = home.folder / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.jsonc").write_text("{\n  // mine\n}\n")
    home.run("opencode", "--yes", "-m", "mock-1")
    assert '"model": "antiphon/mock-1"' in (folder / "opencode.jsonc").read_text()
    assert not (folder / "opencode.json").exists()


def test_undo_restores_the_state_before_the_first_of_two_changes(home: Home) -> None:
    home.settings.parent.mkdir()
    home.settings.write_text("{}")
    home.run("claude", "--yes", "-m", "mock-1")
    home.run("claude", "--yes", "-m", "other")
    home.run("claude", "--undo")
    assert home.settings.read_text() == "{}"


def test_undo_keeps_what_was_changed_since(home: Home) -> None:
    home.settings.parent.mkdir()
    home.settings.write_text('{\n  "theme": "dark", // mine\n  "model": "opus"\n}\n')
    home.run("claude", "--yes", "-m", "mock-1")
    home.settings.write_text(home.settings.read_text().replace('"dark"', '"light"'))
    assert home.run("claude", "--undo") == (0, f"removed the settings from {home.settings}; later changes stay\n")
    assert home.settings.read_text() == '{\n  "theme": "light", // mine\n  "model": "opus"\n}\n'
    with pytest.raises(InvalidUsage, match="nothing to undo"):
        home.run("claude", "--undo")


def test_undo_keeps_lines_that_were_added_since(home: Home) -> None:
    home.run("codex", "--yes")
    file = home.folder / ".codex" / "antiphon.config.toml"
    file.write_text(file.read_text() + '[projects."/x"]\n')
    home.run("codex", "--undo")
    assert file.read_text() == '[projects."/x"]\n'


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_undo_accepts_files_that_are_gone(home: Home, agent: str) -> None:
    home.run(agent, "--yes")
    for file in home.folder.glob(".c*/*"):
        file.unlink()
    assert home.run(agent, "--undo")[0] == 0
    assert [file for file in home.folder.rglob("*") if file.is_file()] == []


def test_undo_removes_a_new_file_that_has_only_its_settings(home: Home) -> None:
    home.run("claude", "--yes")
    home.settings.write_text(json.dumps(json.loads(home.settings.read_text())))
    home.run("claude", "--undo")
    assert not home.settings.exists()


def test_undo_says_what_to_remove_if_it_cannot_be_found(home: Home) -> None:
    file = home.folder / ".aider.conf.yml"
    file.write_text("dark-mode: true\n")
    home.run("aider", "--yes", "-m", "mock-1")
    file.write_text("dark-mode: true\nmodel: openai/mine\n")
    with pytest.raises(CommandFailed) as raised:
        home.run("aider", "--undo")
    original = home.folder / ".local" / "state" / "antiphon" / "setup-aider-.aider.conf.yml"
    assert f"the file as it was before is {original}; remove these lines by hand:" in str(raised.value)
    assert "\n  model: openai/mock-1\n" in str(raised.value)
    assert original.read_text() == "dark-mode: true\n"
    assert file.read_text() == "dark-mode: true\nmodel: openai/mine\n"


def test_undo_does_not_touch_a_file_that_is_no_longer_json(home: Home) -> None:
    home.run("claude", "--yes")
    home.settings.write_text("{")
    with pytest.raises(CommandFailed, match=r"was changed since.*there was no such file before; remove these lines"):
        home.run("claude", "--undo")
    assert home.settings.read_text() == "{"


def test_setup_names_a_file_that_it_cannot_edit(home: Home) -> None:
    home.settings.parent.mkdir()
    home.settings.write_text("{")
    with pytest.raises(InvalidUsage, match=r"settings\.json: the file is not JSON"):
        home.run("claude", "--yes")
    home.settings.write_bytes(b"\xff")
    with pytest.raises(CommandFailed, match="cannot read"):
        home.run("claude", "--yes")


def test_setup_names_a_file_that_it_cannot_write(home: Home) -> None:
    (home.folder / ".codex").touch()
    with pytest.raises(CommandFailed, match=r"cannot (read|write)"):
        home.run("codex", "--yes")


def test_setup_needs_a_place_to_remember_the_change() -> None:
    args = make_parser().parse_args(["setup", "codex", "--undo"])
    with pytest.raises(InvalidUsage, match="neither HOME nor XDG_STATE_HOME is set"):
        setup.run(args, io.StringIO(), io.StringIO(), environ={})
