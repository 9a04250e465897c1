"""Think tags: whatever the cuts, the same reasoning and the same text; nothing vanishes but tags and the white space at them."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.dialects.common.think_tags import MAX_PENDING, TextPiece, ThinkSplitter, ThinkTags

MODES: tuple[ThinkTags, ...] = ("leading", "anywhere", "implied", "off")
# Texts made of what matters here: tags, beginnings of tags, white space, words.
TEXTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "<th", "</", "ink>", "</think", ">", " ", "\n\n", "word", "é", "<b>"]),
    max_size=8,
).map("".join)

WORDS = st.text(alphabet="ab <>/\n", min_size=1).filter(lambda text: not text[0].isspace())


def split(pieces: list[str], tags: ThinkTags) -> list[TextPiece]:
    """What comes out, neighbours of one kind joined."""
    splitter = ThinkSplitter(tags)
    found = [piece for text in pieces for piece in splitter.feed(text)] + splitter.flush()
    return [
        TextPiece(kind, "".join(piece.text for piece in same))
        for kind, same in groupby(found, key=lambda piece: piece.is_reasoning)
    ]


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def reasoning(text: str) -> TextPiece:
    return TextPiece(True, text)


def answer(text: str) -> TextPiece:
    return TextPiece(False, text)


@given(TEXTS, st.sampled_from(MODES), st.lists(st.integers(0, 40), max_size=6))
def test_any_cut_gives_the_same_pieces(text: str, tags: ThinkTags, places: list[int]) -> None:
    whole = split([text], tags)
    assert split(cut(text, places), tags) == whole
    assert split(list(text), tags) == whole


@given(st.text(alphabet="ab <>/\n"), st.sampled_from(MODES))
def test_a_text_without_tags_is_told_to_the_last_space(text: str, tags: ThinkTags) -> None:
    assert split(list(text), tags) == ([TextPiece(tags == "implied", text)] if text else [])


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3), st.sampled_from(["", " ", "\n\n"]))
def test_blocks_between_texts_are_found_wherever_they_stand(blocks: list[tuple[str, str]], gap: str) -> None:
    spelled = "".join(f"<think>{gap}{thought}</think>{gap}{text}" for thought, text in blocks)
    assert split(list(spelled), "anywhere") == [
        piece for block in blocks for piece in (reasoning(block[0]), answer(block[1]))
    ]


@given(TEXTS)
def test_off_looks_for_nothing(text: str) -> None:
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
def test_examples(tags: ThinkTags, text: str, wanted: list[TextPiece]) -> None:
    assert split([text], tags) == wanted
    assert split(list(text), tags) == wanted


def test_a_leading_splitter_is_settled_as_soon_as_the_text_begins_without_a_tag() -> None:
    splitter = ThinkSplitter("leading")
    assert splitter.feed(" <") == []
    assert not splitter.is_settled
    assert splitter.feed("b>") == [answer(" <b>")]
    assert splitter.is_settled
    assert not splitter.has_found_tag


def test_a_leading_splitter_is_settled_behind_its_block() -> None:
    splitter = ThinkSplitter("leading")
    splitter.feed("<think>a</think>")
    splitter.feed(" ")
    assert not splitter.is_settled
    assert splitter.feed(" b") == [answer("b")]
    assert splitter.is_settled
    assert splitter.has_found_tag


def test_what_something_else_interrupts_is_given_out_as_it_stands() -> None:
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
