"""Quirks for the two forms of message content: a string, or a list of parts."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from antiphon.profiles.quirks.rewriting import NoOptions, change_messages, content_as_text, with_content
from antiphon.protocol.content import InputText, OutputTextParam
from antiphon.protocol.items import MessageParam, MessageRole
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items


class StringsAsPartsOptions(Struct, frozen=True, forbid_unknown_fields=True):
    #: Roles of the messages to change. A server may require strings for the assistant's messages.
    roles: tuple[MessageRole, ...] = ("user", "system", "developer", "assistant")


def strings_as_parts(request: Request, _losses: Losses, options: StringsAsPartsOptions) -> Request:
    """For servers that accept content only as parts. A string input becomes a user message."""
    if isinstance(request.input, str):
        request = replace(request, input=input_items(request))
    return change_messages(request, _with_content_parts, *options.roles)


def parts_as_strings(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """For servers that accept text only as strings. A message with parts other than text stays unchanged."""

    def change(path: str, message: MessageParam) -> MessageParam:
        is_only_text = all(isinstance(part, InputText | OutputTextParam) for part in message.content)
        return (
            with_content(message, content_as_text(message.content, f"{path}.content", losses, separator="\n"))
            if is_only_text
            else message
        )

    return change_messages(request, change, "user", "system", "developer", "assistant")


def _with_content_parts(_: str, message: MessageParam) -> MessageParam:
    if not isinstance(message.content, str):
        return message
    part = OutputTextParam(text=message.content) if message.role == "assistant" else InputText(text=message.content)
    return with_content(message, [part])
