"""Rules for the models of an upstream: names, patterns with `*`, and renames."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from antiphon.dialects.common.model_names import WILDCARD, matched_part


class ModelRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Renames a model."""

    from_: Annotated[str, Meta(description="The name that clients use; `*` matches any characters.")] = field(
        name="from"
    )
    to: Annotated[
        str, Meta(description="The upstream's own name; `*` stands for the characters that `*` in `from` matched.")
    ]


def is_pattern(name: str) -> bool:
    return WILDCARD in name


def upstream_model_name(rule: str | ModelRule, name: str) -> str | None:
    """The upstream's name for a model; None if the rule does not match."""
    if isinstance(rule, str):
        return None if matched_part(rule, name) is None else name
    part = matched_part(rule.from_, name)
    return None if part is None else rule.to.replace(WILDCARD, part)
