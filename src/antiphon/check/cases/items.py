"""ITEM-*, RSN-* and TOOL-6: accepted input items, and the form of output items."""

from __future__ import annotations

from typing import Any, Final

from antiphon.check.case import CheckCase
from antiphon.check.exchange import CheckExchange
from antiphon.check.findings import SkipCase, format_value
from antiphon.check.prompts import (
    AFTER_TOOL,
    CALL,
    LIMITED_ANSWER,
    PIXEL_URL,
    TEXT,
    THINKING,
    TOOL_CALL,
    TURNS,
    WEATHER,
    user_message,
)
from antiphon.check.session import Body, CaseSession
from antiphon.protocol.content import OutputText
from antiphon.protocol.items import Message
from antiphon.protocol.response import Response


async def check_string_input(session: CaseSession) -> None:
    await _expect_text(session, {"input": "Say hello in one short sentence."})


async def check_untyped_message(session: CaseSession) -> None:
    await _expect_text(session, {"input": [{"role": "user", "content": "Say hello in one short sentence."}]})


async def check_roles(session: CaseSession) -> None:
    messages = [
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "You are brief."}]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are friendly."}]},
        user_message("My name is Ada."),
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello Ada.", "annotations": []}],
        },
        user_message("What is my name?"),
    ]
    await _expect_text(session, {"input": messages})


async def check_phase(session: CaseSession) -> None:
    assistant_message = {"type": "message", "role": "assistant", "content": "One moment.", "phase": "commentary"}
    await _expect_text(session, {"input": [user_message("Look it up."), assistant_message, user_message("And?")]})


async def check_image(session: CaseSession) -> None:
    image = {"type": "input_image", "image_url": PIXEL_URL, "detail": "auto"}
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is this?"}, image]}
    await session.get_response({"input": [message]}, may_refuse="images")


async def check_tool_output(session: CaseSession) -> None:
    await _expect_text(session, AFTER_TOOL)


async def check_tool_output_parts(session: CaseSession) -> None:
    output = {
        "type": "function_call_output",
        "call_id": CALL["call_id"],
        "output": [{"type": "input_text", "text": "Sunny."}],
    }
    await _expect_text(
        session, {"input": [user_message("What is the weather in Paris?"), CALL, output], "tools": [WEATHER]}
    )


async def check_reasoning_input(session: CaseSession) -> None:
    reasoning = {
        "type": "reasoning",
        "id": "rs_check_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Ada."}],
    }
    assistant_message = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello Ada.", "annotations": []}],
    }
    await _expect_text(
        session, {"input": [user_message("I am Ada."), reasoning, assistant_message, user_message("What is my name?")]}
    )


async def check_returned_output(session: CaseSession) -> None:
    _, first_exchange = await session.get_response(TEXT)
    await _expect_text(session, {"input": [*TEXT["input"], *first_exchange.output, user_message("Say it again.")]})


async def check_returned_calls(session: CaseSession) -> None:
    _, first_exchange = await session.get_response(TOOL_CALL, may_refuse="tools")
    calls = [item for item in first_exchange.output if item.get("type") == "function_call"]
    if not calls:
        raise SkipCase("the model called no tool although tool_choice was required")
    outputs = [{"type": "function_call_output", "call_id": call.get("call_id"), "output": "Sunny."} for call in calls]
    await _get_finished_response(
        session, {"input": [*TOOL_CALL["input"], *first_exchange.output, *outputs], "tools": [WEATHER]}
    )


async def check_output_items(session: CaseSession) -> None:
    """ITEM-2, ITEM-6: every item has a unique id and a final status."""
    await session.get_response(TEXT)
    for body in TURNS:
        exchange = await session.post(body)
        if exchange.status == 200:
            session.report_flaws([flaw for flaw in exchange.response_flaws if flaw.row == "ITEM-2"], exchange)
            _judge_items(session, exchange)


async def check_incomplete_response(session: CaseSession) -> None:
    response, exchange = await session.get_response(LIMITED_ANSWER)
    if (
        response.status == "completed"
        and response.usage is not None
        and response.usage.output_tokens < LIMITED_ANSWER["max_output_tokens"]
    ):
        raise SkipCase("the model ended before it reached max_output_tokens")
    if response.status != "incomplete":
        session.report(f"status is {response.status!r}; expected 'incomplete': max_output_tokens was reached", exchange)
        return
    reason = response.incomplete_details.reason if response.incomplete_details else None
    if reason != "max_output_tokens":
        session.report(f"incomplete_details.reason is {reason!r}; expected 'max_output_tokens'", exchange)
    for index, item in enumerate(exchange.output[:-1]):
        if item.get("status") == "incomplete":
            session.report(
                f"output[{index}] is incomplete; expected that for the last item only", exchange, row="ITEM-3"
            )


