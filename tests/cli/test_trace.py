"""`antiphon trace`: output for people and scripts, from traces that the real server wrote."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.cli.network import Terminal
from tests.cli.recorded import KEY, record
from tests.gateway.scripted import SSE, ScriptedAnswer

from antiphon.cli import trace
from antiphon.cli.entry import main, make_parser
from antiphon.cli.exits import FAILED, INVALID_USAGE, OK, InvalidUsage
from antiphon.config.model_rules import ModelRule
from antiphon.trace.folder import trace_file_name, write_file
from antiphon.trace.records import (
    ClientRequest,
    OmittedData,
    RawData,
    TraceNote,
    TraceRecord,
    TraceSummary,
    UpstreamPiece,
    UpstreamRequest,
    encode_record,
)

STREAM = [
    b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"lo."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
]
ASKED = {"model": "mock-1", "input": "Hi", "stream": True}


def run(
    cwd: Path, *argv: str, environ: Mapping[str, str] | None = None, out: io.StringIO | None = None
) -> tuple[int, str, str]:
    out, err = out or io.StringIO(), io.StringIO()
    code = trace.run(make_parser().parse_args(["trace", *argv]), out, err, environ=environ or {}, cwd=cwd)
    return code, out.getvalue(), err.getvalue()


def recorded(cwd: Path) -> str:
    """A trace in the default folder, and its id."""
    record(cwd / "traces", ASKED, ScriptedAnswer(STREAM, SSE))
    return run(cwd, "list")[1].split("\n")[1].split()[2]


def put(folder: Path, *records: TraceRecord) -> None:
    summary = TraceSummary(
        at=0.0, id="req_1", time=1.0, duration=2.0, model=None, upstream=None, status=None, losses=0, error=None
    )
    write_file(folder, trace_file_name("req_1", 1.0), [encode_record(each) for each in (summary, *records)])


def headings(shown: str) -> list[str]:
    return re.findall(r"^ *[0-9.]+ s  (.*)$", shown, flags=re.MULTILINE)


def test_trace_list_prints_one_line_per_trace_newest_last(tmp_path: Path) -> None:
    first = recorded(tmp_path)
    record(tmp_path / "traces", {**ASKED, "model": "unknown"})
    code, out, err = run(tmp_path, "list")
    lines = [line.split() for line in out.splitlines()]
    assert (code, err) == (OK, "")
    assert lines[0] == ["TIME", "ID", "MODEL", "UPSTREAM", "STATUS", "DURATION", "LOSSES", "ERROR"]
    assert lines[1][2:6] == [first, "mock-1", "lab", "200"]
    assert lines[1][8:] == ["0", "-"]
    assert lines[2][3:6] == ["unknown", "-", "404"]
    assert lines[2][-1] == "model_not_found"


def test_trace_list_fits_a_terminal_with_ids_that_show_accepts(tmp_path: Path) -> None:
    ids = [recorded(tmp_path), recorded(tmp_path)]
    record(tmp_path / "traces", {**ASKED, "model": "a-model-with-a-very-long-name-that-no-upstream-serves"})
    out = run(tmp_path, "list", out=Terminal())[1]
    assert all(len(line) <= 80 for line in out.splitlines())
    shortened = out.splitlines()[1].split()[2]
    assert len(shortened) < len(ids[0])
    assert run(tmp_path, "show", shortened)[1].startswith(ids[0])


def test_trace_list_shows_the_requested_model_and_not_its_name_at_the_upstream(tmp_path: Path) -> None:
    models = [ModelRule(from_="fast", to="mock-1")]
    record(tmp_path / "traces", {**ASKED, "model": "fast"}, ScriptedAnswer(STREAM, SSE), models=models)
    row = run(tmp_path, "list")[1].splitlines()[1].split()
    assert row[3:6] == ["fast", "lab", "200"]
    assert "route: upstream lab, model mock-1," in run(tmp_path, "show", "last")[1]


def test_trace_list_without_traces_exits_with_0(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "list")
    assert (code, out) == (OK, "")
    assert err == f"there are no traces in {tmp_path / 'traces'}; `antiphon serve --trace DIR` writes them\n"


def test_trace_show_prints_records_in_order(tmp_path: Path) -> None:
    record(tmp_path / "traces", {**ASKED, "store": True, "input": f"key {KEY}"}, ScriptedAnswer(STREAM, SSE))
    code, out, err = run(tmp_path, "show", "last")
    assert (code, err) == (OK, "")
    shown = [re.sub(r"\d+", "N", each) for each in headings(out)]
    expected = [
        "request of the client: POST /vN/responses",
        "route: upstream lab, model mock-N, dialect chat, profile chat, streamed",
        "the request in the hub format",
        "request to the upstream: POST http://lab/vN/chat/completions",
        "response of the upstream: N",
        "received from the upstream: N bytes in N pieces, the last at N.N s",
        "response to the client: N",
        "sent to the client: N bytes in N pieces, the last at N.N s",
    ]
    assert [each for each in shown if each in expected] == expected
    assert '      "input": "key [removed]",\n' in out
    assert "    authorization: [removed]\n" in out
    assert out.endswith("\nlost\n    store: the response is not stored (this gateway stores no responses)\n")


def test_trace_show_prints_malformed_records(tmp_path: Path) -> None:
    sent = UpstreamRequest(at=0.0, method="POST", url="http://lab", headers={}, body=RawData(b"{not json"))
    put(
        tmp_path / "traces",
        ClientRequest(at=0.0, method="POST", path="/v1\x1b[2J", headers={}, body=RawData(b"\xff[")),
        sent,
        UpstreamPiece(at=0.1, data=RawData(b"first")),
        sent,
        UpstreamPiece(at=0.2, data=RawData(b"\x1b]0;title\x07second")),
        TraceNote(at=0.3, name="error", value=None),
        TraceNote(at=0.3, name="tokens", value=3),
        OmittedData(at=0.4, missing={"hub_request": 7}),
    )
    code, out, _ = run(tmp_path, "show", "req_1")
    assert code == OK
    assert headings(out) == [
        "request of the client: POST /v1[2J",
        "request to the upstream: POST http://lab",
        "received from the upstream: 5 bytes in 1 piece",
        "request to the upstream: POST http://lab",
        "received from the upstream: 16 bytes in 1 piece",
        "tokens: 3",
        "too large: 7 bytes of hub_request are not in the trace",
    ]
    assert "    {not json\n" in out
    assert "\x1b" not in out, "what was recorded steers no terminal"


def test_trace_show_uses_colours_on_a_terminal(tmp_path: Path) -> None:
    recorded(tmp_path)
    assert "\x1b[1mreq_" in run(tmp_path, "show", "last", out=Terminal())[1]


def test_trace_show_raw_prints_the_lines_of_the_file(tmp_path: Path) -> None:
    id = recorded(tmp_path)
    _, out, _ = run(tmp_path, "show", id, "--raw")
    lines = [msgspec.json.decode(line) for line in out.splitlines()]
    assert lines[0]["kind"] == "summary"
    assert lines[0]["id"] == id
    assert {"client_request", "hub_request", "route", "upstream_request", "upstream_piece", "client_piece"} < {
        line["kind"] for line in lines
    }


def test_trace_replay_prints_the_answer_and_reports_equality(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "replay", recorded(tmp_path))
    assert code == OK
    assert out.startswith("event: response.created\n")
    assert out.endswith("data: [DONE]\n")
    assert err == "identical to the recording\n"


def test_trace_replay_reports_a_truncated_recording(tmp_path: Path) -> None:
    record(tmp_path / "traces", ASKED, ScriptedAnswer([*STREAM[:1] * 3, *STREAM], SSE), leaves_after=1)
    code, _, err = run(tmp_path, "replay", "last")
    assert (code, err) == (OK, "identical to the recording up to the end of the recorded answer, which is incomplete\n")


def test_trace_replay_with_differences_prints_both_and_exits_with_1(tmp_path: Path) -> None:
    recorded(tmp_path)
    (file,) = (tmp_path / "traces").iterdir()
    file.write_bytes(file.read_bytes().replace(b'\\"messages\\"', b'\\"texts\\"'))
    code, _, err = run(tmp_path, "replay", "last")
    assert code == FAILED
    title, then, now = err.splitlines()
    assert title == "the request to the upstream differs:"
    assert then.startswith('  recorded: … {"model":"mock-1","texts"')
    assert now.startswith('  now:      … {"model":"mock-1","messages"')


@pytest.mark.parametrize("argv", [("show", "x"), ("replay", "x")])
def test_trace_commands_reject_an_unknown_id(tmp_path: Path, argv: tuple[str, ...]) -> None:
    recorded(tmp_path)
    with pytest.raises(InvalidUsage, match=r"no trace in .* has an id that begins with 'x'"):
        run(tmp_path, *argv)


def test_trace_replay_rejects_a_trace_without_request(tmp_path: Path) -> None:
    put(tmp_path / "traces")
    with pytest.raises(InvalidUsage, match="no request was recorded"):
        run(tmp_path, "replay", "last")


def test_trace_folder_comes_from_option_then_configuration_then_default(tmp_path: Path) -> None:
    put(tmp_path / "given")
    put(tmp_path / "conf" / "kept")
    put(tmp_path / "traces")
    (tmp_path / "conf" / "a.toml").write_text('[trace]\ndir = "kept"\n')
    (tmp_path / "conf" / "b.toml").write_text("")

    def used(*argv: str, **environ: str) -> str:
        for name in ("given", "conf/kept", "traces"):
            (tmp_path / name / trace_file_name(name.replace("/", "_"), 2.0)).touch()
        return run(tmp_path, "list", *argv, environ=environ)[1].splitlines()[2].split()[2]

    assert used("--dir", "given", ANTIPHON_CONFIG="conf/a.toml") == "given"
    assert used(ANTIPHON_CONFIG="conf/a.toml") == "conf_kept"
    assert used(ANTIPHON_CONFIG="conf/b.toml") == "traces"
    assert used() == "traces"


def test_trace_command_exits_with_2_for_an_unknown_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "show", "x", "--dir", str(tmp_path)]) == INVALID_USAGE
    assert "there are no traces in" in capsys.readouterr().err
    assert main(["trace", "list", "--dir", str(tmp_path)]) == OK
