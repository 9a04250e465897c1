"""Two messages of one answer, for clients that get one text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.generate.events import counting_stamps

from antiphon.dialects.common.message_separator import MessageSeparator
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.protocol.content import OutputText, Refusal
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.fold import fold_events
from antiphon.protocol.items import FunctionCall, Message
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.writer import ResponseWriter

TEXT = OutputText(text="x", annotations=[], logprobs=[])
REQUEST = Request(model="m")


def test_separator_is_a_blank_line_between_texts_of_different_messages() -> None:
    separator = MessageSeparator()
    gaps = [separator.before_part(index, TEXT) for index in (0, 0, 2, 2, 3)]
    assert gaps == ["", "", "\n\n", "", "\n\n"]
    assert separator.before_part(4, Refusal(refusal="No.")) == ""
    separator.end_text()
    assert separator.before_part(5, TEXT) == ""


def answer(*, with_call: bool) -> tuple[list[Any], Response]:
    collector = EventCollector()
    writer = ResponseWriter(make_initial_response(REQUEST, id="resp_1", created_at=1), collector, counting_stamps())
    writer.start()
    writer.add_text("a", "First.")
    writer.close_item("a")
    if with_call:
        writer.open_call("c", name="look", call_id="c_1")
        writer.add_arguments("c", "{}")
        writer.close_item("c")
    writer.add_text("b", "Second")
    writer.add_text("b", ".")
    writer.complete(None)
    return collector.events, fold_events(collector.events)


def text_in(client: str, body: bytes) -> str:
    """The text of a whole answer, or of all lines or frames of a stream."""
    lines = [line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith((b"data: {", b"{"))]
    values = [json.loads(line) for line in lines]
    match client:
        case "chat":
            messages = [choice.get("message") or choice["delta"] for value in values for choice in value["choices"]]
            return "".join(message.get("content") or "" for message in messages)
        case "gemini":
            parts = [part for value in values for part in value["candidates"][0]["content"]["parts"]]
            return "|".join(part.get("text", "call") for part in parts if part.get("text", "call"))
        case "ollama":
            return "".join(value["message"]["content"] for value in values)
        case _:
            return "".join(value.get("value", "") for value in values if value["type"] == "text")


@pytest.mark.parametrize("client", ["chat", "ollama", "vscode"])
@pytest.mark.parametrize("with_call", [False, True])
def test_messages_of_one_answer_are_separated_by_a_blank_line(client: Any, with_call: bool) -> None:
    events, response = answer(with_call=with_call)
    writer = CLIENT_DIALECTS[client].events_from_hub(REQUEST)
    stream = b"".join(map(writer.feed, events)) + writer.finish()
    assert text_in(client, stream) == "First.\n\nSecond."
    if client != "vscode":
        whole, _ = CLIENT_DIALECTS[client].response_from_hub(response, REQUEST)
        assert text_in(client, whole) == "First.\n\nSecond."


@pytest.mark.parametrize(("with_call", "expected"), [(False, "First.\n\nSecond."), (True, "First.|call|Second.")])
def test_gemini_separates_messages_that_are_not_separate_parts(with_call: bool, expected: str) -> None:
    events, response = answer(with_call=with_call)
    whole, _ = CLIENT_DIALECTS["gemini"].response_from_hub(response, REQUEST)
    assert text_in("gemini", whole) == expected
    writer = CLIENT_DIALECTS["gemini"].events_from_hub(REQUEST)
    stream = b"".join(map(writer.feed, events)) + writer.finish()
    assert text_in("gemini", stream).replace("|", "") == expected.replace("|", "")


@pytest.mark.parametrize("client", ["chat", "ollama", "vscode", "gemini"])
def test_messages_that_were_not_streamed_are_separated_too(client: Any) -> None:
    """A server may send items without deltas."""
    events, response = answer(with_call=False)
    assert not any(isinstance(item, FunctionCall) for item in response.output)
    whole_items = [event for event in events if type(event).__name__ in ("ResponseCreated", "ItemAdded", "ItemDone")]
    writer = CLIENT_DIALECTS[client].events_from_hub(REQUEST)
    text = text_in(client, b"".join(map(writer.feed, whole_items)))
    assert text.replace("|", "") == "First.\n\nSecond."
    assert all(isinstance(item, Message) for item in response.output)
