"""How cases call a server: equal requests are sent once, faults are described, findings contain no key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import msgspec
import pytest
from tests.check.servers import KEY, JudgedServer, ServerAnswer, check
from tests.cli.network import FakeAnswer, FakeNetwork

from antiphon.check.case import CaseOutcome, CheckCase, is_conformant
from antiphon.check.exchange import CheckExchange
from antiphon.check.findings import CheckFinding, Flaw, SkipCase, excerpt, format_value
from antiphon.check.run import first_model, run_cases
from antiphon.check.session import CaseSession, CheckedServer, CheckTarget, NoAnswer, describe_fault
from antiphon.config import Timeouts
from antiphon.errors import UpstreamFault

TARGET = CheckTarget(base_url="http://judged.example/v1", model="mock-1", key=KEY)
JSON = {"content-type": "application/json"}
CUT = UpstreamFault("cut", code="upstream_disconnected")


class Endless:
    """An answer that never ends until it is aborted."""

    status = 200
    headers: Mapping[str, str] = JSON

    def __init__(self) -> None:
        self.aborted = False

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            yield b"x" * (8 * 1024 * 1024)

    def abort(self) -> None:
        self.aborted = True


class EndlessNetwork:
    def __init__(self) -> None:
        self.answer = Endless()

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts) -> Endless:
        del method, url, headers, body, timeouts
        return self.answer

    async def close(self) -> None: ...


@pytest.mark.io
def test_equal_requests_are_sent_once() -> None:
    with JudgedServer() as server:
        check(server.base_url, ["stream.numbers", "stream.deltas", "http.done", "stream.one-end"], model="mock-1")
        bodies = [received.body for received in server.received if received.method == "POST"]
    assert len(bodies) == len(set(bodies)) == 7


@pytest.mark.io
def test_requests_carry_the_key_and_findings_do_not() -> None:
    def echoes_the_key(exchange: ServerAnswer) -> None:
        if exchange.status == 415:
            exchange.status = 400
            exchange.json = {
                "error": {**exchange.json["error"], "message": f"bad {exchange.request.headers['authorization']}"}
            }

    with JudgedServer(echoes_the_key, key=KEY) as server:
        outcome = check(server.base_url, ["http.content-type"], key=KEY)["http.content-type"]
        assert all(received.headers["authorization"] == f"Bearer {KEY}" for received in server.received)
    assert "[key]" in outcome.findings[0].received
    assert KEY not in repr(outcome.findings)


def test_missing_answer_is_a_finding_with_the_sent_request() -> None:
    async def asks(session: CaseSession) -> None:
        await session.post({"input": "hi"})

    case = CheckCase(id="x", rows=("HTTP-1",), title="x", run=asks)
    network = CheckedServer(TARGET, FakeNetwork(responses=CUT))
    [outcome] = asyncio.run(run_cases(network, [case], lambda outcome: outcome))
    [finding] = outcome.findings
    assert "the server closed the connection" in finding.message
    assert '"input":"hi"' in finding.sent


def test_truncated_body_is_recorded_up_to_the_cut() -> None:
    async def ask() -> CheckExchange:
        network = CheckedServer(TARGET, FakeNetwork(responses=FakeAnswer(b'{"id":', CUT, headers=JSON)))
        return await network.exchange("POST", "/responses", b"{}")

    exchange = asyncio.run(ask())
    assert (exchange.body, exchange.response) == (b'{"id":', None)
    assert "closed the connection" in exchange.answer_summary


def test_endless_body_is_aborted() -> None:
    network = EndlessNetwork()
    exchange = asyncio.run(CheckedServer(TARGET, network).exchange("GET", "/models"))
    assert "more than" in exchange.incomplete_reason
    assert network.answer.aborted


@pytest.mark.parametrize(
    ("answer", "model"),
    [
        (FakeAnswer(b'{"data":[{"id":"a"},{"id":"b"}]}'), "a"),
        (FakeAnswer(b'{"data":[]}'), None),
        (FakeAnswer(b'{"data":[{"name":"a"}]}'), None),
        (FakeAnswer(b"nothing"), None),
        (FakeAnswer(b'{"data":[{"id":"a"}]}', status=404), None),
    ],
)
def test_first_model_is_the_first_listed_model(answer: FakeAnswer, model: str | None) -> None:
    assert asyncio.run(first_model(CheckedServer(TARGET, FakeNetwork(models=answer)))) == model


def test_first_model_raises_without_a_server() -> None:
    network = CheckedServer(TARGET, FakeNetwork(models=UpstreamFault("no", code="upstream_unavailable")))
    with pytest.raises(NoAnswer, match="cannot be reached"):
        asyncio.run(first_model(network))
    assert describe_fault(UpstreamFault("no", code="upstream_invalid_response")) == "the server's answer is not HTTP"


def test_session_reports_equal_findings_once() -> None:
    session = CaseSession(CheckedServer(TARGET, FakeNetwork()), "HTTP-1")
    session.report("no")
    session.report("no")
    session.report("no", row="HTTP-2")
    session.report_flaws([Flaw("HTTP-1", "no")], CheckExchange("", 200, {}, b""))
    assert [finding.row for finding in session.findings] == ["HTTP-1", "HTTP-2"]


def test_verdict_follows_from_the_level_of_the_rows() -> None:
    async def skip(session: CaseSession) -> None:
        raise SkipCase(session.row)

    case = CheckCase(id="x", rows=("HTTP-5", "HTTP-8"), title="x", run=skip)
    must, should = CheckFinding(row="HTTP-1", message=""), CheckFinding(row="HTTP-5", message="")
    outcomes = [
        CaseOutcome(case=case, findings=[should, must], skipped="x"),
        CaseOutcome(case=case, findings=[should]),
        CaseOutcome(case=case, findings=[], skipped="x"),
        CaseOutcome(case=case, findings=[]),
    ]
    assert [outcome.verdict for outcome in outcomes] == ["fail", "warn", "skip", "pass"]
    assert [is_conformant([outcome]) for outcome in outcomes] == [False, True, False, True]
    assert (case.level, msgspec.structs.replace(case, rows=("HTTP-5", "HTTP-1")).level) == ("should", "must")


def test_exchange_without_json_has_no_output_and_no_error() -> None:
    exchange = CheckExchange("GET /", 200, {"content-type": "text/html; charset=utf-8"}, b"<html>")
    assert (exchange.json, exchange.output, exchange.error, exchange.error_field("code")) == ({}, [], None, None)
    assert exchange.answer_summary == "200 text/html: <html>"
    assert CheckExchange("", 200, {}, b"[]").answer_summary == "200 without a content type: []"
    assert CheckExchange("", 200, {}, b'{"output":[1,{"a":2}],"error":"x"}').output == [{"a": 2}]
    assert CheckExchange("", 200, {}, b'{"output":5,"error":"x"}').error_field("code") is None


def test_excerpts_are_short_and_on_one_line() -> None:
    assert excerpt("a\n b") == "a b"
    assert excerpt(b"\xff" + b"x" * 10, 5) == "\ufffdxxxx…"
    assert excerpt(" " * 700 + "x", 300).endswith("…")
    assert format_value({"a": 1}) == '{"a":1}'
