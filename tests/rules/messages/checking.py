"""Check a body of the Messages API and return its violations: the rule, the path, and whether all servers refuse it."""

from __future__ import annotations

from typing import Any

from tests.rules.judging import Collected
from tests.testing.messages.test_rules import full

from antiphon.rules import messages
from antiphon.rules.messages import MessagesOptions


def violations(
    change: dict[str, Any], *, is_newest: bool = False, is_count: bool = False, betas: str = "", **options: Any
) -> list[tuple[str, str, bool]]:
    report = Collected()
    messages.check(
        full(change), report, MessagesOptions(**options), is_newest=is_newest, is_count=is_count, betas=betas
    )
    return [(violation.rule, violation.path, violation.is_certain) for violation in report.violations]
