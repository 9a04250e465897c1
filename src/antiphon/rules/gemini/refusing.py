"""Report violations in the words of gemini servers."""

from __future__ import annotations

from antiphon.rules.report import Report, Rule


def refuse(
    report: Report,
    rule: Rule,
    path: str,
    server_text: str,
    problem: str = "",
    *,
    exact_path: str = "",
    is_certain: bool = True,
    settings: tuple[str, ...] = (),
) -> None:
    """Report a violation at `path`, as servers spell it; `exact_path` is the exact path if it differs."""
    message = f"* GenerateContentRequest.{path}: {server_text}\n"
    report.add(rule, exact_path or path, message, problem or server_text, is_certain=is_certain, settings=settings)
