"""Quirks about reasoning in a history, for servers that would refuse another's (RSN-3)."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from antiphon.profiles.quirks.rewriting import NoOptions, change_items, report_bare, text_of
from antiphon.protocol.content import ReasoningText
from antiphon.protocol.items import ItemParam, MessageParam, ReasoningParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


class ReasoningAsText(Struct, frozen=True, forbid_unknown_fields=True):
    before: str = "<think>\n"
    after: str = "\n</think>"


def drop_reasoning(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """Reasoning items are left out."""

    def change(path: str, item: ItemParam) -> ItemParam | None:
        if not isinstance(item, ReasoningParam):
            return item
        losses.add(path, "reasoning is left out", "this server does not take it")
        return None

    return change_items(request, change)


def open_reasoning(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """For servers that take reasoning by its open text: a summary stands in for it, and what is only sealed is left out."""

    def change(path: str, item: ItemParam) -> ItemParam | None:
        if not isinstance(item, ReasoningParam) or item.content:
            return item
        text = text_of(item.summary, f"{path}.summary", losses, joint="\n\n")
        if text:
            losses.add(f"{path}.summary", "a summary is sent as the reasoning itself", "this server takes no other")
            return replace(item, content=[ReasoningText(text=text)], summary=[])
        losses.add(path, "reasoning is left out", "there is no text in it")
        return None

    return change_items(request, change)


def reasoning_as_text(request: Request, losses: Losses, options: ReasoningAsText) -> Request:
    """Reasoning becomes an assistant message between marks; what is sealed cannot."""

    def change(path: str, item: ItemParam) -> ItemParam | None:
        if not isinstance(item, ReasoningParam):
            return item
        told = "content" if item.content else "summary"
        text = text_of(item.content or item.summary, f"{path}.{told}", losses, joint="\n\n")
        report_bare(item, path, losses, fields=("encrypted_content", "summary") if item.content else ("encrypted_content",))
        if text:
            return MessageParam(role="assistant", content=f"{options.before}{text}{options.after}")
        losses.add(path, "reasoning is left out", "there is no text in it")
        return None

    return change_items(request, change)
