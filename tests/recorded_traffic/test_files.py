"""Every form of a recording is read: cassettes of both VCR libraries, events on lines, and JSON."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.recorded_traffic.files import find_files, read_file, read_files
from tests.recorded_traffic.recording import Recording, Skipped

CHAT_REQUEST = {"model": "m", "messages": [{"role": "user", "content": "Grüße"}]}
CHAT_ANSWER = {
    "object": "chat.completion",
    "model": "m-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hallo"}, "finish_reason": "stop"}],
}


def ruby_cassette(answer_body: str, *, uri: str = "https://one.example/v1/chat/completions", status: int = 200) -> str:
    return f"""---
http_interactions:
- request:
    method: post
    uri: {uri}
    body:
      encoding: UTF-8
      string: '{json.dumps(CHAT_REQUEST)}'
  response:
    status:
      code: {status}
    headers:
      Content-Type:
      - application/json
      Content-Length:
      - '2'
    body:
{answer_body}
recorded_with: VCR 6.0
"""


def python_cassette(answer: str, *, encoding: str = "") -> str:
    return f"""interactions:
- request:
    body: '{json.dumps(CHAT_REQUEST)}'
    headers: {{}}
    method: POST
    uri: https://one.example/v1/chat/completions#stream
  response:
    body:
      string: {answer}
    headers:
      Content-Encoding:
      - {encoding or "identity"}
    status:
      code: 200
      message: OK
