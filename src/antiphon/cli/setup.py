"""`antiphon setup`: connect a command-line agent to a gateway permanently, or undo that."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec
from msgspec import Struct

from antiphon.cli.agents import AGENTS, FileChange
from antiphon.cli.exits import EXIT_CODES, FAILED, OK, CommandFailed, InvalidUsage
from antiphon.cli.gateway_address import gateway_url
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.json_edit import parse_object, take_back_members
from antiphon.cli.last_response import state_file
from antiphon.cli.run import add_agent, choose_endpoint, note_small_model
from antiphon.cli.terminal import TextStyler, printable


class WrittenFile(Struct, frozen=True):
    """A file that `setup` wrote: its path, its text before (None: there was none) and after."""

    path: str
    before: str | None
    after: str


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "setup",
        help=summary,
        description="Writes the address of the gateway and a model into the files of an agent, after showing the "
        "change and asking. --undo takes the change back; what was changed in the files since stays.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    add_agent(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="write without asking")
    parser.add_argument("--undo", action="store_true", help="take the change back")


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    ask: Callable[[str], str] = input,
) -> int:
    record = _record_file(args.agent, environ)
    if args.undo:
        return _undo(record, out)
    agent = AGENTS[args.agent]
    is_named = bool(args.url or environ.get("ANTIPHON_URL"))
    endpoint = choose_endpoint(gateway_url(args.url, environ), args.model, environ, is_named=is_named)
    note_small_model(endpoint.model, err, environ)
    planned = _planned_files(agent.changes(endpoint, environ), _load_record(record))
    files = [file for file in planned if file.before != file.after]
    if not files:
        out.write(f"{agent.program} is set up already; start it with: {agent.hint(endpoint)}\n")
        return OK
    _show_changes(files, out, TextStyler(out, environ))
    if not args.yes and not _is_confirmed(ask):
        err.write("nothing was changed\n")
        return FAILED
    _write_all([*files, _record_of(record, files)])
    out.write(f"done; start it with: {agent.hint(endpoint)}\nundo with: antiphon setup {args.agent} --undo\n")
    return OK


def _planned_files(changes: list[FileChange], earlier: list[WrittenFile]) -> list[WrittenFile]:
    """The files with their new texts. A file that is as `setup` wrote it is made anew from its first state."""
    first_states = {(file.path, file.after): file.before for file in earlier}
    files: list[WrittenFile] = []
    for change in changes:
        path = change.other_path if change.other_path and change.other_path.exists() else change.path
        before = _read(path)
        base = first_states.get((str(path), before or ""), before)
        try:
            files.append(WrittenFile(str(path), before, change.edit(base or "")))
        except InvalidUsage as error:
            raise InvalidUsage(f"{path}: {error}") from None
    return files


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()  # not `read_text`, which changes line ends
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {path}: {error}") from None


def _write_all(files: list[WrittenFile]) -> None:
    """Write all files or, if one cannot be written, none."""
    for number, file in enumerate(files):
        try:
            _write(Path(file.path), file.after)
        except CommandFailed as error:
            for written in files[:number]:
                _restore(written)
            raise CommandFailed(f"{error}; nothing was changed") from None


def _write(path: Path, text: str) -> None:
    """Write a file, readable by its owner only if it is new: it may contain a key."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.touch(mode=0o600)
        path.write_bytes(text.encode())
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}") from None


def _restore(file: WrittenFile) -> None:
    if file.before is None:
        Path(file.path).unlink()
    else:
        _write(Path(file.path), file.before)


def _show_changes(files: list[WrittenFile], out: TextIO, paint: TextStyler) -> None:
    for file in files:
        for line in _diff(file):
            style: Any = {"+": "bold", "-": "red"}.get(line[:1])
            out.write(f"{paint(style, printable(line)) if style else printable(line)}\n")


def _diff(file: WrittenFile) -> Iterator[str]:
    old, new = (file.before or "").splitlines(), file.after.splitlines()
    name = file.path if file.before is not None else f"{file.path} (new)"
    return unified_diff(old, new, file.path, name, lineterm="")


