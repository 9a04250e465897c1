"""`antiphon completion`: each script is sourced in its shell, which completes words with it."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from antiphon.cli import completion
from antiphon.cli.completion import SCRIPTS, list_places
from antiphon.cli.entry import COMMANDS, make_parser

# What is typed, words that must be among the completions, and one that must not. The folder has a file `notes.txt`.
LINES = [
    ("", {"serve", "ask", "chat"}, "--port"),
    ("s", {"serve", "setup", "store"}, "ask"),
    ("ser", {"serve"}, "setup"),
    ("serve --p", {"--port"}, "--host"),
    ("serve -", {"--port", "--host"}, "ask"),
    ("config ", {"check", "schema"}, "--help"),
    ("config check --l", {"--live"}, "schema"),
    ("store ", {"stats", "prune"}, "--config"),
    ("run c", {"claude", "codex"}, "gemini"),
    ("run claude -", {"--model"}, "codex"),
    ("completion ", {"bash", "zsh", "fish"}, "serve"),
    ("usage --by ", {"model", "key", "upstream", "day"}, "--since"),
    ("usage --by m", {"model"}, "key"),
    ("translate --from m", {"messages"}, "chat"),
    ("probe --dialect g", {"gemini"}, "chat"),
    ("serve --config no", {"notes.txt"}, "--port"),
    ("ask -f no", {"notes.txt"}, "--model"),
    ("translate no", {"notes.txt"}, "--from"),
]


def _script(shell: str) -> str:
    out = io.StringIO()
    assert completion.run(make_parser().parse_args(["completion", shell]), out, io.StringIO()) == 0
    return out.getvalue()


def test_completion_lists_every_command_with_its_options() -> None:
    places = {place.path: place for place in list_places(make_parser())}
    assert [word.text for word in places[""].words] == list(COMMANDS)
    assert all(word.help for word in places[""].words)
    assert {"--help", "-h"} <= {name for option in places[" ask"].options for name in option.names}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_script_names_every_command(shell: str) -> None:
    script = _script(shell)
    assert all(name in script for name in COMMANDS)


def _complete_in_fish(line: str, folder: Path) -> set[str]:
    program = f"source script; complete -C {shlex.quote('antiphon ' + line)}"
    command = ["fish", "--no-config", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=folder)
    return {row.split("\t")[0] for row in result.stdout.splitlines()}


def _press_tab(shell: list[str], line: str, folder: Path) -> set[str]:
    """Type a line in a terminal, press Tab, and return all words that are shown."""
    terminal, other_end = pty.openpty()
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb"}
    with subprocess.Popen(
        shell, stdin=other_end, stdout=other_end, stderr=other_end, cwd=folder, env=environ, start_new_session=True
    ) as process:
        os.close(other_end)
        try:
            os.write(terminal, b"source ./setup\n")
            _read_until(terminal, "ready> ")
            os.write(terminal, f"antiphon {line}\t\x15echo done-$((1 + 1))\n".encode())
            shown = _read_until(terminal, "done-2")
        finally:
            process.kill()
            os.close(terminal)
    return set(re.findall(r"[\w.-]+", shown.replace("\b", "")))


def _read_until(terminal: int, end: str) -> str:
    shown = ""
    while end not in shown:
        shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


def _write_files(shell: str, folder: Path, settings: str = "") -> None:
    (folder / "script").write_text(_script(shell))
    (folder / "setup").write_text(f"{settings}\nsource ./script\nPS1='ready> '\n")
    (folder / "notes.txt").write_text("")


@pytest.mark.io
@pytest.mark.parametrize(("line", "expected", "other"), LINES)
def test_bash_completes_words(line: str, expected: set[str], other: str, tmp_path: Path) -> None:
    _write_files(
        "bash",
        tmp_path,
        "bind 'set completion-query-items 0'; bind 'set page-completions off'; bind 'set show-all-if-ambiguous on'",
    )
    words = _press_tab(["bash", "--norc", "--noprofile", "-i"], line, tmp_path)
    assert expected <= words
    assert other not in words


@pytest.mark.io
@pytest.mark.heavy
@pytest.mark.parametrize(("line", "expected", "other"), LINES)
def test_fish_completes_words(line: str, expected: set[str], other: str, tmp_path: Path) -> None:
    _write_files("fish", tmp_path)
    words = _complete_in_fish(line, tmp_path)
    assert expected <= words
    assert other not in words


@pytest.mark.io
@pytest.mark.heavy
@pytest.mark.parametrize(("line", "expected", "other"), LINES)
def test_zsh_completes_words(line: str, expected: set[str], other: str, tmp_path: Path) -> None:
    _write_files(
        "zsh",
        tmp_path,
        "autoload -U compinit; compinit -D -u; zstyle ':completion:*' verbose no; setopt NO_AUTO_MENU; LISTMAX=1000",
    )
    words = _press_tab(["zsh", "-f", "-i"], line, tmp_path)
    assert expected <= words
    assert other not in words
