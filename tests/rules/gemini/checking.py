"""Check a body of the gemini dialect and return its violations: rule, path, and whether all servers refuse it."""

from __future__ import annotations

from typing import Any

from tests.rules.judging import Collected
from tests.testing.gemini.test_rules import full

from antiphon.rules.gemini import GeminiOptions, check, check_request, read_request

SCHEMA = "tools[0].function_declarations[0].parameters"


def violations(change: dict[str, Any], *, model: str = "", **options: Any) -> list[tuple[str, str, bool]]:
    report = Collected()
    if model or options:
        message = read_request(full(change), "request", GeminiOptions(**options), report)
        check_request(message.value, report, GeminiOptions(**options), model)
    else:
        check(full(change), report)
    return [(violation.rule, violation.path, violation.is_certain) for violation in report.violations]
