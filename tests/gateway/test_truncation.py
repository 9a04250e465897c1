"""`gateway/truncation`: REQ-2, which items are dropped and which are kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.gateway.test_conversation_steps import THINKS, TOOLS, call, output, says

from antiphon.dialects.common.token_estimate import estimate_request
from antiphon.gateway.conversation_steps import summary_message
from antiphon.gateway.truncation import input_token_limit, truncate_request
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items

LONG = "word " * 100


def asked(*items: dict[str, Any], **fields: Any) -> Request:
    return codec.decode_request(msgspec.json.encode({"model": "m", "input": list(items), **fields}))


def left(request: Request, room: int) -> tuple[list[int], list[str]]:
    """The indexes of the remaining items, and the paths of the losses."""
    losses = Losses()
    made = truncate_request(request, room, losses)
    before = input_items(request)
    return [before.index(item) for item in input_items(made)], [str(loss) for loss in losses]


def test_request_that_fits_is_unchanged() -> None:
    """REQ-2."""
    request = asked(says("user", LONG))
    losses = Losses()
    assert truncate_request(request, estimate_request(request), losses) is request
    assert not len(losses)


def test_truncation_drops_the_oldest_and_no_more_than_needed() -> None:
    """REQ-2: oldest first; a loss for each run."""
    request = asked(
        *(says(role, f"{at} {LONG}") for at, role in enumerate(["user", "assistant"] * 3)), says("user", "last")
    )
    places, losses = left(request, estimate_request(request) - 200)
    assert places == [2, 3, 4, 5, 6]
    assert losses == [
        "input[0]: 2 of the oldest items, from input[0] to input[1] "
        f"(truncation is auto, and only about {estimate_request(request) - 200} tokens fit)"
    ]
    assert left(request, 1)[0] == [6]


def test_truncation_keeps_permanent_items_and_the_last_user_message() -> None:
    """REQ-2: keeps system text."""
    request = asked(
        says("system", "s" + LONG),
        says("user", "a" + LONG),
        TOOLS,
        says("developer", "d" + LONG),
        says("user", "b" + LONG),
    )
    places, losses = left(request, 1)
    assert places == [0, 2, 3, 4]
    assert [loss.partition(" (")[0] for loss in losses] == ["input[1]: an old item"]


def test_truncation_drops_calls_with_outputs_and_reasoning() -> None:
    """REQ-2: keeps tool call pairs whole."""
    request = asked(
        says("user", "go"),
        THINKS,
        {**call("a"), "arguments": LONG},
        {**call("b"), "arguments": LONG},
        output("b"),
        output("a"),
        {**call("c"), "arguments": LONG},
        output("c"),
    )
    assert left(request, estimate_request(request) - 50)[0] == [0, 6, 7]
    assert left(request, 1)[0] == [0, 6, 7]  # the newest items are what the model has to answer


def test_truncation_keeps_open_calls() -> None:
    request = asked({**call("a"), "arguments": LONG}, says("user", LONG), says("assistant", LONG), says("user", "last"))
    assert left(request, 1)[0] == [0, 3]


def test_truncation_keeps_summaries() -> None:
    summary = msgspec.to_builtins(summary_message(LONG))
    request = asked(summary, says("user", LONG), says("user", "last"))
    assert left(request, 1)[0] == [0, 2]


def test_request_without_droppable_items_is_unchanged() -> None:
    for items in ([], [says("user", LONG)], [says("system", LONG), says("user", LONG)]):
        request = asked(*items, instructions=LONG)
        losses = Losses()
        assert truncate_request(request, 1, losses) is request
        assert not len(losses)


@pytest.mark.parametrize(
    ("context", "answer", "room"), [(8192, None, 7168), (8192, 4000, 4192), (1000, None, 750), (1000, 990, 250)]
)
def test_input_limit_reserves_room_for_the_answer(context: int, answer: int | None, room: int) -> None:
    assert input_token_limit(context, Request(max_output_tokens=answer)) == room
