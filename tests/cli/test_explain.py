"""`antiphon explain`: bodies in files, from standard input and from traces, for people and for programs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.recorded import record
from tests.gateway.scripted import ScriptedAnswer

from antiphon.cli import explain
from antiphon.cli.entry import main, make_parser
from antiphon.cli.exits import FAILED, INVALID_USAGE, OK, InvalidUsage
from antiphon.errors import ProfileError
from antiphon.trace.reader import read_trace
from antiphon.trace.records import TraceNote

GOOD = {"model": "m", "input": "Hi"}
NESTED = {"model": "m", "input": "Hi", "tools": [{"type": "function", "function": {"name": "f"}}]}
ASKED = {"model": "mock-1", "input": [{"role": "developer", "content": "Hi"}]}
JSON = {"content-type": "application/json"}
REFUSAL = b'{"error":{"message":"Unexpected role","param":"input[0].role","type":"invalid_request_error"}}'


def run(data: Any, *argv: str, cwd: Path | None = None) -> tuple[int, str]:
    args = make_parser().parse_args(["explain", *argv])
    out = io.StringIO()
    stdin = io.BytesIO(data if isinstance(data, bytes) else json.dumps(data).encode())
    return explain.run(args, out, io.StringIO(), stdin=stdin, environ={}, cwd=cwd), out.getvalue()


def test_explain_reports_a_nested_tool() -> None:
    """C-3, C-6."""
    code, output = run(NESTED)
    assert code == FAILED
    assert "read as a responses request\n" in output
    assert "wrong  tools[0]: this tool is nested, with its name and its schema under `function`" in output


def test_explain_reports_that_a_valid_body_has_no_findings() -> None:
    assert run(GOOD) == (OK, "read as a responses request\nno known problems\n")


def test_explain_succeeds_for_uncertain_findings() -> None:
    code, output = run({"model": "m", "messages": [{"role": "developer", "content": "Hi"}]}, "--dialect", "chat")
    assert code == OK
    assert "perhaps  messages[0].role" in output
    assert '    profile setting: wire.developer = "system" or quirks: developer_as_system' in output


def test_explain_checks_a_body_against_a_profile(tmp_path: Path) -> None:
    """C-6, D-2: with a file for the body, like users do."""
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    file = tmp_path / "body.json"
    file.write_text(json.dumps({"model": "m", "input": [{"role": "user", "content": "hi"}, call, output]}))
    code, printed = run(b"", str(file), "--against", "vercel-ai-gateway-2026-01")
    assert code == FAILED
    assert "quirk tool_history_as_text changes it" in printed
    with pytest.raises(ProfileError):
        run(GOOD, "--against", "nobody")


def test_explain_json_prints_one_object() -> None:
    code, output = run(NESTED, "--json", "--against", "chat")
    document = json.loads(output)
    assert code == FAILED
    assert (document["dialect"], document["profile"]) == ("responses", "chat")
    assert (document["findings"][0]["rule"], document["findings"][0]["path"]) == ("tool_form", "tools[0]")


def test_explain_uses_the_text_of_the_refusal_first() -> None:
    """C-6: findings at the path that it names come first."""
    _, output = run(GOOD, "--said", '{"error":{"message":"no","param":"model"}}', "--json")
    assert json.loads(output)["findings"][0]["path"] == "model"


def test_explain_reads_body_and_refusal_from_a_trace(tmp_path: Path) -> None:
    """C-6: short in the error, complete in the trace, and again on demand."""
    answer = record(tmp_path, ASKED, ScriptedAnswer([REFUSAL], JSON, 400), dialect="responses")
    message = json.loads(answer)["error"]["message"]
    assert message.startswith("Unexpected role Diagnosis: input[0].role: not every server knows the role `developer`; ")
    notes = [
        each
        for each in read_trace(tmp_path, "last").records
        if isinstance(each, TraceNote) and each.name == "diagnosis"
    ]
    assert any("developer" in str(note.value) for note in notes)
    code, output = run(b"", "--trace", "last", "--dir", str(tmp_path), "--json")
    first = json.loads(output)["findings"][0]
    assert (code, first["path"]) == (OK, "input[0].role")
    assert "quirks: developer_as_system" in first["settings"]


def test_explain_reads_a_trace_whose_profile_was_removed(tmp_path: Path) -> None:
    record(tmp_path, ASKED, ScriptedAnswer([REFUSAL], JSON, 400), dialect="responses")
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes().replace(b'"profile":"open-responses"', b'"profile":"gone"'))
    assert json.loads(run(b"", "--trace", "last", "--dir", str(tmp_path), "--json")[1])["profile"] is None


def test_explain_rejects_a_trace_without_an_upstream_request(tmp_path: Path) -> None:
    record(tmp_path, {"model": "nobody's", "input": "Hi"})
    with pytest.raises(InvalidUsage, match="no request to an upstream"):
        run(b"", "--trace", "last", "--dir", str(tmp_path), cwd=tmp_path.parent)
    with pytest.raises(InvalidUsage):
        run(b"", "--trace", "missing", "--dir", str(tmp_path))


class Typed(io.BytesIO):
    def isatty(self) -> bool:
        return True


def test_explain_rejects_invalid_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidUsage, match="not a JSON object"):
        run(b"[1]")
    with pytest.raises(InvalidUsage, match="either --trace or a file, got both"):
        run(b"", "--trace", "last", "body.json")
    with pytest.raises(InvalidUsage, match="nothing to explain"):
        explain.run(make_parser().parse_args(["explain"]), io.StringIO(), io.StringIO(), stdin=Typed())
    assert main(["explain", str(tmp_path / "missing.json")]) == INVALID_USAGE
    assert "cannot read" in capsys.readouterr().err
