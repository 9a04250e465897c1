"""`truncation: auto`: drops the oldest steps of a conversation that exceeds the model's context, and reports them as
losses (REQ-2). Pure.

These always stay: system and developer messages, tools, a summary, the last user message, the last step. A call and its
output are dropped together. With `disabled`, the default, this module is not used.
"""

from __future__ import annotations

from msgspec.structs import replace

from antiphon.dialects.common.token_estimate import estimate_items, estimate_request
from antiphon.gateway.conversation_steps import is_permanent, is_summary, last_user_index, split_steps
from antiphon.protocol.items import ItemParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items


def truncate_request(request: Request, token_limit: int, losses: Losses) -> Request:
    """The request with the fewest dropped steps that fit into `token_limit` tokens; the same object if it fits or
    nothing can be dropped."""
    excess = estimate_request(request) - token_limit
    if excess <= 0:
        return request
    items = input_items(request)
    dropped_indexes: set[int] = set()
    for indexes in _droppable_steps(items):
        dropped_indexes.update(indexes)
        excess -= estimate_items(items[index] for index in indexes)
        if excess <= 0:
            break
    if not dropped_indexes:
        return request
    for first, last in _runs(dropped_indexes):
        description = (
            f"{last - first + 1} of the oldest items, from input[{first}] to input[{last}]"
            if last > first
            else "an old item"
        )
        losses.add(f"input[{first}]", description, f"truncation is auto, and only about {token_limit} tokens fit")
    return replace(request, input=[item for index, item in enumerate(items) if index not in dropped_indexes])


def input_token_limit(context_size: int, request: Request) -> int:
    """The tokens available for the input if the answer is to fit too."""
    answer_tokens = request.max_output_tokens or min(DEFAULT_ANSWER_TOKENS, context_size // 4)
    return max(context_size - answer_tokens, context_size // 4)


def _droppable_steps(items: list[ItemParam]) -> list[list[int]]:
    """The steps that may be dropped, the oldest first, each as item indexes."""
    last_user_message_index = last_user_index(items)
    steps = split_steps(items)
    return [
        step.indexes
        for step in steps[:-1]
        if not step.open_calls
        and last_user_message_index not in step.indexes
        and not any(is_permanent(items[index]) or is_summary(items[index]) for index in step.indexes)
    ]


def _runs(indexes: set[int]) -> list[tuple[int, int]]:
    """Runs of consecutive indexes, each as first and last."""
    runs: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return runs


DEFAULT_ANSWER_TOKENS = 1024  # tokens reserved for the answer if the request sets no limit
