"""Split characters: any split of a text into UTF-16 units is joined again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.dialects.common.surrogates import SurrogateJoiner


def units(text: str) -> list[str]:
    """The text as a server splits it that counts in UTF-16: one string per unit, surrogate halves alone."""
    raw = text.encode("utf-16-le")
    return [raw[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(raw), 2)]


@given(st.text(alphabet="aé😀🚀\u2028"), st.text(alphabet="b🌍"))
def test_surrogate_halves_are_joined_per_channel(one: str, other: str) -> None:
    halves = SurrogateJoiner()
    joined = {"one": "", "other": ""}
    longest = max(len(units(one)), len(units(other)))
    for at in range(longest):
        for channel, text in (("one", one), ("other", other)):
            joined[channel] += halves.join(channel, "".join(units(text)[at : at + 1]))
    assert joined == {"one": one, "other": other}
    assert halves.flush("one") == halves.flush("other") == ""
    assert halves.lost_count == 0


def test_lone_surrogate_becomes_a_replacement_character() -> None:
    halves = SurrogateJoiner()
    assert halves.join(1, "a\ud83d") == "a"
    assert halves.join(1, "b\ude00c") == "\ufffdb\ufffdc"
    assert halves.join(1, "\ud83d") == ""
    assert halves.flush(1) == "\ufffd"
    assert halves.lost_count == 3
