"""`dialects/ollama/answer_content`: lines of an Ollama server pass to Ollama clients as they came."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.dialects.common.relaying import relayed_stream, relayed_whole

REQUEST = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'


def line(done: bool = False, **message: Any) -> dict[str, Any]:
    return {"model": "m-1", "created_at": "2026", "message": {"role": "assistant", **message}, "done": done}


LINES: list[dict[str, Any]] = [
    line(content="", thinking="Hm."),
    {**line(content="Hello"), "unknown": 1},
    line(content="", tool_calls=[{"function": {"index": 0, "name": "f", "arguments": {"a": 1}}}]),
    {**line(True, content=""), "done_reason": "stop", "load_duration": 5, "eval_count": 2},
]


def encode(*lines: dict[str, Any]) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in lines)


def lines_in(out: bytes) -> list[Any]:
    return [msgspec.json.decode(each) for each in out.splitlines()]


def test_stream_passes_as_it_came() -> None:
    out, is_relayed = relayed_stream("ollama", REQUEST, encode(*LINES))
    assert is_relayed
    assert lines_in(out) == LINES


def test_mapped_model_name_is_replaced() -> None:
    out, _ = relayed_stream("ollama", REQUEST, encode(*LINES), model="alias")
    assert lines_in(out) == [{**each, "model": "alias"} for each in LINES]


@pytest.mark.parametrize("odd_line", [{"error": "busy"}, {"done": False}, line(content=1)])
def test_other_answers_are_translated(odd_line: dict[str, Any]) -> None:
    out, is_relayed = relayed_stream("ollama", REQUEST, encode(LINES[1], odd_line, LINES[3]))
    assert not is_relayed
    assert lines_in(out)[0] == LINES[1]


def test_content_after_the_end_is_translated() -> None:
    out, is_relayed = relayed_stream("ollama", REQUEST, encode(*LINES, LINES[1]))
    assert not is_relayed
    assert [each["done"] for each in lines_in(out)][-2:] == [False, True]


def test_answer_to_generate_is_translated() -> None:
    """The server is asked by `/api/chat`, whose answers have another form."""
    out, is_relayed = relayed_stream("ollama", b'{"model":"m","prompt":"Hi"}', encode(*LINES))
    assert not is_relayed
    assert "response" in lines_in(out)[0]


def test_whole_answer_passes_as_it_came() -> None:
    whole = {**line(True, content="Hello"), "done_reason": "stop", "unknown": None}
    body = msgspec.json.encode(whole)
    assert relayed_whole("ollama", REQUEST, body) == body
    nameless = msgspec.json.encode({name: value for name, value in whole.items() if name != "model"})
    assert relayed_whole("ollama", REQUEST, nameless, model="alias") == nameless
