"""`antiphon probe`: what people see, what scripts read, and how it ends."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.cli.network import FakeAnswer, FakeNetwork, nobody
from tests.probe.servers import CONSTRAINTS, server_of, vercel

from antiphon.cli.entry import make_parser
from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.cli.probe import base_url, run
from antiphon.config import Timeouts
from antiphon.profiles import load_profile
from antiphon.testing import (
    ChatServer,
    GeminiServer,
    MessagesServer,
    ReceivedRequest,
    Reply,
    ResponsesServer,
    end,
    error,
    text,
    turn,
)
from antiphon.testing.faults import page
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport, UpstreamResponse


def _run(*words: str, transport: Transport | None = None, **environ: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = run(make_parser().parse_args(["probe", *words]), out, err, environ=environ, transport=transport)
    return code, out.getvalue(), err.getvalue()


def test_the_cost_is_told_first_then_every_finding_and_the_profile() -> None:
    """D-4."""
    with vercel() as server:
        code, out, err = _run(server.base_url)
    assert code == 0
    assert err.startswith(f"{server.base_url}, dialect responses, model mock-1\n63 to 99 requests, about ")
    assert "accepted  minimal request " in out
    assert "refused   tool call and its output                          400: " in out
    assert '\nabout = "http://127.0.0.1:' in out
    assert '    "tool_history_as_text",\n' in out


def test_the_profile_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    """D-4: and loads."""
    file = tmp_path / "mine.toml"
    with ChatServer() as server:
        code, out, _ = _run(server.base_url, "--dialect", "chat", "-o", str(file))
    assert code == 0
    assert out.endswith(f"the profile is in {file}; use it with: profile = {str(file)!r}\n")
    assert load_profile(file).dialect == "chat"


def test_json_is_one_object_with_all_evidence() -> None:
    """D-4."""
    with ResponsesServer(key="s3cret") as server:
        code, out, _ = _run(server.base_url, "--json", "--model", "m", "--key-env", "K", K="s3cret")
    told = msgspec.json.decode(out)
    assert (code, told["dialect"], told["model"], told["stopped"]) == (0, "responses", "m", "")
    found = {finding["id"]: finding for finding in told["findings"]}
    assert found["result.alone"]["evidence"]["status"] == 400
    assert found["result.alone"]["evidence"]["body"]["input"][1]["type"] == "function_call_output"
    assert told["profile"].startswith("about = ")
    assert "s3cret" not in out


@pytest.mark.parametrize(
    ("make", "dialect"),
    [(ResponsesServer, "responses"), (ChatServer, "chat"), (MessagesServer, "messages"), (GeminiServer, "gemini")],
)
def test_probe_detects_the_dialect(make: type[ChatServer], dialect: str) -> None:
    with make() as server:
        _, _, err = _run(server.origin)
    assert f"dialect {dialect}, model mock-1\n" in err


def test_a_server_that_wants_its_limit_under_another_name_or_a_key_is_found_all_the_same() -> None:
    constraints = [each for each in CONSTRAINTS["chat"] if each.name == "only max_completion_tokens"]
    with server_of("chat", constraints) as server:
        _, _, err = _run(server.base_url)
    assert "dialect chat" in err
    with ChatServer(key="right") as server, pytest.raises(CommandFailed, match="404"):
        _run(server.base_url, "--model", "m", "--dialect", "responses", "--key-env", "K", K="wrong")
    with ResponsesServer(key="right") as server, pytest.raises(CommandFailed, match="401: incorrect API key"):
        _run(server.base_url, "--model", "m", "--key-env", "K", K="wrong")


def test_a_server_that_stops_half_way_ends_with_1_and_what_was_found_is_told(tmp_path: Path) -> None:
    file = tmp_path / "cut.toml"
    with ChatServer([*[turn(text("Hello."))] * 8, *[error(503, "down")] * 4]) as server:
        code, out, _ = _run(server.base_url, "--dialect", "chat", "--model", "m", "-o", str(file))
    assert code == 1
    assert "ended before its time: the server stopped answering after " in out
    assert load_profile(file).about.endswith("503: down.")


@pytest.mark.parametrize(
    ("reply", "words"),
    [(page(), "a login page, or not an API"), (turn(end("hang")), "the server did not answer in time")],
)
def test_a_login_page_and_a_hanging_server_are_a_clear_end(reply: Reply, words: str) -> None:
    """D-4."""
    with ChatServer(lambda _: reply) as server, pytest.raises(CommandFailed, match=words):
        _run(server.base_url, "--dialect", "chat", "--model", "m", "--timeout", "0.3")


def test_nobody_there_no_models_and_no_dialect_are_told() -> None:
    with pytest.raises(CommandFailed, match="the server cannot be reached"):
        _run("127.0.0.1:9", transport=FakeNetwork(models=nobody()))
    with pytest.raises(CommandFailed, match=r"lists no models \(200\); set a model with --model"):
        _run("127.0.0.1:9", "--dialect", "chat", transport=FakeNetwork(models=FakeAnswer(b"[]")))
    with pytest.raises(CommandFailed, match="lists no models"):
        _run("127.0.0.1:9", "--dialect", "chat", transport=FakeNetwork(models=FakeAnswer(b"no json")))
    none = FakeAnswer(b"{}", status=404)
    refusing = FakeAnswer(b"{}", status=400)
    silent = {"responses": none, "completions": refusing, "messages": none, "m:generateContent": none}
    with pytest.raises(CommandFailed, match=r"does not answer in any supported dialect: responses 404: \{\}; chat 400"):
        _run("127.0.0.1:9", "--model", "m", transport=FakeNetwork(**silent))


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidUsage, match="there is no folder"):
        _run("127.0.0.1:9", "-o", str(tmp_path / "none" / "a.toml"))
    with ChatServer() as server, pytest.raises(CommandFailed, match="cannot be written: Is a directory"):
        _run(server.base_url, "--dialect", "chat", "-o", str(tmp_path))


def test_a_profile_that_does_not_do_is_told() -> None:
    """A server that takes nothing but the plainest turns: nothing in a profile mends that."""

    def reply(received: ReceivedRequest) -> Reply:
        return turn(text("Hello.")) if len(received.json["messages"]) == 1 else error(400, "one message")

    with ChatServer(reply) as server:
        code, out, _ = _run(server.base_url, "--dialect", "chat")
    assert code == 0
    assert "with this profile 3 of the turns that the gateway would send are still not taken\n" in out


def test_an_interruption_keeps_what_was_found() -> None:
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
    assert "ended before its time: interrupted" in out
    with ChatServer() as server:
        first = Interrupted({})
        first.count = 11
        code, out, _ = _run(server.base_url, "--dialect", "chat", transport=first)
    assert (code, out) == (130, "")


def test_addresses_are_taken_with_and_without_their_version() -> None:
    assert base_url("example.org", "chat") == "http://example.org/v1"
    assert base_url("https://example.org/v1", "gemini") == "https://example.org/v1beta"
    assert base_url("https://example.org/v1beta", "gemini") == "https://example.org/v1beta"
    assert base_url("https://example.org/x/v1alpha", "gemini") == "https://example.org/x/v1alpha"
