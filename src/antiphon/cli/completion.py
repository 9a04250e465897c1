"""`antiphon completion`: print the completion script of a shell, generated from the parsers of all commands."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

from msgspec import Struct

from antiphon.cli.exits import EXIT_CODES, OK
from antiphon.cli.help import HELP_FORMAT


class Word(Struct, frozen=True):
    """A word that completes a command line, and its description."""

    text: str
    help: str = ""


class Option(Struct, frozen=True):
    """An option with all its names. Without `takes_value` it is a flag; its value is one of `choices`, a file, or any
    text."""

    names: list[str]
    help: str
    takes_value: bool = False
    choices: list[str] = []
    is_file: bool = False


class Place(Struct, frozen=True):
    """A place in the command line, such as ` config check`: the words that lead to it, and what may follow."""

    path: str
    words: list[Word]
    options: list[Option]
    takes_file: bool = False


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "completion",
        help=summary,
        description="Prints a script that completes commands, options, fixed values and names of files in a shell.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument("shell", choices=SCRIPTS, metavar="SHELL", help=f"one of {', '.join(SCRIPTS)}")


def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    del err  # errors are raised
    from antiphon.cli.entry import make_parser

    out.write(SCRIPTS[args.shell](list(list_places(make_parser()))))
    return OK


def list_places(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Place]:
    """Yield the place of a parser, then those of its commands and fixed values."""
    options = [_option(action) for action in parser._actions if action.option_strings]
    arguments = [action for action in parser._actions if not action.option_strings]
    commands = next((action for action in arguments if isinstance(action, argparse._SubParsersAction)), None)
    if commands is not None:
        words = [Word(choice.dest, _first_line(choice.help)) for choice in commands._choices_actions]
    else:
        words = [Word(str(choice)) for action in arguments for choice in action.choices or ()]
    yield Place(path, words, options, any(map(_is_file, arguments)))
    if commands is not None:
        for name, command in commands.choices.items():
            yield from list_places(command, f"{path} {name}")
    else:
        # After a fixed value only options follow.
        yield from (Place(f"{path} {word.text}", [], options) for word in words)


def _option(action: argparse.Action) -> Option:
    return Option(
        list(action.option_strings),
        _first_line(action.help),
        takes_value=action.nargs != 0,
        choices=[str(choice) for choice in action.choices or ()],
        is_file=_is_file(action),
    )


def _is_file(action: argparse.Action) -> bool:
    return action.type is Path or action.metavar == "F"


def _first_line(text: str | None) -> str:
    return (text or "").replace("%%", "%").split("\n")[0].split(" (default")[0]


def _option_words(place: Place) -> list[Word]:
    return [Word(name, option.help) for option in place.options for name in option.names]


def _paths(places: list[Place]) -> str:
    """The patterns of a shell's `case` for every word that leads to another place."""
    return "|".join(shlex.quote(place.path) for place in places if place.path)


def _value_cases(places: list[Place], choices: Callable[[list[str]], str], file: str, text: str) -> str:
    """The branches of a shell's `case` for the values of options, by the place and the option."""
    branches: dict[str, list[str]] = {}
    for place in places:
        for option in place.options:
            if option.takes_value:
                branch = choices(option.choices) if option.choices else file if option.is_file else text
                branches.setdefault(branch, []).extend(f"{place.path} {name}" for name in option.names)
    return "".join(
        f"        {'|'.join(map(shlex.quote, patterns))})\n            {branch}\n            return ;;\n"
        for branch, patterns in branches.items()
    )


