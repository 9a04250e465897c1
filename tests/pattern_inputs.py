"""Texts that a regular expression may take long over, made from the expression itself.

A backtracking matcher is slow where a text nearly matches in many ways: a repeated piece is read again from each of its places, or
is divided between two repetitions in every way, and then the rest does not follow. So every repetition of a pattern gets texts of
what leads to it, the repeated piece many times over, and something that spoils the match. Every other piece of the pattern gets
texts that are full of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice, product
from typing import Any, Final

codes: Any = import_module("re._constants")  # neither has types
parser: Any = import_module("re._parser")
Node = tuple[Any, Any]
Text = tuple[str, str, str]  # a head, what is repeated after it, a tail


def texts_for(pattern: re.Pattern[Any]) -> list[Text]:
    """What to feed to the pattern, each at any size (`sized`)."""
    parsed = list(parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))
    beginnings = list(dict.fromkeys(_beginnings(parsed)))
    first = list(dict.fromkeys(begun[0] for begun in beginnings))[:MOST_SAMPLES]
    found: dict[Text, None] = {}
    for head, body in _repetitions(parsed, ""):
        pieces = _pieces(body)
        # What begins a match, where a repetition reads it as anything else: then every repetition may be a beginning.
        pieces += [piece[:-1] + character for piece in pieces[:2] for character in first]
        for piece in dict.fromkeys(pieces):
            found |= dict.fromkeys((head, piece, tail) for tail in SPOILERS)
            found |= dict.fromkeys([("", head + piece, ""), ("", head + piece, SPOILERS[1])])
            found |= dict.fromkeys(("", head + 4 * piece + tail, "") for tail in SPOILERS[1:])
    for begun in beginnings:
        found |= dict.fromkeys(
            [("", begun, ""), ("", begun + "-", ""), ("", begun + " ", "!"), (begun, begun[-1:], "!")]
        )
    return [text for text in found if text[1]]


def sized(text: Text, size: int, pattern: re.Pattern[Any]) -> Any:
    """The text at about that size, as the pattern wants it: characters or bytes."""
    head, piece, tail = text
    whole = head + piece * (size // len(piece) + 1) + tail
    return whole if isinstance(pattern.pattern, str) else whole.encode("latin-1", "replace")


def _repetitions(nodes: list[Node], head: str) -> Iterator[tuple[str, list[Node]]]:
    """Every repetition without a close bound: a text that leads to it, and what it repeats."""
    for node in nodes:
        code, value = node
        match code:
            case codes.MAX_REPEAT | codes.MIN_REPEAT | codes.POSSESSIVE_REPEAT:
                body = list(value[2])
                if value[1] is codes.MAXREPEAT or value[1] >= FEW:
                    yield head, body
                yield from _repetitions(body, head)
            case codes.SUBPATTERN:
                yield from _repetitions(list(value[3]), head)
            case codes.ATOMIC_GROUP:
                yield from _repetitions(list(value), head)
            case codes.ASSERT | codes.ASSERT_NOT:
                yield from _repetitions(list(value[1]), head)
            case codes.BRANCH:
                for branch in value[1]:
                    yield from _repetitions(list(branch), head)
            case _:
                pass
        head += next(iter(_samples([node])), "")


def _beginnings(nodes: list[Node]) -> Iterator[str]:
    """Texts that match the pattern's first pieces: one, two, … of every branch. A word is one piece."""
    for at, (code, value) in enumerate(nodes):
        if code is codes.LITERAL and [each for each, _ in nodes[at + 1 : at + 3]] == [codes.LITERAL] * 2:
            continue
        before = next(iter(_samples(nodes[:at])), "")
        match code:
            case codes.BRANCH:
                for branch in value[1]:
                    yield from (before + begun for begun in _beginnings(list(branch)))
            case codes.SUBPATTERN:
                yield from (before + begun for begun in _beginnings(list(value[3])))
            case _:
                if whole := before + next(iter(_samples([nodes[at]])), ""):
                    yield whole


def _pieces(body: list[Node]) -> list[str]:
    """What one turn of a repetition may read: its samples, alone and two of them in a row."""
    samples = [sample for sample in islice(_samples(body), MOST_SAMPLES) if sample]
    return [*samples, *(one + other for one, other in product(samples[:3], samples[:3]) if one != other)]


def _samples(nodes: list[Node]) -> Iterator[str]:
    """Short texts that match these nodes, where each node's first sample does for all the others'."""
    each = [list(islice(_samples_of(node), MOST_SAMPLES)) or [""] for node in nodes]
    usual = [samples[0] for samples in each]
    yield "".join(usual)
    for at, samples in enumerate(each):
        for sample in samples[1:]:
            yield "".join([*usual[:at], sample, *usual[at + 1 :]])


def _samples_of(node: Node) -> Iterator[str]:
    code, value = node
    match code:
        case codes.LITERAL:
            yield chr(value)
        case codes.NOT_LITERAL:
            yield from (character for character in ALPHABET if ord(character) != value)
        case codes.ANY:
            yield from ALPHABET
        case codes.IN:
            yield from _members(value)
        case codes.BRANCH:
            each = [list(islice(_samples(list(branch)), 2)) for branch in value[1]]
            yield from (samples[0] for samples in each)
            yield from (samples[1] for samples in each if len(samples) > 1)
        case codes.SUBPATTERN:
            yield from _samples(list(value[3]))
        case codes.ATOMIC_GROUP:
            yield from _samples(list(value))
        case codes.MAX_REPEAT | codes.MIN_REPEAT | codes.POSSESSIVE_REPEAT:
            yield from (max(value[0], 1) * sample for sample in _samples(list(value[2])))
            if value[0] == 0:
                yield ""
        case _:  # places and looks around: nothing is read
            yield ""


def _members(members: Iterable[Node]) -> Iterator[str]:
    """Characters of a class: those of the alphabet that are in it, else its own first ones."""
    members = list(members)
    is_negated = members[0][0] is codes.NEGATE
    usual = [character for character in ALPHABET if _is_in(character, members) != is_negated]
    own = (
        []
        if is_negated
        else [chr(value if code is codes.LITERAL else value[0]) for code, value in members if code in BY_NUMBER]
    )
    yield from dict.fromkeys([*usual, *own])


def _is_in(character: str, members: Iterable[Node]) -> bool:
    for code, value in members:
        if code is codes.LITERAL and ord(character) == value:
            return True
        if code is codes.RANGE and value[0] <= ord(character) <= value[1]:
            return True
        if code is codes.CATEGORY and CATEGORIES[value](character):
            return True
    return False


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


ALPHABET: Final = "a-0 _.:/A\\\"'[],;\n="
SPOILERS: Final = ("", "\x00", "\n")
FEW: Final = 16
MOST_SAMPLES: Final = 4
BY_NUMBER: Final = (codes.LITERAL, codes.RANGE)
CATEGORIES: Final[dict[Any, Callable[[str], bool]]] = {
    codes.CATEGORY_DIGIT: str.isdigit,
    codes.CATEGORY_NOT_DIGIT: lambda character: not character.isdigit(),
    codes.CATEGORY_SPACE: str.isspace,
    codes.CATEGORY_NOT_SPACE: lambda character: not character.isspace(),
    codes.CATEGORY_WORD: _is_word,
    codes.CATEGORY_NOT_WORD: lambda character: not _is_word(character),
}
