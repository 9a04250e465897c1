"""`protocol/open_items`: strings of a growing text are joined from time to time."""

from __future__ import annotations

from antiphon.protocol.open_items import LONG_PIECE, MAX_LONG_PIECES, MAX_UNJOINED_PIECES, TextPieces


def test_many_small_pieces_are_joined() -> None:
    pieces = TextPieces()
    words = [f"{number} " for number in range(10 * MAX_UNJOINED_PIECES + 7)]
    for word in words:
        pieces.append(word)
    assert "".join(pieces) == "".join(words)
    assert len(pieces) == 10 + 7


def test_few_pieces_are_not_joined() -> None:
    pieces = TextPieces()
    for word in ("a", "", "b"):
        pieces.append(word)
    assert pieces == ["a", "", "b"]


def test_fewer_long_pieces_are_joined() -> None:
    """So that a long text is in large strings, whose memory is given back when they are freed."""
    pieces = TextPieces()
    long = "x" * LONG_PIECE
    for _ in range(2 * MAX_LONG_PIECES + 1):
        pieces.append(long)
    assert "".join(pieces) == long * (2 * MAX_LONG_PIECES + 1)
    assert len(pieces) == 2 + 1


def test_joined_text_replaces_the_pieces() -> None:
    pieces = TextPieces()
    assert pieces.join() == ""
    for word in ("a", "b"):
        pieces.append(word)
    text = pieces.join()
    assert (text, pieces) == ("ab", ["ab"])
    assert pieces.join() is text
    pieces.append("c")
    assert pieces == ["ab", "c"]
    assert pieces.join() == "abc"
