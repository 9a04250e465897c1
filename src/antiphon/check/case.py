"""A case: one look at a server, named after the rows it shows; and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct

from antiphon.check.findings import CheckFinding, Level, level_of
from antiphon.check.session import CaseSession

Verdict = Literal["pass", "fail", "warn", "skip"]


class CheckCase(Struct, frozen=True, kw_only=True):
    """`run` asks and looks; it finds, skips, or returns."""

    id: str
    rows: tuple[str, ...]
    title: str
    run: Callable[[CaseSession], Awaitable[None]]

    @property
    def level(self) -> Level:
        """The most that breaking it can mean."""
        return "must" if any(level_of(row) == "must" for row in self.rows) else "should"


class CaseOutcome(Struct, frozen=True, kw_only=True):
    """What came of a case: findings, or why there was nothing to see."""

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
    """Whether no `must` was broken, and anything could be seen at all."""
    verdicts = {outcome.verdict for outcome in outcomes}
    return "fail" not in verdicts and bool(verdicts & {"pass", "warn"})
