"""`antiphon completion`: print the completion script of a shell, generated from the parsers of all commands."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from typing import Any, Final, TextIO

from msgspec import Struct

from antiphon.cli.exits import EXIT_CODES, OK
from antiphon.cli.help import HELP_FORMAT


class Word(Struct, frozen=True):
    """A word that completes a command line, and its description."""

    text: str
    help: str = ""


class CommandWords(Struct, frozen=True):
    """A command and the words that may follow it."""

    name: str
    help: str
    words: list[Word]


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "completion",
        help=summary,
        description="Prints a script that completes commands, options and fixed values in a shell.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument("shell", choices=SCRIPTS, metavar="SHELL", help=f"one of {', '.join(SCRIPTS)}")


def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    del err  # errors are raised
    from antiphon.cli.entry import make_parser

    out.write(SCRIPTS[args.shell](list(list_commands(make_parser()))))
    return OK


def list_commands(parser: argparse.ArgumentParser) -> Iterator[CommandWords]:
    """Yield every command with its options, its actions and its fixed values."""
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    for name, command in commands.choices.items():
        yield CommandWords(name, helps[name], list(_list_words(command)))


def _list_words(parser: argparse.ArgumentParser) -> Iterator[Word]:
    for action in parser._actions:
        if action.option_strings:
            yield from (Word(option, _first_line(action.help)) for option in action.option_strings)
        elif isinstance(action, argparse._SubParsersAction):
            yield from (Word(choice.dest, _first_line(choice.help)) for choice in action._choices_actions)
            for nested in action.choices.values():
                yield from _list_words(nested)
        else:
            yield from (Word(str(choice)) for choice in action.choices or ())


def _first_line(text: str | None) -> str:
    return (text or "").replace("%%", "%").split("\n")[0].split(" (default")[0]


def _unique(words: list[Word]) -> list[Word]:
    return list({word.text: word for word in reversed(words)}.values())[::-1]


def bash_script(commands: list[CommandWords]) -> str:
    cases = "".join(
        f"        {command.name}) words={shlex.quote(' '.join(word.text for word in _unique(command.words)))} ;;\n"
        for command in commands
    )
    names = " ".join(command.name for command in commands)
    return f"""# Completion of antiphon for bash: source <(antiphon completion bash)
_antiphon() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} words={shlex.quote(f"{names} --help --version")} index
    for ((index = 1; index < COMP_CWORD; index++)); do
        case ${{COMP_WORDS[index]}} in
{cases}        *) continue ;;
        esac
        break
    done
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _antiphon antiphon
"""


def zsh_script(commands: list[CommandWords]) -> str:
    names = "\n".join(f"        {_zsh_word(command.name, command.help)}" for command in commands)
    cases = "".join(_zsh_case(command) for command in commands)
    return f"""#compdef antiphon
# Completion of antiphon for zsh: source <(antiphon completion zsh), after compinit
_antiphon() {{
    local word
    local -a candidates=(
{names}
        --help --version
    )
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case $word in
{cases}        *) continue ;;
        esac
        break
    done
    _describe -o 'antiphon' candidates || _files
}}
compdef _antiphon antiphon
"""


def _zsh_case(command: CommandWords) -> str:
    words = " ".join(_zsh_word(word.text, word.help) for word in _unique(command.words))
    return f"        {command.name})\n            candidates=({words})\n            ;;\n"


def _zsh_word(text: str, help: str) -> str:
    escaped = text.replace(":", "\\:")
    return shlex.quote(f"{escaped}:{help}" if help else escaped)


def fish_script(commands: list[CommandWords]) -> str:
    lines = ["# Completion of antiphon for fish: antiphon completion fish | source"]
    for command in commands:
        first = "complete -c antiphon -n __fish_use_subcommand -f"
        lines.append(f"{first} -a {command.name} -d {_fish_text(command.help)}")
        condition = f"complete -c antiphon -n '__fish_seen_subcommand_from {command.name}'"
        for word in _unique(command.words):
            lines.append(f"{condition} {_fish_word(word.text)} -d {_fish_text(word.help)}")
    return "\n".join(lines) + "\n"


def _fish_word(text: str) -> str:
    if text.startswith("--"):
        return f"-l {text[2:]}"
    return f"-s {text[1:]}" if text.startswith("-") else f"-a {text}"


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS: Final[dict[str, Callable[[list[CommandWords]], str]]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}
EPILOG: Final = f"""examples:
  source <(antiphon completion bash)         in ~/.bashrc
  source <(antiphon completion zsh)          in ~/.zshrc, after compinit
  antiphon completion fish | source          in ~/.config/fish/config.fish

{EXIT_CODES}"""
