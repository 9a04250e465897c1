"""What a conversation is made of, for those who shorten it: steps that stand or fall together, and what must stay. Pure.

A call without its output and an output without its call are no history that a server takes; reasoning belongs to what it led to.
"""

from __future__ import annotations

from typing import Final

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
    """Items that stand or fall together, by their places in the conversation: reasoning, the words or calls it led to, and the
    outputs of these calls."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.open_calls: set[str] = set()  # that have no output yet
        self._speaks = False
        self._calls: set[str] = set()
        self._answered = False

    def takes(self, item: ItemParam) -> bool:
        """Whether an item that comes next belongs to it."""
        match item:
            case FunctionCallParam() | CustomToolCallParam():
                return not self._answered and item.call_id not in self._calls
            case MessageParam(role="assistant"):
                return not self._speaks and not self._calls
            case ReasoningParam():
                return not self._speaks and not self._calls
            case _:
                return False

    def add(self, place: int, item: ItemParam) -> None:
        self.indexes.append(place)
        match item:
            case FunctionCallParam() | CustomToolCallParam():
                self._calls.add(item.call_id)
                self.open_calls.add(item.call_id)
            case FunctionCallOutputParam() | CustomToolCallOutputParam():
                self._answered = True
                self.open_calls.discard(item.call_id)
            case MessageParam():
                self._speaks = True
            case _:
                pass


def split_steps(items: list[ItemParam]) -> list[Step]:
    """The steps of a conversation, in the order in which they begin."""
    steps: list[Step] = []
    callers: dict[str, Step] = {}
    current: Step | None = None  # the model's own, to which more may belong
    for place, item in enumerate(items):
        if isinstance(item, OUTPUTS) and item.call_id in callers:
            callers[item.call_id].add(place, item)
            continue
        if current is None or not current.takes(item):
            current = Step()
            steps.append(current)
        current.add(place, item)
        if isinstance(item, CALLS):
            callers[item.call_id] = current
        elif not isinstance(item, OF_THE_MODEL) or (isinstance(item, MessageParam) and item.role != "assistant"):
            current = None
    return steps


def is_permanent(item: ItemParam) -> bool:
    """What holds for the whole conversation, wherever it stands: the words of the system and of developers, and tools."""
    return isinstance(item, AdditionalTools) or (isinstance(item, MessageParam) and item.role in ("system", "developer"))


def is_user_message(item: ItemParam) -> bool:
    """Whether a user said it; a summary only looks as if one had."""
    return isinstance(item, MessageParam) and item.role == "user" and not is_summary(item)


def is_summary(item: ItemParam) -> bool:
    return isinstance(item, MessageParam) and isinstance(item.content, str) and item.content.startswith(SUMMARY_HEAD)


def summary_message(summary: str) -> MessageParam:
    """What stands for all that was summed up. It is the user's message, not the developer's: words of tools and strangers went into
    it, and they give no orders."""
    return MessageParam(role="user", content=f"{SUMMARY_HEAD}\n\n{summary}\n\n{SUMMARY_END}")


def last_user_index(items: list[ItemParam]) -> int | None:
    """Where the user spoke last."""
    return next((place for place in reversed(range(len(items))) if is_user_message(items[place])), None)


CALLS: Final = (FunctionCallParam, CustomToolCallParam)
OUTPUTS: Final = (FunctionCallOutputParam, CustomToolCallOutputParam)
OF_THE_MODEL: Final = (MessageParam, ReasoningParam, *CALLS)
SUMMARY_HEAD: Final = (
    "[Summary of the conversation so far. It was made because the conversation had grown long; it stands for everything that came "
    "before, and asks for nothing itself.]"
)
SUMMARY_END: Final = "[End of the summary. What follows was said since, or is kept word for word.]"