def bash_script(places: list[Place]) -> str:
    cases = "".join(
        f"        {shlex.quote(place.path)}) words={_bash_list(place.words)} options={_bash_list(_option_words(place))}"
        f"{' files=1' if place.takes_file else ''} ;;\n"
        for place in places
    )
    values = _value_cases(
        places,
        lambda choices: f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(choices))} -- "$current"))',
        file=":",  # the default of the shell: names of files
        text="compopt +o default 2>/dev/null",
    )
    return f"""# Completion of antiphon for bash: source <(antiphon completion bash)
_antiphon() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
    local place= words= options= files= index
    COMPREPLY=()
    # The shell splits --option=value at the sign.
    if [[ $current == = ]]; then
        current=
    elif [[ $previous == = ]]; then
        previous=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    for ((index = 1; index < COMP_CWORD; index++)); do
        [[ ${{COMP_WORDS[index]}} == -- ]] && return
        case "$place ${{COMP_WORDS[index]}}" in
            {_paths(places)}) place+=" ${{COMP_WORDS[index]}}" ;;
        esac
    done
    case "$place $previous" in
{values}    esac
    case "$place" in
{cases}    esac
    if [[ $current == -* || -z $words$files ]]; then
        words=$options
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _antiphon antiphon
"""


def _bash_list(words: list[Word]) -> str:
    return shlex.quote(" ".join(word.text for word in words))


def zsh_script(places: list[Place]) -> str:
    values = _value_cases(
        places,
        lambda choices: f"candidates=({' '.join(choices)}); _describe -t values value candidates",
        file="_files",
        text="_message value",
    )
    return f"""#compdef antiphon
# Completion of antiphon for zsh: source <(antiphon completion zsh), after compinit
_antiphon() {{
    local place= files= word option=$words[CURRENT-1]
    local -a candidates options
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        if [[ $word == -- ]]; then
            _files
            return
        fi
        case "$place $word" in
            {_paths(places)}) place+=" $word" ;;
        esac
    done
    if [[ $words[CURRENT] == --*=* ]]; then
        option=${{words[CURRENT]%%=*}}
        compset -P '*='
    fi
    case "$place $option" in
{values}    esac
    case "$place" in
{"".join(map(_zsh_case, places))}    esac
    if [[ $words[CURRENT] == -* ]] || (( $#candidates == 0 && ! $#files )); then
        _describe -o -t options option options
    elif (( $#files )); then
        _files
    else
        _describe -t commands command candidates
    fi
}}
compdef _antiphon antiphon
"""


def _zsh_case(place: Place) -> str:
    lists = [
        f"{name}=({' '.join(map(_zsh_word, words))})"
        for name, words in (("candidates", place.words), ("options", _option_words(place)))
    ]
    assignments = "\n            ".join([*lists, *(["files=1"] if place.takes_file else [])])
    return f"        {shlex.quote(place.path)})\n            {assignments}\n            ;;\n"


def _zsh_word(word: Word) -> str:
    escaped = word.text.replace(":", "\\:")
    return shlex.quote(f"{escaped}:{word.help}" if word.help else escaped)


def fish_script(places: list[Place]) -> str:
    paths = " ".join(_fish_text(place.path) for place in places if place.path)
    lines = [
        "# Completion of antiphon for fish: antiphon completion fish | source",
        FISH_PLACE.format(paths=paths),
        "complete -c antiphon -f",
        "complete -c antiphon -n '__antiphon_at --' -F",
    ]
    for place in places:
        prefix = f"complete -c antiphon -n {_fish_text(f'__antiphon_at {_fish_text(place.path)}')}"
        if place.takes_file:
            lines.append(f"{prefix} -F")
        lines += [f"{prefix} -a {word.text} -d {_fish_text(word.help)}" for word in place.words]
        lines += [f"{prefix} {_fish_option(option)} -d {_fish_text(option.help)}" for option in place.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    if option.choices:
        return f"{names} -x -a {_fish_text(' '.join(option.choices))}"
    if option.is_file:
        return f"{names} -r -F"
    return f"{names} -x" if option.takes_value else names


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


FISH_PLACE: Final = """function __antiphon_at
    set -l place ''
    for word in (commandline -opc)[2..-1]
        switch "$place $word"
            case {paths}
                set place "$place $word"
            case '* --'
                set place --
                break
        end
    end
    test "$place" = "$argv[1]"
end"""
SCRIPTS: Final[dict[str, Callable[[list[Place]], str]]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}
EPILOG: Final = f"""examples:
  source <(antiphon completion bash)         in ~/.bashrc
  source <(antiphon completion zsh)          in ~/.zshrc, after compinit
  antiphon completion fish | source          in ~/.config/fish/config.fish

{EXIT_CODES}"""
