"""The types of check cases and of their outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct

from antiphon.check.findings import CheckFinding, Level, level_of
from antiphon.check.session import CaseSession

Verdict = Literal["pass", "fail", "warn", "skip"]


class CheckCase(Struct, frozen=True, kw_only=True):
    """One check of a server for some rows. `run` reports findings to the session, or raises `SkipCase`."""

    id: str
    rows: tuple[str, ...]
    title: str
    run: Callable[[CaseSession], Awaitable[None]]

    @property
    def level(self) -> Level:
        """The highest level of the rows."""
        return "must" if any(level_of(row) == "must" for row in self.rows) else "should"


class CaseOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a case: its findings, or why it was skipped."""

    case: CheckCase
    findings: list[CheckFinding]
    skipped: str = ""
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        if any(finding.level == "must" for finding in self.findings):
            return "fail"
        if self.findings:
            return "warn"
        return "skip" if self.skipped else "pass"


def is_conformant(outcomes: list[CaseOutcome]) -> bool:
    """Whether no `must` row was violated and at least one case ran."""
    verdicts = {outcome.verdict for outcome in outcomes}
    return "fail" not in verdicts and bool(verdicts & {"pass", "warn"})
