"""Reads the common form of a conversation in one pass.

In this form, user and assistant alternate with plain texts, and each call is directly followed by its output, in order.
Nothing of it can be lost in translation. `common/history` handles all other conversations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from msgspec import Struct

from antiphon.protocol.content import ContentParam, InputText, OutputTextParam
from antiphon.protocol.items import FunctionCallOutputParam, FunctionCallParam, ItemParam, MessageParam, MessageRole

#: The role and the text of a message of the user or the assistant.
PlainMessage = tuple[MessageRole, str]


@final
class PlainCalls(Struct, frozen=True):
    """The text of an assistant turn, if any, its calls, and their outputs."""

    text: str | None
    calls: list[FunctionCallParam]
    outputs: list[str]


def plain_history(items: list[ItemParam]) -> list[PlainMessage | PlainCalls] | None:
    """The turns of a plain conversation that starts with the user and does not end with the assistant; else None."""
    turns: list[PlainMessage | PlainCalls] = []
    assistant_text: str | None = None  # of an assistant turn that may continue with calls
    calls: list[FunctionCallParam] = []
    outputs: list[str] = []
    ids: set[str] = set()
    for item in items:  # this runs for every item of every request
        if type(item) is MessageParam:
            role, content = item.role, item.content
            if type(content) is list and len(content) == 1 and type(part := content[0]) is InputText and not part.extra:
                text: str | None = part.text  # as `plain_text`, which a call for every message would make slower
            else:
                text = plain_text(content)
            if calls or not text or text.isspace() or item.extra or item.phase:
                return None
            if role == "user":
                if assistant_text is not None:
                    turns.append(("assistant", assistant_text))
                    assistant_text = None
                elif turns and type(turns[-1]) is tuple:
                    return None  # the message continues another one of the user
                turns.append((role, text))
            elif role == "assistant" and turns and assistant_text is None:
                assistant_text = text
            else:
                return None
        elif type(item) is FunctionCallParam:
            if outputs or not turns or item.extra or item.namespace or item.call_id in ids:
                return None
            ids.add(item.call_id)
            calls.append(item)
        elif type(item) is FunctionCallOutputParam:
            is_next = len(outputs) < len(calls) and calls[len(outputs)].call_id == item.call_id
            if not is_next or type(item.output) is not str or item.extra:
                return None
            outputs.append(item.output)
            if len(outputs) == len(calls):
                turns.append(PlainCalls(assistant_text, calls, outputs))
                assistant_text, calls, outputs = None, [], []
        else:
            return None
    if calls or assistant_text is not None:
        return None
    return turns or None


def plain_text(content: str | Sequence[ContentParam]) -> str | None:
    """The text of content that is one text part without extra fields, else None."""
    if type(content) is str:
        return content
    if len(content) == 1:
        part = content[0]
        if type(part) is InputText and not part.extra:
            return part.text
        if type(part) is OutputTextParam and not (part.annotations or part.logprobs or part.extra):
            return part.text
    return None
