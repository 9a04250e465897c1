"""Conclusions from findings: for every dialect, the settings that follow from what a server refuses."""

from __future__ import annotations

import tomllib
from typing import Any, get_args

import pytest

from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.probe import chat, gemini, messages, ollama, responses
from antiphon.probe.draft import ProfileDraft, Verdicts
from antiphon.probe.experiments import EXPERIMENTS
from antiphon.probe.finding import ProbeFinding, Verdict
from antiphon.probe.run import estimate_cost
from antiphon.profiles import load_profile, parse_profile

CONCLUDE = {
    "responses": responses.conclude,
    "chat": chat.conclude,
    "messages": messages.conclude,
    "gemini": gemini.conclude,
    "ollama": ollama.conclude,
}


def make_verdicts(**verdicts: Verdict) -> list[ProbeFinding]:
    return [
        ProbeFinding(id=id.replace("__", "."), title=id, verdict=verdict, detail="x")
        for id, verdict in verdicts.items()
    ]


def draft_of(dialect: str, **verdicts: Verdict) -> ProfileDraft:
    """Everything is accepted, except these."""
    steps = [step.id for step in EXPERIMENTS[dialect].steps.probe_steps("parts")]  # type: ignore[index]
    best: dict[str, Verdict] = {id.replace(".", "__"): "accepted" for id in steps}
    return CONCLUDE[dialect](Verdicts(make_verdicts(**{**best, **verdicts})))


@pytest.mark.parametrize(
    ("verdicts", "quirks"),
    [
        (
            {"developer": "refused", "system": "refused"},
            ["developer_as_system", {"name": "system_to_instructions", "move": "all"}],
        ),
        (
            {"system": "refused", "instructions": "ignored"},
            [{"name": "instructions_to_system", "role": "developer"}, "system_as_developer"],
        ),
        ({"calls__paired": "refused"}, ["tool_results_in_user_messages"]),
        ({"calls__paired": "refused", "calls__blocks": "refused"}, ["tool_history_as_text"]),
        ({"image": "ignored", "file": "refused"}, ["media_as_notes"]),
        ({"image": "ignored"}, ["images_as_notes"]),
        ({"file": "down"}, ["files_as_notes"]),
        ({"item__ids": "refused", "item__cache_control": "refused"}, ["drop_item_ids", "strip_cache_control"]),
        ({"reasoning__summary": "refused"}, ["open_reasoning"]),
        ({"reasoning__content": "refused"}, ["drop_reasoning"]),
        ({"user__string": "refused"}, ["strings_as_parts"]),
        (
            {"user__string": "refused", "assistant__output_text": "refused"},
            ["assistant_as_string", {"name": "strings_as_parts", "roles": ["user", "system", "developer"]}],
        ),
        ({"system__middle": "refused"}, [{"name": "system_to_instructions", "move": "all"}]),
    ],
    ids=str,
)
def test_conclusions_name_quirks_for_responses_servers(verdicts: dict[str, Verdict], quirks: list[Any]) -> None:
    """D-4, D-1: in an order in which each leaves work to the others."""
    assert draft_of("responses", **verdicts).quirks == quirks


