"""Reads the common form of a conversation in one pass.

In this form, user and assistant alternate with plain texts, and each call is directly followed by its output, in order.
Nothing of it can be lost in translation. `common/history` handles all other conversations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, final

from msgspec import Struct

from antiphon.protocol.content import ContentParam, InputText, OutputTextParam
from antiphon.protocol.items import FunctionCallOutputParam, FunctionCallParam, ItemParam, MessageParam


@final
class PlainMessage(Struct, frozen=True, gc=False):
    """A text of the user or the assistant."""

    is_user: bool
    text: str


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
    for item in items:
        kind = type(item)
        if kind is FunctionCallOutputParam:
            output = cast(FunctionCallOutputParam, item)
            index = len(outputs)
            if (
                index == len(calls)
                or calls[index].call_id != output.call_id
                or type(output.output) is not str
                or output.extra
            ):
                return None
            outputs.append(output.output)
            continue
        if outputs:
            if len(outputs) != len(calls):
                return None  # another item between a call and its output
            turns.append(PlainCalls(assistant_text, calls, outputs))
            assistant_text, calls, outputs = None, [], []
        if kind is FunctionCallParam:
            call = cast(FunctionCallParam, item)
            if not turns or call.extra or call.namespace or call.call_id in ids:
                return None
            ids.add(call.call_id)
            calls.append(call)
        elif kind is MessageParam and not calls:
            message = cast(MessageParam, item)
            text = plain_text(message.content)
            if not text or not text.strip() or message.extra or message.phase:
                return None
            if message.role == "user" and not _is_after_user(turns, assistant_text):
                if assistant_text is not None:
                    turns.append(PlainMessage(False, assistant_text))
                    assistant_text = None
                turns.append(PlainMessage(True, text))
            elif message.role == "assistant" and turns and assistant_text is None:
                assistant_text = text
            else:
                return None
        else:
            return None
    if len(outputs) != len(calls) or (assistant_text is not None and not calls):
        return None
    if calls:
        turns.append(PlainCalls(assistant_text, calls, outputs))
    return turns or None


def plain_text(content: str | Sequence[ContentParam]) -> str | None:
    """The text of content that is one text part without extra fields, else None."""
    if isinstance(content, str):
        return content
    if len(content) == 1:
        part = content[0]
        if type(part) is InputText and not part.extra:
            return part.text
        if type(part) is OutputTextParam and not (part.annotations or part.logprobs or part.extra):
            return part.text
    return None


def _is_after_user(turns: list[PlainMessage | PlainCalls], assistant_text: str | None) -> bool:
    """Whether the last turn is a message of the user, which another user message would continue."""
    return assistant_text is None and bool(turns) and type(turns[-1]) is PlainMessage
