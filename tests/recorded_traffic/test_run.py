"""Recordings of every dialect are played in all directions, and a wrong answer is noticed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.recorded_traffic import answers, requests, sdks
from tests.recorded_traffic.checks import Checker
from tests.recorded_traffic.classes import CONTENT
from tests.recorded_traffic.difference import Difference, Finding
from tests.recorded_traffic.plain import ANSWERS, STREAMS, plain_answer, plain_request
from tests.recorded_traffic.play import ClientRequest, Outcome, Player, UpstreamAnswer
from tests.recorded_traffic.recording import DIALECTS, Recording
from tests.recorded_traffic.run import MAKERS, cut_at_odd_bytes, play_recordings, profile_of

from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECT_NAMES
from antiphon.protocol.losses import Loss

#: The SDKs start a process to learn the platform.
pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


def test_every_server_dialect_has_its_readers() -> None:
    tables = [DIALECTS, answers.FOLDS, answers.WHOLE_READERS, requests.READERS, sdks.READERS, ANSWERS, STREAMS, MAKERS]
    for table in tables:
        assert set(table) == set(SERVER_DIALECT_NAMES)


def recording(dialect: ServerDialectName, *, is_stream: bool = False, host: str = "") -> Recording:
    request = plain_request(dialect, "m", is_stream=is_stream)
    answer = STREAMS[dialect] if is_stream else json.dumps(ANSWERS[dialect]).encode()
    return Recording(
        dialect=dialect,
        kind="stream" if is_stream else "whole",
        request=request.body,
        model="m",
        host=host,
        status=200,
        headers=dict(plain_answer(dialect, is_stream=is_stream).headers),
        answer=answer,
        is_stream=is_stream,
        source="own",
    )


def play(*recordings: Recording) -> list[Finding]:
    return asyncio.run(play_recordings(recordings))


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_plain_recording_keeps_its_content_in_all_directions(dialect: ServerDialectName, is_stream: bool) -> None:
    checks = {finding.difference.check for finding in play(recording(dialect, is_stream=is_stream))}
    assert checks.isdisjoint({*CONTENT, "usage", "losses", "error", "refused", "sdk", "grammar"})


def test_error_recording_is_played() -> None:
    body = b'{"error": {"message": "slow down", "type": "rate_limit", "code": "rate_limit_exceeded", "param": null}}'
    error = replace(recording("chat"), kind="error", status=429, answer=body)
    findings = play(error)
    assert {finding.difference.check for finding in findings} == {"error"}
    assert "message" not in {finding.difference.path for finding in findings}


def test_recording_without_a_request_is_played() -> None:
    assert play(replace(recording("responses"), request=None))


def test_refused_request_is_a_difference() -> None:
    request = {"model": "m", "input": "Hi", "previous_response_id": "resp_unknown"}
    differences = {str(finding.difference) for finding in play(replace(recording("responses"), request=request))}
    assert "refused responses → responses: 400 previous_response_not_found added" in differences


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("text", {"content": "Other."}),
    ("text", {"content": ""}),
    ("reasoning", {"reasoning_content": "Hm"}),
    ("calls", {"tool_calls": [{"id": "1", "function": {"name": "clock", "arguments": "{}"}}]}),
]


def outcome(body: Any, losses: list[Loss] | None = None, upstream: Any = None) -> Outcome:
    return Outcome(
        status=200,
        headers={},
        body=body if isinstance(body, bytes) else json.dumps(body).encode(),
        upstream_bodies=[json.dumps(upstream).encode()] if upstream is not None else [],
        losses=losses or [],
        events=[],
    )


@pytest.mark.parametrize(("check", "changed"), CHANGES)
def test_changed_content_is_noticed(check: str, changed: dict[str, Any]) -> None:
    checker = Checker("chat", "messages", "own")
    answer = json.loads(json.dumps(ANSWERS["chat"]))
    answer["choices"][0]["message"].update(changed)
    checker.check_content(recording("messages"), outcome(answer))
    assert check in {finding.difference.check for finding in checker.findings}


def test_changed_finish_and_usage_are_noticed() -> None:
    checker = Checker("chat", "messages", "own")
    answer = json.loads(json.dumps(ANSWERS["chat"]))
    answer["choices"][0]["finish_reason"] = "length"
    answer["usage"]["completion_tokens"] = 7
    checker.check_content(recording("messages"), outcome(answer))
    assert [str(finding.difference) for finding in checker.findings] == [
        "finish chat → messages: end length",
        "usage chat → messages: output changed",
    ]


def test_missing_seal_is_noticed() -> None:
    checker = Checker("chat", "messages", "own")
    thinking = {"type": "thinking", "thinking": "", "signature": "sealed"}
    message = {**ANSWERS["messages"], "content": [thinking, *ANSWERS["messages"]["content"]]}
    checker.check_content(replace(recording("messages"), answer=json.dumps(message).encode()), outcome(ANSWERS["chat"]))
    assert [finding.difference.check for finding in checker.findings] == ["seals"]


def test_unreported_item_is_noticed() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    message = {**ANSWERS["messages"], "content": [search, *ANSWERS["messages"]["content"]]}
    recorded = replace(recording("messages"), answer=json.dumps(message).encode())
    for losses, expected in (([], ["losses"]), ([Loss("output[0]", "an item")], [])):
        checker = Checker("chat", "messages", "own")
        checker.check_content(recorded, outcome(ANSWERS["chat"], losses))
        assert [finding.difference.check for finding in checker.findings] == expected


def test_other_result_of_small_pieces_is_noticed() -> None:
    checker = Checker("chat", "chat", "own")
    content = checker.check_content(recording("chat"), outcome(ANSWERS["chat"]))
    checker.check_cut(content, outcome(STREAMS["chat"].replace(b"Agreed.", b"Agr")))
    assert ("cut", "text") in {(each.difference.check, each.difference.path) for each in checker.findings}


def test_answer_that_the_sdk_cannot_read_is_noticed() -> None:
    checker = Checker("messages", "chat", "own")
    recorded = recording("chat", is_stream=True)
    content = checker.check_content(recorded, outcome(STREAMS["messages"]))
    broken = STREAMS["messages"].replace(b'"type": "content_block_start"', b'"type": "content_block_other"')
    checker.check_sdk(recorded, outcome(broken), content)
    assert [finding.difference.check for finding in checker.findings if finding.difference.check == "sdk"]


def test_missing_setting_must_be_reported() -> None:
    request = ClientRequest(
        dialect="messages", model="m", body={"messages": [], "top_k": 5, "max_tokens": 9}, is_stream=False
    )
    upstream = {"messages": [], "max_tokens": 9, "seed": 1}
    for losses, expected in (
        ([], ["settings.top_k", "settings.seed"]),
        ([Loss("top_k", "a setting")], ["settings.seed"]),
    ):
        checker = Checker("messages", "chat", "own")
        checker.check_asked(request, outcome({}, losses, upstream))
        assert [finding.difference.path for finding in checker.findings] == expected


def test_grammar_violations_and_exceptions_are_differences() -> None:
    checker = Checker("chat", "chat", "own")
    checker.check_log(replace(outcome({}), events=[{"event": "grammar_violation", "row": "STR-1", "message": "x"}]))
    assert checker.findings[0].difference == Difference(
        check="grammar", client="chat", server="chat", path="STR-1", change="added"
    )


def test_player_reports_what_the_upstream_received() -> None:
    async def run() -> Outcome:
        player = Player()
        try:
            answer = UpstreamAnswer(status=200, headers={}, pieces=[json.dumps(ANSWERS["chat"]).encode()])
            plain = plain_request("gemini", "m", is_stream=False)
            request = replace(plain, body={**plain.body, "tools": [{"googleSearch": {}}]})
            return await player.play(request, "chat", "chat", answer)
        finally:
            await player.close()

    result = asyncio.run(run())
    assert result.status == 200
    assert result.upstream_json is not None
    assert result.upstream_json["model"] == "m"
    assert [loss.path for loss in result.losses] == ["tools[0]"]


def test_pieces_have_an_odd_size() -> None:
    pieces = cut_at_odd_bytes(b"x" * 100_000)
    assert b"".join(pieces) == b"x" * 100_000
    assert all(len(piece) % 2 for piece in pieces[:-1])
    assert len(pieces) < 1100


@pytest.mark.parametrize(
    ("host", "dialect", "profile"),
    [
        ("api.openai.com", "responses", "openai"),
        ("api.openai.com", "chat", "chat"),
        ("some.host.example", "messages", "messages"),
        ("", "messages", "anthropic"),
        ("aiplatform.googleapis.com", "gemini", "google"),
    ],
)
def test_profile_follows_from_the_host(host: str, dialect: ServerDialectName, profile: str) -> None:
    assert profile_of(recording(dialect, host=host)) == profile
