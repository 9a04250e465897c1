"""`truncation: auto`: a conversation that is longer than the model's context loses its oldest steps, and says so (REQ-2). Pure.

What stays whatever happens: the words of the system and of developers, tools, a summary, what the user said last, the last step. A
call goes with its output. `disabled`, which is the default, never comes here.
"""

from __future__ import annotations

from msgspec.structs import replace

from antiphon.gateway.conversation_steps import is_permanent, is_summary, last_user_index, split_steps
from antiphon.gateway.token_estimate import estimate_items, estimate_request
from antiphon.protocol.items import ItemParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items


def truncate_request(request: Request, room: int, losses: Losses) -> Request:
    """The request with as few steps less as it takes to fit into `room` tokens; the same one if it fits, or if nothing can go."""
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
        what = f"{last - first + 1} of the oldest items, from input[{first}] to input[{last}]" if last > first else "an old item"
        losses.add(f"input[{first}]", what, f"truncation is auto, and there is room for about {room} tokens")
    return replace(request, input=[item for place, item in enumerate(items) if place not in dropped])


def input_token_limit(context: int, request: Request) -> int:
    """How long the input may be, if the answer is to fit as well."""
    answer = request.max_output_tokens or min(ANSWER, context // 4)
    return max(context - answer, context // 4)


def _droppable(items: list[ItemParam]) -> list[list[int]]:
    """The steps that may go, the oldest first, each by its places."""
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
    """Places in a row, each run by its first and its last."""
    runs: list[tuple[int, int]] = []
    for place in sorted(places):
        if runs and runs[-1][1] == place - 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    return runs


ANSWER = 1024  # tokens that an answer is given if the request does not say
