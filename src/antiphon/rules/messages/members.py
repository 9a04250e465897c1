"""Check the members of an object, in the words of the validator of the Messages API."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from antiphon.rules.report import Report, Rule, as_json


class Members(Struct, frozen=True):
    """The required members of an object, each with its type, and its optional members."""

    must: dict[str, type]
    may: tuple[str, ...] = ()
    #: The rule that a missing member violates, and the profile settings that help.
    rule: Rule = "missing_field"
    settings: tuple[str, ...] = ()


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
    """Report a violation. The server's error begins with `path`; `place` is the exact path if it differs."""
    report.add(rule, place or path, f"{path}: {wrong}", problem or wrong, certain=certain, settings=settings)


def check_members(value: Any, path: str, members: Members, report: Report) -> bool:
    """Return whether the value is an object with all required members; unknown members are reported only."""
    # The validator of this API names the path, then what is wrong there, in these words.
    if not isinstance(value, dict):
        refuse(report, "value", path, "Input should be a valid dictionary", f"{as_json(value)} is not an object")
        return False
    is_complete = True
    for name, kind in members.must.items():
        place = f"{path}.{name}"
        if name not in value:
            problem = f"`{name}` is required"
            refuse(report, members.rule, place, "Field required", problem, settings=members.settings)
            is_complete = False
        elif not isinstance(value[name], kind):
            problem = f"{as_json(value[name])} is not {'an' if kind is int else 'a'} {WORDS[kind]}"
            refuse(report, "value", place, f"Input should be a valid {WORDS[kind]}", problem, settings=members.settings)
            is_complete = False
    for name in value:
        # "Extra inputs are not permitted": an unknown member is refused wherever it stands, never passed over.
        if name not in members.must and name not in members.may:
            place = f"{path}.{name}"
            refuse(report, "unknown_field", place, "Extra inputs are not permitted", "there is no such member here")
    return is_complete


WORDS: Final[dict[type, str]] = {
    str: "string",
    dict: "dictionary",
    list: "list",
    int: "integer",
    bool: "boolean",
    object: "value",
}
