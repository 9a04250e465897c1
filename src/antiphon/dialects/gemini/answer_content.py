"""Lists the literal content of Gemini answers, whole or in pieces, for the relay to Gemini clients.

Only the first candidate is compared, because only it is translated. The others pass with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from antiphon.dialects.common.relay import (
    ANY_TEXT,
    FINISH,
    UNREADABLE,
    ContentLevel,
    LiteralContent,
    Piece,
    call_piece,
    replace_model,
    text_piece,
)
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response


class AnswerContent(LiteralContent):
    """The content of one answer."""

    levels = (
        ContentLevel(frozenset({"candidates"}), "candidates"),
        ContentLevel(frozenset({"content", "finishReason"}), "content"),
        ContentLevel(frozenset({"role", "parts"})),
    )
    has_whole_calls = True

    def __init__(self, request: Request, wire: GeminiWire, response: Response, model: str | None) -> None:
        del request, wire, response
        self._model = model
        self._call_count = 0
        self._is_inside_call = False  # the call comes in pieces

    def pieces(self, value: Any) -> list[Piece]:
        pieces: list[Piece] = [] if value.get("error") is None else [UNREADABLE]
        if (value.get("promptFeedback") or {}).get("blockReason"):
            pieces.append(FINISH)
        for position, candidate in enumerate(value.get("candidates") or ()):
            if not candidate.get("index", position):
                pieces += self._candidate_pieces(candidate)
        return pieces

    def complete(self, value: Any) -> bool:
        return replace_model(value, "modelVersion", self._model)

    def _candidate_pieces(self, candidate: dict[str, Any]) -> Iterator[Piece]:
        for part in (candidate.get("content") or {}).get("parts") or ():
            if part.get("functionCall") is not None:
                yield from self._call_pieces(part["functionCall"])
            else:
                yield text_piece("reasoning" if part.get("thought") else "text", part.get("text"))
        if candidate.get("finishReason"):
            yield FINISH

    def _call_pieces(self, call: dict[str, Any]) -> Iterator[Piece]:
        """A call, or a piece of one. The arguments are complete with the last piece."""
        if not self._is_inside_call:
            yield call_piece(self._call_count, call.get("id") or "", call["name"])
        self._is_inside_call = bool(call.get("willContinue"))
        if not self._is_inside_call:
            yield Piece("arguments", ANY_TEXT, self._call_count)
            self._call_count += 1
