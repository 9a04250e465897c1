"""Which models an upstream serves, and under which names: plain names, patterns with `*`, and rules that rename.

`*` stands for any characters, none included, and is the only wildcard: names of models contain all others. Matching takes time in
proportion to the name, which is the client's.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

ANY = "*"


class ModelRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model under another name."""

    from_: Annotated[str, Meta(description="The name that clients ask for; a `*` in it stands for anything.")] = field(name="from")
    to: Annotated[str, Meta(description="The upstream's own name; a `*` in it is what the `*` in `from` stood for.")]


def is_pattern(name: str) -> bool:
    return ANY in name


def renamed(rule: str | ModelRule, asked: str) -> str | None:
    """The upstream's name of a model, None if the rule is about others."""
    if isinstance(rule, str):
        return None if _wildcard(rule, asked) is None else asked
    found = _wildcard(rule.from_, asked)
    return None if found is None else rule.to.replace(ANY, found)


def _wildcard(pattern: str, name: str) -> str | None:
    """What stands between the fixed beginning and end of the pattern, None if the name does not fit."""
    first, *rest = pattern.split(ANY)
    if not rest:
        return "" if name == pattern else None
    *middle, last = rest
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return None
    between = name[len(first) : len(name) - len(last)]
    at = 0
    for part in middle:
        at = between.find(part, at)
        if at < 0:
            return None
        at += len(part)
    return between
