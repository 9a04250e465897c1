"""Turns for laws: anything a model may say, in any pieces."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from antiphon.testing.script import (
    ScriptedTurn,
    TurnElement,
    finish,
    interleaved,
    reasoning,
    text,
    tool_call,
    turn,
    usage,
)

# No tags of reasoning in the text, and no white space at its beginning: the gateway reads both as more than text.
PIECES = st.lists(st.text(alphabet='ab{"é😀\u2028', min_size=1, max_size=5), min_size=1, max_size=4)
ARGUMENTS = st.sampled_from([("{}",), ('{"a"', ":1}"), ("{", '"é":"', '😀"}')])


@st.composite
def turns(draw: st.DrawFn) -> ScriptedTurn:
    """Reasoning, then text, then calls: the order that both forms of a chat answer can tell."""
    elements: list[TurnElement] = []
    if draw(st.booleans()):
        elements.append(reasoning(*draw(PIECES)))
    if draw(st.booleans()):
        elements.append(text(*draw(PIECES)))
    ids = (f"c{number}" for number in itertools.count())
    for group in draw(st.lists(st.lists(ARGUMENTS, min_size=1, max_size=3), max_size=2)):
        elements.append(interleaved(*(tool_call(next(ids), "f", *arguments) for arguments in group)))
    if draw(st.booleans()):
        elements.append(finish(draw(st.sampled_from(["stop", "length", "content_filter"]))))
    if draw(st.booleans()):
        elements.append(usage(draw(st.integers(0, 9)), 5, cached=1, reasoning=2))
    return turn(*elements)
