"""The features that every client is tested with: the replies of the model, and what the client and the server must have
got.

The model of a feature is named after it, so one process of a client can use several features.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct, field
from tests.clients.heavy.behind import Behind, Call, Conversation, call
from tests.clients.heavy.programs import Result
from tests.clients.heavy.task import ANSWER, CITY, FAULT, HELLO, NO_ANSWER, NOTE, THOUGHT
from tests.clients.heavy.text_style import reply_as_text

from antiphon import testing
from antiphon.testing import ReceivedRequest, Reply, turn

FEATURES: Final = ("plain", "streamed", "tool", "failed_tool", "structured", "reasoning")
MODEL: Final = re.compile(r"lab-(\w+)")


class ToolUse(Struct, frozen=True):
    """How the model makes a client read a note: the tool, its arguments, and those for a note that is missing."""

    name: str = "read_note"
    arguments: dict[str, Any] = field(default_factory=lambda: {"title": "greeting"})
    missing: dict[str, Any] = field(default_factory=lambda: {"title": "missing"})


def feature_of(received: ReceivedRequest) -> str:
    """The feature that a request is part of, by its model."""
    name = received.json.get("model") or received.path
    match = MODEL.search(name)
    assert match, f"the model is none of a feature: {name}"
    return match[1]


#: How a client uses tools: in the form of its API (`tools`); only for a value of its schema (`value`); with results as
#: text, and an answer that is the call of another tool (`final_answer`); all as text (`text`); or not (`no_tools`).
Style = Literal["tools", "value", "final_answer", "text", "no_tools"]


def reply_of_model(behind: Behind, received: ReceivedRequest, use: ToolUse, style: Style) -> Reply:
    """The reply to a request of a client."""
    if style == "text":
        return reply_as_text(feature_of(received), received)
    conversation = behind.read(received.json)
    if style == "value":
        return _structured(conversation)
    if style == "no_tools" and feature_of(received) == "reasoning":
        return turn(testing.reasoning(THOUGHT), testing.text(ANSWER))
    body = json.dumps(received.json)
    if style == "final_answer" and (NOTE in body or FAULT in body):
        answer = NO_ANSWER if feature_of(received) == "failed_tool" else ANSWER
        return turn(call("call_2", "final_answer", answer=answer))
    match feature_of(received):
        case "structured":
            return _structured(conversation)
        case "tool" | "failed_tool" | "reasoning" as feature if not conversation.results:
            if not conversation.tools:  # a title or a summary
                return turn(testing.text("A note"))
            [name] = [tool for tool in conversation.tools if tool == use.name]
            arguments = use.missing if feature == "failed_tool" else use.arguments
            thought = [testing.reasoning(THOUGHT[:8], THOUGHT[8:])] if feature == "reasoning" else []
            return turn(*thought, call(f"call_{feature}", name, **arguments))
        case "failed_tool":
            return turn(testing.text(NO_ANSWER))
        case "tool" | "reasoning":
            return turn(testing.text(ANSWER))
        case _:
            return turn(testing.text(HELLO[:5], HELLO[5:12], HELLO[12:]))


def _structured(conversation: Conversation) -> Reply:
    """JSON as text, or as the arguments of the tool that the client offers for it."""
    if conversation.results:
        return turn(testing.text("Done."))
    tools = conversation.tools
    own = [tool for tool in tools if tool == "StructuredOutput"] or (tools if len(tools) == 1 else [])
    return turn(call("call_1", own[0], **CITY)) if own else turn(testing.text(json.dumps(CITY)))


class Expectation(NamedTuple):
    """How one client shows a feature."""

    shows_reasoning: bool
    returns_reasoning: bool
    marks_failures: bool
    style: Style
    shows_pieces: bool


def problems(
    feature: str, result: Result, requests: Sequence[ReceivedRequest], behind: Behind, expected: Expectation
) -> list[str]:
    """What is wrong with the outcome of one feature: with the result that the client reports, and with the requests that
    the server received."""
    if result.error:
        return [result.error]
    conversations = [behind.read(received.json) for received in requests]
    if expected.style in ("text", "final_answer"):  # the last request has the result in the text
        last = requests[-1].json
        conversations = [Conversation([], [Call("", "", {})], [("", json.dumps(last))], 0)]
    checks = CHECKS[feature](result, requests, conversations, expected)
    return [f"{name}: {result}" for name, is_right in checks.items() if not is_right]


Checks = dict[str, bool]


def _check_plain(result: Result, requests: Sequence[ReceivedRequest], _: Any, __: Expectation) -> Checks:
    return {"text": result.text == HELLO, "one request": len(requests) >= 1}


def _check_streamed(result: Result, requests: Sequence[ReceivedRequest], _: Any, expected: Expectation) -> Checks:
    if result.parsed is not None:
        return {"value": result.parsed == CITY, "pieces": len(result.pieces) > 1}
    is_stream = any(each.json.get("stream") or "streamGenerateContent" in each.path for each in requests)
    return {
        "text": result.text == HELLO,
        "pieces": len(result.pieces) > 1 or not expected.shows_pieces,
        "stream on the wire": is_stream,
    }


def _check_tool(result: Result, _: Any, conversations: Sequence[Conversation], __: Expectation) -> Checks:
    last = conversations[-1]
    return {
        "text": result.text == ANSWER,
        "one call": len(last.calls) == 1,
        f"result: {last.results}": len(last.results) == 1 and NOTE in last.results[0][1],
    }


def _check_failed_tool(result: Result, _: Any, conversations: Sequence[Conversation], expected: Expectation) -> Checks:
    last = conversations[-1]
    return {
        "text": result.text == NO_ANSWER,
        f"result: {last.results}": len(last.results) == 1 and FAULT in last.results[0][1],
        f"mark of the failure: {last}": (len(last.failures) == 1) is expected.marks_failures,
    }


def _check_structured(result: Result, requests: Sequence[ReceivedRequest], _: Any, __: Expectation) -> Checks:
    return {"value": result.parsed == CITY, "schema": "population" in json.dumps(requests[-1].json)}


def _check_reasoning(result: Result, _: Any, conversations: Sequence[Conversation], expected: Expectation) -> Checks:
    last = conversations[-1]
    return {
        "text": result.text == ANSWER,
        "shown": (THOUGHT in result.reasoning) is expected.shows_reasoning,
        f"returned: {last.thoughts}": (last.thoughts == 1) is expected.returns_reasoning,
    }


CHECKS: Final[dict[str, Callable[..., Checks]]] = {
    "plain": _check_plain,
    "streamed": _check_streamed,
    "tool": _check_tool,
    "failed_tool": _check_failed_tool,
    "structured": _check_structured,
    "reasoning": _check_reasoning,
}
