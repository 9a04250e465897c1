"""Sets members of a JSON object in its text, or takes them back: the comments, the order and the spaces of everything
else stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from antiphon.cli.exits import InvalidUsage

# Blanks and comments; or one token of JSON; or a string or comment without an end, or a character that is neither. The
# last three are refused by `json.loads`.
TOKEN: Final = re.compile(
    r'(?:\s+|//[^\n]*|/\*.*?\*/)|(?P<token>"(?:[^"\\]|\\.)*+"?|[{}\[\]:,]|[^\s{}\[\]:,"/]+|/\*.*|.)', re.DOTALL
)
FIRST_MEMBER: Final = re.compile(r'\n([ \t]++)(?=")')
LINE_END: Final = re.compile(r"[ \t]*+(?://|\r|\n)")
INDENT: Final = "  "
OPENING: Final = ("{", "[")
CLOSING: Final = ("}", "]")


class Token(NamedTuple):
    """A token and its place in the text."""

    start: int
    end: int
    text: str


class Edit(NamedTuple):
    """A piece of the text, and its replacement."""

    start: int
    end: int
    text: str


class Value(NamedTuple):
    """A value and its place in the text. `members` is None unless it is an object. A member of an object has the start
    of its name, and the place of the comma behind it."""

    start: int
    end: int
    members: dict[str, Value] | None = None
    has_end_comma: bool = False
    name_start: int = 0
    comma: int | None = None


def set_members(text: str, members: Mapping[str, Any]) -> str:
    """Return the text of a JSON object, which may have comments and trailing commas, with these members set.

    Members of the objects in it are set in the same way. Raises `InvalidUsage` if the text is not a JSON object.
    """
    if not text.strip():
        return json.dumps(members, indent=2, ensure_ascii=False) + "\n"
    tokens = _tokens(text)
    _parse(tokens)
    return _apply(text, _edits(text, _value(tokens, 0)[0], members, ""))


def take_back_members(text: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the text of a JSON object in which every member that differs between `before` and `after`, and is still as
    in `after`, is as in `before`. Raises `InvalidUsage` if the text is not a JSON object."""
    tokens = _tokens(text)
    current = _parse(tokens)
    return _apply(text, _take_back_edits(text, _value(tokens, 0)[0], current, before, after, ""))


def parse_object(text: str) -> dict[str, Any]:
    """Return the value of a JSON object with comments and trailing commas; a blank text is an empty one."""
    return _parse(_tokens(text)) if text.strip() else {}


def _apply(text: str, edits: Iterable[Edit]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    in_order = sorted(edits, key=lambda edit: edit.start)
    for edit in reversed(in_order):  # of two at one place, the first comes first in the text
        text = text[: edit.start] + edit.text.replace("\n", newline) + text[edit.end :]
    return text


def _tokens(text: str) -> list[Token]:
    return [Token(match.start(), match.end(), match[0]) for match in TOKEN.finditer(text) if match["token"]]


def _parse(tokens: list[Token]) -> dict[str, Any]:
    texts = ["", *(token.text for token in tokens), ""]
    plain = "".join(
        text
        for before, text, after in zip(texts, texts[1:], texts[2:], strict=False)
        if text != "," or after not in CLOSING or before in OPENING
    )
    try:
        value = json.loads(plain)
    except ValueError as error:
        raise InvalidUsage(f"the file is not JSON ({error}); repair it, or add the settings by hand") from None
    if not isinstance(value, dict):
        raise InvalidUsage("the file is not a JSON object; repair it, or add the settings by hand")
    return value


def _value(tokens: list[Token], index: int) -> tuple[Value, int]:
    """Return the value that begins with a token, and the index of the token after it. The tokens are valid."""
    first = tokens[index]
    if first.text not in OPENING:
        return Value(first.start, first.end), index + 1
    members: dict[str, Value] = {}
    index += 1
    while tokens[index].text not in CLOSING:
        name, name_start = "", tokens[index].start
        if first.text == "{":
            name = json.loads(tokens[index].text)
            index += 2
        member, index = _value(tokens, index)
        has_comma = tokens[index].text == ","
        comma = tokens[index].start if has_comma else None
        members[name] = member._replace(name_start=name_start, comma=comma)
        index += has_comma
    last = tokens[index]
    has_end_comma = tokens[index - 1].text == ","
    return Value(first.start, last.end, members if first.text == "{" else None, has_end_comma), index + 1


def _edits(text: str, value: Value, members: Mapping[str, Any], indent: str) -> Iterator[Edit]:
    """The edits that set members of an object, whose own line has this indent."""
    old = value.members or {}
    inner = _indent_of(text, value, indent + INDENT)
    for name in members.keys() & old.keys():
        if isinstance(members[name], dict) and old[name].members is not None:
            yield from _edits(text, old[name], members[name], inner)
        else:
            yield Edit(old[name].start, old[name].end, _dump(members[name], inner))
    new = [name for name in members if name not in old]
    if not new:
        return
    if old and not value.has_end_comma:
        end = max(member.end for member in old.values())
        yield Edit(end, end, ",")
    lines = ",\n".join(f"{inner}{json.dumps(name)}: {_dump(members[name], inner)}" for name in new)
    close = value.end - 1
    place = len(text[:close].rstrip())  # behind the last member and its comment
    has_own_line = "\n" in text[place:close]
    yield Edit(place, place, f"\n{lines}" if has_own_line else f"\n{lines}\n{indent}")


def _take_back_edits(
    text: str,
    value: Value,
    current: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    indent: str,
) -> Iterator[Edit]:
    members = value.members or {}
    inner = _indent_of(text, value, indent + INDENT)
    removed: set[str] = set()
    for name in after.keys() & current.keys():
        own, old, new = current[name], before.get(name, {}), after[name]
        if name not in before and _is_part(own, new):
            removed.add(name)
        elif isinstance(own, dict) and isinstance(new, dict) and isinstance(old, dict):
            yield from _take_back_edits(text, members[name], own, old, new, inner)
        elif name in before and own == new != old:
            yield Edit(members[name].start, members[name].end, _dump(old, inner))
    yield from _removals(text, value, removed)


def _is_part(value: Any, whole: Any) -> bool:
    """Whether a value is equal to another, or an object that has only members of it."""
    if isinstance(value, dict) and isinstance(whole, dict):
        return all(name in whole and _is_part(value[name], whole[name]) for name in value)
    return bool(value == whole)


def _removals(text: str, value: Value, names: set[str]) -> Iterator[Edit]:
    """The edits that remove members with their lines. The last of those that stay loses its comma."""
    members = value.members or {}
    for name in names:
        member = members[name]
        end = member.end if member.comma is None else member.comma + 1
        has_rest = not LINE_END.match(text, end)  # what follows must not get into a comment on the line before
        start = len(text[: member.name_start].rstrip(" \t" if has_rest else None))
        yield Edit(start, end, "")
    rest = [member for name, member in members.items() if name not in names]
    if names and rest and rest[-1].comma is not None and not value.has_end_comma:
        yield Edit(rest[-1].comma, rest[-1].comma + 1, "")


def _indent_of(text: str, value: Value, default: str) -> str:
    """The indent of the first member that begins a line."""
    match = FIRST_MEMBER.search(text, value.start, value.end)
    return match[1] if match else default


def _dump(value: object, indent: str) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{indent}")
