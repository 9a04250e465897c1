"""Reasoning of Chat servers and clients, and how it is returned to the server that made it (RSN-2).

Servers send a text or `reasoning_details`. Both are sealed unchanged in an envelope. Clients get the envelope as an
encrypted detail, which is the one form of encrypted reasoning that chat clients send back. Details of another form are
those of a chat server: any chat server gets them back unchanged, in an envelope if they contain more than text.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.dialects.chat.wire import REASONING_DETAILS, REASONING_SETTINGS, ChatWire, MessageIn
from antiphon.dialects.common.effort import EFFORT_OF_WORD, effort_of
from antiphon.dialects.common.envelope import Envelope, client_maker, seal_reasoning, unseal_reasoning
from antiphon.dialects.common.surrogates import SurrogateJoiner
from antiphon.protocol import codec
from antiphon.protocol.content import Content, ReasoningText, SummaryText
from antiphon.protocol.items import ReasoningParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.open_items import TextPieces
from antiphon.protocol.request import ReasoningEffort, Request


def effort_of_settings(raw: Raw | None) -> ReasoningEffort | UnsetType:
    """The effort in a client's settings for reasoning, which are a word, a number of tokens, or a switch (RSN-4)."""
    match msgspec.json.decode(raw) if raw is not None else None:
        case {"effort": str() as word}:
            return EFFORT_OF_WORD.get(word, UNSET)
        case {"max_tokens": int() as budget} if budget > 0:
            return effort_of(budget)
        case {"enabled": bool() as is_enabled}:
            return "medium" if is_enabled else "none"
        case _:
            return UNSET


def excludes_reasoning(request: Request) -> bool:
    """Whether the client's settings for reasoning ask for an answer without the text of the reasoning."""
    raw = (request.extra or {}).get(REASONING_SETTINGS)
    settings = msgspec.json.decode(raw) if raw is not None else None
    return isinstance(settings, dict) and settings.get("exclude") is True


class ReasoningCollector:
    """Collects the parts of one reasoning item that the server must get back."""

    def __init__(self, wire: ChatWire) -> None:
        self._maker = wire.maker
        self._keeps_text = wire.reasoning_field != "none"
        self._pieces = TextPieces()
        self._details: list[dict[str, Any]] = []

    def add_text(self, piece: str) -> None:
        if self._keeps_text:
            self._pieces.append(piece)

    def add_details(self, details: list[dict[str, Any]]) -> None:
        """Add the details of one chunk. The first may continue the last detail of the previous chunk."""
        first, *others = details
        if self._details and _continues_detail(self._details[-1], first):
            self._details[-1] = _join_details(self._details[-1], first)
            details = others
        self._details += details

    def to_envelope(self) -> str | None:
        """Return the envelope, or None if there is nothing to return to the server."""
        content: dict[str, Any] = {}
        if self._pieces:
            content["reasoning_content"] = "".join(self._pieces)
        if any(map(_has_more_than_text, self._details)):
            content["reasoning_details"] = _join_surrogates(self._details)
        return seal_reasoning(self._maker, content) if content else None


def has_content(detail: dict[str, Any]) -> bool:
    return any(value for name, value in detail.items() if name not in BOOKKEEPING_MEMBERS)


def own_envelope(item: ReasoningParam, maker: str) -> Envelope | None:
    """Return the envelope of an item that `maker` or an unknown chat server made; None for any other item."""
    envelope = unseal_reasoning(item.encrypted_content)
    return envelope if envelope is not None and envelope.is_for(maker, "chat") else None


class ReturnedReasoning(NamedTuple):
    """Reasoning that a client sends back, and the id of the call that follows it, if the client sent one."""

    item: ReasoningParam
    call_id: str | None = None


