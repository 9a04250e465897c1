"""Reads the common form of a conversation in one pass.

In this form, user and assistant alternate with plain texts, and each call is directly followed by its output, in order.
Nothing of it can be lost in translation. `common/history` handles all other conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar, final

from msgspec import Struct

from antiphon.protocol.content import ContentParam, InputText, OutputTextParam
from antiphon.protocol.items import FunctionCallOutputParam, FunctionCallParam, ItemParam, MessageParam, MessageRole

T = TypeVar("T")


@final
class PlainMessage(Struct, frozen=True, gc=False):
    """A message of the user or the assistant."""

    role: MessageRole
    text: str


@final
class PlainCalls(Struct, frozen=True):
    """The text of an assistant turn, if any, its calls, and their outputs."""

    text: str | None
    calls: list[FunctionCallParam]
    outputs: list[str]


def plain_history(items: list[ItemParam]) -> list[PlainMessage | PlainCalls] | None:
    """The turns of a plain conversation that starts with the user and does not end with the assistant; else None."""
    return make_plain_turns(items, PlainMessage, lambda *turn: [PlainCalls(*turn)])


def make_plain_turns(
    items: list[ItemParam],
    make_message: Callable[[MessageRole, str], T],
    make_calls: Callable[[str | None, list[FunctionCallParam], list[str]], list[T]],
) -> list[T] | None:
    """The same in the caller's form. `make_calls` gets the members of `PlainCalls`."""
    if not PLAIN_KINDS.issuperset(map(type, items)) or any(map(_extra_of, items)):
        return None
    turns: list[T] = []
    is_after_user = False  # the last turn is a message of the user
    assistant_text: str | None = None  # of an assistant turn that may continue with calls
    calls: list[FunctionCallParam] = []
    outputs: list[str] = []
    ids: set[str] = set()
    for item in items:  # this runs for every item of every request
        if type(item) is MessageParam:
            content = item.content
            if type(content) is str:
                text = content
            else:  # as `plain_text`, which a call for every message would make slower
                if len(content) != 1:
                    return None
                part: Any = content[0]
                kind = type(part)
                if kind is not InputText and (kind is not OutputTextParam or part.annotations or part.logprobs):
                    return None
                if part.extra:
                    return None
                text = part.text
            if calls or not text or text.isspace() or item.phase:
                return None
            if item.role == "user":
                if assistant_text is not None:
                    turns.append(make_message("assistant", assistant_text))
                    assistant_text = None
                elif is_after_user:
                    return None  # the message continues another one of the user
                turns.append(make_message("user", text))
                is_after_user = True
            elif item.role == "assistant" and turns and assistant_text is None:
                assistant_text = text
            else:
                return None
        elif type(item) is FunctionCallParam:
            if outputs or not turns or item.namespace or item.call_id in ids:
                return None
            ids.add(item.call_id)
            calls.append(item)
        else:
            output: Any = item  # of the third plain kind
            is_next = len(outputs) < len(calls) and calls[len(outputs)].call_id == output.call_id
            if not is_next or type(output.output) is not str:
                return None
            outputs.append(output.output)
            if len(outputs) == len(calls):
                turns += make_calls(assistant_text, calls, outputs)
                assistant_text, calls, outputs, is_after_user = None, [], [], False
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


PLAIN_KINDS: Final[frozenset[type]] = frozenset({MessageParam, FunctionCallParam, FunctionCallOutputParam})
_extra_of: Final[Callable[[Any], Any]] = attrgetter("extra")
