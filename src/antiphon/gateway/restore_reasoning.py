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
    for is_model_turn, turn in _turns(items):
        if is_model_turn and not any(map(_is_sealed, turn)):
            missing.item_ids.extend(item.id for item in turn if type(item) is ReasoningParam and item.id)
            missing.call_ids.extend(item.call_id for item in turn if _is_call(item))
    return missing


def restore_reasoning(items: list[ItemParam], outputs: list[list[ItemParam]], maker: str) -> list[ItemParam]:
    """The history with the reasoning found in `outputs`; the same list if there is none."""
    stored_outputs = _EarlierOutputs(outputs, maker)
    complete_items: list[ItemParam] = []
    has_changed = False
    for is_model_turn, turn in _turns(items):
        restored_turn = stored_outputs.restore_turn(turn) if is_model_turn and not any(map(_is_sealed, turn)) else None
        has_changed = has_changed or restored_turn is not None
        complete_items += restored_turn or turn
    return complete_items if has_changed else items


class _EarlierOutputs:
    """Earlier outputs, indexed by reasoning item ids and call ids."""

    def __init__(self, outputs: list[list[ItemParam]], maker: str) -> None:
        self._maker = maker
        self._reasoning_by_id = {
            item.id: item for output in outputs for item in output if self._is_by_maker(item) and item.id
        }
        self._calls = {
            item.call_id: (output, call_index)
            for output in outputs
            for call_index, item in enumerate(output)
            if _is_call(item)
        }

    def restore_turn(self, turn: list[ItemParam]) -> list[ItemParam] | None:
        """A model turn with its reasoning; None if none is stored."""
        restored_items = [self._add_sealed_form(item) for item in turn]
        is_completed = any(map(_is_sealed, restored_items))
        if not is_completed:  # the stored items have the plain text of the reasoning
            restored_items = [item for item in turn if type(item) is not ReasoningParam]
        reasoning_ids = {item.id for item in restored_items if type(item) is ReasoningParam}
        reasoning_by_index: dict[int, list[ItemParam]] = {}
        for call_index, item in enumerate(restored_items):
            if _is_call(item):
                for index, reasoning in self._find_reasoning_before(item, restored_items, call_index):
                    if reasoning.id not in reasoning_ids:
                        reasoning_by_index.setdefault(index, []).append(reasoning)
        if not is_completed and not reasoning_by_index:
            return None
        return [
            restored_item
            for index, item in enumerate(restored_items)
            for restored_item in (*reasoning_by_index.get(index, ()), item)
        ]

    def _add_sealed_form(self, item: ItemParam) -> ItemParam:
        """Adds the stored sealed form to a reasoning item."""
        reasoning = self._reasoning_by_id.get(item.id or "") if type(item) is ReasoningParam else None
        return replace(item, encrypted_content=reasoning.encrypted_content) if reasoning is not None else item

    def _find_reasoning_before(
        self, call: Call, turn: list[ItemParam], call_index: int
    ) -> Iterator[tuple[int, ReasoningParam]]:
        """The reasoning items between the previous call and this one, each with its index in the turn: before the
        messages that it led to."""
        output, stored_index = self._calls.get(call.call_id, (NO_ITEMS, 0))
        if not output or output[stored_index].name != call.name:  # type: ignore[union-attr]  # it is a call
            return
        start_index = max((index + 1 for index in range(stored_index) if _is_call(output[index])), default=0)
        for index in range(start_index, stored_index):
            reasoning = output[index]
            if self._is_by_maker(reasoning):
                message_count = sum(type(item) is MessageParam for item in output[index:stored_index])
                messages_before = next(
                    (distance for distance in range(message_count) if not _is_message(turn, call_index - 1 - distance)),
                    message_count,
                )
                yield call_index - messages_before, reasoning

    def _is_by_maker(self, item: ItemParam) -> TypeGuard[ReasoningParam]:
        if type(item) is not ReasoningParam or not item.encrypted_content:
            return False
        envelope = unseal_reasoning(item.encrypted_content)
        return envelope is not None and envelope.maker == self._maker


def _turns(items: list[ItemParam]) -> Iterator[tuple[bool, list[ItemParam]]]:
    """Runs of consecutive items, and whether the model produced them."""
    return ((is_model_turn, list(turn)) for is_model_turn, turn in groupby(items, _is_model_item))


def _is_model_item(item: ItemParam) -> bool:
    # Runs for every item of a history; `isinstance` is ten times as slow.
    return item.role == "assistant" if type(item) is MessageParam else type(item) not in OUTPUTS


def _is_sealed(item: ItemParam) -> bool:
    return type(item) is ReasoningParam and bool(item.encrypted_content)


def _is_call(item: ItemParam) -> TypeGuard[Call]:
    return type(item) in CALLS


def _is_message(items: list[ItemParam], index: int) -> bool:
    return index >= 0 and type(items[index]) is MessageParam


NO_ITEMS: Final[list[ItemParam]] = []
CALLS: Final[frozenset[type]] = frozenset((FunctionCallParam, CustomToolCallParam))
OUTPUTS: Final[frozenset[type]] = frozenset((FunctionCallOutputParam, CustomToolCallOutputParam))
