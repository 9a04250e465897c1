"""The ends of a run: faulty servers, transient failures, and the findings that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.cli.network import FakeAnswer, FakeNetwork
from tests.probe.probe_runs import make_target, run_probe
from tests.probe.scenarios import play
from tests.probe.servers import CONSTRAINTS, ONLY_STRINGS, server_of
from tests.running import one_upstream, running

from antiphon.config import Timeouts
from antiphon.probe.run import ServerUnanswered
from antiphon.testing import (
    ChatServer,
    MessagesServer,
    ReceivedRequest,
    Reply,
    ResponsesServer,
    end,
    error,
    exactly,
    finish,
    text,
    turn,
    whole,
)
from antiphon.testing.faults import page, redirect
from antiphon.testing.improvise import improvise
from antiphon.testing.responses.server import make_prompt

pytestmark = pytest.mark.io
SHORT = Timeouts(connect=1.0, first_byte=0.2, idle=0.2, total=0.4)


def after(number: int, then: Callable[[], Reply]) -> Callable[[ReceivedRequest], Reply]:
    """A responses server that behaves differently from some turn on."""
    turns: Iterator[int] = count(1)

    def reply(received: ReceivedRequest) -> Reply:
        return improvise(make_prompt(received.json)) if next(turns) < number else then()

    return reply


def test_server_that_stops_ends_the_run_and_findings_are_kept() -> None:
    """D-4: `down` is no refusal, and the remaining steps are not run."""
    with ResponsesServer(after(5, lambda: error(503, "overloaded"))) as server:
        report, findings = run_probe(make_target(server.base_url, "responses"))
    assert " requests: 503: overloaded" in report.stopped
    assert findings["developer"].verdict == "accepted"
    assert "calls.paired" not in findings
    assert "; incomplete: the server stopped answering after " in report.profile


def test_broken_connection_ends_the_run() -> None:
    with ResponsesServer(after(5, lambda: turn(text("Hel"), end("rst")))) as server:
        report, findings = run_probe(make_target(server.base_url, "responses"))
    assert "the server closed the connection before the end of its answer" in report.stopped
    assert findings["tools"].verdict == "accepted"


def test_transient_error_is_not_a_refusal() -> None:
    """One error of the server's own, and the same request again."""
    turns = count(1)

    def reply(received: ReceivedRequest) -> Reply:
        return error(500, "hiccup") if next(turns) == 3 else improvise(make_prompt(received.json))

    with ResponsesServer(reply) as server:
        report, findings = run_probe(make_target(server.base_url, "responses"))
    assert report.stopped == ""
    assert findings["tools"].verdict == "accepted"


