"""`antiphon ask`."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO

import pytest
from tests.cli.network import MODELS, FakeAnswer, FakeNetwork, Terminal, nobody, refusal, says, stream

from antiphon.cli import ask
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.errors import UpstreamFault
from antiphon.protocol.writer import ResponseWriter


class Asked(NamedTuple):
    code: int
    out: str
    err: str
    network: FakeNetwork

    @property
    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.network.sent[-1].body)
        return body


def _ask(
    *words: str,
    answer: FakeAnswer | Exception | None = None,
    models: bytes = MODELS,
    stdin: TextIO | None = None,
    err: io.StringIO | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
) -> Asked:
    out, err = io.StringIO(), err or io.StringIO()
    network = FakeNetwork(models=FakeAnswer(models), responses=answer or stream(says("Hello")))
    code = ask.run(
        make_parser().parse_args(["ask", *words]),
        out,
        err,
        stdin=stdin or Terminal(),
        environ=environ,
        transport=network,
    )
    return Asked(code, out.getvalue(), err.getvalue(), network)


def test_ask_prints_the_answer_and_its_usage() -> None:
    asked = _ask("Say hello.")
    assert asked[:3] == (0, "Hello\n", "12 tokens in, 34 out\n")
    assert asked.body == {"model": "mock-1", "input": "Say hello.", "stream": True}
    assert asked.network.closed


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_ask_erases_its_status_before_the_answer(option: tuple[str, ...]) -> None:
    screen = Terminal()
    network = FakeNetwork(models=FakeAnswer(MODELS), responses=stream(says("Hello")))
    args = make_parser().parse_args(["ask", "hi", *option])
    ask.run(args, screen, screen, stdin=Terminal(), environ={"NO_COLOR": "1"}, transport=network)
    shown = re.split(r"\r *\r", screen.getvalue())
    assert shown[:2] == ["asking the gateway at http://127.0.0.1:8080 …", "waiting for mock-1 …"]
    assert shown[2].startswith("{" if option else "Hello\n12 tokens in")
    assert len(shown) == 3


def test_ask_uses_the_first_model_that_is_not_embedded() -> None:
    assert _ask("hi", models=b'{"data":[{"id":"local"},{"id":"a"}]}').body["model"] == "a"
    assert _ask("hi", models=b'{"data":[{"id":"local-embedding"},{"id":"local"}]}').body["model"] == "local"
    assert _ask("hi", models=b'{"data":[{"id":"b"},{"id":"a"}]}').body["model"] == "b"


def test_ask_with_model_does_not_fetch_the_list() -> None:
    asked = _ask("hi", "--model", "mock-1")
    assert asked.body["model"] == "mock-1"
    assert len(asked.network.sent) == 1


def test_ask_requires_model_if_none_are_listed() -> None:
    with pytest.raises(InvalidUsage, match="lists no models; add an upstream with models to its configuration"):
        _ask("hi", models=b'{"data":[]}')
    message = r"lists no models; choose one that matches openai/\*, gpt-\* with --model, such as --model gpt-5\.5"
    with pytest.raises(InvalidUsage, match=message):
        _ask("hi", models=b'{"data":[],"patterns":["openai/*","gpt-*"]}')


def test_ask_joins_words_to_one_question() -> None:
    assert _ask("what", "is", "2+2?").body["input"] == "what is 2+2?"


def test_ask_reads_the_question_from_standard_input() -> None:
    assert _ask(stdin=io.StringIO("What is 2+2?\n")).body["input"] == "What is 2+2?"
    assert _ask("-", stdin=io.StringIO("What is 2+2?\n")).body["input"] == "What is 2+2?"


def test_ask_appends_standard_input_at_a_dash() -> None:
    assert _ask("Review this:", "-", stdin=io.StringIO("+x\n")).body["input"] == "Review this:\n\n+x"


def test_ask_puts_standard_input_at_the_dash() -> None:
    asked = _ask("Review", "this:", "-", "Be brief.", stdin=io.StringIO("+x\n"))
    assert asked.body["input"] == "Review this:\n\n+x\n\nBe brief."


def test_ask_adds_a_pipe_after_the_question() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"one two\n")
    os.close(writer)
    with open(reader, encoding="utf-8") as piped:
        assert _ask("Repeat:", stdin=piped).body["input"] == "Repeat:\n\none two"


def test_ask_adds_a_file_on_standard_input_after_the_question(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two\n")
    with (tmp_path / "a.txt").open() as file:
        assert _ask("Repeat:", stdin=file).body["input"] == "Repeat:\n\none two"


def test_ask_adds_nothing_from_an_empty_or_other_standard_input() -> None:
    with open(os.devnull) as empty:
        assert _ask("hi", stdin=empty).body["input"] == "hi"
    assert _ask("hi", stdin=io.StringIO("no file")).body["input"] == "hi"


@pytest.mark.parametrize("stdin", [Terminal(), io.StringIO(" \n")], ids=["a terminal", "an empty pipe"])
def test_ask_without_a_question_is_invalid_usage(stdin: io.StringIO) -> None:
    with pytest.raises(InvalidUsage, match="no prompt given"):
        _ask(stdin=stdin)


def test_ask_refuses_questions_that_are_not_utf_8() -> None:
    with pytest.raises(InvalidUsage, match="the prompt is not valid UTF-8"):
        _ask("caf\udce9")  # how Python decodes an invalid byte of an argument
    with pytest.raises(InvalidUsage, match="the model name is not valid UTF-8"):
        _ask("hi", "--model", "caf\udce9")
    latin = io.TextIOWrapper(io.BytesIO("café".encode("latin-1")), encoding="utf-8")
    with pytest.raises(InvalidUsage, match="standard input is not valid UTF-8"):
        _ask(stdin=latin)


def test_ask_sends_images_as_data_urls(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n")
    asked = _ask("What is this?", "--image", str(tmp_path / "a.png"), "--image", str(tmp_path / "b.png"))
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    content = [{"type": "input_text", "text": "What is this?"}, image, image]
    assert asked.body["input"] == [{"type": "message", "role": "user", "content": content}]


def test_ask_sends_texts_beside_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    asked = _ask("What is this?", "-f", str(tmp_path / "notes.txt"))
    assert [part["text"] for part in asked.body["input"][0]["content"]] == ["What is this?", "notes.txt:\n\nhello"]


def test_ask_sends_the_system_prompt() -> None:
    assert _ask("hi", "-s", "Be brief.").body["instructions"] == "Be brief."


def test_ask_continues_a_stored_response_by_id() -> None:
    assert _ask("hi", "--response", "resp_7").body["previous_response_id"] == "resp_7"


def test_ask_continues_its_last_answer(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    with pytest.raises(InvalidUsage, match="nothing to continue"):
        _ask("hi", "-c", environ=environ)
    _ask("hi", "-m", "mock-1", environ=environ)
    for words in (["And now?", "-c"], ["-c", "And now?"]):
        body = _ask(*words, environ=environ).body
        assert (body["previous_response_id"], body["model"]) == ("resp_1", "mock-1")
        assert "And now?" in json.dumps(body["input"])


def test_ask_json_prints_only_events() -> None:
    asked = _ask("hi", "--json", answer=stream(says("Hel", "lo"), antiphon_losses="1; tools[0]"))
    events = [json.loads(line) for line in asked.out.splitlines()]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == "Hello"
    assert asked.err == ""


def test_ask_prints_losses() -> None:
    asked = _ask("hi", answer=stream(says("Hello", usage=None), antiphon_losses="1; input[0].content[1]"))
    assert asked.err == (
        "1 part of the request could not be translated: input[0].content[1]; see the trace of the gateway for the reason\n"
    )


def test_ask_reports_a_stream_failure_with_the_request_id() -> None:
    """HTTP-8: with the id, the request can be found in the gateway's log."""

    def write(writer: ResponseWriter) -> None:
        writer.add_text("m", "so far")
        writer.fail(UpstreamFault("it went away", code="upstream_disconnected"))

    answer = stream(write)
    out, err, network = io.StringIO(), io.StringIO(), FakeNetwork(responses=answer)
    with pytest.raises(CommandFailed) as raised:
        ask.run(make_parser().parse_args(["ask", "hi", "--model", "m"]), out, err, environ={}, transport=network)
    assert str(raised.value) == "server_error/upstream_disconnected: it went away\nrequest id req_7"
    assert out.getvalue() == "so far\n"
    assert network.closed


