"""`antiphon check`: output for people, output for scripts, and exit codes."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.check.broken import BROKEN
from tests.check.servers import KEY, JudgedServer
from tests.check.test_stream import recorded
from tests.cli.network import FakeAnswer, FakeNetwork, Terminal

from antiphon.check.catalogue import CASES
from antiphon.cli import main
from antiphon.cli.check import run, server_url
from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.errors import UpstreamFault
from antiphon.upstream.transport import Transport


def _run(
    *words: str, out: io.StringIO | None = None, transport: Transport | None = None, **environ: str
) -> tuple[int, str, str]:
    out, err = out or io.StringIO(), io.StringIO()
    code = run(make_parser().parse_args(["check", *words]), out, err, environ=environ, transport=transport)
    return code, out.getvalue(), err.getvalue()


def _json(text: str) -> Any:
    return msgspec.json.decode(text)


@pytest.mark.io
def test_check_of_a_good_server_exits_with_0() -> None:
    with JudgedServer(key=KEY) as server:
        code, out, err = _run(
            server.base_url, "--key-env", "LAB", "--case", "http.done", "--case", "previous.chain", LAB=KEY
        )
    assert code == 0
    assert err == f"{server.base_url}, model mock-1, 2 cases\n"
    assert "pass  http.done " in out
    assert "skip  previous.chain" in out
    assert "(the server does not store responses)" in out
    assert out.endswith("\n1 passed, 1 skipped\nconformant in all cases that were run\n")


@pytest.mark.io
def test_check_of_a_broken_server_prints_findings_and_exits_with_1() -> None:
    with JudgedServer(BROKEN["http.done"][0]) as server:
        code, out, _ = _run(
            server.base_url.removesuffix("/v1"), "--case", "http.done", "--model", "mock-1", "--timeout", "20"
        )
    assert code == 1
    assert "FAIL  http.done" in out
    assert "      HTTP-4  the stream ends without `data: [DONE]`; expected it as the last line\n" in out
    assert '        sent  POST /responses {"model":"mock-1"' in out
    assert '        came  {"type":"response.completed"' in out
    assert out.endswith("\n1 failed\nnot conformant: HTTP-4\n")


@pytest.mark.io
def test_check_with_warnings_exits_with_0() -> None:
    """HTTP-5 is a should."""
    with JudgedServer(BROKEN["http.no-event-ids"][0]) as server:
        code, out, _ = _run(server.base_url, "--case", "http.no-event-ids")
    assert code == 0
    assert "warn  http.no-event-ids" in out
    assert out.endswith("1 warned\nconformant in all cases that were run: HTTP-5\n")


@pytest.mark.io
def test_check_uses_colours_only_on_terminals() -> None:
    with JudgedServer(BROKEN["http.done"][0]) as server:
        _, painted, _ = _run(server.base_url, "--case", "http.done", out=Terminal())
        _, plain, _ = _run(server.base_url, "--case", "http.done", out=Terminal(), NO_COLOR="1")
    assert "\x1b[31mFAIL\x1b[0m" in painted
    assert "\x1b" not in plain


@pytest.mark.io
def test_check_shows_its_progress_on_a_terminal() -> None:
    err = Terminal()
    with JudgedServer() as server:
        args = make_parser().parse_args(["check", server.base_url, "--case", "http.done", "--json"])
        run(args, io.StringIO(), err, environ={"NO_COLOR": "1"})
    shown = [line for line in re.split(r"\r *\r|\n", err.getvalue()) if line]
    assert shown == [
        f"asking {server.base_url} for its models …",
        f"{server.base_url}, model mock-1, 1 cases",
        "0 of 1 cases …",
        "1 of 1 cases …",
    ]


@pytest.mark.io
def test_check_json_prints_one_object() -> None:
    with JudgedServer(BROKEN["http.done"][0]) as server:
        code, out, _ = _run(server.base_url, "--case", "http.done", "--case", "http.stream", "--json")
    decoded = _json(out)
    assert (code, decoded["conformant"], decoded["url"], decoded["model"]) == (1, False, server.base_url, "mock-1")
    assert decoded["summary"] == {"pass": 1, "fail": 1, "warn": 0, "skip": 0}
    assert decoded["broken"] == ["HTTP-4"]
    assert [(case["id"], case["verdict"], case["rows"], case["level"]) for case in decoded["cases"]] == [
        ("http.done", "fail", ["HTTP-4"], "must"),
        ("http.stream", "pass", ["HTTP-3"], "must"),
    ]
    assert set(decoded["cases"][0]["findings"][0]) == {"level", "row", "message", "sent", "came"}


def test_check_list_prints_every_case_with_its_rows() -> None:
    code, out, _ = _run("--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [case.id for case in CASES]
    assert "http.done" in out
    assert _json(_run("--list", "--json", "--case", "http.no-event-ids")[1]) == [
        {"id": "http.no-event-ids", "rows": ["HTTP-5"], "level": "should", "title": "streams have no id: lines"}
    ]


def test_check_reads_a_recorded_stream_from_a_file(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.sse", tmp_path / "bad.sse"
    good.write_bytes(recorded("Hel", "lo"))
    bad.write_bytes(
        recorded("Hel", "lo").replace(b'"sequence_number":3', b'"sequence_number":9').replace(b"data: [DONE]", b": end")
    )
    code, out, _ = _run("--file", str(good))
    assert code == 0
    assert out.endswith(" events, 0 findings: conformant\n")
    code, out, _ = _run("--file", str(bad))
    assert code == 1
    assert "      STR-5  event 9: " in out
    assert "      HTTP-4  " in out
    code, out, _ = _run("--file", str(bad), "--json")
    assert (code, _json(out)["conformant"], _json(out)["findings"][0]["row"]) == (1, False, "HTTP-4")


def test_check_rejects_invalid_usage_before_any_request(tmp_path: Path) -> None:
    for words, expected in [
        ([], "give the URL"),
        (["http://x", "--file", "y"], "either URL or --file"),
        (["--file", str(tmp_path / "none")], "cannot read"),
        (["http://x", "--case", "http.dome"], "did you mean 'http.done'?"),
        (["http://x", "--case", "zzz"], "unknown case 'zzz'; "),
        (
            ["http://x", "--key-env", "NONE"],
            "the environment variable NONE, which --key-env names, is not set or empty",
        ),
        (["http://x", "--key-env", "ODD"], "printable ASCII"),
        (["ftp://x"], "invalid server URL"),
        (["http://x?y"], "invalid server URL"),
        (["http://x:99999"], "invalid server URL"),
    ]:
        with pytest.raises(InvalidUsage) as refused:
            _run(*words, ODD="käse")
        assert expected in str(refused.value)


def test_check_does_not_print_a_password_of_the_url() -> None:
    with pytest.raises(InvalidUsage) as refused:
        _run("http://me:secret@x")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "1e9", "nan"])
def test_check_rejects_invalid_timeouts(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "http://x", "--timeout", seconds]) == 2
    assert "--timeout" in capsys.readouterr().err


def test_check_of_an_unreachable_server_fails() -> None:
    unreachable = FakeNetwork(models=UpstreamFault("no", code="upstream_unavailable"))
    with pytest.raises(CommandFailed, match="http://x/v1: the server cannot be reached"):
        _run("x", transport=unreachable)
    assert unreachable.closed


def test_check_requires_model_if_none_are_listed() -> None:
    with pytest.raises(InvalidUsage, match="--model"):
        _run("x", transport=FakeNetwork(models=FakeAnswer(b"{}", status=404)))


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        (" http://h/ ", "http://h/v1"),
        ("https://h/v1/", "https://h/v1"),
        ("https://h/api/v1", "https://h/api/v1"),
    ],
)
def test_server_url_accepts_addresses_with_and_without_version(written: str, url: str) -> None:
    assert server_url(written) == url
