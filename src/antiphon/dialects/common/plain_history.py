"""The common conversation, in one pass: user and assistant by turns, plain texts, calls answered in order right after them.

Nothing in such a conversation can be lost, so nothing is looked for; a dialect only has to spell it. Whatever else a conversation
holds is left to `common/history`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, final

from msgspec import Struct

from antiphon.protocol.content import ContentParam, InputText, OutputTextParam
from antiphon.protocol.items import FunctionCallOutputParam, FunctionCallParam, ItemParam, MessageParam


@final
class PlainMessage(Struct, frozen=True, gc=False):
    """A text, by the user or by the assistant."""

    is_user: bool
    text: str


@final
class PlainCalls(Struct, frozen=True):
    """What the assistant said first, if anything, its calls, and what each of them gave."""

    text: str | None
    calls: list[FunctionCallParam]
    outputs: list[str]


def plain_history(items: list[ItemParam]) -> list[PlainMessage | PlainCalls] | None:
    """The turns of a conversation that is as plain as that, begins with the user and does not end with the assistant; else None."""
    turns: list[PlainMessage | PlainCalls] = []
    assistant_text: str | None = None  # by the assistant, whose turn may go on with calls
    calls: list[FunctionCallParam] = []
    outputs: list[str] = []
    ids: set[str] = set()
    for item in items:
        kind = type(item)
        if kind is FunctionCallOutputParam:
            output = cast(FunctionCallOutputParam, item)
            at = len(outputs)
            if (
                at == len(calls)
                or calls[at].call_id != output.call_id
                or type(output.output) is not str
                or output.extra
            ):
                return None
            outputs.append(output.output)
            continue
        if outputs:
            if len(outputs) != len(calls):
                return None  # something between a call and its output
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
            if message.role == "user" and not _was_users(turns, assistant_text):
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
    """What most content is, by a short cut: one text with nothing to report. None if it has to be looked at."""
    if isinstance(content, str):
        return content
    if len(content) == 1:
        part = content[0]
        if type(part) is InputText and not part.extra:
            return part.text
        if type(part) is OutputTextParam and not (part.annotations or part.logprobs or part.extra):
            return part.text
    return None


def _was_users(turns: list[PlainMessage | PlainCalls], assistant_text: str | None) -> bool:
    """Whether the last word is the user's: what he says then goes on with it."""
    return assistant_text is None and bool(turns) and type(turns[-1]) is PlainMessage
