"""Explain why a server refuses a request body: the path, the value, what is allowed there, and which profile setting
corrects it."""

from antiphon.diagnosis.finding import Finding
from antiphon.diagnosis.lint import guess_dialect, lint_body
from antiphon.diagnosis.profile_lint import lint_for_profile
from antiphon.diagnosis.refusal import diagnose, named_findings, summary_sentence
from antiphon.rules import Rule

__all__ = [
    "Finding",
    "Rule",
    "diagnose",
    "guess_dialect",
    "lint_body",
    "lint_for_profile",
    "named_findings",
    "summary_sentence",
]
