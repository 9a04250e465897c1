"""`antiphon check`: what people see, what scripts read, and how it ends."""

from __future__ import annotations

import io
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


def test_a_good_server_is_conformant_and_ends_with_0() -> None:
    with JudgedServer(key=KEY) as server:
        code, out, err = _run(
            server.base_url, "--key-env", "LAB", "--case", "http.done", "--case", "previous.chain", LAB=KEY
        )
    assert code == 0
    assert err == f"{server.base_url}, model mock-1, 2 cases\n"
    assert "pass  http.done " in out
    assert "skip  previous.chain" in out
    assert "(the server does not store responses)" in out
    assert out.endswith("\n1 passed, 1 skipped\nconformant, as far as this can show\n")


def test_a_broken_server_is_told_what_to_mend_and_ends_with_1() -> None:
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


def test_a_warning_is_no_failure() -> None:
    """HTTP-5 is a should."""
    with JudgedServer(BROKEN["http.no-event-ids"][0]) as server:
        code, out, _ = _run(server.base_url, "--case", "http.no-event-ids")
    assert code == 0
    assert "warn  http.no-event-ids" in out
    assert out.endswith("1 warned\nconformant, as far as this can show: HTTP-5\n")


def test_colours_are_for_terminals() -> None:
    with JudgedServer(BROKEN["http.done"][0]) as server:
        _, painted, _ = _run(server.base_url, "--case", "http.done", out=Terminal())
        _, plain, _ = _run(server.base_url, "--case", "http.done", out=Terminal(), NO_COLOR="1")
    assert "\x1b[31mFAIL\x1b[0m" in painted
    assert "\x1b" not in plain


def test_json_is_one_object_for_scripts() -> None:
    with JudgedServer(BROKEN["http.done"][0]) as server:
        code, out, _ = _run(server.base_url, "--case", "http.done", "--case", "http.stream", "--json")
    told = _json(out)
    assert (code, told["conformant"], told["url"], told["model"]) == (1, False, server.base_url, "mock-1")
    assert told["summary"] == {"pass": 1, "fail": 1, "warn": 0, "skip": 0}
    assert told["broken"] == ["HTTP-4"]
    assert [(case["id"], case["verdict"], case["rows"], case["level"]) for case in told["cases"]] == [
        ("http.done", "fail", ["HTTP-4"], "must"),
        ("http.stream", "pass", ["HTTP-3"], "must"),
    ]
    assert set(told["cases"][0]["findings"][0]) == {"level", "row", "message", "sent", "came"}


def test_every_case_is_listed_with_its_rows() -> None:
    code, out, _ = _run("--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [case.id for case in CASES]
    assert "http.done" in out
    assert _json(_run("--list", "--json", "--case", "http.no-event-ids")[1]) == [
        {"id": "http.no-event-ids", "rows": ["HTTP-5"], "level": "should", "title": "streams have no id: lines"}
    ]


def test_a_recorded_stream_is_judged_without_a_network(tmp_path: Path) -> None:
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
    for words, told in [
        ([], "give the URL"),
        (["http://x", "--file", "y"], "either URL or --file"),
        (["--file", str(tmp_path / "none")], "cannot be read"),
        (["http://x", "--case", "http.dome"], "did you mean 'http.done'?"),
        (["http://x", "--case", "zzz"], "no case 'zzz' ("),
        (["http://x", "--key-env", "NONE"], "no key in $NONE"),
        (["http://x", "--key-env", "ODD"], "printable ASCII"),
        (["ftp://x"], "no address of a server"),
        (["http://x?y"], "no address of a server"),
        (["http://x:99999"], "no address of a server"),
    ]:
        with pytest.raises(InvalidUsage) as refused:
            _run(*words, ODD="käse")
        assert told in str(refused.value)


def test_a_password_in_the_address_is_not_shown() -> None:
    with pytest.raises(InvalidUsage) as refused:
        _run("http://me:secret@x")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "1e9", "nan"])
def test_a_timeout_is_a_time(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "http://x", "--timeout", seconds]) == 2
    assert "--timeout" in capsys.readouterr().err


def test_a_server_that_is_not_there_ends_with_1() -> None:
    nobody = FakeNetwork(models=UpstreamFault("no", code="upstream_unavailable"))
    with pytest.raises(CommandFailed, match="http://x/v1: the server cannot be reached"):
        _run("x", transport=nobody)
    assert nobody.closed


def test_without_a_list_of_models_one_has_to_be_named() -> None:
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
def test_an_address_may_have_its_version_or_not(written: str, url: str) -> None:
    assert server_url(written) == url
