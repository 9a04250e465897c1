"""Names are descriptive: words of the former private vocabulary do not occur in names."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path

import pytest

pytestmark = pytest.mark.without_coverage
REPO = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    *("told", "said", "found", "known", "came", "begun", "ground", "speech", "mould", "telling", "mending", "keeping"),
}
ALLOWED = {
    "FileNotFoundError": "of Python",
    "ModuleNotFoundError": "of Python",
    "NoServerFound": "the usual form for such an exception",
    "conversation_not_found": "makes the error `not_found`",
    "response_not_found": "makes the error `not_found`",
    "_item_not_found": "makes the error `not_found`",
    "not_found_code": "the error `not_found`",
    "has_found_tag": "says whether a tag was found",
    "KNOWN_HEADERS": "the opposite of unknown",
    "KNOWN_PREFIXES": "the opposite of unknown",
    "KNOWN_INCLUDES": "the opposite of unknown",
    "KnownBlock": "the opposite of an unknown block",
    "known_types": "the opposite of unknown",
    "known_tags": "the opposite of unknown",
    "parse_known_args": "of argparse",
}


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.split(r"_|(?<=[a-z])(?=[A-Z])", name)}


def names_in(path: Path) -> set[str]:
    with tokenize.open(path) as file:
        return {token.string for token in tokenize.generate_tokens(file.readline) if token.type == tokenize.NAME}


@pytest.mark.slow
def test_names_in_source_avoid_forbidden_words() -> None:
    offenders = {
        f"{path.relative_to(REPO)}: {name}"
        for path in (REPO / "src").rglob("*.py")
        for name in names_in(path)
        if words_of(name) & FORBIDDEN and name not in ALLOWED
    }
    assert offenders == set()


@pytest.mark.slow
def test_allowed_names_are_still_used() -> None:
    used = {name for path in (REPO / "src").rglob("*.py") for name in names_in(path)}
    assert ALLOWED.keys() - used == set()


def test_words_of_splits_names_in_every_spelling() -> None:
    assert words_of("_what_is_told") >= {"told"}
    assert words_of("KnownBlock") == {"known", "block"}
    assert not words_of("unknown_background") & FORBIDDEN


@pytest.mark.slow
def test_test_names_do_not_start_with_what() -> None:
    names = {f"{path.relative_to(REPO)}: {name}" for path in (REPO / "tests").rglob("*.py") for name in names_in(path)}
    assert {name for name in names if "test_what_" in name} == set()
