"""STR-1 … STR-14: streams against the grammar of the protocol, one case per row, over all turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from antiphon.check.case import CheckCase
from antiphon.check.cases.transport import report_stream_flaws
from antiphon.check.exchange import CheckExchange
from antiphon.check.findings import SkipCase, format_value
from antiphon.check.prompts import LIMITED_ANSWER, TEXT, THINKING, TOOL_CALL, TURNS, TWO_CALLS
from antiphon.check.session import Body, CaseSession
from antiphon.protocol.events import (
    AnnotationAdded,
    ArgumentsDelta,
    DeltaEvent,
    ErrorEvent,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    RefusalDelta,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    SummaryTextDelta,
)
from antiphon.protocol.items import FunctionCall


def _case_for_rows(*rows: str) -> Callable[[CaseSession], Awaitable[None]]:
    """Return a case for rows that every stream must satisfy."""

    async def run(session: CaseSession) -> None:
        await session.get_stream(TEXT)
        await report_stream_flaws(session, *rows)

    return run


def _case_for_optional_row(
    row: str, subject: str, *kinds: type[StreamEvent]
) -> Callable[[CaseSession], Awaitable[None]]:
    """Return a case for a row that applies only to streams with such events."""

    async def run(session: CaseSession) -> None:
        await session.get_stream(TEXT)
        await report_stream_flaws(session, row)
        exchanges = [await session.post({**body, "stream": True}) for body in TURNS]
        if not session.findings and not any(
            _has_event(exchange, *kinds) for exchange in exchanges if exchange.is_stream
        ):
            raise SkipCase(f"no stream had {subject}")

    return run


async def check_text_deltas(session: CaseSession) -> None:
    """STR-3, STR-6: text is streamed in parts and deltas."""
    exchange = await session.get_stream(TEXT)
    if not _has_event(exchange, OutputTextDelta):
        session.report(
            "the stream has no response.output_text.delta; expected the text in several deltas", exchange, row="STR-3"
        )
    await report_stream_flaws(session, "STR-3")


async def check_terminal_event(session: CaseSession) -> None:
    """STR-7: a stream must not break off before its terminal event."""
    exchange = await session.get_stream(TEXT)
    if exchange.incomplete_reason:
        session.report(f"{exchange.incomplete_reason}; expected a terminal event and [DONE]", exchange)
    await report_stream_flaws(session, "STR-7")


async def check_streamed_call(session: CaseSession) -> None:
    exchange = await session.get_stream(TOOL_CALL, may_refuse="tools")
    calls = _function_calls(exchange)
    if not calls:
        raise SkipCase("the model called no tool although tool_choice was required")
    if not _has_event(exchange, ArgumentsDelta):
        session.report(
            "the stream has no response.function_call_arguments.delta; expected the arguments in several deltas",
            exchange,
        )
    session.report_flaws(exchange.stream.flaws_of("STR-9"), exchange)


async def check_two_streamed_calls(session: CaseSession) -> None:
    exchange = await session.get_stream(TWO_CALLS, may_refuse="tools")
    calls = _function_calls(exchange)
    if len(calls) < 2:
        raise SkipCase("the model did not make two tool calls in one turn")
    if len({call.call_id for call in calls}) < len(calls):
        session.report(
            f"the calls have the same call_id: {', '.join(call.call_id for call in calls)}; expected a unique id for "
            "each",
            exchange,
        )
    session.report_flaws(exchange.stream.flaws_of("STR-6", "STR-9", "ITEM-6"), exchange)


async def check_streamed_reasoning(session: CaseSession) -> None:
    exchange = await session.get_stream(THINKING, may_refuse="reasoning")
    if not _has_event(exchange, ReasoningDelta, SummaryTextDelta):
        raise SkipCase("the model showed no reasoning")
    session.report_flaws(exchange.stream.flaws_of("STR-10"), exchange)


async def check_incomplete_stream(session: CaseSession) -> None:
    exchange = await session.get_stream(LIMITED_ANSWER)
    final_event = next((event for event in exchange.stream.events if isinstance(event, ResponseIncomplete)), None)
    response = exchange.stream.response
    if final_event is None and response is not None and _is_within_limit(response.usage):
        raise SkipCase("the model ended before it reached max_output_tokens")
    if final_event is None:
        session.report(
            "max_output_tokens was reached; expected response.incomplete as the terminal event",
            exchange,
        )
    elif (
        final_event.response.incomplete_details is not None
        and final_event.response.incomplete_details.reason != "max_output_tokens"
    ):
        reason = final_event.response.incomplete_details.reason
        session.report(f"incomplete_details.reason is {reason!r}; expected 'max_output_tokens'", exchange, row="REQ-3")
    session.report_flaws(exchange.stream.flaws_of("ITEM-3"), exchange)


async def check_logprobs(session: CaseSession) -> None:
    body: Body = {**TEXT, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    exchange = await session.get_stream(body, may_refuse="logprobs")
    events_with_logprobs = [
        event
        for event in exchange.stream.events
        if isinstance(event, OutputTextDelta | OutputTextDone) and event.logprobs
    ]
    if not events_with_logprobs:
        raise SkipCase("the stream has no logprobs although include requested them; the model may not support them")
    session.report_flaws(exchange.stream.flaws_of("STR-12"), exchange)


async def check_obfuscation(session: CaseSession) -> None:
    for is_requested in (True, False):
        exchange = await session.get_stream(
            {**TEXT, "stream_options": {"include_obfuscation": is_requested}}, may_refuse="stream_options"
        )
        deltas = [event for event in exchange.stream.events if isinstance(event, DeltaEvent)]
        padded_count = sum(isinstance(event.obfuscation, str) for event in deltas)
        if is_requested and padded_count < len(deltas):
            session.report(
                f"{len(deltas) - padded_count} of {len(deltas)} deltas have no obfuscation although it was requested",
                exchange,
            )
        if not is_requested and padded_count:
            session.report(
                f"{padded_count} of {len(deltas)} deltas have obfuscation although it was disabled", exchange
            )


async def check_same_response(session: CaseSession) -> None:
    """STR-14: compare the fields that the request determines; the model's output may differ between turns."""
    body: Body = {**TEXT, "temperature": 0, "metadata": {"check": "same"}}
    _, whole_exchange = await session.get_response(body, may_refuse="a temperature of 0")
    stream_exchange = await session.get_stream(body)
    final_response = _last_response(stream_exchange)
    session.require(
        final_response is not None,
        "the last event of the stream has no response; expected the whole response",
        stream_exchange,
    )
    assert final_response is not None
    for name in sorted({*whole_exchange.json, *final_response} - MODEL_DEPENDENT_FIELDS):
        whole_value, streamed_value = whole_exchange.json.get(name, MISSING), final_response.get(name, MISSING)
        if whole_value != streamed_value:
            session.report(
                f"{name} is {format_value(whole_value)} in a whole response and {format_value(streamed_value)} at the "
                "end of a stream; expected the same value",
                stream_exchange,
            )


