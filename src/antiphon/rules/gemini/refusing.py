"""Report violations in the words of gemini servers."""

from __future__ import annotations

from antiphon.rules.report import Report, Rule


def refuse(
    report: Report,
    rule: Rule,
    path: str,
    wrong: str,
    problem: str = "",
    *,
    place: str = "",
    certain: bool = True,
    settings: tuple[str, ...] = (),
) -> None:
    """Report a violation at `path`, as servers spell it; `place` is the exact path if it differs."""
    message = f"* GenerateContentRequest.{path}: {wrong}\n"
    report.add(rule, place or path, message, problem or wrong, certain=certain, settings=settings)
