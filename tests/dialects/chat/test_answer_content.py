"""`dialects/chat/answer_content`: what counts as the content of a chat chunk. `common/test_relay` plays whole answers."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.dialects import chat
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.relay import FINISH, UNREADABLE, Piece, call_piece
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response


def content() -> chat.AnswerContent:
    response = make_initial_response(Request(), id="resp_1", created_at=1)
    return chat.AnswerContent(Request(), ChatWire(), response, None)


def pieces(**members: Any) -> list[Piece]:
    value = {"choices": [{"index": 0, **members}]}
    listed = content().pieces(value)
    assert listed is not None
    return [piece for piece in listed if piece.text or piece in (FINISH, UNREADABLE)]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"reasoning_content": "a", "content": "b", "refusal": "c"}, ["reasoning a", "text b", "refusal c"]),
        ({"reasoning": "a"}, ["reasoning a"]),
        ({"reasoning": "a", "reasoning_details": [{"text": "a"}]}, ["reasoning a"]),
        ({"reasoning_details": [{"text": "a"}, {"summary": "b"}, {"data": "c"}]}, ["reasoning a", "reasoning b"]),
        ({"content": [{"type": "text", "text": "a"}]}, ["unreadable "]),
    ],
)
def test_texts_are_listed_in_the_order_of_the_reader(message: dict[str, Any], expected: list[str]) -> None:
    assert [f"{piece.kind} {piece.text}" for piece in pieces(delta=message)] == expected


def test_calls_are_numbered_by_their_index() -> None:
    calls = [
        {"index": 3, "id": "a", "function": {"name": "f", "arguments": "{"}},
        {"index": 1, "id": "b", "custom": {"name": "g", "input": "x"}},
        {"index": 3, "function": {"arguments": "}"}},
    ]
    assert pieces(delta={"tool_calls": calls}, finish_reason="tool_calls") == [
        call_piece(0, "a", "f"),
        Piece("arguments", "{", 0),
        call_piece(1, "b", "g"),
        Piece("arguments", "x", 1),
        Piece("arguments", "}", 0),
        FINISH,
    ]


def test_errors_are_never_relayed() -> None:
    assert content().pieces({"error": {"message": "busy"}}) == [UNREADABLE]
