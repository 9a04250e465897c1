"""`antiphon completion`: each script is sourced in its shell, which completes words with it."""

from __future__ import annotations

import io
import shlex
import subprocess
from pathlib import Path

import pytest

from antiphon.cli import completion
from antiphon.cli.completion import SCRIPTS, list_commands
from antiphon.cli.entry import COMMANDS, make_parser

# What is typed, and words that must be among the completions, and one that must not.
LINES = [
    ("", {"serve", "ask", "chat"}, "--port"),
    ("s", {"serve", "setup", "store"}, "ask"),
    ("serve --p", {"--port"}, "--host"),
    ("config ", {"check", "schema"}, "serve"),
    ("run c", {"claude", "codex"}, "gemini"),
    ("completion ", {"bash", "zsh", "fish"}, "serve"),
]


def _script(shell: str) -> str:
    out = io.StringIO()
    assert completion.run(make_parser().parse_args(["completion", shell]), out, io.StringIO()) == 0
    return out.getvalue()


def test_completion_lists_every_command_with_its_options() -> None:
    commands = {command.name: command for command in list_commands(make_parser())}
    assert list(commands) == list(COMMANDS)
    assert all(command.help for command in commands.values())
    assert {"--help", "-h"} <= {word.text for word in commands["ask"].words}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_script_names_every_command(shell: str) -> None:
    script = _script(shell)
    assert all(name in script for name in COMMANDS)


def _complete_in_bash(line: str, script: Path) -> list[str]:
    words = ["antiphon", *line.split(" ")]
    program = f"""source {shlex.quote(str(script))}
COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _antiphon; printf '%s\\n' "${{COMPREPLY[@]}}" """
    return _output("bash", "-c", program)


def _complete_in_fish(line: str, script: Path) -> list[str]:
    program = f"source {shlex.quote(str(script))}; complete -C {shlex.quote('antiphon ' + line)}"
    return [row.split("\t")[0] for row in _output("fish", "--no-config", "-c", program)]


def _complete_in_zsh(line: str, script: Path) -> list[str]:
    """The line editor is not started: `_describe`, which filters by the typed word, prints all candidates instead."""
    words = ["antiphon", *line.split(" ")]
    program = f"""compdef() {{ }}; _describe() {{ print -l -- ${{(P)3}} }}
source {shlex.quote(str(script))}
words=({shlex.join(words)}); CURRENT={len(words)}; _antiphon"""
    candidates = [row.replace("\\:", "-").split(":")[0] for row in _output("zsh", "-f", "-c", program)]
    return [word for word in candidates if word.startswith(words[-1])]


def _output(*command: str) -> list[str]:
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, stdin=subprocess.DEVNULL)
    return result.stdout.splitlines()


@pytest.mark.io
@pytest.mark.parametrize(("line", "expected", "other"), LINES)
def test_bash_completes_words(line: str, expected: set[str], other: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(_script("bash"))
    words = _complete_in_bash(line, tmp_path / "script")
    assert expected <= set(words)
    assert other not in words


@pytest.mark.io
@pytest.mark.heavy
@pytest.mark.parametrize(("line", "expected", "other"), LINES)
def test_fish_completes_words(line: str, expected: set[str], other: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(_script("fish"))
    words = _complete_in_fish(line, tmp_path / "script")
    assert expected <= set(words)
    assert other not in words


@pytest.mark.io
@pytest.mark.heavy
@pytest.mark.parametrize(("line", "expected", "other"), LINES)
def test_zsh_completes_words(line: str, expected: set[str], other: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(_script("zsh"))
    words = _complete_in_zsh(line, tmp_path / "script")
    assert expected <= set(words)
    assert other not in words
