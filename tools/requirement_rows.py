"""Reads the rows of docs/requirements.md: the id, the level and the text of every requirement, by section."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

REPO: Final = Path(__file__).resolve().parent.parent
PAGE: Final = REPO / "docs" / "requirements.md"


class Requirement(NamedTuple):
    id: str
    level: str  # M, S or O; empty in the scope of the project, which has no levels
    text: str


def requirements() -> dict[str, Requirement]:
    """Returns every requirement by its id."""
    return {row.id: row for rows in requirements_by_section().values() for row in rows}


def requirements_by_section() -> dict[str, list[Requirement]]:
    """Returns the requirements of every section by its title."""
    sections: dict[str, list[Requirement]] = {}
    for section in re.split(r"^#+ ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        rows = ROW.findall(section)
        if rows:
            sections[section.partition("\n")[0]] = [Requirement(*row) for row in rows]
    return sections


ROW: Final = re.compile(r"^\| ([A-Z]+-\d+) \| (?:([MSO]) \| )?(.+) \|$", flags=re.MULTILINE)
