"""`antiphon chat`: a conversation with a model in the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, TextIO

from antiphon.cli.ask import add_model_options
from antiphon.cli.attachments import attach_file
from antiphon.cli.conversation import Conversation
from antiphon.cli.exits import EXIT_CODES, OK, CommandFailed, InvalidUsage
from antiphon.cli.gateway_address import add_url, gateway_url
from antiphon.cli.gateway_client import call_gateway, describe_failure, request_id_line, suggested_model
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.last_response import LastResponse, load_last_response, save_last_response
from antiphon.cli.model_choice import ServedModels, default_model, list_models
from antiphon.cli.outcome import ResponseOutcome
from antiphon.cli.printers import TextPrinter
from antiphon.cli.terminal import StatusLine, TextStyler, one_line
from antiphon.client import AsyncClient, ResponseStream
from antiphon.ops.line_width import cut_text
from antiphon.upstream.transport import Transport

PROMPT: Final = "> "
MULTI_LINE: Final = '"""'
CONTINUED_WIDTH: Final = 68  # of the last answer, so that its line fits 80 columns
FAREWELL: Final = "type /quit or press Ctrl-D to leave"


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "chat",
        help=summary,
        description="Talks to a model through a running gateway: every line is a question, and the answer is streamed. "
        "Ctrl-C stops an answer, Ctrl-D ends the chat. Lines that begin with / are commands.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    add_model_options(parser)
    add_url(parser)


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    read_line: Callable[[str], str] | None = None,
    environ: Mapping[str, str] = os.environ,
    transport: Transport | None = None,
) -> int:
    url = gateway_url(args.url, environ)
    last = load_last_response(url, environ) if args.continue_ and not args.response else None
    connection = _Connection(url, environ, transport)
    with StatusLine(err, environ).show(f"asking the gateway at {url}"):
        model = args.model or (last.model if last else connection.default_model())
        previous_id = last.id if last else args.response
        previous_text = connection.retrieve_text(previous_id) if previous_id else ""
    chat = Chat(Conversation(model, args.system or "", previous_id), connection, out, err, environ)
    chat.print_note(f"{model} at {url}; /help lists the commands")
    if previous_id:
        chat.print_note(f"continues: {cut_text(one_line(previous_text), CONTINUED_WIDTH) or previous_id}")
    for line in _lines(read_line or _terminal_reader(), chat):
        if not chat.take_line(line):
            break
    return OK


