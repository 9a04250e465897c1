"""Finds the recordings in a folder and reads them: cassettes of VCR for Ruby and of vcrpy, streams with one event on
each line, and answers as JSON. A file may be compressed with gzip."""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]
from tests.recorded_traffic.exchanges import (
    Exchange,
    decode_object,
    dialect_of_answer,
    make_recording,
    recording_of,
)
from tests.recorded_traffic.recording import ReadResult, Recording, Skipped

from antiphon import sse
from antiphon.dialects.dialect import ServerDialectName

MODEL: Final = re.compile(rb'"model(?:Version)?"\s*:\s*"([^"\\]+)"')
#: Events after which a stream has ended.
LAST_EVENTS: Final = ("message_stop", "response.completed", "response.incomplete", "response.failed")
ENDINGS: Final = (".yml", ".yaml", ".json", ".chunks.txt")


def find_files(folder: Path) -> list[Path]:
    """The files that may hold recordings, in a fixed order."""
    files = (path for path in folder.rglob("*") if path.name.removesuffix(".gz").endswith(ENDINGS))
    return sorted(path for path in files if path.is_file())


def read_files(folder: Path, files: list[Path]) -> Iterator[ReadResult]:
    """All recordings. The same request with the same answer is played once."""
    seen: set[bytes] = set()
    for path in files:
        for result in read_file(path, path.relative_to(folder).as_posix()):
            if isinstance(result, Recording):
                key = hashlib.sha256(json.dumps(result.request).encode() + result.answer).digest()
                if key in seen:
                    result = Skipped(source=result.source, reason="the same exchange was read before")
                seen.add(key)
            yield result


def read_file(path: Path, source: str) -> list[ReadResult]:
    """The recordings of one file, and the reasons for those that are skipped."""
    data = path.read_bytes()
    name = path.name
    if name.endswith(".gz"):
        data, name = gzip.decompress(data), name.removesuffix(".gz")
    if name.endswith(".chunks.txt"):
        return _read_event_lines(data, source)
    if name.endswith(".json"):
        return [_read_json(data, source)]
    return _read_cassette(data, source)


def _read_cassette(data: bytes, source: str) -> list[ReadResult]:
    if b"interactions:" not in data:
        return [Skipped(source=source, reason="YAML without interactions")]
    try:
        cassette = yaml.load(data, _CassetteLoader)
    except yaml.YAMLError:
        return [Skipped(source=source, reason="invalid YAML")]
    interactions = cassette.get("http_interactions") or cassette.get("interactions") or []
    if not interactions:
        return [Skipped(source=source, reason="YAML without interactions")]
    return [_read_interaction(each, f"{source}#{number}") for number, each in enumerate(interactions)]


def _read_interaction(interaction: dict[str, Any], source: str) -> ReadResult:
    """One interaction; both libraries have the same fields, with small differences."""
    request, response = interaction["request"], interaction["response"]
    headers = {name.lower(): _first(value) for name, value in (response.get("headers") or {}).items()}
    try:
        answer = _decompress(_body_bytes(response.get("body", response.get("content"))), headers)
    except ValueError as error:
        return Skipped(source=source, reason=str(error))
    headers.pop("content-encoding", None)
    headers.pop("content-length", None)
    headers.pop("transfer-encoding", None)
    status = response["status"]["code"] if "status" in response else response["status_code"]
    return recording_of(
        Exchange(
            url=request["uri"],
            request=_body_bytes(request.get("body")),
            status=status,
            headers=headers,
            answer=answer,
            source=source,
        )
    )


def _body_bytes(body: Any) -> bytes:
    """A body: text, bytes, or a table that holds one of them under `string` or, encoded, under `base64_string`."""
    match body:
        case None:
            return b""
        case bytes():
            return body
        case str():
            return body.encode("utf-8", "surrogatepass")
        case {"base64_string": str() | bytes() as encoded}:
            return base64.b64decode(encoded)
        case {"string": inner}:
            return _body_bytes(inner)
        case _:
            return json.dumps(body).encode()


