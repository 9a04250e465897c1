"""The cases: a good server passes them all, and each case finds a server that is broken in its way, by the row it
names."""

from __future__ import annotations

from typing import Any

import pytest
from tests.check.broken import BROKEN, MORE, events, refuses, serves, whole
from tests.check.servers import KEY, Break, JudgedServer, ServerAnswer, check
from tests.running import running

from antiphon.check.case import CaseOutcome, is_conformant
from antiphon.check.catalogue import CASES, CASES_BY_ID
from antiphon.check.findings import level_of
from antiphon.config import Config, KeyConfig, UpstreamConfig
from antiphon.testing import ChatServer, ResponsesServer

pytestmark = pytest.mark.io
# What no server here does: fail in the middle of a stream, refuse or cite, store responses.
NOT_TO_BE_SEEN = {"stream.errors", "stream.annotations", "previous.chain"}


def _messages_by_case(outcomes: dict[str, CaseOutcome], verdict: str) -> dict[str, list[str]]:
    matches = [outcome for outcome in outcomes.values() if outcome.verdict == verdict]
    return {outcome.case.id: [f"{each.row}: {each.message}" for each in outcome.findings] for outcome in matches}


def test_cases_have_unique_ids_titles_and_rows() -> None:
    assert len(CASES) >= 40
    assert len(CASES_BY_ID) == len(CASES)
    assert all(case.rows and case.title for case in CASES)


def test_good_server_passes_every_applicable_case() -> None:
    with JudgedServer(key=KEY) as server:
        outcomes = check(server.base_url, key=KEY)
    assert _messages_by_case(outcomes, "fail") | _messages_by_case(outcomes, "warn") == {}
    assert set(_messages_by_case(outcomes, "skip")) == NOT_TO_BE_SEEN
    assert is_conformant(list(outcomes.values()))


def test_gateway_over_a_chat_server_passes_every_applicable_case() -> None:
    """B-10. HTTP-1 to HTTP-6, STR-1 to STR-14, ERR-1 to ERR-3 and the rest, seen from outside."""
    with ChatServer() as upstream:
        lab = UpstreamConfig(name="lab", dialect="chat", base_url=upstream.base_url, models=["mock-1"])
        config = Config(upstreams=[lab], keys=[KeyConfig(name="alice", env="ALICE")])
        with running(config, environ={"ALICE": KEY}) as gateway:
            outcomes = check(f"{gateway.url}/v1", key=KEY)
        assert not upstream.refusals
    assert _messages_by_case(outcomes, "fail") | _messages_by_case(outcomes, "warn") == {}
    assert set(_messages_by_case(outcomes, "skip")) == NOT_TO_BE_SEEN


def test_server_with_older_error_names_fails_only_those_rows() -> None:
    """ERR-2; and HTTP-8, which is a warning."""
    with ResponsesServer(models=["mock-1"]) as server:
        outcomes = check(server.base_url)
    assert set(_messages_by_case(outcomes, "fail")) == {"error.type", "error.unknown-model"}
    assert set(_messages_by_case(outcomes, "warn")) == {"http.request-id", "stream.obfuscation"}
    assert {"http.wrong-key", "http.no-key"} <= set(_messages_by_case(outcomes, "skip"))


