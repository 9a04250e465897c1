"""Think tags: the same reasoning and the same text for any split; only tags and the white space next to them are
removed."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.dialects.common.think_tags import MAX_PENDING, TextPiece, ThinkSplitter, ThinkTags

MODES: tuple[ThinkTags, ...] = ("leading", "anywhere", "implied", "off")
# Texts of relevant pieces: tags, partial tags, white space, words.
TEXTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "<th", "</", "ink>", "</think", ">", " ", "\n\n", "word", "é", "<b>"]),
    max_size=8,
).map("".join)

WORDS = st.text(alphabet="ab <>/\n", min_size=1).filter(lambda text: not text[0].isspace())


def split(pieces: list[str], tags: ThinkTags) -> list[TextPiece]:
    """The pieces, with neighbours of one kind joined."""
    splitter = ThinkSplitter(tags)
    split_pieces = [piece for text in pieces for piece in splitter.feed(text)] + splitter.flush()
    return [
        TextPiece(kind, "".join(piece.text for piece in same))
        for kind, same in groupby(split_pieces, key=lambda piece: piece.is_reasoning)
    ]


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def reasoning(text: str) -> TextPiece:
    return TextPiece(True, text)


def answer(text: str) -> TextPiece:
    return TextPiece(False, text)


@given(TEXTS, st.sampled_from(MODES), st.lists(st.integers(0, 40), max_size=6))
def test_think_splitter_gives_the_same_pieces_for_any_split(text: str, tags: ThinkTags, places: list[int]) -> None:
    whole = split([text], tags)
    assert split(cut(text, places), tags) == whole
    assert split(list(text), tags) == whole


@given(st.text(alphabet="ab <>/\n"), st.sampled_from(MODES))
def test_text_without_tags_is_unchanged(text: str, tags: ThinkTags) -> None:
    assert split(list(text), tags) == ([TextPiece(tags == "implied", text)] if text else [])


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3), st.sampled_from(["", " ", "\n\n"]))
def test_think_blocks_are_recognised_anywhere(blocks: list[tuple[str, str]], gap: str) -> None:
    spelled = "".join(f"<think>{gap}{thought}</think>{gap}{text}" for thought, text in blocks)
    assert split(list(spelled), "anywhere") == [
        piece for block in blocks for piece in (reasoning(block[0]), answer(block[1]))
    ]


@given(TEXTS)
def test_think_splitter_off_changes_nothing(text: str) -> None:
    assert ThinkSplitter("off").is_settled
    assert split(list(text), "off") == ([answer(text)] if text else [])


@pytest.mark.parametrize(
    ("tags", "text", "wanted"),
    [
        ("leading", "<think>a</think>b", [reasoning("a"), answer("b")]),
        ("leading", " \n<think>\na\n</think>\n\nb", [reasoning("a\n"), answer("b")]),
        ("leading", "<think>\n\n</think>\n\nb", [answer("b")]),
        ("leading", "x<think>a</think>b", [answer("x<think>a</think>b")]),
        ("leading", "<think>a</think>b<think>c</think>", [reasoning("a"), answer("b<think>c</think>")]),
        ("leading", "<thinking>", [answer("<thinking>")]),
        ("leading", "  <th", [answer("  <th")]),
        ("leading", "<think>a</thi", [reasoning("a</thi")]),
        ("leading", " \n", [answer(" \n")]),
        (
            "anywhere",
            "x <think>a</think> y<think>b</think>",
            [answer("x "), reasoning("a"), answer("y"), reasoning("b")],
        ),
        ("anywhere", "\n<think>a</think>b", [reasoning("a"), answer("b")]),
        ("anywhere", "1 < 2 <th", [answer("1 < 2 <th")]),
        ("implied", "a</think>b", [reasoning("a"), answer("b")]),
        ("implied", "<think>a</think>b<think>c", [reasoning("a"), answer("b<think>c")]),
        ("implied", "a", [reasoning("a")]),
        ("implied", "<th", [reasoning("<th")]),
    ],
)
def test_think_splitter_examples(tags: ThinkTags, text: str, wanted: list[TextPiece]) -> None:
    assert split([text], tags) == wanted
    assert split(list(text), tags) == wanted


def test_leading_splitter_is_settled_by_text_without_a_tag() -> None:
    splitter = ThinkSplitter("leading")
    assert splitter.feed(" <") == []
    assert not splitter.is_settled
    assert splitter.feed("b>") == [answer(" <b>")]
    assert splitter.is_settled
    assert not splitter.has_found_tag


def test_leading_splitter_is_settled_after_its_block() -> None:
    splitter = ThinkSplitter("leading")
    splitter.feed("<think>a</think>")
    splitter.feed(" ")
    assert not splitter.is_settled
    assert splitter.feed(" b") == [answer("b")]
    assert splitter.is_settled
    assert splitter.has_found_tag


def test_flush_returns_a_partial_tag_as_text() -> None:
    splitter = ThinkSplitter("anywhere")
    splitter.feed("a<th")
    assert splitter.flush() == [answer("<th")]
    assert splitter.flush() == []
    assert splitter.feed("ink>b") == [answer("ink>b")]


@pytest.mark.parametrize(("spaces", "pieces"), [(MAX_PENDING, [(True, "a")]), (MAX_PENDING + 1, [(False, "<think>a")])])
def test_white_space_before_a_tag_has_a_bound(spaces: int, pieces: list[tuple[bool, str]]) -> None:
    splitter = ThinkSplitter("leading")
    first = splitter.feed(" " * spaces)
    told = [*first, *splitter.feed("<think>a"), *splitter.flush()]
    assert [(piece.is_reasoning, piece.text) for piece in told if piece.text.strip()] == pieces
