"""Checks the form of answers, streams and errors for a client of each dialect: whether the client can read them.

The content is compared elsewhere.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon import sse

TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


def check_error(dialect: str, status: int, body: bytes) -> None:
    """Invariant 3: an error in the form of the dialect, and no internal error."""
    assert 400 <= status < 600
    assert len(body) < 4000, "an error that long is an echo"
    assert code_in(dialect, msgspec.json.decode(body), status) != "internal_error"


def code_in(dialect: str, body: Any, status: int | None = None) -> str | None:
    """The code of an error, which must have the form of its dialect."""
    error = body["error"]
    match dialect:
        case "messages":
            assert {"type", "error"} <= set(body) <= {"type", "error", "request_id"}
            assert body["type"] == "error"
            assert {"type", "message"} <= set(error) <= {"type", "message", "code", "param"}
        case "gemini":
            assert set(body) == {"error"}
            assert set(error) == {"code", "message", "status", "details"}
            assert status is None or error["code"] == status
            return next(str(detail["reason"]) for detail in error["details"] if "reason" in detail)
        case "ollama":  # an error has no code
            assert set(body) == {"error"}
            return "internal_error" if error.startswith("internal error") else None
        case _:
            assert set(body) == {"error"}
            assert set(error) == {"message", "type", "code", "param"}
    code: str | None = error.get("code")
    return code


def check_whole(dialect: str, body: bytes) -> None:
    """Checks an answer that is not streamed."""
    answer = msgspec.json.decode(body)
    match dialect:
        case "responses":
            assert answer["status"] in ("completed", "incomplete", "failed")
        case "chat":
            assert answer["object"] == "chat.completion"
            assert answer["choices"][0]["finish_reason"]
        case "messages":
            assert answer["type"] == "message"
            assert answer["stop_reason"]
        case "ollama":
            assert answer["done"]
            assert isinstance(answer.get("done_reason") or "", str)
        case _:
            assert answer["candidates"][0]["finishReason"]


def check_stream(dialect: str, out: bytes) -> None:
    """Invariant 1: a stream has one end or one error, and nothing after it."""
    frames = [] if dialect == "ollama" else sse.Decoder().feed(out)
    match dialect:
        case "responses":
            assert frames[-1].data == sse.DONE
            assert [frame.event for frame in frames if frame.event in TERMINAL] == [frames[-2].event]
            assert b"internal_error" not in frames[-2].data
        case "chat":
            assert frames[-1].data == sse.DONE
            _check_ends([_end_of_chunk(msgspec.json.decode(frame.data)) for frame in frames[:-1]])
        case "messages":
            _check_message([msgspec.json.decode(frame.data) for frame in frames], [frame.event for frame in frames])
        case "ollama":
            assert out.endswith(b"\n")
            _check_ends([_end_of_line(msgspec.json.decode(line)) for line in out.splitlines()])
        case _:
            check_gemini([msgspec.json.decode(frame.data) for frame in frames])


def check_gemini(frames: list[Any]) -> None:
    """Checks the members of a stream, which were events or one array."""
    _check_ends([_end_of_answer(frame) for frame in frames])


def _check_ends(ends: list[str | None]) -> None:
    """Only the last frame is an end. Frames with the usage may be anywhere, and a server may repeat its end."""
    ends = [end for end in ends if end != "usage"]
    while ends[-2:] == ends[-1:] * 2:
        ends.pop()
    assert [end for end in ends if end] == ends[-1:]


def _end_of_chunk(chunk: Any) -> str | None:
    if "error" in chunk:
        assert code_in("chat", chunk) != "internal_error"
        return "error"
    if not chunk.get("choices"):
        return "usage"
    reasons = [choice.get("finish_reason") for choice in chunk["choices"] if not choice.get("index")]
    return next(filter(None, reasons), None)


def _end_of_line(line: Any) -> str | None:
    if "error" in line:
        assert code_in("ollama", line) != "internal_error"
        return "error"
    reason: str | None = (line.get("done_reason") or "stop") if line.get("done") else None
    return reason


def _end_of_answer(answer: Any) -> str | None:
    if "error" in answer:
        assert code_in("gemini", answer) != "internal_error"
        return "error"
    candidates = [candidate for candidate in answer.get("candidates") or () if not candidate.get("index")]
    return next((str(candidate["finishReason"]) for candidate in candidates if candidate.get("finishReason")), None)


def _check_message(events: list[Any], names: list[str]) -> None:
    """Checks that a stream is one message with numbered blocks, each complete before the next."""
    assert [event["type"] for event in events] == names
    assert names[-1] in ("message_stop", "error")
    if names[-1] == "error":
        assert code_in("messages", events.pop()) != "internal_error"
    else:
        assert names[-2] == "message_delta"
        assert events[-2]["delta"]["stop_reason"]
    types = [event["type"] for event in events]
    assert types[:1] in ([], ["message_start"])
    assert types.count("message_start") <= 1
    assert types.count("message_stop") <= 1
    block, is_open = -1, False
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert (event["index"], is_open) == (block + 1, False)
                block, is_open = block + 1, True
            case "content_block_delta":
                assert (event["index"], is_open) == (block, True)
            case "content_block_stop":
                assert (event["index"], is_open) == (block, True)
                is_open = False
            case "message_delta" | "message_stop":
                assert not is_open