def _renames_reasoning(name: str, text: str | None = None) -> Break:
    """Writes reasoning events under `name`, and `text` in the last of them."""

    def rename(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for frame in frames:
            start, _, end = frame["type"].rpartition(".")
            if start in ("response.reasoning", "response.reasoning_text"):
                frame["type"] = f"{name}.{end}"
                frame.update({"text": text} if text is not None and end == "done" else {})
        return frames

    return events(rename)


@pytest.mark.parametrize("name", ["response.reasoning", "response.reasoning_text"])
def test_case_stream_reasoning_accepts_both_names(name: str) -> None:
    """STR-10; and reasoning must follow STR-6 under either name."""
    ids = ["stream.reasoning", "stream.deltas", "stream.items"]
    with JudgedServer(_renames_reasoning(name)) as server:
        outcomes = check(server.base_url, ids, model="mock-1")
    assert [(outcome.verdict, outcome.findings) for outcome in outcomes.values()] == [("pass", [])] * 3
    with JudgedServer(_renames_reasoning(name, text="something else")) as server:
        outcomes = check(server.base_url, ids, model="mock-1")
    assert outcomes["stream.deltas"].verdict == "fail"


def test_every_case_has_a_broken_server() -> None:
    assert set(BROKEN) == set(CASES_BY_ID)


@pytest.mark.parametrize("id", BROKEN)
def test_case_fails_for_its_broken_server(id: str) -> None:
    breaks, row = BROKEN[id]
    with JudgedServer(breaks, key=KEY) as server:
        outcome = check(server.base_url, [id], key=KEY, model="mock-1")[id]
    assert row in outcome.case.rows
    assert outcome.verdict == ("fail" if level_of(row) == "must" else "warn"), outcome
    assert {finding.row for finding in outcome.findings} <= set(outcome.case.rows)
    assert any(finding.row == row and finding.sent and finding.received for finding in outcome.findings), (
        outcome.findings
    )


@pytest.mark.parametrize(("id", "breaks", "row", "words"), MORE)
def test_case_checks_every_aspect_of_its_row(id: str, breaks: Break, row: str, words: str) -> None:
    with JudgedServer(breaks) as server:
        outcome = check(server.base_url, [id], model="mock-1")[id]
    assert [finding for finding in outcome.findings if finding.row == row and words in finding.message], outcome


def _turns_without_calls(exchange: ServerAnswer) -> None:
    if exchange.is_turn and not exchange.is_stream:
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []}
        exchange.json = {**exchange.json, "output": [message]}
    elif exchange.is_turn:
        empty = [
            frame
            for frame in exchange.frames
            if frame["type"] in ("response.created", "response.in_progress", "response.completed")
        ]
        for frame in empty:
            frame["response"]["output"] = []
        exchange.frames = empty


def _ends_in_time(exchange: ServerAnswer) -> None:
    """A model that accepts everything."""
    if exchange.is_turn and not exchange.is_stream:
        exchange.json = {
            **exchange.json,
            "status": "completed",
            "usage": {**exchange.json["usage"], "output_tokens": 3},
        }
    elif exchange.is_turn:
        frames = exchange.frames
        frames[-1]["type"] = "response.completed"
        frames[-1]["response"]["usage"]["output_tokens"] = 3
        exchange.frames = frames


def _honest_refusal(exchange: ServerAnswer) -> None:
    if exchange.is_turn:
        exchange.status, exchange.headers["content-type"] = 400, "application/json"
        exchange.json = {
            "error": {"type": "invalid_request", "code": "unsupported", "message": "not here", "param": None}
        }


def _fails_forbidden_calls(exchange: ServerAnswer) -> None:
    if exchange.is_turn:
        exchange.status = 500
        exchange.json = {"error": {"type": "model_error", "code": "tool_not_allowed", "message": "no", "param": None}}


@pytest.mark.parametrize(
    ("id", "breaks", "why"),
    [
        ("stream.tool-call", _turns_without_calls, "called no tool"),
        ("stream.two-calls", _turns_without_calls, "two tool calls"),
        ("stream.reasoning", _turns_without_calls, "no reasoning"),
        ("stream.logprobs", _turns_without_calls, "no logprobs"),
        ("stream.incomplete", _ends_in_time, "ended before"),
        ("output.incomplete", _ends_in_time, "ended before"),
        ("input.calls-back", _turns_without_calls, "called no tool"),
        ("reasoning.kept", _turns_without_calls, "no reasoning"),
        ("tools.required", _turns_without_calls, "called no tool"),
        ("tools.named", _turns_without_calls, "called no tool"),
        ("tools.one-at-a-time", _turns_without_calls, "called no tool"),
        ("tools.none", _honest_refusal, "refuses this tool_choice: not here"),
        ("input.image", _honest_refusal, "refuses images: not here"),
        ("stream.tool-call", _honest_refusal, "refuses tools: not here"),
    ],
)
def test_case_is_skipped_if_the_model_does_not_show_the_behaviour(id: str, breaks: Break, why: str) -> None:
    with JudgedServer(breaks) as server:
        outcome = check(server.base_url, [id], model="mock-1")[id]
    assert (outcome.verdict, outcome.findings) == ("skip", [])
    assert why in outcome.skipped


