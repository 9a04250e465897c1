"""Reasoning in the forms of this dialect: what a server must get back of it, and what a client shows us again (RSN-2).

Servers give a text, or `reasoning_details`, which are their own affair: what came goes back to their maker to the letter, inside an
envelope. A client is shown that envelope as a detail, the one form for sealed reasoning that chat clients know and send back.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from antiphon.dialects.chat.wire import ChatWire, MessageIn
from antiphon.dialects.common.envelope import Envelope, seal_reasoning, unseal_reasoning
from antiphon.dialects.common.surrogates import SurrogateJoiner
from antiphon.protocol.content import Content, ReasoningText, SummaryText
from antiphon.protocol.items import ReasoningParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.text_pieces import TextPieces


class ReasoningCollector:
    """What the server must be given back of one reasoning item, collected while it comes."""

    def __init__(self, wire: ChatWire) -> None:
        self._maker = wire.maker
        self._keeps_text = wire.reasoning_field != "none"
        self._pieces = TextPieces()
        self._details: list[dict[str, Any]] = []

    def add_text(self, piece: str) -> None:
        if self._keeps_text:
            self._pieces.append(piece)

    def add_details(self, details: list[dict[str, Any]]) -> None:
        """Details of one chunk. The first may go on with what the chunk before ended with."""
        first, *others = details
        if self._details and _goes_on(self._details[-1], first):
            self._details[-1] = _joined(self._details[-1], first)
            details = others
        self._details += details

    def to_envelope(self) -> str | None:
        """The envelope, if there is anything that the server wants to see again."""
        content: dict[str, Any] = {}
        if self._pieces:
            content["reasoning_content"] = "".join(self._pieces)
        if any(map(_holds_more_than_text, self._details)):
            content["reasoning_details"] = _with_whole_characters(self._details)
        return seal_reasoning(self._maker, content) if content else None


def has_content(detail: dict[str, Any]) -> bool:
    return any(value for name, value in detail.items() if name not in BOOKKEEPING)


def own_envelope(item: ReasoningParam, maker: str) -> Envelope | None:
    """What `maker` gets back of an item of its own; None if the item is somebody else's, or open."""
    envelope = unseal_reasoning(item.encrypted_content) if item.encrypted_content else None
    return envelope if envelope is not None and envelope.maker == maker else None


class ReturnedReasoning(NamedTuple):
    """Reasoning that a client sends back, and the call that it led to, if the client knows."""

    item: ReasoningParam
    call_id: str | None = None


def reasoning_to_hub(message: MessageIn, path: str, losses: Losses) -> list[ReturnedReasoning]:
    """What the model thought before a message. The text of several sealed pieces comes as one, and stands in the first."""
    given = message.reasoning_content or message.reasoning
    text = given if isinstance(given, str) else ""
    if message.reasoning and message.reasoning != text:
        losses.add(f"{path}.reasoning", "reasoning in a second form", "the hub has a place for one text")
    sealed: list[tuple[str, str | None]] = []
    texts: list[str] = []
    summary: list[Content] = []
    for at, detail in enumerate(message.reasoning_details or ()):
        match detail:
            case {"type": "reasoning.encrypted", "data": str() as data} if data:
                call_id = detail.get("id")
                sealed.append((data, call_id if isinstance(call_id, str) else None))
            case {"type": "reasoning.text", "text": str() as piece, **rest}:
                texts.append(piece)
                if rest.get("signature"):
                    why = "whose it is cannot be told"
                    losses.add(f"{path}.reasoning_details[{at}].signature", "the signature of a reasoning text", why)
            case {"type": "reasoning.summary", "summary": str() as piece}:
                summary.append(SummaryText(text=piece))
            case _:
                losses.add(
                    f"{path}.reasoning_details[{at}]", "a detail of the reasoning", "it has a form that nobody knows"
                )
    text = text or "".join(texts)
    content: list[Content] = [ReasoningText(text=text)] if text else []
    if content:
        summary = []  # the same once more: who tells both tells the summary as the text
    if not sealed:
        return [ReturnedReasoning(ReasoningParam(summary=summary, content=content))] if content or summary else []
    (data, call_id), *others = sealed
    first = ReturnedReasoning(ReasoningParam(summary=summary, content=content, encrypted_content=data), call_id)
    return [
        first,
        *(ReturnedReasoning(ReasoningParam(summary=[], encrypted_content=data), call_id) for data, call_id in others),
    ]


def _holds_more_than_text(detail: dict[str, Any]) -> bool:
    """Whether it has what nobody but its maker can read: then all the details go back to it, as they came."""
    return any(value for name, value in detail.items() if name not in BOOKKEEPING and name not in TEXT_OF.values())


def _goes_on(last: dict[str, Any], first: dict[str, Any]) -> bool:
    return last.get("type") in TEXT_OF and all(last.get(name) == first.get(name) for name in ("type", "index"))


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two pieces of one detail: its text grows, and what else is told late is told all the same."""
    name = TEXT_OF[first["type"]]
    news = {key: value for key, value in second.items() if value is not None}
    return {**first, **news, name: f"{first.get(name) or ''}{news.get(name) or ''}"}


def _with_whole_characters(details: list[dict[str, Any]]) -> Any:
    """Characters that were cut in two by a chunk's end are whole again."""
    joiner = SurrogateJoiner()
    return json.loads(joiner.join(None, json.dumps(details, ensure_ascii=False)))


BOOKKEEPING: Final = frozenset({"type", "format", "index", "id"})
TEXT_OF: Final = {"reasoning.text": "text", "reasoning.summary": "summary"}
