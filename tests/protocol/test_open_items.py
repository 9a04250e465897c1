"""`protocol/open_items`: strings of a growing text are joined from time to time."""

from __future__ import annotations

from antiphon.protocol.open_items import MAX_UNJOINED_PIECES, TextPieces


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
