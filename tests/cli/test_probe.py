"""`antiphon probe`: output for people, output for scripts, and exit codes."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.cli.network import FakeAnswer, FakeNetwork, Terminal, nobody
from tests.probe.servers import CONSTRAINTS, server_of, vercel

from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.cli.probe import base_url, run
from antiphon.config import Timeouts
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.profiles import load_profile
from antiphon.testing import (
    ChatServer,
    ReceivedRequest,
    Reply,
    ResponsesServer,
    end,
    error,
    text,
    turn,
)
from antiphon.testing.__main__ import SERVERS
from antiphon.testing.faults import page
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport, UpstreamResponse

pytestmark = pytest.mark.io


def _run(*words: str, transport: Transport | None = None, **environ: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = run(make_parser().parse_args(["probe", *words]), out, err, environ=environ, transport=transport)
    return code, out.getvalue(), err.getvalue()


def test_probe_prints_cost_findings_and_profile() -> None:
    """D-4."""
    with vercel() as server:
        code, out, err = _run(server.base_url)
    assert code == 0
    assert err.startswith(f"{server.base_url}, dialect responses, model mock-1\n67 to 125 requests, about ")
    assert "accepted  minimal request " in out
    assert "refused   tool call and its output                          400: " in out
    assert '\nabout = "http://127.0.0.1:' in out
    assert '    "tool_history_as_text",\n' in out


def test_probe_shows_its_progress_on_a_terminal() -> None:
    err = Terminal()
    with ChatServer() as server:
        args = make_parser().parse_args(["probe", server.base_url, "--dialect", "chat", "--json"])
        run(args, io.StringIO(), err, environ={"NO_COLOR": "1"})
    shown = [line for line in re.split(r"\r *\r|\n", err.getvalue()) if line]
    assert shown[0] == f"looking for a server at {server.base_url} …"
    assert shown[3:5] == ["sending a minimal request …", "1 findings so far …"]
    assert shown[-1].endswith(" findings so far …")
    assert err.getvalue().endswith(" \r")


def test_probe_writes_the_profile_to_a_file(tmp_path: Path) -> None:
    """D-4: and it can be loaded."""
    file = tmp_path / "mine.toml"
    with ChatServer() as server:
        code, out, _ = _run(server.base_url, "--dialect", "chat", "-o", str(file))
    assert code == 0
    assert out.endswith(f"profile written to {file}; use it with: profile = {str(file)!r}\n")
    assert load_profile(file).dialect == "chat"


def test_probe_json_prints_one_object_with_evidence() -> None:
    """D-4."""
    with ResponsesServer(key="s3cret") as server:
        code, out, _ = _run(server.base_url, "--json", "--model", "m", "--key-env", "K", K="s3cret")
    decoded = msgspec.json.decode(out)
    assert (code, decoded["dialect"], decoded["model"], decoded["stopped"]) == (0, "responses", "m", "")
    findings = {finding["id"]: finding for finding in decoded["findings"]}
    assert findings["result.alone"]["evidence"]["status"] == 400
    assert findings["result.alone"]["evidence"]["body"]["input"][1]["type"] == "function_call_output"
    assert decoded["profile"].startswith("about = ")
    assert "s3cret" not in out


@pytest.mark.parametrize("dialect", SERVERS)
def test_probe_detects_the_dialect(dialect: ServerDialectName) -> None:
    with SERVERS[dialect]() as server:
        _, _, err = _run(server.origin)
    assert f"dialect {dialect}, model mock-1\n" in err


def test_probe_detects_servers_with_another_limit_field_or_a_key() -> None:
    constraints = [each for each in CONSTRAINTS["chat"] if each.name == "only max_completion_tokens"]
    with server_of("chat", constraints) as server:
        _, _, err = _run(server.base_url)
    assert "dialect chat" in err
    with ChatServer(key="right") as server, pytest.raises(CommandFailed, match="404"):
        _run(server.base_url, "--model", "m", "--dialect", "responses", "--key-env", "K", K="wrong")
    with ResponsesServer(key="right") as server, pytest.raises(CommandFailed, match="401: incorrect API key"):
        _run(server.base_url, "--model", "m", "--key-env", "K", K="wrong")


def test_probe_of_a_server_that_stops_prints_findings_and_exits_with_1(tmp_path: Path) -> None:
    file = tmp_path / "cut.toml"
    with ChatServer([*[turn(text("Hello."))] * 8, *[error(503, "down")] * 4]) as server:
        code, out, _ = _run(server.base_url, "--dialect", "chat", "--model", "m", "-o", str(file))
    assert code == 1
    assert "stopped early: the server stopped answering after " in out
    assert load_profile(file).about.endswith("503: down.")


@pytest.mark.parametrize(
    ("reply", "words"),
    [(page(), "a login page, or not an API"), (turn(end("hang")), "the server did not answer in time")],
)
def test_probe_fails_for_a_login_page_and_a_hanging_server(reply: Reply, words: str) -> None:
    """D-4."""
    with ChatServer(lambda _: reply) as server, pytest.raises(CommandFailed, match=words):
        _run(server.base_url, "--dialect", "chat", "--model", "m", "--timeout", "0.3")


def test_probe_reports_unreachable_server_no_models_and_no_dialect() -> None:
    with pytest.raises(CommandFailed, match="the server cannot be reached"):
        _run("127.0.0.1:9", transport=FakeNetwork(models=nobody()))
    with pytest.raises(CommandFailed, match=r"lists no models \(200\); set a model with --model"):
        _run("127.0.0.1:9", "--dialect", "chat", transport=FakeNetwork(models=FakeAnswer(b"[]")))
    with pytest.raises(CommandFailed, match="lists no models"):
        _run("127.0.0.1:9", "--dialect", "chat", transport=FakeNetwork(models=FakeAnswer(b"no json")))
    silent = dict.fromkeys(last_segments(), FakeAnswer(b"{}", status=404))
    silent["completions"] = FakeAnswer(b"{}", status=400)
    with pytest.raises(CommandFailed, match=r"does not answer in any supported dialect: responses 404: \{\}; chat 400"):
        _run("127.0.0.1:9", "--model", "m", transport=FakeNetwork(**silent))


def last_segments() -> list[str]:
    """The last segments of the paths of turns with the model `m`, by which the network finds its answers."""
    return [dialect.turn_path.format(model="m").rpartition("/")[2] for dialect in SERVER_DIALECTS.values()]


def test_probe_reports_an_unwritable_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidUsage, match="there is no folder"):
        _run("127.0.0.1:9", "-o", str(tmp_path / "none" / "a.toml"))
    with ChatServer() as server, pytest.raises(CommandFailed, match=r"cannot write .*: Is a directory"):
        _run(server.base_url, "--dialect", "chat", "-o", str(tmp_path))


def test_probe_reports_turns_that_still_fail_with_the_profile() -> None:
    """A server that accepts only the plainest turns: no profile setting helps."""

    def reply(received: ReceivedRequest) -> Reply:
        return turn(text("Hello.")) if len(received.json["messages"]) == 1 else error(400, "one message")

    with ChatServer(reply) as server:
        code, out, _ = _run(server.base_url, "--dialect", "chat")
    assert code == 0
    assert "with this profile the server still refuses 3 of the turns that the gateway would send\n" in out


def test_probe_prints_findings_when_interrupted() -> None:
    """Ctrl-C ends with 130."""

    class Interrupted(HttpTransport):
        count = 0

        async def send(  # type: ignore[override]
            self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
        ) -> UpstreamResponse:
            self.count += 1
            if self.count == 12:
                raise KeyboardInterrupt
            return await super().send(method, url, headers, body, timeouts)

    with ChatServer() as server:
        code, out, _ = _run(server.base_url, "--dialect", "chat", transport=Interrupted({}))
    assert code == 130
    assert "incomplete: interrupted" in out
    with ChatServer() as server:
        first = Interrupted({})
        first.count = 11
        code, out, _ = _run(server.base_url, "--dialect", "chat", transport=first)
    assert (code, out) == (130, "")


def test_base_url_accepts_addresses_with_and_without_version() -> None:
    assert base_url("example.org", "chat") == "http://example.org/v1"
    assert base_url("https://example.org/v1", "gemini") == "https://example.org/v1beta"
    assert base_url("https://example.org/v1beta", "gemini") == "https://example.org/v1beta"
    assert base_url("https://example.org/x/v1alpha", "gemini") == "https://example.org/x/v1alpha"
