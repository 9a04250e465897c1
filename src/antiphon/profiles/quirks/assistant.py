"""The quirk for the content of assistant messages in a history (D-1)."""

from __future__ import annotations

from antiphon.profiles.quirks.rewriting import NoOptions, change_messages, content_as_text, with_content
from antiphon.protocol.items import MessageParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


def assistant_as_string(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """Send the content of assistant messages as a string."""

    def change(path: str, message: MessageParam) -> MessageParam:
        return with_content(message, content_as_text(message.content, f"{path}.content", losses, separator=""))

    return change_messages(request, change, "assistant")
