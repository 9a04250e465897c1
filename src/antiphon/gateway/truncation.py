"""`truncation: auto`: drops the oldest steps of a conversation that exceeds the model's context, and reports them as
losses (REQ-2). Pure.

These always stay: system and developer messages, tools, a summary, the last user message, the last step. A call and its
output are dropped together. With `disabled`, the default, this module is not used.
"""

from __future__ import annotations

from msgspec.structs import replace

from antiphon.gateway.conversation_steps import is_permanent, is_summary, last_user_index, split_steps
from antiphon.gateway.token_estimate import estimate_items, estimate_request
from antiphon.protocol.items import ItemParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items


def truncate_request(request: Request, room: int, losses: Losses) -> Request:
    """The request with the fewest dropped steps that fit into `room` tokens; the same object if it fits or nothing can
    be dropped."""
    excess = estimate_request(request) - room
    if excess <= 0:
        return request
    items = input_items(request)
    dropped: set[int] = set()
    for places in _droppable(items):
        dropped.update(places)
        excess -= estimate_items(items[place] for place in places)
        if excess <= 0:
            break
    if not dropped:
        return request
    for first, last in _runs(dropped):
        what = (
            f"{last - first + 1} of the oldest items, from input[{first}] to input[{last}]"
            if last > first
            else "an old item"
        )
        losses.add(f"input[{first}]", what, f"truncation is auto, and only about {room} tokens fit")
    return replace(request, input=[item for place, item in enumerate(items) if place not in dropped])


def input_token_limit(context: int, request: Request) -> int:
    """The tokens available for the input if the answer is to fit too."""
    answer = request.max_output_tokens or min(ANSWER, context // 4)
    return max(context - answer, context // 4)


def _droppable(items: list[ItemParam]) -> list[list[int]]:
    """The steps that may be dropped, the oldest first, each as item indexes."""
    last_user = last_user_index(items)
    steps = split_steps(items)
    return [
        step.indexes
        for step in steps[:-1]
        if not step.open_calls
        and last_user not in step.indexes
        and not any(is_permanent(items[place]) or is_summary(items[place]) for place in step.indexes)
    ]


def _runs(places: set[int]) -> list[tuple[int, int]]:
    """Runs of consecutive indexes, each as first and last."""
    runs: list[tuple[int, int]] = []
    for place in sorted(places):
        if runs and runs[-1][1] == place - 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    return runs


ANSWER = 1024  # tokens reserved for the answer if the request sets no limit
