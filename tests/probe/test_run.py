"""Whole runs: hidden constraints are found, and with the written profile the gateway works with the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.probe.probe_runs import make_target, run_probe
from tests.probe.scenarios import Writes, play
from tests.probe.servers import CONSTRAINTS, VERCEL, Constraint, drawn, server_of, vercel
from tests.running import one_upstream, running

from antiphon.dialects.dialect import ServerDialectName
from antiphon.profiles import load_profile
from antiphon.testing.harness import FakeServer

pytestmark = pytest.mark.io
Server = tuple[ServerDialectName, list[Constraint], Callable[[], FakeServer]]


def _drawn(dialect: ServerDialectName, seed: int) -> Server:
    constraints = drawn(dialect, seed)
    return dialect, constraints, lambda: server_of(dialect, constraints)


SEVEN: Final[dict[str, Server]] = {
    "the published one": ("responses", VERCEL, vercel),
    "responses 1": _drawn("responses", 1),
    "responses 2": _drawn("responses", 2),
    "chat 1": _drawn("chat", 1),
    "chat 2": _drawn("chat", 2),
    "messages 1": _drawn("messages", 1),
    "messages 2": _drawn("messages", 2),
}


@pytest.mark.parametrize("name", SEVEN)
def test_hidden_constraints_are_found_and_the_profile_makes_the_gateway_work(name: str, tmp_path: Path) -> None:
    """D-4, D-1: the profile loads, and every scenario passes without a refusal by the server."""
    dialect, constraints, make = SEVEN[name]
    with make() as server:
        report, findings = run_probe(make_target(server.base_url, dialect))
        shown = {id: findings[id].verdict for each in constraints for id in each.shows}
        assert shown == {id: verdict for each in constraints for id, verdict in each.shows.items()}
        assert {
            id: each.detail for id, each in findings.items() if id.startswith("proof.") and each.verdict != "accepted"
        } == {}
        file = tmp_path / "probed.toml"
        file.write_text(report.profile, encoding="utf-8")
        assert load_profile(file).dialect == dialect
        server.refusals.clear()
        with running(one_upstream(server.base_url, dialect=dialect, profile=str(file))) as gateway:
            play(gateway, _writes(constraints))
        assert [refusal.body for refusal in server.refusals] == []


def _writes(constraints: list[Constraint]) -> Writes:
    names = {each.name for each in constraints}
    if "no schemas" in names:
        return "any JSON"
    return "text" if names & {"no formats", "formats are forgotten"} else "JSON by a schema"


@pytest.mark.parametrize("dialect", CONSTRAINTS)
def test_every_constraint_is_drawn_by_some_seed(dialect: ServerDialectName) -> None:
    """So that other seeds give other servers."""
    seen = {each.name for seed in range(40) for each in drawn(dialect, seed)}
    assert seen == {each.name for each in CONSTRAINTS[dialect]}


def test_nine_payloads_have_the_verdicts_of_the_published_table() -> None:
    """D-4, D-1: in its order, and before everything else except the name of the limit."""
    with vercel() as server:
        report, findings = run_probe(make_target(server.base_url, "responses"))
    first = [finding.id for finding in report.findings if not finding.id.startswith("limit.")][:9]
    assert {id: findings[id].verdict for id in first} == {
        "minimal": "accepted",
        "developer": "accepted",
        "tools": "accepted",
        "assistant.string": "accepted",
        "assistant.output_text": "refused",
        "calls.paired": "refused",
        "result.alone": "refused",
        "result.after-text": "refused",
        "calls.as-text": "accepted",
    }
    evidence = findings["result.alone"].evidence
    assert evidence is not None
    assert (evidence.request, evidence.status) == ("POST /responses", 500)
    assert "exceeds the number of toolUse blocks" in evidence.excerpt
    assert evidence.body["input"][1]["type"] == "function_call_output"