async def check_reasoning_content(session: CaseSession) -> None:
    # Request the encrypted form, because some models give no other.
    _, exchange = await session.get_response({**THINKING, **ENCRYPTED_REASONING}, may_refuse="reasoning")
    for index, item in _reasoning_items(exchange):
        if not item.get("content") and not item.get("summary") and not item.get("encrypted_content"):
            session.report(
                f"output[{index}] is empty reasoning; expected content, a summary or encrypted_content",
                exchange,
            )


async def check_encrypted_reasoning(session: CaseSession) -> None:
    _, exchange = await session.get_response(THINKING, may_refuse="reasoning")
    # Only require an answer: a model may have nothing to encrypt.
    await session.get_response({**THINKING, **ENCRYPTED_REASONING})
    for index, item in _reasoning_items(exchange):
        if item.get("encrypted_content"):
            session.report(
                f"output[{index}].encrypted_content is present although include did not request it; "
                "expected it only on request",
                exchange,
            )


def _reasoning_items(exchange: CheckExchange) -> list[tuple[int, dict[str, Any]]]:
    items = [(index, item) for index, item in enumerate(exchange.output) if item.get("type") == "reasoning"]
    if not items:
        raise SkipCase("the model showed no reasoning")
    return items


def _judge_items(session: CaseSession, exchange: CheckExchange) -> None:
    ids = [item["id"] for item in exchange.output if isinstance(item.get("id"), str)]
    if len(set(ids)) < len(ids):
        session.report(
            f"items have the same id: {', '.join(ids)}; expected a unique id for each", exchange, row="ITEM-6"
        )
    for index, item in enumerate(exchange.output):
        if item.get("type") in ("message", "function_call") and item.get("status") not in ("completed", "incomplete"):
            session.report(
                f"output[{index}].status is {format_value(item.get('status'))}; expected 'completed' or 'incomplete'",
                exchange,
            )


async def _get_finished_response(session: CaseSession, body: Body) -> tuple[Response, CheckExchange]:
    response, exchange = await session.get_response(body)
    if response.status not in ("completed", "incomplete"):
        session.report(f"status is {response.status!r}; expected 'completed'", exchange)
    return response, exchange


async def _expect_text(session: CaseSession, body: Body) -> None:
    response, exchange = await _get_finished_response(session, body)
    if not text_of(response) and response.status == "completed":
        session.report("the response has no text; expected a message with output_text", exchange)


def text_of(response: Response) -> str:
    """Return the text of all messages."""
    messages = [item for item in response.output if isinstance(item, Message)]
    return "".join(part.text for message in messages for part in message.content if isinstance(part, OutputText))


ENCRYPTED_REASONING: Final[Body] = {"include": ["reasoning.encrypted_content"]}

CASES: Final = (
    CheckCase(
        id="input.string", rows=("ITEM-8",), title="a string is read as one user message", run=check_string_input
    ),
    CheckCase(id="input.untyped", rows=("ITEM-8",), title="a message may omit its type", run=check_untyped_message),
    CheckCase(
        id="input.roles",
        rows=("ITEM-1",),
        title="user, system, developer and assistant messages are accepted",
        run=check_roles,
    ),
    CheckCase(id="input.phase", rows=("ITEM-7",), title="assistant messages may have a phase", run=check_phase),
    CheckCase(id="input.image", rows=("ITEM-1",), title="images are accepted", run=check_image),
    CheckCase(
        id="input.tool-output",
        rows=("ITEM-1", "TOOL-6"),
        title="tool calls and their outputs are accepted",
        run=check_tool_output,
    ),
    CheckCase(
        id="input.tool-output-parts",
        rows=("TOOL-6",),
        title="a tool output may be an array of parts",
        run=check_tool_output_parts,
    ),
    CheckCase(
        id="input.reasoning",
        rows=("ITEM-1", "ITEM-6"),
        title="reasoning with content is accepted",
        run=check_reasoning_input,
    ),
    CheckCase(
        id="input.output-back", rows=("ITEM-6",), title="output can be sent back unchanged", run=check_returned_output
    ),
    CheckCase(
        id="input.calls-back",
        rows=("ITEM-6",),
        title="tool calls can be sent back unchanged, with their outputs",
        run=check_returned_calls,
    ),
    CheckCase(
        id="output.items",
        rows=("ITEM-2", "ITEM-6"),
        title="output items have a unique id and a final status",
        run=check_output_items,
    ),
    CheckCase(
        id="output.incomplete",
        rows=("REQ-3", "ITEM-3"),
        title="a response that reaches max_output_tokens is incomplete",
        run=check_incomplete_response,
    ),
    CheckCase(id="reasoning.kept", rows=("RSN-1",), title="reasoning items are not empty", run=check_reasoning_content),
    CheckCase(
        id="reasoning.encrypted",
        rows=("RSN-2",),
        title="encrypted reasoning is sent only on request",
        run=check_encrypted_reasoning,
    ),
)