def _is_confirmed(ask: Callable[[str], str]) -> bool:
    if ask is input and not sys.stdin.isatty():
        raise InvalidUsage("cannot ask whether to write this, because standard input is no terminal: add --yes")
    try:
        return ask("Write this? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _record_file(agent: str, environ: Mapping[str, str]) -> Path:
    """The file that remembers what `setup` wrote."""
    state = state_file(environ)
    if state is None:
        raise InvalidUsage("no place to remember the change: neither HOME nor XDG_STATE_HOME is set")
    return state.with_name(f"setup-{agent}.json")


def _record_of(record: Path, files: list[WrittenFile]) -> WrittenFile:
    """The record after a change: a file that `setup` wrote before keeps its first state, so `--undo` undoes both."""
    earlier = {file.path: file for file in _load_record(record)}
    kept = {
        file.path: WrittenFile(file.path, earlier[file.path].before, file.after)
        if file.path in earlier and earlier[file.path].after == file.before
        else file
        for file in files
    }
    text = msgspec.json.encode(list({**earlier, **kept}.values())).decode()
    return WrittenFile(str(record), _read(record), text)


def _load_record(record: Path) -> list[WrittenFile]:
    text = _read(record)
    return msgspec.json.decode(text, type=list[WrittenFile]) if text else []


def _undo(record: Path, out: TextIO) -> int:
    files = _load_record(record)
    if not files:
        raise InvalidUsage("nothing to undo: `antiphon setup` wrote no file of this agent")
    texts = [_undone_text(file) for file in files]
    rest = [file for file, text in zip(files, texts, strict=True) if isinstance(text, Unknown)]
    for file, text in zip(files, texts, strict=True):
        if not isinstance(text, Unknown):
            out.write(_restore_text(file, text))
    if rest:
        _write(record, msgspec.json.encode(rest).decode())
        raise CommandFailed("\n".join(_describe_rest(file, record) for file in rest))
    record.unlink()
    return OK


class Unknown:
    """The text of a file without the settings of `setup` cannot be found: they were changed."""


def _undone_text(file: WrittenFile) -> str | Unknown | None:
    """The text of a file without the settings that `setup` wrote, with all that was changed since; None: no file."""
    text = _read(Path(file.path))
    if text is None or text == file.after:
        return file.before if text is not None else None
    added = file.after.removeprefix(file.before or "")
    if Path(file.path).suffix in (".json", ".jsonc"):
        try:
            text = take_back_members(text, parse_object(file.before or ""), parse_object(file.after))
        except InvalidUsage:
            return Unknown()
        return None if file.before is None and "".join(text.split()) == "{}" else text
    if added not in text:
        return Unknown()
    text = text.replace(added, "", 1)
    return None if file.before is None and not text.strip() else text


def _restore_text(file: WrittenFile, text: str | None) -> str:
    """Write the text, and return the line that says so."""
    path = Path(file.path)
    if text is None:
        path.unlink(missing_ok=True)
    else:
        _write(path, text)
    is_whole = text == file.before
    return f"restored {file.path}\n" if is_whole else f"removed the settings from {file.path}; later changes stay\n"


def _describe_rest(file: WrittenFile, record: Path) -> str:
    """Say how to undo a change by hand."""
    lines = [line[1:] for line in _diff(file) if line.startswith("+") and not line.startswith("+++")]
    advice = "there was no such file before"
    if file.before is not None:
        original = record.with_name(f"{record.stem}-{Path(file.path).name}")
        _write(original, file.before)
        advice = f"the file as it was before is {original}"
    problem = f"{file.path} was changed since, and the settings are not found in it"
    return "\n".join([f"{problem}; {advice}; remove these lines by hand:", *(f"  {printable(line)}" for line in lines)])


EPILOG: Final = f"""examples:
  antiphon setup codex
  antiphon setup claude --model local --yes
  antiphon setup claude --undo

environment:
  ANTIPHON_URL      the URL of the gateway
  ANTIPHON_API_KEY  the key for the gateway, if it requires one

{EXIT_CODES}"""
