"""Rules that chat and responses servers share: the model, known fields, types and ranges of settings, names, metadata.

The comment of each rule names what it copies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from antiphon.protocol.suggestions import did_you_mean
from antiphon.rules.report import Report, as_json


class Range(Struct, frozen=True):
    """An inclusive range of numbers; only integers unless `allows_fraction`."""

    minimum: float
    maximum: float
    allows_fraction: bool = False
    #: Whether every server has these limits.
    is_certain: bool = True

    def has_type_of(self, value: Any) -> bool:
        """Return whether the value is a number of the right kind."""
        return not isinstance(value, bool) and isinstance(value, int | float if self.allows_fraction else int)

    def contains(self, value: float) -> bool:
        return self.minimum <= value <= self.maximum


#: A range of numbers, a type, or a choice of words.
Setting = Range | type | tuple[str, ...]


def check_model(body: dict[str, Any], report: Report) -> None:
    # Every provider: `model` is required.
    if not isinstance(body.get("model"), str) or not body["model"]:
        report.add(
            "missing_field",
            "model",
            "you must provide a model parameter",
            "a request names its model",
            code="missing_required_parameter",
        )


def check_fields(body: dict[str, Any], field_names: Collection[str], report: Report) -> None:
    # The stricter providers: "unrecognized request argument", or a validation error of forbidden extra fields.
    for name in islice((name for name in body if name not in field_names), MAX_UNKNOWN_FIELDS):
        report.add(
            "unknown_field",
            name,
            f"unrecognized request argument: {name}",
            f"strict servers of this dialect do not know this field{did_you_mean(name, field_names)}",
            code="unknown_parameter",
            is_certain=False,
        )


def check_settings(
    settings: dict[str, Any], expected_settings: Mapping[str, Setting], report: Report, parent: str = ""
) -> None:
    """Check the type and the range of every known setting that is present and not null."""
    # Providers validate settings before use: a number as a string, or one out of its range, is a 400 that names it.
    for name, expected in expected_settings.items():
        value, path = settings.get(name), f"{parent}{name}"
        if value is None:
            continue
        if isinstance(expected, Range):
            _check_range(value, expected, name, path, report)
        elif isinstance(expected, tuple):
            if value not in expected:
                # Some servers have words of their own.
                message = f"{name} is {value!r}, not one of {', '.join(expected)}"
                problem = f"{as_json(value)} is not one of {', '.join(expected)}"
                report.add("value", path, message, problem, param=name, is_certain=not isinstance(value, str))
        elif not isinstance(value, expected):
            message = f"{name} is {value!r}, not of type {expected.__name__}"
            problem = f"{as_json(value)} is not {TYPE_WORDS[expected]}"
            report.add("value", path, message, problem, param=name, code="invalid_type")


def check_user(body: dict[str, Any], report: Report) -> None:
    # "Invalid 'user': string too long. Expected a string with maximum length 64".
    user = body.get("user")
    if isinstance(user, str) and len(user) > MAX_USER_LENGTH:
        report.add(
            "value",
            "user",
            "the user's name is longer than 64 characters",
            f"the user has {len(user)} characters; some servers allow {MAX_USER_LENGTH}",
            code="string_above_max_length",
            is_certain=False,
            settings=("quirks: shorten_user",),
        )


def check_metadata(body: dict[str, Any], report: Report) -> None:
    # Chat and responses alike: at most 16 pairs, keys of at most 64 characters, string values of at most 512.
    metadata = body.get("metadata")
    if metadata is None:
        return
    if not isinstance(metadata, dict) or len(metadata) > MAX_METADATA_PAIRS:
        report.add("value", "metadata", "metadata is an object of at most 16 pairs")
        return
    for key, value in metadata.items():
        if len(key) > 64 or not isinstance(value, str) or len(value) > 512:
            message = "metadata keys have at most 64 characters, values are strings of at most 512"
            report.add("value", f"metadata.{key}", message)


def check_name(name: Any, path: str, report: Report) -> bool:
    """Check the name of a tool or format; return whether it is valid."""
    # 1 to 64 letters, digits, underscores and dashes; anything else is a 400 with the pattern.
    if isinstance(name, str) and NAME_PATTERN.fullmatch(name):
        return True
    message = f"{name!r} does not match {NAME_PATTERN.pattern}"
    if name is None:
        report.add("missing_field", path, message, "a name is required")
    else:
        report.add("name", path, message, f"{as_json(name)} is not a valid name: expected {NAME_PATTERN.pattern}")
    return False


def check_mentions_json(texts: list[str], path: str, report: Report) -> None:
    # JSON mode: the word "json" must stand somewhere in the messages, or the model may write blanks for ever.
    if not any("json" in text.lower() for text in texts):
        message = "the messages must contain the word 'json' in some form"
        problem = "some servers take the format `json_object` only if the messages contain the word 'json'"
        report.add("combination", path, message, problem, is_certain=False)


def _check_range(value: Any, expected: Range, name: str, path: str, report: Report) -> None:
    if not expected.has_type_of(value):
        kind = "a number" if expected.allows_fraction else "an integer"
        message, problem = f"{name} is {value!r}, not a number", f"{as_json(value)} is not {kind}"
        report.add("value", path, message, problem, param=name, code="invalid_type")
    elif not expected.contains(value):
        message = f"{name} is {value}, not within {expected.minimum} and {expected.maximum}"
        problem = f"{as_json(value)} is not between {expected.minimum} and {expected.maximum}"
        report.add("value", path, message, problem, param=name, is_certain=expected.is_certain)


MAX_UNKNOWN_FIELDS: Final = 50  # the search for a similar name is slow
MAX_USER_LENGTH: Final = 64  # characters
MAX_METADATA_PAIRS: Final = 16
NAME_PATTERN: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
TYPE_WORDS: Final[dict[type, str]] = {bool: "a boolean", dict: "an object", list: "an array", str: "a string"}