def _decompress(body: bytes, headers: dict[str, str]) -> bytes:
    """The body without its content encoding. Some libraries decode a body and leave the header as it was."""
    encoding = headers.get("content-encoding", "").lower()
    try:
        if body.startswith(b"\x1f\x8b"):
            return gzip.decompress(body)
        if encoding == "deflate" and not body.lstrip().startswith((b"{", b"[", b"data:", b"event:")):
            return zlib.decompress(body)
    except (OSError, EOFError, zlib.error):
        raise ValueError("the body cannot be decompressed") from None
    if encoding in ("br", "zstd") and not body.lstrip().startswith((b"{", b"[", b"data:", b"event:", b":")):
        raise ValueError(f"the body is compressed with {encoding}")
    return body


def _first(value: Any) -> str:
    return str(value[0] if isinstance(value, list) and value else value)


def _read_event_lines(data: bytes, source: str) -> list[ReadResult]:
    """Streams with the data of one event on each line. A file may hold the streams of several turns."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    events = [decode_object(line) for line in lines]
    if not events or None in events:
        return [Skipped(source=source, reason="a line is no JSON object")]
    dialect = next((found for event in events if event is not None and (found := dialect_of_answer(event))), None)
    if dialect is None:
        return [Skipped(source=source, reason="the events are of another API")]
    answers: list[bytes] = [b""]
    for line, event in zip(lines, events, strict=True):
        assert event is not None
        answers[-1] += _encode_event(dialect, line, event)
        if event.get("type") in LAST_EVENTS:
            answers.append(b"")
    end = sse.DONE_FRAME if dialect == "chat" else b""
    return [
        make_recording(_without_request(answer + end, f"{source}#{number}"), dialect, model=_model_of(answer))
        for number, answer in enumerate(filter(None, answers))
    ]


def _encode_event(dialect: ServerDialectName, line: bytes, event: dict[str, Any]) -> bytes:
    if dialect in ("chat", "gemini"):
        return sse.encode_data(line)
    return sse.encode_frame(str(event.get("type", "")), line)


def _read_json(data: bytes, source: str) -> ReadResult:
    """An answer, or a table with `status`, `headers` and `body`."""
    value = decode_object(data)
    if value is None:
        return Skipped(source=source, reason="the file is no JSON object")
    match value:
        case {"status": int() as status, "headers": dict() as headers, "body": body}:
            answer = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            names = {name.lower(): str(value) for name, value in headers.items()}
            exchange = Exchange(url="", request=b"", status=status, headers=names, answer=answer, source=source)
        case {"error": dict()}:
            code = value["error"].get("code")
            exchange = _without_request(data, source, status=code if isinstance(code, int) else 400)
        case _:
            exchange = _without_request(data, source)
    dialect = _dialect_of_body(exchange.answer)
    if dialect is None:
        return Skipped(source=source, reason="JSON of another API")
    return make_recording(exchange, dialect, model=_model_of(exchange.answer))


def _model_of(answer: bytes) -> str:
    """The first model that an answer names."""
    match = MODEL.search(answer)
    return match[1].decode() if match else ""


def _dialect_of_body(answer: bytes) -> ServerDialectName | None:
    """The dialect of JSON, or of the first event of a stream that has one."""
    value = decode_object(answer)
    if value is not None:
        return dialect_of_answer(value)
    events = (decode_object(frame.data) for frame in sse.Decoder().feed(answer))
    return next((found for event in events if event is not None and (found := dialect_of_answer(event))), None)


def _without_request(answer: bytes, source: str, status: int = 200) -> Exchange:
    return Exchange(url="", request=b"", status=status, headers={}, answer=answer, source=source)


class _CassetteLoader(yaml.CSafeLoader):  # type: ignore[misc]
    """Reads Ruby's tag for bytes too."""


def _construct_bytes(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> bytes:
    try:
        return base64.b64decode(loader.construct_scalar(node))
    except binascii.Error as error:
        raise yaml.YAMLError(str(error)) from None


_CassetteLoader.add_constructor("!binary", _construct_bytes)
