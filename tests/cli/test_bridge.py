"""`antiphon bridge`: an agent's lines in, a stream of one of three APIs out, live."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pytest
from tests.cli.network import Terminal

from antiphon import sse
from antiphon.cli import bridge
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import FAILED, INTERRUPTED, OK
from antiphon.dialects.common.json_lines import JsonLines
from antiphon.protocol.codec import decode_event
from antiphon.protocol.grammar import find_violations

FOLDER = Path(__file__).parents[1] / "recordings" / "codex"


def run(lines: BinaryIO, *words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return (
        bridge.run(make_parser().parse_args(["bridge", *words]), out, err, lines=lines),
        out.getvalue(),
        err.getvalue(),
    )


def recorded(name: str) -> BinaryIO:
    return io.BytesIO((FOLDER / f"{name}.jsonl").read_bytes())


@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.jsonl")])
def test_bridge_makes_a_conformant_stream_of_codex_lines(name: str) -> None:
    """B-5, B-2."""
    code, out, err = run(recorded(name), "--from", "codex")
    frames = sse.Decoder().feed(out.encode())
    assert frames[-1].data == sse.DONE
    assert find_violations([decode_event(frame.data) for frame in frames[:-1]]) == []
    assert (code, "the turn failed" in err) == ((FAILED, True) if name == "refused" else (OK, False))


def test_bridge_escapes_direction_characters_on_a_terminal() -> None:
    out, err = Terminal(), io.StringIO()
    lines = recorded("text").read().replace(b"Hello", "Hel\u202elo".encode())
    bridge.run(make_parser().parse_args(["bridge", "--from", "codex"]), out, err, lines=io.BytesIO(lines))
    assert "\u202e" not in out.getvalue()
    frames = sse.Decoder().feed(out.getvalue().encode())
    assert find_violations([decode_event(frame.data) for frame in frames[:-1]]) == []


def test_bridge_ndjson_prints_the_events_of_sse_without_frames() -> None:
    _, framed, _ = run(recorded("text"), "--from", "codex", "--sse")
    _, plain, _ = run(recorded("text"), "--from", "codex", "--ndjson", "--model", "mine")
    events = [msgspec.json.decode(line) for line in plain.splitlines()]
    assert len(events) == len(sse.Decoder().feed(framed.encode())) - 1
    assert events[0]["response"]["model"] == "mine"
    assert events[-1]["type"] == "response.completed"


@pytest.mark.parametrize(
    ("target", "end"),
    [("chat", {"choices": [], "object": "chat.completion.chunk"}), ("messages", {"type": "message_stop"})],
)
def test_bridge_writes_other_apis_and_reports_losses(target: str, end: dict[str, Any]) -> None:
    """E-6, F-4."""
    code, out, err = run(recorded("command_and_patch"), "--from", "codex", "--to", target, "--ndjson")
    last = msgspec.json.decode(out.splitlines()[-1])
    assert code == OK
    assert end.items() <= last.items()
    assert "The greeting is friendlier now." in out
    assert "lost: output[1]: " in err
    assert "codex:command_execution" in err


def test_bridge_reads_vtcode_lines() -> None:
    """B-3."""
    line = {"type": "item.completed", "item": {"id": "0", "type": "file_change", "changes": [], "status": "completed"}}
    data = msgspec.json.encode(line) + b'\n{"type":"turn.completed"}'
    _, out, _ = run(io.BytesIO(data), "--from", "vtcode", "--ndjson")
    assert '"type":"vtcode:file_change"' in out


class Interrupted(io.BytesIO):
    def read1(self, size: int | None = -1, /) -> bytes:
        del size
        raise KeyboardInterrupt


def test_bridge_interruption_ends_the_stream_with_an_error() -> None:
    code, out, _ = run(Interrupted(), "--from", "codex", "--ndjson")
    assert code == INTERRUPTED
    assert msgspec.json.decode(out.splitlines()[-1])["response"]["error"]["code"] == "cancelled"


def test_bridge_line_over_the_limit_fails_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(JsonLines):
        def __init__(self) -> None:
            super().__init__(max_length=10)

    monkeypatch.setattr(bridge, "JsonLines", Short)
    code, out, err = run(io.BytesIO(b"x" * 50), "--from", "codex", "--ndjson")
    assert code == FAILED
    assert msgspec.json.decode(out.splitlines()[-1])["response"]["error"]["code"] == "upstream_invalid_response"
    assert "the turn failed: the stream has a line of more than 10 bytes" in err


@pytest.mark.io
def test_bridge_prints_events_while_the_agent_runs() -> None:
    """Live: each line is printed before the next one is read, in UTF-8 whatever the terminal's encoding is."""
    command = [sys.executable, "-m", "antiphon", "bridge", "--from", "codex", "--ndjson"]
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"type":"turn.started"}\n')
        process.stdin.flush()
        assert b"response.created" in process.stdout.readline()
        process.stdin.write('{"type":"item.completed","item":{"id":"0","type":"agent_message","text":"ü"}}\n'.encode())
        process.stdin.write(b'{"type":"turn.completed"}\n')
        process.stdin.close()
        assert '"delta":"ü"'.encode() in process.stdout.read()
        assert process.wait(60) == OK
