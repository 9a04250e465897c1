"""Quirks about how an assistant's earlier turns must look (D-1)."""

from __future__ import annotations

from antiphon.profiles.quirks.rewriting import NoOptions, change_messages, report_bare, text_of, with_content
from antiphon.protocol.content import ContentParam, InputText, OutputTextParam, Refusal, Text
from antiphon.protocol.items import MessageParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


def assistant_as_string(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """The content of assistant messages is a plain string."""

    def change(path: str, message: MessageParam) -> MessageParam:
        return with_content(message, text_of(message.content, f"{path}.content", losses, joint=""))

    return change_messages(request, change, "assistant")


def assistant_as_input_text(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """The text of assistant messages is `input_text`, as in any other message; a string is fine as it is."""

    def change(path: str, message: MessageParam) -> MessageParam:
        if isinstance(message.content, str):
            return message
        parts = enumerate(message.content)
        return with_content(message, [_as_input_text(part, f"{path}.content[{at}]", losses) for at, part in parts])

    return change_messages(request, change, "assistant")


def _as_input_text(part: ContentParam, path: str, losses: Losses) -> ContentParam:
    match part:
        case OutputTextParam() | Text():
            report_bare(part, path, losses)
            return InputText(text=part.text)
        case Refusal():
            report_bare(part, path, losses)
            losses.add(path, "a refusal is sent as plain text")
            return InputText(text=part.refusal)
        case _:
            return part
