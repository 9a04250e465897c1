"""`antiphon translate`: requests, answers and recorded streams, from every dialect to every other, with losses."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.cli.network import Terminal

from antiphon import sse
from antiphon.cli import translate
from antiphon.cli.entry import main, make_parser
from antiphon.cli.exits import FAILED, INVALID_USAGE, LOSSY, OK, InvalidUsage
from antiphon.cli.translate import detect_kind
from antiphon.dialects.dialect import FRAME_DECODERS, ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECT_NAMES as DIALECTS
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.errors import ApiError, ClientFault, ProfileError
from antiphon.protocol.codec import decode_event, decode_response
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import FunctionCall
from antiphon.translate import UNKNOWN_MODEL

RECORDINGS = Path(__file__).parents[1] / "recordings"
# The same small request in each dialect.
REQUESTS: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"model": "m", "input": "Hi"},
    "messages": {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    "ollama": {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": False},
}
# One answer with a tool call in each dialect; the streams are beside the plain ones.
ANSWERS = {
    "chat": "call_with_finish_reason_in_one_chunk",
    "responses": "good_parallel_calls_interleaved_plain",
    "messages": "text_and_a_call",
    "gemini": "text_and_call_in_one_chunk",
    "ollama": "call_after_text",
}
SUFFIXES = {"sse": "sse", "json_lines": "ndjson"}
every_pair = pytest.mark.parametrize(
    ("source", "target"), [(source, target) for source in DIALECTS for target in DIALECTS]
)


class Piped(io.BytesIO):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


def run(
    data: bytes | Path, source: str, target: str, *argv: str, err: io.StringIO | None = None
) -> tuple[int, str, str]:
    file = [str(data)] if isinstance(data, Path) else []
    args = make_parser().parse_args(["translate", "--from", source, "--to", target, *argv, *file])
    out, err = io.StringIO(), err or io.StringIO()
    stdin = io.BytesIO(data if isinstance(data, bytes) else b"")
    code = translate.run(args, out, err, stdin=stdin, environ={"TERM": "xterm"}, now=lambda: 1_700_000_000.5)
    return code, out.getvalue(), err.getvalue()


def body(value: Any) -> bytes:
    return msgspec.json.encode(value)


def frames(stream: str, dialect: ServerDialectName = "responses") -> list[sse.Frame]:
    decoder = FRAME_DECODERS[SERVER_DIALECTS[dialect].framing]()
    return decoder.feed(stream.encode()) + decoder.finish()


def suffix(dialect: str) -> str:
    return SUFFIXES[SERVER_DIALECTS[cast(ServerDialectName, dialect)].framing]


def answer(dialect: str, *, streams: bool = False) -> Path:
    stem = ANSWERS[dialect]
    whole = f"{stem}.json"
    return RECORDINGS / dialect / (f"{stem.replace('_plain', '_stream')}.{suffix(dialect)}" if streams else whole)


def call_of(response: bytes) -> tuple[str, Any]:
    [call] = [item for item in decode_response(response).output if isinstance(item, FunctionCall)][:1]
    return call.name, msgspec.json.decode(call.arguments)


# Every kind, from every dialect to every other


@every_pair
def test_small_request_is_translated_without_loss_to_every_dialect(source: str, target: str) -> None:
    """F-4."""
    code, out, err = run(body(REQUESTS[source]), source, target, "--model", "m", "--strict")
    assert (code, err) == (OK, "to: POST /models/m:generateContent\n" if target == "gemini" else "")
    again, back, _ = run(out.encode(), target, "chat", "--model", "m")
    made = msgspec.json.decode(back)
    assert (again, made["model"], made["messages"]) == (OK, "m", [{"role": "user", "content": "Hi"}])


@every_pair
def test_answer_keeps_its_call_in_every_dialect(source: str, target: str) -> None:
    code, out, _ = run(answer(source), source, target)
    assert code == OK
    assert call_of(run(out.encode(), target, "responses")[1].encode()) == call_of(
        run(answer(source), source, "responses")[1].encode()
    )


@every_pair
def test_recorded_stream_gives_the_same_answer_in_every_dialect(source: str, target: str) -> None:
    """STR-14: translated back, it contains the call of the plain answer."""
    code, out, _ = run(answer(source, streams=True), source, target)
    assert code == OK
    events = [
        decode_event(frame.data)
        for frame in frames(run(out.encode(), target, "responses")[1])
        if frame.data != sse.DONE
    ]
    assert find_violations(events) == []
    [call] = [item for item in fold_events(events).output if isinstance(item, FunctionCall)][:1]
    assert (call.name, msgspec.json.decode(call.arguments)) == call_of(
        run(answer(source), source, "responses")[1].encode()
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_translate_detects_the_kind_of_input(dialect: Any) -> None:
    assert detect_kind(body(REQUESTS[dialect]), dialect) == "request"
    for recording in sorted((RECORDINGS / dialect).glob("*.json")):
        assert detect_kind(recording.read_bytes(), dialect) == "response", recording.name
    for recording in sorted((RECORDINGS / dialect).glob(f"*.{suffix(dialect)}")):
        data = recording.read_bytes()
        # A single line may also be a plain answer.
        is_one_line = recording.suffix == ".ndjson" and len(data.splitlines()) == 1
        assert (detect_kind(data, dialect) == "stream") is not is_one_line, recording.name


@pytest.mark.parametrize("dialect", DIALECTS)
def test_translate_reads_a_stream_of_one_object_per_line(dialect: ServerDialectName) -> None:
    recorded = answer(dialect, streams=True).read_bytes()
    lines = [frame.data for frame in frames(recorded.decode(), dialect) if frame.data != sse.DONE]
    # A single line may also be a plain answer.
    as_lines = run(b"\n".join(lines) + b"\n", dialect, "responses", *(["--stream"] if len(lines) == 1 else []))
    assert as_lines == run(recorded, dialect, "responses")


def test_translate_detects_a_single_event_as_a_stream() -> None:
    assert detect_kind(b'{"type":"response.created","sequence_number":0,"response":{}}', "responses") == "stream"
    assert detect_kind(b'{"type":"content_block_stop","index":0}\n', "messages") == "stream"


def test_translate_reads_a_stream_as_an_array() -> None:
    recorded = answer("gemini", streams=True).read_bytes()
    array = b"[" + b",\n".join(frame.data for frame in frames(recorded.decode())) + b"]"
    assert run(array, "gemini", "chat") == run(recorded, "gemini", "chat")


def test_translate_takes_the_kind_from_an_option() -> None:
    """A chat answer with no choices looks like a request."""
    code, out, _ = run(
        b'{"choices":[{"message":{"content":"Hi."},"finish_reason":"stop"}]}', "chat", "messages", "--response"
    )
    assert (code, msgspec.json.decode(out)["content"]) == (OK, [{"type": "text", "text": "Hi."}])
    with pytest.raises(ClientFault, match="messages"):
        run(b'{"choices":[]}', "chat", "messages", "--request")


def test_translate_reads_standard_input_without_a_file_and_for_a_dash() -> None:
    wanted = run(answer("chat"), "chat", "messages")
    assert run(answer("chat").read_bytes(), "chat", "messages") == wanted
    assert run(answer("chat").read_bytes(), "chat", "messages", "-") == wanted


def test_translate_ignores_a_byte_order_mark() -> None:
    assert run(sse.BOM + answer("chat").read_bytes(), "chat", "gemini") == run(answer("chat"), "chat", "gemini")


# Losses


TOP_K = body({**REQUESTS["messages"], "top_k": 5})


def test_translate_prints_losses_with_path_and_reason() -> None:
    """F-4."""
    code, out, err = run(TOP_K, "messages", "responses")
    assert (code, err) == (OK, "lost: top_k: the field 'top_k' (the API has no equivalent)\n")
    assert "top_k" not in out


def test_translate_strict_exits_with_3_and_prints_the_result() -> None:
    relaxed = run(TOP_K, "messages", "responses")
    assert run(TOP_K, "messages", "responses", "--strict") == (LOSSY, *relaxed[1:])
    assert run(TOP_K, "messages", "gemini", "--strict", "--model", "m")[0] == OK


def test_translate_json_prints_losses_as_one_object() -> None:
    _, _, err = run(TOP_K, "messages", "responses", "--json")
    assert msgspec.json.decode(err) == {
        "kind": "request",
        "path": None,
        "losses": [{"path": "top_k", "what": "the field 'top_k'", "why": "the API has no equivalent"}],
    }
    _, _, err = run(body(REQUESTS["chat"]), "chat", "gemini", "--json")
    assert msgspec.json.decode(err) == {"kind": "request", "path": "/models/m:generateContent", "losses": []}


def test_translate_reports_losses_of_decoding_and_encoding() -> None:
    recording = RECORDINGS / "responses" / "contradicting_final_text.sse"
    assert "lost: output[0].content[0]: a final text of 8 characters" in run(recording, "responses", "chat")[2]
    searched = RECORDINGS / "messages" / "web_search_with_citations.json"
    assert run(searched, "messages", "chat", "--strict")[0] == LOSSY


def test_translate_reports_gateway_fields_as_losses() -> None:
    """PREV-1: translate looks up no earlier turn."""
    asked = body({**REQUESTS["responses"], "previous_response_id": "resp_1", "store": True, "truncation": "disabled"})
    _, _, err = run(asked, "responses", "chat")
    assert [line.split(":")[1].strip() for line in err.splitlines()] == ["previous_response_id", "store"]
    code, out, err = run(asked, "responses", "responses", "--profile", "openai", "--strict")
    assert (code, err, msgspec.json.decode(out)["previous_response_id"]) == (OK, "", "resp_1")


def test_translate_colours_losses_on_a_terminal() -> None:
    _, _, err = run(TOP_K, "messages", "responses", err=Terminal())
    assert err.startswith("\x1b[33mlost:\x1b[0m top_k")


# Profiles and models


def test_translate_applies_the_profile_to_a_request() -> None:
    asked = body({**REQUESTS["chat"], "reasoning_effort": "high"})
    assert msgspec.json.decode(run(asked, "chat", "messages")[1])["thinking"]["type"] == "enabled"
    assert (
        msgspec.json.decode(run(asked, "chat", "messages", "--profile", "anthropic")[1])["thinking"]["type"]
        == "adaptive"
    )


def test_translate_seals_reasoning_with_the_maker_of_the_profile() -> None:
    """RSN-1: the envelope names its maker, so that it is returned to no other server."""
    thought = RECORDINGS / "messages" / "thinking_then_text.json"
    plain, named = (run(thought, "messages", "responses", *argv)[1] for argv in ([], ["--profile", "anthropic"]))
    back = {"model": "m", "input": msgspec.json.decode(named)["output"] + [{"role": "user", "content": "Go on."}]}
    assert plain != named
    assert "anthropic made it, and only its servers accept it" in run(body(back), "responses", "messages")[2]
    assert '"signature"' in run(body(back), "responses", "messages", "--profile", "anthropic")[1]


def test_translate_refuses_a_profile_of_another_dialect() -> None:
    with pytest.raises(
        ProfileError, match=r"'anthropic' is for servers of dialect 'messages'; expected a profile of dialect 'chat'"
    ):
        run(body(REQUESTS["messages"]), "messages", "chat", "--profile", "anthropic")
    assert run(answer("messages"), "messages", "chat", "--profile", "anthropic")[0] == OK


def test_translate_takes_the_model_from_option_then_input() -> None:
    assert (
        msgspec.json.decode(run(body(REQUESTS["chat"]), "chat", "messages", "--model", "other")[1])["model"] == "other"
    )
    assert "model" not in msgspec.json.decode(run(body(REQUESTS["gemini"]), "gemini", "chat")[1])
    assert msgspec.json.decode(run(answer("gemini"), "gemini", "chat", "--model", "other")[1])["model"] == "other"
    for source in DIALECTS:
        model = msgspec.json.decode(run(answer(source), source, "chat")[1])["model"]
        streamed_models = {
            msgspec.json.decode(frame.data)["model"]
            for frame in frames(run(answer(source, streams=True), source, "chat")[1])[:-1]
        }
        assert (streamed_models, model != UNKNOWN_MODEL) == ({model}, True), source


def test_translate_prints_no_path_for_a_gemini_request_without_model() -> None:
    assert run(body(REQUESTS["gemini"]), "gemini", "gemini")[2] == ""


def test_translate_names_the_model_unknown_if_the_answer_has_none() -> None:
    assert (
        msgspec.json.decode(run(b'{"candidates":[]}', "gemini", "chat", "--stream")[1].split("\n")[0][6:])["model"]
        == "unknown"
    )


def test_translate_is_deterministic() -> None:
    assert run(answer("chat"), "chat", "responses") == run(answer("chat"), "chat", "responses")


@pytest.mark.parametrize("target", DIALECTS)
def test_translate_keeps_reasoning_and_usage_of_an_answer(target: str) -> None:
    """RSN-1, REQ-4: reasoning and usage."""
    for recording in ("thinking_then_text.json", "thinking_then_text.sse"):
        _, out, _ = run(RECORDINGS / "messages" / recording, "messages", target)
        again = run(out.encode(), target, "messages")[1]
        assert '"thinking"' in again
        assert '"output_tokens":0' not in again.rpartition("message_delta")[2]


# Errors


@pytest.mark.parametrize("target", DIALECTS)
def test_translate_converts_an_error_answer(target: str) -> None:
    code, out, _ = run(
        b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow down."}}', "messages", target
    )
    error = msgspec.json.decode(out)["error"]
    assert (code, error if isinstance(error, str) else error["message"]) == (OK, "Slow down.")


def test_translate_converts_an_error_event() -> None:
    code, out, _ = run(RECORDINGS / "messages" / "error_event.sse", "messages", "chat")
    assert code == OK
    assert "error" in msgspec.json.decode(frames(out)[-2].data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the input is empty"),
        (b" \n", "the input is empty"),
        (b"Hello", "neither a JSON object nor a stream"),
        (b'{\n"model": "m",\n}', "neither a JSON object nor a stream"),
        (b"[1,", "starts like a JSON array but is not valid"),
    ],
)
def test_translate_refuses_input_of_another_kind(data: bytes, words: str) -> None:
    with pytest.raises(InvalidUsage, match=words):
        run(data, "gemini", "chat")


def test_translate_refuses_an_invalid_answer() -> None:
    with pytest.raises(ApiError, match="not a response object"):
        run(b'{"id":"x"}', "responses", "chat", "--response")


def test_translate_does_not_wait_for_terminal_input() -> None:
    args = make_parser().parse_args(["translate", "--from", "chat", "--to", "chat"])
    with pytest.raises(InvalidUsage, match="name a file, or pipe the input into the command"):
        translate.run(args, io.StringIO(), io.StringIO(), stdin=Piped())


def test_translate_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidUsage, match=r"cannot read .*there\.json: No such file"):
        run(tmp_path / "there.json", "chat", "messages")


def test_translate_exit_codes_match_the_other_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(TOP_K)
    begin = ["translate", "--from", "messages", "--to"]
    assert main([*begin, "responses", "--strict", str(file)]) == LOSSY
    assert main([*begin, "cobol", str(file)]) == INVALID_USAGE
    assert main([*begin, "chat", "--request", "--stream", str(file)]) == INVALID_USAGE
    assert main([*begin, "chat", "--profile", "nobody", str(file)]) == INVALID_USAGE
    assert main([*begin, "chat", "--profile", "anthropic", str(file)]) == INVALID_USAGE
    file.write_bytes(b'{"messages":[]}')
    assert main([*begin, "chat", str(file)]) == FAILED
    assert "antiphon: " in capsys.readouterr().err


def test_translate_escapes_control_characters() -> None:
    """A model's text may contain DEL and the C1 controls; the JSON escapes them."""
    asked = body({"model": "m", "input": "a\x9b31mb\x7f"})
    code, out, _ = run(asked, "responses", "chat")
    assert (code, "\x9b" in out, msgspec.json.decode(out)["messages"][0]["content"]) == (OK, False, "a\x9b31mb\x7f")