class Chat:
    """Runs the lines of the user: questions and commands."""

    def __init__(
        self,
        conversation: Conversation,
        connection: _Connection,
        out: TextIO,
        err: TextIO,
        environ: Mapping[str, str],
    ) -> None:
        self._conversation = conversation
        self._connection = connection
        self._out = out
        self._err = err
        self._environ = environ
        self._paint = TextStyler(err, environ)
        self._shown_losses: set[str] = set()

    def take_line(self, line: str) -> bool:
        """Run a line. Return whether the chat goes on."""
        if line.partition(" ")[0] in QUIT_COMMANDS:
            return False
        try:
            if line.startswith("/"):
                self._run_command(line)
            elif line:
                self._ask(line)
        except (CommandFailed, InvalidUsage) as error:
            self._err.write(f"{self._paint('red', str(error))}\n")
        return True

    def print_note(self, text: str) -> None:
        self._err.write(f"{self._paint('dim', text)}\n")
        self._err.flush()

    def end_prompt(self) -> None:
        """End the line of a prompt that Ctrl-D left, so that the shell begins on its own line."""
        if self._err.isatty():
            self.print_note("")

    def _ask(self, question: str) -> None:
        status = StatusLine(self._err, self._environ)
        printer = TextPrinter(self._out, self._err, self._environ, status, self._shown_losses)
        turn = _Turn(self._conversation, question, printer)
        try:
            with status.show(f"waiting for {self._conversation.model}"):
                self._connection.call(turn.run)
        except KeyboardInterrupt:
            turn.stop()
            self.print_note("stopped")
            return
        self._connection.save(turn.last_response())

    def _run_command(self, line: str) -> None:
        name, _, argument = line.partition(" ")
        action = COMMANDS.get(name)
        if action is None:
            suggestions = get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {suggestions[0]}?" if suggestions else "/help lists the commands"
            raise InvalidUsage(f"unknown command {one_line(name)}: {hint}")
        action(self, argument.strip())

    def _show_help(self, _: str) -> None:
        self.print_note(HELP)

    def _set_model(self, name: str) -> None:
        if not name:
            for model in self._connection.models():
                self.print_note(f"{'*' if model == self._conversation.model else ' '} {one_line(model)}")
            return
        models = self._connection.models()
        if name not in models:
            suggestions = get_close_matches(name, models, n=1)
            hint = f"; did you mean {one_line(suggestions[0])}?" if suggestions else ";"
            raise InvalidUsage(
                f"the gateway does not list {one_line(name)}{hint} /model! {one_line(name)} uses it nevertheless"
            )
        self._use_model(name)

    def _use_model(self, name: str) -> None:
        if not name:
            raise InvalidUsage("name a model: /model! NAME")
        self._conversation.model = name
        self.print_note(f"the model is {one_line(name)}")

    def _set_system(self, text: str) -> None:
        if text:
            self._conversation.instructions = "" if text == "-" else text
        self.print_note(f"system prompt: {one_line(self._conversation.instructions) or 'none'}")

    def _attach_file(self, name: str) -> None:
        if not name:
            raise InvalidUsage("name a file: /file PATH")
        self._conversation.attach(attach_file(_path(name)))
        self.print_note(f"{_count(self._conversation.attachments, 'file')} for the next question")

    def _save(self, name: str) -> None:
        self._write_transcript(name, mode="x")

    def _save_over(self, name: str) -> None:
        self._write_transcript(name, mode="w")

    def _write_transcript(self, name: str, mode: Literal["x", "w"]) -> None:
        if not name:
            raise InvalidUsage("name a file: /save PATH")
        path = _path(name)
        if mode == "x" and path.is_file():
            raise InvalidUsage(f"{one_line(name)} exists; /save! {one_line(name)} replaces it")
        try:
            with path.open(mode, encoding="utf-8") as file:
                file.write(self._conversation.transcript())
        except OSError as error:
            raise InvalidUsage(f"cannot write {one_line(name)}: {error.strerror}") from None
        self.print_note(f"saved {_count(len(self._conversation.exchanges), 'question')} to {one_line(name)}")

    def _restart(self, _: str) -> None:
        self._conversation.restart()
        self.print_note("a new conversation")


class _Turn:
    """One question and its answer."""

    def __init__(self, conversation: Conversation, question: str, printer: TextPrinter) -> None:
        self._conversation = conversation
        self._question = question
        self._printer = printer
        self._outcome = ResponseOutcome()
        self._stream: ResponseStream | None = None

    async def run(self, client: AsyncClient, url: str) -> None:
        items, fields = self._conversation.request_fields(self._question)
        async with suggested_model(client, self._conversation.model), client.stream(items, **fields) as stream:
            self._stream = stream
            self._printer.begin(stream.losses)
            async for event in stream:
                self._printer.show_event(event)
                self._outcome.add_event(event)
        self._printer.finish(self._outcome)
        self._check(stream, url)
        self._conversation.add_answer(self._question, stream.response)

    def stop(self) -> None:
        """Record what arrived before the user stopped the answer."""
        self._printer.finish(self._outcome)
        text = self._stream.text if self._stream else ""
        self._conversation.add_interrupted_answer(self._question, text)

    def last_response(self) -> tuple[str, str] | None:
        """Return the id and the model of the answer, if the gateway stored it."""
        response = self._stream.response if self._stream else None
        return (response.id, self._conversation.model) if response and response.store else None

    def _check(self, stream: ResponseStream, url: str) -> None:
        """Raise the error of a failed answer; the question can be asked again. An incomplete answer is recorded."""
        failure = describe_failure(stream.error, url) if stream.error else self._outcome.failure_message()
        if failure is None:
            return
        if stream.error is None and stream.response.status != "failed":
            self._conversation.add_answer(self._question, stream.response)
        raise CommandFailed(failure + request_id_line(stream.request_id))


