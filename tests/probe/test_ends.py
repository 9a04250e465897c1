"""How a run ends: bad servers, bad moments, and what is kept of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.cli.network import FakeAnswer, FakeNetwork
from tests.probe.probing import probe, target_of
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

SHORT = Timeouts(connect=1.0, first_byte=0.2, idle=0.2, total=0.4)


def after(number: int, then: Callable[[], Reply]) -> Callable[[ReceivedRequest], Reply]:
    """A server of the responses API that is another from some turn on."""
    turns: Iterator[int] = count(1)

    def reply(received: ReceivedRequest) -> Reply:
        return improvise(make_prompt(received.json)) if next(turns) < number else then()

    return reply


def test_a_server_that_goes_away_half_way_is_told_and_what_was_found_is_kept() -> None:
    """D-4: `down` is no refusal, and the rest is not tried."""
    with ResponsesServer(after(5, lambda: error(503, "overloaded"))) as server:
        report, found = probe(target_of(server.base_url, "responses"))
    assert " requests: 503: overloaded" in report.stopped
    assert found["developer"].verdict == "accepted"
    assert "calls.paired" not in found
    assert "; incomplete: the server stopped answering after " in report.profile


def test_a_connection_that_breaks_half_way_ends_the_run_too() -> None:
    with ResponsesServer(after(5, lambda: turn(text("Hel"), end("rst")))) as server:
        report, found = probe(target_of(server.base_url, "responses"))
    assert "the server closed the connection before the end of its answer" in report.stopped
    assert found["tools"].verdict == "accepted"


def test_a_bad_moment_is_no_refusal() -> None:
    """One error of the server's own, and the same request again."""
    turns = count(1)

    def reply(received: ReceivedRequest) -> Reply:
        return error(500, "hiccup") if next(turns) == 3 else improvise(make_prompt(received.json))

    with ResponsesServer(reply) as server:
        report, found = probe(target_of(server.base_url, "responses"))
    assert report.stopped == ""
    assert found["tools"].verdict == "accepted"


