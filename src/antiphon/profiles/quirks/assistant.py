"""A quirk about how an assistant's earlier turns must look (D-1)."""

from __future__ import annotations

from antiphon.profiles.quirks.rewriting import NoOptions, change_messages, content_as_text, with_content
from antiphon.protocol.items import MessageParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


def assistant_as_string(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """The content of assistant messages is a plain string."""

    def change(path: str, message: MessageParam) -> MessageParam:
        return with_content(message, content_as_text(message.content, f"{path}.content", losses, separator=""))

    return change_messages(request, change, "assistant")
