"""Recognise the form of a function tool: each dialect has its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from antiphon.rules.report import Report, as_json

Form = Literal["flat", "nested", "input_schema", "declarations"]


def form_of(tool: Mapping[Any, Any]) -> Form | None:
    """Return the form in which a function is written; None for anything else."""
    if isinstance(tool.get("function"), dict) or isinstance(tool.get("custom"), dict):
        return "nested"
    if "input_schema" in tool:
        return "input_schema"
    if "functionDeclarations" in tool or "function_declarations" in tool:
        return "declarations"
    return "flat" if tool.get("type") in ("function", "custom") and "name" in tool else None


def describe_form(form: Form | None, expected: Form) -> str:
    """Describe a tool that is not in the form that a dialect wants."""
    if form is None or form == expected:
        return f"this is no tool: servers of this dialect want it {FORMS[expected]}"
    return f"this tool is {FORMS[form]}; servers of this dialect want it {FORMS[expected]}"


def check_unique_names(names: Iterable[str], message: str, report: Report) -> None:
    # Several providers: tool names must be unique.
    for name, count in Counter(names).items():
        if count > 1:
            report.add("name", "tools", message, f"{count} tools are called {as_json(name)}; each needs its own name")


MAX_TOOLS: Final = 128
FORMS: Final[dict[Form, str]] = {
    "flat": "flat, with its name and its schema beside its type",
    "nested": "nested, with its name and its schema under `function`",
    "input_schema": "with a name and an `input_schema`, and without the type `function`",
    "declarations": "in a list under `functionDeclarations`",
}