def reasoning_to_hub(message: MessageIn, path: str, losses: Losses) -> list[ReturnedReasoning]:
    """Translate the reasoning of a message. The first item has the text, and the details of chat servers."""
    text_field = message.reasoning_content or message.reasoning
    text = text_field if isinstance(text_field, str) else ""
    if message.reasoning and message.reasoning != text:
        losses.add(f"{path}.reasoning", "reasoning in a second form", "a reasoning item has one text")
    details = message.reasoning_details or []
    envelopes = [detail for detail in details if _is_envelope(detail)]
    server_details = [detail for detail in details if not _is_envelope(detail)]
    text = text or "".join(_texts(server_details, "reasoning.text"))
    content: list[Content] = [ReasoningText(text=text)] if text else []
    # Servers that send both repeat the summary in the text.
    summary: list[Content] = [
        SummaryText(text=piece) for piece in _texts(server_details, "reasoning.summary") if not content
    ]
    items = [
        ReturnedReasoning(ReasoningParam(summary=[], encrypted_content=detail["data"]), _call_id(detail))
        for detail in envelopes
    ]
    if any(map(_has_more_than_text, server_details)):
        sealed = seal_reasoning(client_maker("chat"), {"reasoning_details": server_details})
        return [
            ReturnedReasoning(ReasoningParam(summary=summary, content=content, encrypted_content=sealed)),
            *items,
        ]
    extra = {REASONING_DETAILS: Raw(codec.encode(server_details))} if server_details else UNSET
    if items:
        (first, call_id), *others = items
        return [ReturnedReasoning(replace(first, summary=summary, content=content, extra=extra), call_id), *others]
    if content or summary:
        return [ReturnedReasoning(ReasoningParam(summary=summary, content=content, extra=extra))]
    return []


def client_details(item: ReasoningParam) -> list[dict[str, Any]]:
    """Return the details without signatures that a chat client sent."""
    raw = (item.extra or {}).get(REASONING_DETAILS)
    return msgspec.json.decode(raw, type=list[dict[str, Any]]) if raw is not None else []


def _is_envelope(detail: dict[str, Any]) -> bool:
    data = detail.get("data")
    return detail.get("type") == "reasoning.encrypted" and isinstance(data, str) and unseal_reasoning(data) is not None


def _call_id(detail: dict[str, Any]) -> str | None:
    call_id = detail.get("id")
    return call_id if isinstance(call_id, str) else None


def _texts(details: list[dict[str, Any]], kind: str) -> list[str]:
    """Return the texts of the details of a type."""
    texts = [detail.get(TEXT_MEMBER_OF_TYPE[kind]) for detail in details if detail.get("type") == kind]
    return [text for text in texts if isinstance(text, str)]


def _has_more_than_text(detail: dict[str, Any]) -> bool:
    """Whether a detail contains more than text. Then all details must be returned unchanged."""
    return any(
        value
        for name, value in detail.items()
        if name not in BOOKKEEPING_MEMBERS and name not in TEXT_MEMBER_OF_TYPE.values()
    )


def _continues_detail(last: dict[str, Any], first: dict[str, Any]) -> bool:
    return last.get("type") in TEXT_MEMBER_OF_TYPE and all(
        last.get(name) == first.get(name) for name in ("type", "index")
    )


def _join_details(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Join two pieces of one detail. Texts are joined, other members are added."""
    name = TEXT_MEMBER_OF_TYPE[first["type"]]
    new_members = {key: value for key, value in second.items() if value is not None}
    return {**first, **new_members, name: f"{first.get(name) or ''}{new_members.get(name) or ''}"}


def _join_surrogates(details: list[dict[str, Any]]) -> Any:
    """Join surrogate pairs that are split between chunks."""
    joiner = SurrogateJoiner()
    return json.loads(joiner.join(None, json.dumps(details, ensure_ascii=False)))


BOOKKEEPING_MEMBERS: Final = frozenset({"type", "format", "index", "id"})
TEXT_MEMBER_OF_TYPE: Final = {"reasoning.text": "text", "reasoning.summary": "summary"}
