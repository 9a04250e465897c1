"""Check the members of an object, in the words of the validator of the Messages API."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from antiphon.rules.report import Report, Rule, as_json


class Members(Struct, frozen=True):
    """The required members of an object, each with its type, and its optional members."""

    required: dict[str, type]
    optional: tuple[str, ...] = ()
    #: The rule that a missing member violates, and the profile settings that help.
    rule: Rule = "missing_field"
    settings: tuple[str, ...] = ()


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
    """Report a violation. The server's error begins with `path`; `exact_path` is the exact path if it differs."""
    report.add(
        rule,
        exact_path or path,
        f"{path}: {server_text}",
        problem or server_text,
        is_certain=is_certain,
        settings=settings,
    )


def check_members(value: Any, path: str, members: Members, report: Report) -> bool:
    """Return whether the value is an object with all required members; unknown members are reported only."""
    # The validator of this API names the path, then what is wrong there, in these words.
    if not isinstance(value, dict):
        refuse(report, "value", path, "Input should be a valid dictionary", f"{as_json(value)} is not an object")
        return False
    is_complete = True
    for name, kind in members.required.items():
        exact_path = f"{path}.{name}"
        if name not in value:
            problem = f"`{name}` is required"
            refuse(report, members.rule, exact_path, "Field required", problem, settings=members.settings)
            is_complete = False
        elif not isinstance(value[name], kind):
            problem = f"{as_json(value[name])} is not {'an' if kind is int else 'a'} {WORDS[kind]}"
            refuse(
                report,
                "value",
                exact_path,
                f"Input should be a valid {WORDS[kind]}",
                problem,
                settings=members.settings,
            )
            is_complete = False
    for name in value:
        # "Extra inputs are not permitted": an unknown member is refused wherever it stands, never passed over.
        if name not in members.required and name not in members.optional:
            exact_path = f"{path}.{name}"
            refuse(
                report, "unknown_field", exact_path, "Extra inputs are not permitted", "there is no such member here"
            )
    return is_complete


WORDS: Final[dict[type, str]] = {
    str: "string",
    dict: "dictionary",
    list: "list",
    int: "integer",
    bool: "boolean",
    object: "value",
}
