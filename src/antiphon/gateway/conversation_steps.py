"""Splits a conversation into steps that are kept or dropped together, and tells which items must stay. Pure.

Servers refuse a call without its output and an output without its call; reasoning belongs to the output that it led to.
"""

from __future__ import annotations

from typing import Final, TypeGuard

from antiphon.protocol.items import (
    AdditionalTools,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    ReasoningParam,
)

Call = FunctionCallParam | CustomToolCallParam
Output = FunctionCallOutputParam | CustomToolCallOutputParam


class Step:
    """Indexes of items that are kept or dropped together: reasoning, the message or calls it led to, and the outputs of
    these calls."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.open_calls: set[str] = set()  # call ids without an output
        self._has_message = False
        self._calls: set[str] = set()
        self._has_output = False

    def can_take(self, item: ItemParam) -> bool:
        """Whether the next item belongs to this step."""
        match item:
            case FunctionCallParam() | CustomToolCallParam():
                return not self._has_output and item.call_id not in self._calls
            case MessageParam(role="assistant"):
                return not self._has_message and not self._calls
            case ReasoningParam():
                return not self._has_message and not self._calls
            case _:
                return False

    def add(self, index: int, item: ItemParam) -> None:
        self.indexes.append(index)
        match item:
            case FunctionCallParam() | CustomToolCallParam():
                self._calls.add(item.call_id)
                self.open_calls.add(item.call_id)
            case FunctionCallOutputParam() | CustomToolCallOutputParam():
                self._has_output = True
                self.open_calls.discard(item.call_id)
            case MessageParam():
                self._has_message = True
            case _:
                pass


def split_steps(items: list[ItemParam]) -> list[Step]:
    """The steps of a conversation, in the order in which they begin."""
    steps: list[Step] = []
    steps_by_call_id: dict[str, Step] = {}
    open_step: Step | None = None  # the model's step that may grow
    for index, item in enumerate(items):
        if isinstance(item, OUTPUTS) and item.call_id in steps_by_call_id:
            steps_by_call_id[item.call_id].add(index, item)
            continue
        if open_step is None or not open_step.can_take(item):
            open_step = Step()
            steps.append(open_step)
        open_step.add(index, item)
        if isinstance(item, CALLS):
            steps_by_call_id[item.call_id] = open_step
        elif not isinstance(item, MODEL_ITEMS) or (isinstance(item, MessageParam) and item.role != "assistant"):
            open_step = None
    return steps


def is_permanent(item: ItemParam) -> bool:
    """Whether an item applies to the whole conversation: system and developer messages, and tools."""
    return isinstance(item, AdditionalTools) or (
        isinstance(item, MessageParam) and item.role in ("system", "developer")
    )


def is_user_message(item: ItemParam) -> TypeGuard[MessageParam]:
    """Whether an item is a user message and not a summary, which also has the role `user`."""
    return isinstance(item, MessageParam) and item.role == "user" and not is_summary(item)


def is_summary(item: ItemParam) -> bool:
    return isinstance(item, MessageParam) and isinstance(item.content, str) and item.content.startswith(SUMMARY_HEAD)


def summary_message(summary: str) -> MessageParam:
    """The summary as a message. Its role is `user`, not `developer`: it may repeat text of tools and third parties,
    which must not have authority."""
    return MessageParam(role="user", content=f"{SUMMARY_HEAD}\n\n{summary}\n\n{SUMMARY_END}")


def last_user_index(items: list[ItemParam]) -> int | None:
    """The index of the last user message."""
    return next((index for index in reversed(range(len(items))) if is_user_message(items[index])), None)


CALLS: Final = (FunctionCallParam, CustomToolCallParam)
OUTPUTS: Final = (FunctionCallOutputParam, CustomToolCallOutputParam)
MODEL_ITEMS: Final = (MessageParam, ReasoningParam, *CALLS)
SUMMARY_HEAD: Final = "[Summary of the earlier conversation. It replaces all earlier messages and contains no request.]"
SUMMARY_END: Final = "[End of the summary. The messages below are newer than the summary, or repeated verbatim.]"
