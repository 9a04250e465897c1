"""Quirks for reasoning in a history, for servers that refuse reasoning of another maker (RSN-3)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.dialects.common.envelope import Envelope, unseal_reasoning
from antiphon.profiles.quirks.rewriting import NoOptions, change_items, content_as_text, report_dropped_fields
from antiphon.protocol.content import Content, ReasoningText
from antiphon.protocol.items import ItemParam, MessageParam, ReasoningParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


class ReasoningAsTextOptions(Struct, frozen=True, forbid_unknown_fields=True):
    before: str = "<think>\n"
    after: str = "\n</think>"


def drop_reasoning(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """Leave out reasoning items."""

    def change(path: str, item: ItemParam) -> ItemParam | None:
        if not isinstance(item, ReasoningParam):
            return item
        losses.add(path, "earlier reasoning", "the server does not support it")
        return None

    return change_items(request, change)


def open_reasoning(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """For servers that accept reasoning only as plain text: a summary replaces missing text; items that are only sealed
    are left out."""

    shows_content_as_summary = bool(request.reasoning and request.reasoning.summary)

    def change(path: str, item: ItemParam) -> ItemParam | None:
        if not isinstance(item, ReasoningParam) or item.content:
            return item
        text = content_as_text(item.summary, f"{path}.summary", losses, separator="\n\n")
        if text:
            if not shows_content_as_summary or item.encrypted_content:  # RSN-4: else the text was its content
                losses.add(
                    f"{path}.summary", "the form of a reasoning summary", "the server accepts only reasoning text"
                )
            return replace(item, content=[ReasoningText(text=text)], summary=[])
        losses.add(path, "earlier reasoning", "it has no text")
        return None

    return change_items(request, change)


def reasoning_as_text(request: Request, losses: Losses, options: ReasoningAsTextOptions) -> Request:
    """Send reasoning as an assistant message between marks. Sealed reasoning is left out."""

    def change(path: str, item: ItemParam) -> ItemParam | None:
        return _reasoning_as_message(item, path, losses, options) if isinstance(item, ReasoningParam) else item

    return change_items(request, change)


def foreign_reasoning_as_text(
    request: Request, losses: Losses, maker: str, dialect: str, *, accepts_unsealed: bool
) -> Request:
    """RSN-3: send reasoning as text if neither `maker` nor an unknown server of `dialect` made it. Reasoning without a
    seal has no maker; `accepts_unsealed` is whether the server accepts it as reasoning."""

    def change(path: str, item: ItemParam) -> ItemParam | None:
        if not isinstance(item, ReasoningParam):
            return item
        envelope = unseal_reasoning(item.encrypted_content) if item.encrypted_content else None
        is_foreign = (
            not envelope.is_for(maker, dialect)
            if envelope is not None
            else not item.encrypted_content and not accepts_unsealed
        )
        return (
            _reasoning_as_message(_with_unsealed_text(item, envelope), path, losses, ReasoningAsTextOptions())
            if is_foreign
            else item
        )

    return change_items(request, change)


def _with_unsealed_text(item: ReasoningParam, envelope: Envelope | None) -> ReasoningParam:
    """Return an item that has only its envelope, with the text from the envelope."""
    if envelope is None or item.content or item.summary:
        return item
    values = (envelope.content.get(name) for name in TEXT_FIELDS)
    texts: list[Content] = [ReasoningText(text=text) for text in values if isinstance(text, str)]
    return replace(item, content=texts[:1])


def _reasoning_as_message(
    item: ReasoningParam, path: str, losses: Losses, marks: ReasoningAsTextOptions
) -> ItemParam | None:
    field = "content" if item.content else "summary"
    text = content_as_text(item.content or item.summary, f"{path}.{field}", losses, separator="\n\n")
    report_dropped_fields(
        item, path, losses, fields=("encrypted_content", "summary") if item.content else ("encrypted_content",)
    )
    if text:
        return MessageParam(role="assistant", content=f"{marks.before}{text}{marks.after}")
    losses.add(path, "earlier reasoning", "it has no text")
    return None


#: Envelope fields with the text of a thought, in the several dialects.
TEXT_FIELDS: Final = ("thinking", "text", "reasoning_content")