def test_request_that_is_never_answered_is_down() -> None:
    def reply(received: ReceivedRequest) -> Reply:
        hangs = received.json.get("tools")
        return turn(end("hang")) if hangs else improvise(make_prompt(received.json))

    with ResponsesServer(reply) as server:
        report, findings = run_probe(make_target(server.base_url, "responses", timeouts=SHORT))
    assert report.stopped == ""
    assert (findings["tools"].verdict, findings["tools"].detail) == (
        "down",
        "the server did not answer in time; other requests are answered",
    )
    assert "tool_history_as_text" in report.profile


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (page(), "a login page, or not an API"),
        (redirect("https://login.example.org/"), "the server redirects to https://login.example.org/"),
        (turn(end("hang")), "the server did not answer in time"),
        (turn(end("rst")), "the server closed the connection before the end of its answer"),
        (exactly(b"nonsense\r\n\r\n", end("fin")), "the server's answer is not HTTP"),
        (error(404, "no such model"), "404: no such model"),
        (error(402, "pay"), "402: pay"),
        (whole({"error": {"message": "sorry"}}), "200 with an error in the body: sorry"),
        (whole({"detail": "not today"}, 503), "503: not today"),
        (whole(["odd"], 400), '400: ["odd"]'),
        (exactly(b"HTTP/1.1 400 Bad\r\ncontent-length: 2\r\n\r\nno"), "400: no"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_server_without_an_answer_to_the_minimal_request_ends_the_run(reply: Reply, words: str) -> None:
    """D-4: a login page, a hanging server and invalid answers have different messages."""
    with ResponsesServer(lambda _: reply) as server, pytest.raises(ServerUnanswered) as caught:
        run_probe(make_target(server.base_url, "responses", timeouts=SHORT))
    assert words in str(caught.value)


def test_unreachable_server_ends_the_run() -> None:
    with ResponsesServer() as server:
        url = server.base_url
    with pytest.raises(ServerUnanswered, match="the server cannot be reached"):
        run_probe(make_target(url, "responses"))


def test_retry_after_is_respected() -> None:
    turns = count(1)

    def reply(received: ReceivedRequest) -> Reply:
        return (
            error(429, "slow down", headers={"retry-after": "2"})
            if next(turns) % 4 == 0
            else improvise(make_prompt(received.json))
        )

    with ResponsesServer(reply) as server:
        report, findings = run_probe(make_target(server.base_url, "responses"))
    assert report.stopped == ""
    assert {id: each.detail for id, each in findings.items() if "429" in each.detail} == {}


def test_key_header_is_detected_and_the_key_never_shown(tmp_path: Path) -> None:
    """The header that works is in the profile, so that the gateway gets access as well."""
    with MessagesServer(key="s3cret") as server:
        report, _ = run_probe(make_target(server.base_url, "messages", key="s3cret", key_header="authorization"))
        assert "s3cret" not in str(report)
        file = tmp_path / "probed.toml"
        file.write_text(report.profile, encoding="utf-8")
        config = one_upstream(server.base_url, dialect="messages", profile=str(file), api_key_env="KEY")
        with running(config, environ={"KEY": "s3cret"}) as gateway:
            play(gateway, "JSON by a schema")


def test_unusual_key_header_is_written_to_the_profile() -> None:
    def keyed(received: ReceivedRequest) -> Reply:
        good = received.headers.get("api-key") == "s3cret"
        return improvise(make_prompt(received.json)) if good else error(401, "the key s3cret is wrong here")

    with ResponsesServer(keyed) as server:
        report, _ = run_probe(make_target(server.base_url, "responses", key="s3cret"))
    assert 'key_header = "api-key"' in report.profile
    assert "s3cret" not in str(report)


def test_wrong_key_ends_the_run() -> None:
    with ChatServer(key="right") as server, pytest.raises(ServerUnanswered, match="401: incorrect API key"):
        run_probe(make_target(server.base_url, "chat", key="wrong"))


def test_server_that_accepts_only_strings_gets_strings(tmp_path: Path) -> None:
    """D-4: string or parts."""
    with server_of("responses", [ONLY_STRINGS]) as server:
        report, findings = run_probe(make_target(server.base_url, "responses"))
        assert findings["user.parts"].verdict == "refused"
        assert findings["image"].verdict == "untried"
        file = tmp_path / "probed.toml"
        file.write_text(report.profile, encoding="utf-8")
        server.refusals.clear()
        with running(one_upstream(server.base_url, dialect="responses", profile=str(file))) as gateway:
            play(gateway, "JSON by a schema")
        assert server.refusals == []


def test_server_without_usage_counts_as_accepting() -> None:
    """Without usage, an accepted message counts as read."""
    with ResponsesServer(
        lambda received: turn(*improvise(make_prompt(received.json)).elements, omit=["usage"])
    ) as server:
        _, findings = run_probe(make_target(server.base_url, "responses"))
    assert findings["usage"].verdict == "ignored"
    assert (findings["system"].verdict, findings["system"].detail) == (
        "accepted",
        "answered; the server reports no usage, so the effect is unknown",
    )


def test_server_without_streams_is_detected() -> None:
    def reply(received: ReceivedRequest) -> Reply:
        elements = improvise(make_prompt(received.json)).elements
        return turn(*elements, stream=False)

    with ResponsesServer(reply) as server:
        _, findings = run_probe(make_target(server.base_url, "responses"))
    assert (findings["stream"].verdict, findings["stream"].detail) == (
        "refused",
        "expected text/event-stream, got application/json",
    )
    assert findings["stream.order"].verdict == "refused"


def test_server_that_refuses_limits_is_called_without_them() -> None:
    refusing = [each for each in CONSTRAINTS["responses"] if each.name in ("no limit", "few efforts")]
    with server_of("responses", refusing) as server:
        report, findings = run_probe(make_target(server.base_url, "responses"))
    assert findings["limit.max_output_tokens"].verdict == "refused"
    assert findings["cut"].verdict == "untried"
    assert 'lacks = ["max_output_tokens"]' in report.profile
    assert 'efforts = ["low", "medium", "high"]' in report.profile


def test_answers_that_contain_an_error_are_refusals() -> None:
    """Also in the middle of a stream."""

    def reply(received: ReceivedRequest) -> Reply:
        return (
            turn(text("Hel"), finish("error"))
            if received.json.get("stream") or received.json.get("tools")
            else turn(text("Hello."))
        )

    with ResponsesServer(reply) as server:
        _, findings = run_probe(make_target(server.base_url, "responses"))
    assert (findings["tools"].verdict, findings["tools"].detail) == (
        "refused",
        "200 with an error in the body: scripted",
    )
    assert findings["stream"].verdict == "refused"


def test_endless_answer_ends_the_run() -> None:
    endless = FakeAnswer(*[b" " * 1_000_000] * 18, headers={"content-type": "application/json"})
    with pytest.raises(ServerUnanswered, match="the answer has more than 16777216 bytes"):
        run_probe(make_target("http://127.0.0.1:9/v1", "chat"), FakeNetwork(completions=endless))