@pytest.mark.parametrize(
    ("dialect", "verdicts", "wire"),
    [
        (
            "responses",
            {"assistant__output_text": "refused", "assistant__string": "refused"},
            {"assistant_content": "input_text"},
        ),
        ("responses", {"tools__required": "refused", "tools__named": "refused"}, {"lacks": ["tool_choice"]}),
        ("responses", {"effort__low": "refused", "format__schema": "ignored"}, {"lacks": ["reasoning", "text.format"]}),
        (
            "responses",
            {"cut": "ignored", "item__status": "refused", "item__phase": "refused"},
            {"cut": "by_usage", "phase": "drop"},
        ),
        (
            "chat",
            {"calls__null": "refused", "calls__paired": "refused", "calls__absent": "refused"},
            {"reasoning_field": "reasoning_content"},
        ),
        (
            "chat",
            {
                "calls__null": "refused",
                "calls__paired": "refused",
                "calls__absent": "refused",
                "calls__reasoning": "refused",
            },
            {"reasoning_field": "reasoning", "reasoning_history": "all"},
        ),
        ("chat", {"tools": "ignored", "tools__strict": "refused"}, {"free_tools": False, "strict_tools": False}),
        ("chat", {"format__schema": "refused", "format__json": "refused"}, {"json_output": "none"}),
        (
            "chat",
            {"format__schema": "refused", "tools__required": "ignored"},
            {"json_output": "json_object", "forced_tools": "none"},
        ),
        ("messages", {"format__output_config": "refused"}, {"json_output": "output_format"}),
        ("messages", {"thinking__adaptive": "refused", "thinking__budget": "refused"}, {"thinking": "none"}),
        (
            "gemini",
            {"calls__ids": "refused", "thinking__level": "refused", "thinking__budget": "refused"},
            {"thinking": "none"},
        ),
        ("gemini", {"format__schema": "refused"}, {"schemas": "openapi"}),
        ("gemini", {"format__schema": "refused", "format__openapi": "refused"}, {"json_output": "json_object"}),
        ("gemini", {"tools": "refused"}, {"schemas": "openapi"}),
        ("gemini", {"thinking__level": "refused", "counts": "refused"}, {"counts_tokens": False}),
    ],
    ids=str,
)
def test_conclusions_name_wire_options_for_every_dialect(
    dialect: str, verdicts: dict[str, Verdict], wire: dict[str, Any]
) -> None:
    """D-4."""
    assert wire.items() <= draft_of(dialect, **verdicts).wire.items()


@pytest.mark.parametrize(
    ("dialect", "verdicts", "quirk"),
    [
        (
            "chat",
            {
                "calls__null": "refused",
                "calls__paired": "refused",
                "calls__absent": "refused",
                "calls__reasoning": "refused",
                "calls__thought": "refused",
            },
            "tool_history_as_text",
        ),
        ("messages", {"calls__paired": "refused"}, "tool_history_as_text"),
        ("gemini", {"calls__paired": "refused", "calls__ids": "refused"}, "tool_history_as_text"),
        ("gemini", {"image": "refused", "file": "refused"}, "media_as_notes"),
        ("gemini", {"image": "refused"}, "images_as_notes"),
        ("gemini", {"file": "refused"}, "files_as_notes"),
    ],
    ids=str,
)
def test_conclusions_name_quirks_for_other_dialects(dialect: str, verdicts: dict[str, Verdict], quirk: str) -> None:
    """D-4, D-2."""
    assert draft_of(dialect, **verdicts).quirks == [quirk]


@pytest.mark.parametrize("dialect", CONCLUDE)
@pytest.mark.parametrize("verdict", ["accepted", "ignored", "refused", "down", "untried"])
def test_profile_of_any_findings_loads(dialect: ServerDialectName, verdict: Verdict) -> None:
    """D-4: also for a server that accepts nothing."""
    ids = [step.id for step in EXPERIMENTS[dialect].steps.probe_steps("parts")]
    names = getattr(EXPERIMENTS[dialect].steps, "FIELDS", {})
    findings = [
        ProbeFinding(id=id, title=id, verdict=verdict, detail='"\x00\n' + id)
        for id in (*ids, *(f"field.{name}" for name in names))
    ]
    text = CONCLUDE[dialect](Verdicts(findings)).toml('odd "words"\x00 here; facts from a test.', findings)
    profile = parse_profile(text, "probed", find_parent=load_profile)
    assert profile.dialect == dialect
    assert isinstance(profile.wire, SERVER_DIALECTS[dialect].wire_type)
    assert tomllib.loads(text)["about"] == 'odd "words"  here; facts from a test.'


def test_profile_without_findings_has_no_settings() -> None:
    assert CONCLUDE["responses"](Verdicts()).toml("x", []) == 'about = "x"\nextends = "open-responses"\n'


@pytest.mark.parametrize("dialect", get_args(ServerDialectName))
def test_estimate_cost_bounds_the_requests(dialect: ServerDialectName) -> None:
    """D-4."""
    cost = estimate_cost(dialect)
    assert 30 < cost.min_requests < cost.max_requests < 140
    assert 1_000 < cost.tokens_in < 20_000
    assert 500 < cost.tokens_out < 5_000
