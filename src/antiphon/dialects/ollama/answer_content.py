"""Lists the literal content of Ollama's answers, whole or line by line, for the relay to Ollama clients."""

from __future__ import annotations

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
from antiphon.dialects.ollama.wire import GENERATE, OllamaWire
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response


class AnswerContent(LiteralContent):
    """The content of one answer."""

    levels = (
        ContentLevel(frozenset({"message", "response", "thinking", "done", "done_reason"}), "message"),
        ContentLevel(frozenset({"role", "content", "thinking", "tool_calls"})),
    )

    def __init__(self, request: Request, wire: OllamaWire, response: Response, model: str | None) -> None:
        del wire, response
        self._model = model
        self._is_generated = GENERATE in (request.extra or {})
        self._is_done = False  # nothing may follow
        self._call_count = 0

    def pieces(self, value: Any) -> list[Piece]:
        message = value.get("message")
        # Servers are asked by `/api/chat`, so an answer of `/api/generate` is always written anew.
        if self._is_generated or self._is_done or value.get("error") is not None or message is None:
            return [UNREADABLE]
        self._is_done = bool(value.get("done"))
        pieces = [text_piece("reasoning", message.get("thinking")), text_piece("text", message.get("content"))]
        for call in message.get("tool_calls") or ():
            pieces.append(call_piece(self._call_count, call.get("id") or "", call["function"]["name"]))
            pieces.append(Piece("arguments", ANY_TEXT, self._call_count))
            self._call_count += 1
        return [*pieces, FINISH] if self._is_done else pieces

    def complete(self, value: Any) -> bool:
        return replace_model(value, "model", self._model)
