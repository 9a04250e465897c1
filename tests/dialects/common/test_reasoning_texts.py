"""The texts of complete reasoning items, part by part."""

from __future__ import annotations

from antiphon.dialects.common.reasoning_texts import TEXT_PART, ReasoningParagraphs, reasoning_texts
from antiphon.protocol.content import Content, InputText, ReasoningText, SummaryText
from antiphon.protocol.items import Reasoning


def test_reasoning_texts_separates_summaries_and_joins_content() -> None:
    """RSN-1, F-4: other parts are reported, never skipped."""
    lost: list[tuple[int, Content]] = []
    odd = InputText(text="odd")
    item = Reasoning(
        id="rs_1",
        summary=[SummaryText(text="a"), SummaryText(text="b")],
        content=[ReasoningText(text="c"), odd, ReasoningText(text="d")],
    )
    texts = reasoning_texts(3, item, lambda at, part: lost.append((at, part)))
    assert texts == [("a", (3, 0)), ("b", (3, 1)), ("c", TEXT_PART), ("d", TEXT_PART)]
    assert lost == [(3, odd)]
    assert reasoning_texts(0, Reasoning(id="rs_2", summary=[]), lambda at, part: lost.append((at, part))) == []


def test_reasoning_paragraphs_separate_different_parts() -> None:
    paragraphs = ReasoningParagraphs()
    parts = [("a", (0, 0)), ("b", (0, 0)), ("c", (0, 1)), ("d", TEXT_PART), ("e", TEXT_PART)]
    assert [paragraphs.separate(text, part) for text, part in parts] == ["a", "b", "\n\nc", "\n\nd", "e"]
