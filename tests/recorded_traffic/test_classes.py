"""The table of known differences is closed and hides nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import fields
from tests.recorded_traffic.classes import CLASSES, CONTENT, DifferenceClass, classify
from tests.recorded_traffic.difference import Difference
from tests.sources import REPO


def test_class_names_are_unique() -> None:
    assert len({each.name for each in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize("each_class", CLASSES, ids=lambda each: each.name)
def test_class_has_its_row_in_the_page_on_dialects(each_class: DifferenceClass) -> None:
    page = (REPO / "docs" / "dialects.md").read_text(encoding="utf-8")
    assert f"| {each_class.row} |" in page


@pytest.mark.parametrize("each_class", CLASSES, ids=lambda each: each.name)
def test_class_hides_no_content(each_class: DifferenceClass) -> None:
    assert CONTENT.isdisjoint(each_class.checks)


def test_no_class_matches_by_file() -> None:
    """A class sees a difference only, and a difference does not know its file."""
    assert {field.name for field in fields(Difference)} == {"check", "client", "server", "path", "change"}


def test_first_matching_class_is_the_class_of_a_difference() -> None:
    difference = Difference(check="usage", client="chat", server="gemini", path="usage.cost", change="missing")
    narrow = DifferenceClass(name="1", reason="", checks=("usage",), client="chat", paths=("usage.*",))
    broad = DifferenceClass(name="2", reason="", checks=("usage", "text"))
    assert classify(difference, [narrow, broad]) is narrow
    assert classify(difference, [DifferenceClass(name="3", reason="", checks=("text",)), broad]) is broad
    for other in ({"client": "messages"}, {"server": "chat"}, {"paths": ("usage",)}, {"changes": ("added",)}):
        assert classify(difference, [DifferenceClass(name="4", reason="", checks=("usage",), **other)]) is None


def test_list_marks_in_paths_are_no_patterns() -> None:
    difference = Difference(check="answer", client="chat", server="chat", path="choicesx", change="missing")
    assert (
        classify(difference, [DifferenceClass(name="1", reason="", checks=("answer",), paths=("choices[]*",))]) is None
    )