def test_ask_reports_a_broken_connection_with_the_request_id() -> None:
    answer = stream(says("Hello"))
    pieces = [*answer._pieces[:4], UpstreamFault("x", code="upstream_disconnected")]
    with pytest.raises(CommandFailed, match="closed the connection before the end of its answer\nrequest id req_7"):
        _ask("hi", answer=FakeAnswer(*pieces, headers=answer.headers))


def test_ask_reports_a_truncated_stream_without_request_id() -> None:
    with pytest.raises(CommandFailed) as raised:
        _ask("hi", answer=FakeAnswer(headers={"content-type": "text/event-stream"}))
    assert str(raised.value) == (
        "server_error/upstream_disconnected: the upstream's stream ended without a terminal event"
    )


def test_ask_without_a_gateway_names_the_serve_command() -> None:
    with pytest.raises(
        CommandFailed, match=r"no gateway answers at http://127\.0\.0\.1:8080; start one with `antiphon serve`"
    ):
        _ask("hi", "--model", "m", answer=nobody())


def test_ask_suggests_the_closest_model() -> None:
    answer = refusal(404, "not_found", "model_not_found", "no upstream serves the model 'mock-l'")
    with pytest.raises(CommandFailed, match=r"serves the model 'mock-l'; did you mean 'mock-1'\?\n`antiphon models`"):
        _ask("hi", "-m", "mock-l", answer=answer)
    with pytest.raises(CommandFailed, match=r"serves the model 'mock-l'\n"):
        _ask("hi", "-m", "mock-l", answer=answer, models=b"[]")
    with pytest.raises(CommandFailed, match=r"serves the model 'mock-l'\n"):
        _ask("hi", "-m", "xyzzy", answer=answer)


def test_ask_prints_the_error_of_a_refused_request() -> None:
    answer = refusal(401, "invalid_request", "invalid_api_key", "invalid key")
    with pytest.raises(CommandFailed, match=r"invalid_request/invalid_api_key: the server refused the key: invalid"):
        _ask("hi", answer=answer, environ={"ANTIPHON_API_KEY": "k"})
    with pytest.raises(CommandFailed, match=r"requires a key: send one\nset the key .* variable ANTIPHON_API_KEY"):
        _ask("hi", answer=refusal(401, "invalid_request", "invalid_api_key", "no key: send one"))


def test_ask_names_the_upstream_of_an_error() -> None:
    answer = refusal(500, "server_error", "upstream_error", "boom", antiphon_upstream="openai")
    with pytest.raises(
        CommandFailed, match=r'server_error/upstream_error: boom\nupstream "openai"; the gateway answered with HTTP 500'
    ):
        _ask("hi", answer=answer)