version: 1
"""


def read(tmp_path: Path, name: str, content: str | bytes) -> list[Recording | Skipped]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_files(tmp_path, find_files(tmp_path)))


def read_one(tmp_path: Path, name: str, content: str | bytes) -> Recording:
    [result] = read(tmp_path, name, content)
    assert isinstance(result, Recording), result
    return result


def reason(tmp_path: Path, name: str, content: str | bytes) -> str:
    [result] = read(tmp_path, name, content)
    assert isinstance(result, Skipped)
    return result.reason


def test_ruby_cassette_is_read(tmp_path: Path) -> None:
    recording = read_one(tmp_path, "a.yml", ruby_cassette(f"      string: '{json.dumps(CHAT_ANSWER)}'"))
    assert recording.dialect == "chat"
    assert recording.kind == "whole"
    assert recording.request == CHAT_REQUEST
    assert recording.model == "m"
    assert recording.host == "one.example"
    assert recording.headers == {"content-type": "application/json"}
    assert json.loads(recording.answer) == CHAT_ANSWER
    assert recording.source == "a.yml#0"


@pytest.mark.parametrize("tag", ["base64_string: ", "string: !binary |-\n        "])
def test_ruby_cassette_with_encoded_body_is_decoded(tmp_path: Path, tag: str) -> None:
    encoded = base64.b64encode(json.dumps(CHAT_ANSWER).encode()).decode()
    recording = read_one(tmp_path, "a.yml", ruby_cassette(f"      {tag}{encoded}"))
    assert json.loads(recording.answer) == CHAT_ANSWER


def test_python_cassette_with_compressed_body_is_decompressed(tmp_path: Path) -> None:
    body = base64.b64encode(gzip.compress(json.dumps(CHAT_ANSWER).encode())).decode()
    recording = read_one(tmp_path, "a.yaml", python_cassette(f"!!binary |\n        {body}", encoding="gzip"))
    assert json.loads(recording.answer) == CHAT_ANSWER
    assert "content-encoding" not in recording.headers


def test_python_cassette_with_a_stream_is_a_stream(tmp_path: Path) -> None:
    answer = json.dumps('data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\n')
    recording = read_one(tmp_path, "a.yaml", python_cassette(answer))
    assert recording.is_stream
    assert recording.kind == "stream"
    assert recording.headers["content-type"] == "text/event-stream"


def test_compressed_file_is_read(tmp_path: Path) -> None:
    content = gzip.compress(ruby_cassette(f"      string: '{json.dumps(CHAT_ANSWER)}'").encode())
    assert read_one(tmp_path, "a.yml.gz", content).dialect == "chat"


def test_error_answer_has_its_own_kind(tmp_path: Path) -> None:
    cassette = ruby_cassette("""      string: '{"error": {"message": "no"}}'""", status=429)
    recording = read_one(tmp_path, "a.yml", cassette)
    assert recording.kind == "error"
    assert recording.is_error


@pytest.mark.parametrize(
    ("uri", "dialect"),
    [
        ("https://one.example/v1/responses", "responses"),
        ("https://one.example/v1/messages", "messages"),
        ("https://one.example/v1beta/models/g-1:generateContent", "gemini"),
        ("https://one.example/v1/projects/p/publishers/google/models/g-1:streamGenerateContent?alt=sse", "gemini"),
    ],
)
def test_dialect_is_found_by_path(tmp_path: Path, uri: str, dialect: str) -> None:
    recording = read_one(tmp_path, "a.yml", ruby_cassette("      string: '{}'", uri=uri))
    assert recording.dialect == dialect
    assert recording.model == ("g-1" if dialect == "gemini" else "m")


MESSAGES_EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"type": "message", "role": "assistant", "model": "c-1", "content": []}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]


def lines(events: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(event) for event in events) + "\n"


def test_lines_of_events_become_a_stream(tmp_path: Path) -> None:
    recording = read_one(tmp_path, "a.chunks.txt", lines(MESSAGES_EVENTS))
    assert recording.dialect == "messages"
    assert recording.request is None
    assert recording.model == "c-1"
    assert recording.answer.startswith(b"event: message_start\ndata: {")


def test_ollama_answer_in_lines_is_a_stream(tmp_path: Path) -> None:
    pieces = [{"message": {"role": "assistant", "content": "Hi"}, "done": done} for done in (False, True)]
    body = base64.b64encode(lines(pieces).encode()).decode()
    cassette = ruby_cassette(f"      base64_string: {body}", uri="http://one.example/api/chat")
    recording = read_one(tmp_path, "a.yml", cassette)
    assert (recording.dialect, recording.kind, recording.model) == ("ollama", "stream", "m")


def test_lines_of_chat_chunks_end_with_done(tmp_path: Path) -> None:
    chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
    assert read_one(tmp_path, "a.chunks.txt", lines([chunk])).answer.endswith(b"data: [DONE]\n\n")


def test_several_streams_in_a_file_are_several_recordings(tmp_path: Path) -> None:
    other = [{**MESSAGES_EVENTS[0], "message": {"type": "message", "role": "assistant", "id": "2"}}]
    results = read(tmp_path, "a.chunks.txt", lines([*MESSAGES_EVENTS, *other, *MESSAGES_EVENTS[1:]]))
    assert [result.source for result in results] == ["a.chunks.txt#0", "a.chunks.txt#1"]


@pytest.mark.parametrize(
    ("answer", "dialect"),
    [
        (CHAT_ANSWER, "chat"),
        ({"object": "response", "output": []}, "responses"),
        ({"type": "message", "role": "assistant", "content": []}, "messages"),
        ({"candidates": []}, "gemini"),
        ({"message": {"role": "assistant", "content": "Hi"}, "done": True}, "ollama"),
        ({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}, "gemini"),
    ],
)
def test_json_answer_is_recognised_by_its_shape(tmp_path: Path, answer: dict[str, Any], dialect: str) -> None:
    assert read_one(tmp_path, "a.json", json.dumps(answer)).dialect == dialect


def test_json_with_status_and_body_is_an_exchange(tmp_path: Path) -> None:
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in MESSAGES_EVENTS)
    exchange = {"status": 200, "headers": {"Content-Type": "text/event-stream"}, "body": body}
    recording = read_one(tmp_path, "a.json", json.dumps(exchange))
    assert recording.dialect == "messages"
    assert recording.is_stream


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.yml", "on: push", "YAML without interactions"),
        ("a.yml", "interactions: [", "invalid YAML"),
        ("a.yml", "interactions: []", "YAML without interactions"),
        ("a.json", "[1]", "the file is no JSON object"),
        ("a.json", '{"name": "package"}', "JSON of another API"),
        ("a.chunks.txt", '{"type": "other"}\n', "the events are of another API"),
        ("a.chunks.txt", "[1]\n", "a line is no JSON object"),
        ("a.yml", ruby_cassette("      string: ''"), "the answer is empty"),
        (
            "a.yml",
            ruby_cassette("      string: '<html>'"),
            "the answer is neither JSON nor a stream of events",
        ),
        (
            "a.yml",
            ruby_cassette("      string: '{}'", uri="https://one.example/v1/embeddings"),
            "the request is for another endpoint",
        ),
        ("a.yaml", python_cassette("xyz", encoding="br"), "the body is compressed with br"),
        ("a.yaml", python_cassette("xyz", encoding="deflate"), "the body cannot be decompressed"),
    ],
)
def test_skipped_file_has_a_reason(tmp_path: Path, name: str, content: str, expected: str) -> None:
    assert reason(tmp_path, name, content) == expected


def test_request_that_is_no_object_is_skipped(tmp_path: Path) -> None:
    cassette = ruby_cassette("      string: '{}'").replace(json.dumps(CHAT_REQUEST), "model=m")
    assert reason(tmp_path, "a.yml", cassette) == "the request is no JSON object"


def test_repeated_exchange_is_read_once(tmp_path: Path) -> None:
    cassette = ruby_cassette(f"      string: '{json.dumps(CHAT_ANSWER)}'")
    (tmp_path / "a.yml").write_text(cassette, encoding="utf-8")
    _, second = read(tmp_path, "b.yml", cassette)
    assert isinstance(second, Skipped)
    assert second.reason == "the same exchange was read before"


def test_other_files_are_not_found(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no", encoding="utf-8")
    assert find_files(tmp_path) == []


def test_source_is_relative(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(CHAT_ANSWER), encoding="utf-8")
    [recording] = read_file(path, "x/a.json")
    assert recording.source == "x/a.json"
