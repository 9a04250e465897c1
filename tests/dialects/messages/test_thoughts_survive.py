"""A tool loop with a server that recognises its own thoughts and refuses all others (RSN-2, RSN-3), in both
directions."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from tests.dialects.messages.reading import REQUEST, frames_of, read_frames, read_whole

from antiphon.dialects.messages import request_from_hub
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.protocol import codec
from antiphon.protocol.items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    Item,
    ItemParam,
    MessageParam,
    ReasoningParam,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import ReasoningConfigParam, Request
from antiphon.protocol.response import Response
from antiphon.testing import reasoning, redacted, text, tool_call, turn
from antiphon.testing.messages.server import MessagesBehavior
from antiphon.testing.script import ReceivedRequest, ScriptedTurn

ADAPTIVE = MessagesWire(thinking="adaptive", maker="one")
BUDGET = MessagesWire(thinking="budget", maker="one")
ANOTHER = MessagesWire(thinking="budget", maker="another")
THINKS = turn(
    reasoning("The user ", "wants the time."), text("Let me see."), redacted("more"), tool_call("t1", "get_time", "{}")
)
QUESTION: ItemParam = MessageParam(role="user", content="What time is it?")


class Server:
    """The test server without sockets: its requests are checked, its answers are decoded."""

    def __init__(self, wire: MessagesWire) -> None:
        self._wire = wire
        self._behavior = MessagesBehavior()

    def ask(self, items: list[ItemParam], reply: ScriptedTurn, *, stream: bool = True) -> tuple[Response, Losses]:
        asked = Request(
            model="m",
            input=items,
            tools=REQUEST.tools,
            reasoning=ReasoningConfigParam(effort="low"),
            stream=stream or UNSET,
        )
        body, losses = request_from_hub(asked, self._wire)
        headers = {"content-type": "application/json", "x-version": "2023-06-01"}
        received = ReceivedRequest(method="POST", path="/v1/messages", headers=headers, body=body)
        refused = self._behavior.find_refusal(received)
        assert refused is None, refused
        if not stream:
            return read_whole(self._behavior.render_body(reply, received), self._wire)[0], losses
        data = b"".join(step for step in self._behavior.render_stream(reply, received) if isinstance(step, bytes))
        return read_frames(frames_of(data), self._wire).response, losses


def history_of(output: list[Item]) -> list[ItemParam]:
    """The history that a client sends back: the output unchanged, and the tool's result."""
    items = [codec.decode_item_param(codec.encode(item)) for item in output]
    calls = [item.call_id for item in items if isinstance(item, FunctionCallParam)]
    return [QUESTION, *items, *(FunctionCallOutputParam(call_id=id, output="noon") for id in calls)]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire", [ADAPTIVE, BUDGET], ids=lambda wire: wire.thinking)
def test_server_recognises_its_returned_thoughts_RSN2(wire: MessagesWire, stream: bool) -> None:
    server = Server(wire)
    first, _ = server.ask([QUESTION], THINKS, stream=stream)
    second, losses = server.ask(history_of(first.output), turn(text("Noon.")), stream=stream)
    assert second.status == "completed"
    assert not list(losses)


def test_thoughts_are_restored_from_their_seal_alone_RSN2() -> None:
    server = Server(BUDGET)
    first, _ = server.ask([QUESTION], THINKS)
    bare = [
        replace(item, content=UNSET) if isinstance(item, ReasoningParam) else item for item in history_of(first.output)
    ]
    second, losses = server.ask(bare, turn(text("Noon.")))
    assert second.status == "completed"
    assert not list(losses)


def test_thoughts_of_another_server_are_omitted_and_the_loop_continues_RSN3() -> None:
    first, _ = Server(BUDGET).ask([QUESTION], THINKS)
    second, losses = Server(ANOTHER).ask(history_of(first.output), turn(text("Noon.")))
    assert second.status == "completed"
    assert [loss.path for loss in losses] == ["input[1]", "input[3]", "thinking"]
