"""`antiphon chat`: questions, commands, interrupted answers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli.network import MODELS, FakeAnswer, FakeNetwork, nobody, refusal, says, stream
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.generate.events import counting_stamps

from antiphon.cli import chat
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.cli.last_response import LastResponse, load_last_response, save_last_response
from antiphon.errors import UpstreamFault
from antiphon.protocol.codec import encode
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import ResponseCompleted
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.writer import ResponseWriter
from antiphon.testing import Gate, ResponsesServer, text, turn, wait

URL = "http://127.0.0.1:8080"


class Chatted(NamedTuple):
    code: int
    out: str
    err: str
    network: FakeNetwork

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(sent.body) for sent in self.network.sent if sent.method == "POST"]


def _chat(
    *lines: str | type[BaseException],
    words: tuple[str, ...] = (),
    answer: FakeAnswer | Exception | None = None,
    environ: dict[str, str] | None = None,
) -> Chatted:
    """Runs a chat with these lines, then the end of the input. An exception is raised at the prompt."""
    out, err = io.StringIO(), io.StringIO()
    network = FakeNetwork(
        models=FakeAnswer(MODELS),
        responses=answer or stream(says("Hello")),
        resp_9=FakeAnswer(_stored_response("The code word is walnut.")),
        resp_0=refusal(404, "not_found", "response_not_found", "no response has this id"),
    )
    code = chat.run(
        make_parser().parse_args(["chat", *words]),
        out,
        err,
        read_line=_reader(iter(lines)),
        environ=environ or {},
        transport=network,
    )
    return Chatted(code, out.getvalue(), err.getvalue(), network)


def _stored_response(answer: str) -> bytes:
    collector = EventCollector()
    request = Request(model="mock-1", input="hi")
    initial = make_initial_response(request, id="resp_9", created_at=1)
    says(answer)(ResponseWriter(initial, collector, counting_stamps()))
    terminal = collector.events[-1]
    assert isinstance(terminal, ResponseCompleted)
    return encode(terminal.response)


def _reader(lines: Iterator[str | type[BaseException]]) -> Callable[[str], str]:
    def read_line(prompt: str) -> str:
        assert prompt
        line = next(lines, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read_line


def test_chat_answers_each_line_and_continues_the_conversation() -> None:
    chatted = _chat("Hi", "", "Go on", words=("-s", "Be brief."))
    assert (chatted.code, chatted.out) == (0, "Hello\nHello\n")
    first, second = chatted.bodies
    assert first["model"] == "mock-1"
    assert (first["instructions"], "previous_response_id" in first) == ("Be brief.", False)
    assert second["previous_response_id"] == "resp_1"
    assert [item["content"] for item in second["input"]] == ["Go on"]
    assert "mock-1 at http://127.0.0.1:8080; /help lists the commands" in chatted.err


def test_chat_with_model_does_not_fetch_the_list() -> None:
    chatted = _chat("Hi", words=("-m", "mock-1"))
    assert [sent.method for sent in chatted.network.sent] == ["POST"]
    assert chatted.bodies[0]["model"] == "mock-1"


def test_chat_ends_with_quit() -> None:
    assert _chat("/quit", "Hi").bodies == []


def test_chat_takes_a_block_as_one_question() -> None:
    (body,) = _chat('"""one', "two", 'three"""').bodies
    assert body["input"][0]["content"] == "one\ntwo\nthree"


def test_chat_goes_on_after_an_interrupt_at_the_prompt() -> None:
    chatted = _chat(KeyboardInterrupt, "Hi")
    assert "type /quit or press Ctrl-D to leave" in chatted.err
    assert chatted.out == "Hello\n"


def test_chat_goes_on_after_an_error() -> None:
    chatted = _chat("Hi", "Hi", answer=refusal(400, "invalid_request", "bad", "no such field"))
    assert chatted.code == 0
    assert chatted.err.count("invalid_request/bad: no such field") == 2
    assert all("previous_response_id" not in body for body in chatted.bodies)


def test_chat_reports_a_failed_answer_and_forgets_it() -> None:
    def fail(writer: ResponseWriter) -> None:
        writer.add_text("m", "Hal")
        writer.fail(UpstreamFault("it broke", code="upstream_disconnected"))

    chatted = _chat("Hi", "Again", answer=stream(fail))
    assert "it broke" in chatted.err
    assert len(chatted.bodies[1]["input"]) == 1


def test_chat_suggests_the_closest_model() -> None:
    answer = refusal(404, "not_found", "model_not_found", "no upstream serves the model 'locl'")
    chatted = _chat("Hi", words=("-m", "locl"), answer=answer)
    assert "no upstream serves the model 'locl'; did you mean 'local'?\n" in chatted.err


def test_chat_continues_an_incomplete_answer() -> None:
    def end_early(writer: ResponseWriter) -> None:
        writer.add_text("m", "Hal")
        writer.end_incomplete("max_output_tokens")

    chatted = _chat("Hi", "Go on", answer=stream(end_early))
    assert "the answer is incomplete: max_output_tokens" in chatted.err
    assert chatted.bodies[1]["previous_response_id"] == "resp_1"


def test_chat_without_a_gateway_says_how_to_start_one() -> None:
    with pytest.raises(CommandFailed, match=r"no gateway answers at .*; start one with"):
        chat.run(
            make_parser().parse_args(["chat"]),
            io.StringIO(),
            io.StringIO(),
            environ={},
            transport=FakeNetwork(models=nobody()),
        )


def test_model_command_lists_and_selects() -> None:
    chatted = _chat("/model", "/model mock-1", "/model mock-2", "Hi", "/model! mock-2", "/model!", "Hi", "/model xyzzy")
    assert "* mock-1\n  local\n" in chatted.err
    assert "the model is mock-1\n" in chatted.err
    assert "does not list mock-2; did you mean mock-1? /model! mock-2 uses it nevertheless\n" in chatted.err
    assert "name a model: /model! NAME\n" in chatted.err
    assert "does not list xyzzy; /model! xyzzy uses it nevertheless\n" in chatted.err
    assert [body["model"] for body in chatted.bodies] == ["mock-1", "mock-2"]


def test_system_command_shows_sets_and_removes() -> None:
    chatted = _chat("/system", "/system Be kind.", "Hi", "/system -", "Hi")
    assert "system prompt: none" in chatted.err
    assert "system prompt: Be kind." in chatted.err
    assert [body.get("instructions") for body in chatted.bodies] == ["Be kind.", None]


def test_file_command_attaches_to_the_next_question(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    chatted = _chat(f"/file {tmp_path / 'a.txt'}", "What is it?", "/file", "/file /missing")
    assert [part["text"] for part in chatted.bodies[0]["input"][0]["content"]] == ["What is it?", "a.txt:\n\nx"]
    assert "1 file for the next question" in chatted.err
    assert "name a file: /file PATH" in chatted.err
    assert "cannot read /missing" in chatted.err


def test_save_command_writes_the_transcript(tmp_path: Path) -> None:
    chatted = _chat("Hi", f"/save {tmp_path / 'talk.txt'}", "/save", f"/save {tmp_path}")
    assert "## User\n\nHi\n\n## Assistant\n\nHello\n" in (tmp_path / "talk.txt").read_text()
    assert "saved 1 question to" in chatted.err
    assert "name a file: /save PATH" in chatted.err
    assert "cannot write" in chatted.err


def test_save_command_replaces_a_file_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "talk.txt").write_text("mine")
    chatted = _chat("Hi", f"/save {tmp_path / 'talk.txt'}")
    assert "talk.txt exists; /save! " in chatted.err
    assert (tmp_path / "talk.txt").read_text() == "mine"
    _chat("Hi", f"/save! {tmp_path / 'talk.txt'}")
    assert "## User" in (tmp_path / "talk.txt").read_text()


def test_file_command_takes_a_quoted_name(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("x")
    chatted = _chat(f"/file '{tmp_path / 'a b.txt'}'", f'/file "{tmp_path / "a b.txt"}"')
    assert "2 files for the next question" in chatted.err


def test_quit_command_ignores_what_follows() -> None:
    assert _chat("/quit now", "Hi").bodies == []


def test_chat_shows_a_loss_once() -> None:
    chatted = _chat("Hi", "Hi", answer=stream(says("Hello"), antiphon_losses="1; top_k"))
    assert chatted.err.count("1 part of the request could not be translated: top_k") == 1


def test_new_command_begins_a_new_conversation() -> None:
    chatted = _chat("Hi", "/new", "Hi")
    assert "a new conversation" in chatted.err
    assert all("previous_response_id" not in body for body in chatted.bodies)


def test_help_command_lists_every_command() -> None:
    chatted = _chat("/help")
    assert all(name in chatted.err for name in chat.COMMANDS if name != "/help")


def test_unknown_command_gets_a_suggestion() -> None:
    chatted = _chat("/modle", "/x")
    assert "unknown command /modle: did you mean /model?" in chatted.err
    assert "unknown command /x: /help lists the commands" in chatted.err
    assert chatted.bodies == []


def test_chat_continues_the_last_answer(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    with pytest.raises(InvalidUsage, match="nothing to continue"):
        _chat("Hi", words=("-c",), environ=environ)
    save_last_response(LastResponse(URL, "resp_9", "mock-1"), environ)
    chatted = _chat("Hi", words=("-c",), environ=environ)
    assert (chatted.bodies[0]["previous_response_id"], chatted.bodies[0]["model"]) == ("resp_9", "mock-1")
    assert "continues: The code word is walnut.\n" in chatted.err
    with pytest.raises(CommandFailed, match=r"cannot continue resp_0: .*no response has this id"):
        _chat("Hi", words=("--response", "resp_0"))
    assert load_last_response(URL, environ) == LastResponse(URL, "resp_1", "mock-1")


def test_chat_continues_a_stored_response_by_id() -> None:
    chatted = _chat("Hi", words=("--response", "resp_9"))
    assert chatted.bodies[0]["previous_response_id"] == "resp_9"


@pytest.mark.io
def test_chat_in_a_terminal_stops_an_answer_and_goes_on(tmp_path: Path) -> None:
    """Ctrl-C ends the answer, and the next question tells the model how far it got. Ctrl-D ends the chat."""
    gate = Gate()
    with ResponsesServer([turn(text("Once upon"), wait(gate)), turn(text("a time"))]) as server:
        terminal = PseudoTerminal("chat", "-m", "mock-1", url=server.origin, home=tmp_path)
        try:
            terminal.wait_for("> ")
            terminal.write(b"Tell me a story.\n")
            terminal.wait_for("Once upon")
            terminal.press_until(b"\x03", "stopped")
            terminal.wait_for("> ")
            terminal.write(b"Go on.\n")
            terminal.wait_for("tokens in")
            terminal.wait_for("> ")
            terminal.write(b"\x04")
            terminal.wait_for("\r\n")  # the prompt of the shell begins on its own line
            assert terminal.wait() == 0
        finally:
            terminal.close()
            gate.open()
        items = server.received[-1].json["input"]
        assert [item["content"] for item in items] == ["Tell me a story.", "Once upon", "Go on."]