def test_unknown_model_case_is_skipped_if_any_model_is_accepted() -> None:
    with JudgedServer(models=None) as server:
        outcome = check(server.base_url, ["error.unknown-model"])["error.unknown-model"]
    assert outcome.verdict == "skip"


def test_allowed_tools_case_accepts_a_failed_turn() -> None:
    """TOOL-3"""
    with JudgedServer(_fails_forbidden_calls) as server:
        assert check(server.base_url, ["tools.allowed"], model="mock-1")["tools.allowed"].verdict == "pass"


def test_unknown_model_case_accepts_status_400() -> None:
    def breaks(exchange: ServerAnswer) -> None:
        if exchange.status == 404:
            exchange.status = 400
            exchange.json = {"error": {**exchange.json["error"], "type": "invalid_request"}}

    with JudgedServer(breaks) as server:
        assert check(server.base_url, ["error.unknown-model"])["error.unknown-model"].verdict == "pass"


def test_chain_case_passes_for_a_server_that_continues_chains() -> None:
    """PREV-1"""

    def keeps(exchange: ServerAnswer) -> None:
        serves(exchange)
        if exchange.is_turn and not exchange.is_stream:
            exchange.json = {**exchange.json, "previous_response_id": exchange.request.json.get("previous_response_id")}

    with JudgedServer(keeps) as server:
        assert check(server.base_url, ["previous.chain"], model="mock-1")["previous.chain"].verdict == "pass"


def test_incomplete_case_accepts_items_that_ended_before_the_cut() -> None:
    """ITEM-3"""

    def thinks_first(body: dict[str, Any]) -> None:
        body["output"].insert(0, {"type": "reasoning", "id": "rs_1", "summary": [], "status": "completed"})

    with JudgedServer(whole(thinks_first)) as server:
        assert check(server.base_url, ["output.incomplete"], model="mock-1")["output.incomplete"].verdict == "pass"


def test_reasoning_cases_accept_reasoning_in_sealed_form_only() -> None:
    """RSN-1, RSN-2: a client that does not request it gets an empty item, by whose id the server finds it again."""

    def seals(exchange: ServerAnswer) -> None:
        if exchange.is_turn and not exchange.is_stream:
            body = exchange.json
            is_asked_for = "reasoning.encrypted_content" in (exchange.request.json.get("include") or [])
            for item in body["output"]:
                if item["type"] == "reasoning":
                    item.update(content=[], summary=[], **({"encrypted_content": "c2VhbGVk"} if is_asked_for else {}))
            exchange.json = body

    with JudgedServer(seals) as server:
        outcomes = check(server.base_url, ["reasoning.kept", "reasoning.encrypted"], model="mock-1")
    assert [outcome.verdict for outcome in outcomes.values()] == ["pass", "pass"]


def test_same_response_case_reads_the_last_event_with_a_response() -> None:
    """STR-14, whatever comes after it under STR-7."""
    ping = {"type": "acme:ping", "sequence_number": 99}
    with JudgedServer(events(lambda frames: [*frames, ping])) as server:
        outcomes = check(server.base_url, ["stream.same-response", "stream.one-end"], model="mock-1")
    assert [outcome.verdict for outcome in outcomes.values()] == ["pass", "fail"]


def test_refused_turns_are_not_checked_as_answers() -> None:
    with JudgedServer(refuses(lambda request: "tools" in request)) as server:
        ids = ["http.whole-answer", "http.stream", "output.items", "usage.whole", "stream.errors"]
        outcomes = check(server.base_url, ids, model="mock-1")
    assert [outcome.verdict for outcome in outcomes.values()] == ["pass", "pass", "pass", "pass", "skip"]