class _Connection:
    """Calls of one gateway."""

    def __init__(self, url: str, environ: Mapping[str, str], transport: Transport | None) -> None:
        self._url = url
        self._environ = environ
        self._transport = transport

    def call(self, turn: Callable[[AsyncClient, str], Coroutine[None, None, None]]) -> None:
        async def run_turn(client: AsyncClient) -> None:
            await turn(client, self._url)

        call_gateway(run_turn, self._url, self._environ, self._transport)

    def models(self) -> list[str]:
        return self._served_models().names

    def retrieve_text(self, id: str) -> str:
        """Return the text of a stored response. An unknown one is an error with what to do."""
        texts: list[str] = []

        async def retrieve(client: AsyncClient, _: str) -> None:
            texts.append((await client.retrieve(id)).output_text)

        try:
            self.call(retrieve)
        except CommandFailed as error:
            raise CommandFailed(f"cannot continue {one_line(id)}: {error}\nstart a new chat without it") from None
        return texts[0]

    def default_model(self) -> str:
        return default_model(self._served_models(), self._url)

    def _served_models(self) -> ServedModels:
        results: list[ServedModels] = []

        async def ask(client: AsyncClient, _: str) -> None:
            results.append(await list_models(client))

        self.call(ask)
        return results[0]

    def save(self, response: tuple[str, str] | None) -> None:
        if response is not None:
            save_last_response(LastResponse(self._url, *response), self._environ)


def _path(name: str) -> Path:
    """The path that the user typed; quotes around it are removed."""
    if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        name = name[1:-1]
    return Path(name).expanduser()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _terminal_reader() -> Callable[[str], str]:
    """Return a function that reads a line, with editing and history on a terminal."""
    if not sys.stdin.isatty():
        return lambda _: input()
    import readline  # noqa: F401 — gives `input` line editing and a history

    return input


def _lines(read_line: Callable[[str], str], chat: Chat) -> Iterator[str]:
    """Yield the lines of the user until the end of the input. A block between two marks is one line."""
    while True:
        try:
            line = read_line(PROMPT)
            if line.startswith(MULTI_LINE):
                line = _read_block(line.removeprefix(MULTI_LINE), read_line)
            yield line.strip()
        except EOFError:
            chat.end_prompt()
            return
        except KeyboardInterrupt:
            chat.print_note(f"\n{FAREWELL}")


def _read_block(first: str, read_line: Callable[[str], str]) -> str:
    lines = [first]
    while not lines[-1].endswith(MULTI_LINE):
        lines.append(read_line(". "))
    return "\n".join(lines).removesuffix(MULTI_LINE)


QUIT_COMMANDS: Final = ("/quit", "/exit")
COMMANDS: Final[dict[str, Callable[[Chat, str], None]]] = {
    "/model": Chat._set_model,
    "/model!": Chat._use_model,
    "/system": Chat._set_system,
    "/file": Chat._attach_file,
    "/save": Chat._save,
    "/save!": Chat._save_over,
    "/new": Chat._restart,
    "/help": Chat._show_help,
}
HELP: Final = """/model [NAME]   list the models, or use another one
/model! NAME    use a model that is not listed
/system [TEXT]  show or set the system prompt; - removes it
/file PATH      add a file to the next question: text, an image or a PDF
/save PATH      write the conversation to a new file, as Markdown
/save! PATH     the same, and replace a file that exists
/new            begin a new conversation
/quit           leave, like Ctrl-D"""
EPILOG: Final = f"""examples:
  antiphon chat
  antiphon chat -m local -s "Answer in one sentence."
  antiphon chat -c                 continue the last conversation

{MULTI_LINE} begins and ends a question of several lines.

environment:
  ANTIPHON_URL      the URL of the gateway
  ANTIPHON_API_KEY  the key for the gateway, if it requires one
  NO_COLOR          disables colours on a terminal

{EXIT_CODES}"""
