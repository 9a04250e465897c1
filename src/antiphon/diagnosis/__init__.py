"""Why a server refuses a body, in words: what stands where, what was wanted there, and which setting of a profile would mend it."""

from antiphon.diagnosis.against import lint_against
from antiphon.diagnosis.finding import Finding, Rule
from antiphon.diagnosis.lint import dialect_of, lint
from antiphon.diagnosis.refusal import diagnose, sentence

__all__ = ["Finding", "Rule", "diagnose", "dialect_of", "lint", "lint_against", "sentence"]