def _last_response(exchange: CheckExchange) -> dict[str, Any] | None:
    """Return the response of the last event as JSON."""
    for frame in reversed(exchange.frames):
        match frame:
            case {"response": dict() as response}:
                return response
    return None


def _function_calls(exchange: CheckExchange) -> list[FunctionCall]:
    response = exchange.stream.response
    return [item for item in response.output if isinstance(item, FunctionCall)] if response else []


def _has_event(exchange: CheckExchange, *kinds: type[StreamEvent]) -> bool:
    return any(isinstance(event, kinds) for event in exchange.stream.events)


def _is_within_limit(usage: Any) -> bool:
    return usage is not None and usage.output_tokens < LIMITED_ANSWER["max_output_tokens"]


MISSING: Final = "(missing)"
MODEL_DEPENDENT_FIELDS: Final = {"id", "created_at", "completed_at", "output", "usage", "status", "incomplete_details"}
CASES: Final = (
    CheckCase(
        id="stream.opening",
        rows=("STR-1",),
        title="response.created and response.in_progress come first",
        run=_case_for_rows("STR-1"),
    ),
    CheckCase(
        id="stream.items-begin",
        rows=("STR-2",),
        title="items are added with the status in_progress",
        run=_case_for_rows("STR-2"),
    ),
    CheckCase(
        id="stream.parts",
        rows=("STR-3",),
        title="content parts are streamed: added, deltas, done, done",
        run=check_text_deltas,
    ),
    CheckCase(
        id="stream.items-end", rows=("STR-4",), title="items end with their final content", run=_case_for_rows("STR-4")
    ),
    CheckCase(
        id="stream.numbers",
        rows=("STR-5",),
        title="sequence numbers start at 0 and have no gaps",
        run=_case_for_rows("STR-5"),
    ),
    CheckCase(
        id="stream.deltas",
        rows=("STR-6",),
        title="deltas add up to the final text",
        run=_case_for_rows("STR-6"),
    ),
    CheckCase(
        id="stream.one-end",
        rows=("STR-7",),
        title="a stream has one terminal event, with the whole response",
        run=check_terminal_event,
    ),
    CheckCase(
        id="stream.errors",
        rows=("STR-8",),
        title="errors in a stream are nested: an error object, then response.failed",
        run=_case_for_optional_row("STR-8", "an error", ErrorEvent, ResponseFailed),
    ),
    CheckCase(
        id="stream.items",
        rows=("ITEM-2", "ITEM-4", "ITEM-5", "ITEM-6"),
        title="items keep their id, type and status",
        run=_case_for_rows("ITEM-2", "ITEM-4", "ITEM-5", "ITEM-6"),
    ),
    CheckCase(
        id="stream.tool-call",
        rows=("STR-9",),
        title="a tool call is streamed: arguments in deltas, then whole",
        run=check_streamed_call,
    ),
    CheckCase(
        id="stream.two-calls",
        rows=("STR-9", "STR-6", "ITEM-6"),
        title="two tool calls in one turn stay separate",
        run=check_two_streamed_calls,
    ),
    CheckCase(
        id="stream.reasoning",
        rows=("STR-10",),
        title="reasoning is streamed as response.reasoning.* or response.reasoning_text.*",
        run=check_streamed_reasoning,
    ),
    CheckCase(
        id="stream.annotations",
        rows=("STR-11",),
        title="refusals and annotations have the specified form",
        run=_case_for_optional_row("STR-11", "a refusal or an annotation", RefusalDelta, AnnotationAdded),
    ),
    CheckCase(
        id="stream.logprobs",
        rows=("STR-12",),
        title="logprobs are the same in deltas, done and part",
        run=check_logprobs,
    ),
    CheckCase(
        id="stream.obfuscation",
        rows=("STR-13",),
        title="padding is sent on request only",
        run=check_obfuscation,
    ),
    CheckCase(
        id="stream.same-response",
        rows=("STR-14",),
        title="a stream and a whole response have the same content",
        run=check_same_response,
    ),
    CheckCase(
        id="stream.incomplete",
        rows=("ITEM-3", "REQ-3"),
        title="a stream that reaches max_output_tokens ends incomplete",
        run=check_incomplete_stream,
    ),
)