def test_a_request_that_alone_is_never_answered_is_told_as_down() -> None:
    def reply(received: ReceivedRequest) -> Reply:
        hangs = received.json.get("tools")
        return turn(end("hang")) if hangs else improvise(make_prompt(received.json))

    with ResponsesServer(reply) as server:
        report, found = probe(target_of(server.base_url, "responses", timeouts=SHORT))
    assert report.stopped == ""
    assert (found["tools"].verdict, found["tools"].detail) == (
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
def test_a_server_that_does_not_answer_the_plainest_request_is_a_clear_end(reply: Reply, words: str) -> None:
    """D-4: a login page, a hanging server and nonsense are told apart."""
    with ResponsesServer(lambda _: reply) as server, pytest.raises(ServerUnanswered) as caught:
        probe(target_of(server.base_url, "responses", timeouts=SHORT))
    assert words in str(caught.value)


def test_nobody_there_is_a_clear_end() -> None:
    with ResponsesServer() as server:
        url = server.base_url
    with pytest.raises(ServerUnanswered, match="the server cannot be reached"):
        probe(target_of(url, "responses"))


def test_a_server_that_says_when_is_asked_again_then() -> None:
    turns = count(1)

    def reply(received: ReceivedRequest) -> Reply:
        return (
            error(429, "slow down", headers={"retry-after": "2"})
            if next(turns) % 4 == 0
            else improvise(make_prompt(received.json))
        )

    with ResponsesServer(reply) as server:
        report, found = probe(target_of(server.base_url, "responses"))
    assert report.stopped == ""
    assert {id: each.detail for id, each in found.items() if "429" in each.detail} == {}


def test_a_key_is_tried_where_servers_look_for_it_and_shown_nowhere(tmp_path: Path) -> None:
    """The header that works is in the profile, and then the gateway gets in as well."""
    with MessagesServer(key="s3cret") as server:
        report, _ = probe(target_of(server.base_url, "messages", key="s3cret", key_header="authorization"))
        assert "s3cret" not in str(report)
        file = tmp_path / "probed.toml"
        file.write_text(report.profile, encoding="utf-8")
        config = one_upstream(server.base_url, dialect="messages", profile=str(file), api_key_env="KEY")
        with running(config, environ={"KEY": "s3cret"}) as gateway:
            play(gateway, "JSON by a schema")


def test_a_header_that_is_not_the_usual_one_is_written_down() -> None:
    def keyed(received: ReceivedRequest) -> Reply:
        good = received.headers.get("api-key") == "s3cret"
        return improvise(make_prompt(received.json)) if good else error(401, "the key s3cret is wrong here")

    with ResponsesServer(keyed) as server:
        report, _ = probe(target_of(server.base_url, "responses", key="s3cret"))
    assert 'key_header = "api-key"' in report.profile
    assert "s3cret" not in str(report)


def test_a_key_that_is_wrong_everywhere_is_told() -> None:
    with ChatServer(key="right") as server, pytest.raises(ServerUnanswered, match="401: incorrect API key"):
        probe(target_of(server.base_url, "chat", key="wrong"))


def test_a_server_that_takes_strings_alone_gets_strings(tmp_path: Path) -> None:
    """D-4: string or parts."""
    with server_of("responses", [ONLY_STRINGS]) as server:
        report, found = probe(target_of(server.base_url, "responses"))
        assert found["user.parts"].verdict == "refused"
        assert found["image"].verdict == "untried"
        file = tmp_path / "probed.toml"
        file.write_text(report.profile, encoding="utf-8")
        server.refusals.clear()
        with running(one_upstream(server.base_url, dialect="responses", profile=str(file))) as gateway:
            play(gateway, "JSON by a schema")
        assert server.refusals == []


def test_a_server_that_counts_nothing_is_believed() -> None:
    """Without usage, what is taken counts as read."""
    with ResponsesServer(
        lambda received: turn(*improvise(make_prompt(received.json)).elements, omit=["usage"])
    ) as server:
        _, found = probe(target_of(server.base_url, "responses"))
    assert found["usage"].verdict == "ignored"
    assert (found["system"].verdict, found["system"].detail) == (
        "accepted",
        "answered; the server reports no usage, so the effect is unknown",
    )


def test_a_server_that_has_no_streams_is_found_out() -> None:
    def reply(received: ReceivedRequest) -> Reply:
        said = improvise(make_prompt(received.json)).elements
        return turn(*said, stream=False)

    with ResponsesServer(reply) as server:
        _, found = probe(target_of(server.base_url, "responses"))
    assert (found["stream"].verdict, found["stream"].detail) == (
        "refused",
        "expected text/event-stream, got application/json",
    )
    assert found["stream.order"].verdict == "refused"


def test_a_server_without_limits_is_asked_without_any() -> None:
    refusing = [each for each in CONSTRAINTS["responses"] if each.name in ("no limit", "few efforts")]
    with server_of("responses", refusing) as server:
        report, found = probe(target_of(server.base_url, "responses"))
    assert found["limit.max_output_tokens"].verdict == "refused"
    assert found["cut"].verdict == "untried"
    assert 'lacks = ["max_output_tokens"]' in report.profile
    assert 'efforts = ["low", "medium", "high"]' in report.profile


def test_answers_that_hold_a_failure_are_refusals() -> None:
    """Also in the middle of a stream."""

    def reply(received: ReceivedRequest) -> Reply:
        return (
            turn(text("Hel"), finish("error"))
            if received.json.get("stream") or received.json.get("tools")
            else turn(text("Hello."))
        )

    with ResponsesServer(reply) as server:
        _, found = probe(target_of(server.base_url, "responses"))
    assert (found["tools"].verdict, found["tools"].detail) == ("refused", "200 with an error in the body: scripted")
    assert found["stream"].verdict == "refused"


def test_an_answer_without_end_is_no_answer() -> None:
    endless = FakeAnswer(*[b" " * 1_000_000] * 18, headers={"content-type": "application/json"})
    with pytest.raises(ServerUnanswered, match="the answer has more than 16777216 bytes"):
        probe(target_of("http://127.0.0.1:9/v1", "chat"), FakeNetwork(completions=endless))
