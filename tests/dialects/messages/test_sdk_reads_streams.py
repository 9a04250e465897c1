"""The API's official SDK reads our output: streams by its own accumulator, plain answers, errors."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import pytest
from hypothesis import assume, given
from tests.dialects.messages.client_stream import REQUEST, MessagesWriter
from tests.generate.events import Life as Written
from tests.generate.events import written

from antiphon.dialects.common.call_arguments import arguments_as_object
from antiphon.dialects.messages import EventsFromHub, error_from_hub, response_from_hub
from antiphon.errors import ApiError, ClientFault, InvalidValue, UpstreamFault
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.items import CustomToolCall, FunctionCall
from antiphon.protocol.status import ItemStatus

ASKED: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}


def client_of(status: int, body: bytes, kind: str = "application/json") -> anthropic.Anthropic:
    """A client of a server with one answer for every request."""
    answer = httpx2.MockTransport(lambda _: httpx2.Response(status, content=body, headers={"content-type": kind}))
    http = httpx2.Client(transport=answer)
    return anthropic.Anthropic(api_key="k", base_url="http://server.invalid", http_client=http, max_retries=0)


def streamed(events: list[StreamEvent]) -> anthropic.types.Message:
    from_hub = EventsFromHub(REQUEST)
    body = b"".join(map(from_hub.feed, events)) + from_hub.finish()
    with client_of(200, body, "text/event-stream").messages.stream(**ASKED) as stream:
        return stream.get_final_message()


def members_of(message: anthropic.types.Message) -> dict[str, Any]:
    """Without the order of thoughts, which a stream sends as they arrive, and without the service tier, which the SDK
    reads from the start of a stream only."""
    members = message.model_dump(exclude_none=True)
    members["usage"].pop("service_tier", None)
    for block in members["content"]:
        if block["type"] == "thinking":
            block["thinking"] = sorted(block["thinking"].replace("\n", ""))
    return members


@given(written(("complete", "incomplete")))
def test_sdk_accumulates_a_stream_to_the_plain_message(life: Written) -> None:
    """STR-14, law (d). It refuses only arguments that are no JSON."""
    calls = [item for item in life.response.output if isinstance(item, FunctionCall)]
    customs = [item for item in life.response.output if isinstance(item, CustomToolCall)]
    assume(all(arguments_as_object(call.arguments) is not None for call in calls))
    assume(all(call.status == ItemStatus.COMPLETED for call in customs))
    body, _ = response_from_hub(life.response, REQUEST)
    assert members_of(streamed(life.events)) == members_of(client_of(200, body).messages.create(**ASKED))


def test_sdk_reads_thoughts_text_and_calls() -> None:
    """RSN-2, E-3."""
    life = MessagesWriter()
    life.add_reasoning("r", "hm")
    life.set_encrypted_content("r", "sealed")
    life.close_item("r")
    life.add_text("m", "I look.")
    life.open_call("a", name="look", call_id="c_a")
    life.open_call("b", name="look", call_id="c_b")
    life.add_arguments("b", '{"x":')
    life.add_arguments("a", '{"y":2}')
    life.add_arguments("b", "1}")
    life.complete()
    message = streamed(life.collector.events)
    assert [block.model_dump(exclude_none=True) for block in message.content] == [
        {"type": "thinking", "thinking": "hm", "signature": "sealed"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c_a", "name": "look", "input": {"y": 2}},
        {"type": "tool_use", "id": "c_b", "name": "look", "input": {"x": 1}},
    ]
    assert message.stop_reason == "tool_use"


def test_sdk_raises_a_failure_during_the_stream() -> None:
    """STR-8."""
    life = MessagesWriter()
    life.add_text("m", "half")
    life.fail(UpstreamFault("it went away", code="upstream_disconnected"))
    with pytest.raises(anthropic.APIStatusError, match="it went away"):
        streamed(life.collector.events)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (InvalidValue("no", param="messages"), anthropic.BadRequestError),
        (ClientFault("no", status=401), anthropic.AuthenticationError),
        (ClientFault("no", type="not_found"), anthropic.NotFoundError),
        (ApiError("no", type="too_many_requests"), anthropic.RateLimitError),
        (UpstreamFault("no", code="overloaded", status=503), anthropic.InternalServerError),
        (UpstreamFault("no"), anthropic.InternalServerError),
    ],
)
def test_sdk_raises_the_class_of_our_errors(error: ApiError, raised: type[anthropic.APIStatusError]) -> None:
    """ERR-1."""
    status, body = error_from_hub(error)
    with pytest.raises(raised, match="no"):
        client_of(status, body).messages.create(**ASKED)
