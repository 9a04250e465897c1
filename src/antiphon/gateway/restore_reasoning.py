"""Restores reasoning that a client left out of its history from stored responses (RSN-2). Pure.

Some servers refuse a call without the reasoning that led to it, and many clients drop reasoning items or their sealed
form. Stored reasoning is looked up by the ids of calls and reasoning items. Only reasoning of the same server is
restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final, NamedTuple, TypeGuard

from msgspec.structs import replace

from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    ReasoningParam,
)

Call = FunctionCallParam | CustomToolCallParam


class MissingReasoning(NamedTuple):
    """The ids by which missing reasoning can be looked up."""

    item_ids: list[str]
    call_ids: list[str]


def find_missing_reasoning(items: list[ItemParam]) -> MissingReasoning:
    """The reasoning that a history lacks: the sealed form of reasoning items, and reasoning before calls."""
    missing = MissingReasoning([], [])
    for is_the_models, turn in _turns(items):
        if is_the_models and not any(map(_is_sealed, turn)):
            missing.item_ids.extend(item.id for item in turn if type(item) is ReasoningParam and item.id)
            missing.call_ids.extend(item.call_id for item in turn if _is_call(item))
    return missing


def restore_reasoning(items: list[ItemParam], outputs: list[list[ItemParam]], maker: str) -> list[ItemParam]:
    """The history with the reasoning found in `outputs`; the same list if there is none."""
    earlier = _EarlierOutputs(outputs, maker)
    whole: list[ItemParam] = []
    has_changed = False
    for is_the_models, turn in _turns(items):
        restored = earlier.restored(turn) if is_the_models and not any(map(_is_sealed, turn)) else None
        has_changed = has_changed or restored is not None
        whole += restored or turn
    return whole if has_changed else items


class _EarlierOutputs:
    """Earlier outputs, indexed by reasoning item ids and call ids."""

    def __init__(self, outputs: list[list[ItemParam]], maker: str) -> None:
        self._maker = maker
        self._thoughts = {item.id: item for output in outputs for item in output if self._is_own(item) and item.id}
        self._calls = {
            item.call_id: (output, at) for output in outputs for at, item in enumerate(output) if _is_call(item)
        }

    def restored(self, turn: list[ItemParam]) -> list[ItemParam] | None:
        """A model turn with its reasoning; None if none is stored."""
        completed = [self._completed(item) for item in turn]
        if any(map(_is_sealed, completed)):
            return completed
        bare = [item for item in turn if type(item) is not ReasoningParam]  # the stored items have its plain text
        before: dict[int, list[ItemParam]] = {}
        for at, item in enumerate(bare):
            if _is_call(item):
                for place, thought in self._led_to(item, bare, at):
                    before.setdefault(place, []).append(thought)
        return [each for at, item in enumerate(bare) for each in (*before.get(at, ()), item)] if before else None

    def _completed(self, item: ItemParam) -> ItemParam:
        """Adds the stored sealed form to a reasoning item."""
        thought = self._thoughts.get(item.id or "") if type(item) is ReasoningParam else None
        return replace(item, encrypted_content=thought.encrypted_content) if thought is not None else item

    def _led_to(self, call: Call, turn: list[ItemParam], at: int) -> Iterator[tuple[int, ReasoningParam]]:
        """The reasoning items between the previous call and this one, each with its index in the turn: before the
        messages that it led to."""
        output, end = self._calls.get(call.call_id, (NOTHING, 0))
        if not output or output[end].name != call.name:  # type: ignore[union-attr]  # what stands there is a call
            return
        begin = max((place + 1 for place in range(end) if _is_call(output[place])), default=0)
        for place in range(begin, end):
            thought = output[place]
            if self._is_own(thought):
                words = sum(type(item) is MessageParam for item in output[place:end])
                first = next((back for back in range(words) if not _is_message(turn, at - 1 - back)), words)
                yield at - first, thought

    def _is_own(self, item: ItemParam) -> TypeGuard[ReasoningParam]:
        if type(item) is not ReasoningParam or not item.encrypted_content:
            return False
        envelope = unseal_reasoning(item.encrypted_content)
        return envelope is not None and envelope.maker == self._maker


def _turns(items: list[ItemParam]) -> Iterator[tuple[bool, list[ItemParam]]]:
    """Runs of consecutive items, and whether the model produced them."""
    return ((is_the_models, list(turn)) for is_the_models, turn in groupby(items, _is_the_models))


def _is_the_models(item: ItemParam) -> bool:
    # Runs for every item of a history; `isinstance` is ten times as slow.
    return item.role == "assistant" if type(item) is MessageParam else type(item) not in OUTPUTS


def _is_sealed(item: ItemParam) -> bool:
    return type(item) is ReasoningParam and bool(item.encrypted_content)


def _is_call(item: ItemParam) -> TypeGuard[Call]:
    return type(item) in CALLS


def _is_message(items: list[ItemParam], place: int) -> bool:
    return place >= 0 and type(items[place]) is MessageParam


NOTHING: Final[list[ItemParam]] = []
CALLS: Final[frozenset[type]] = frozenset((FunctionCallParam, CustomToolCallParam))
OUTPUTS: Final[frozenset[type]] = frozenset((FunctionCallOutputParam, CustomToolCallOutputParam))
