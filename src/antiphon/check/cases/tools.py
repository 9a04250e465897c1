"""TOOL-1 … TOOL-4: accepted forms of tools, and allowed calls."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.check.case import CheckCase
from antiphon.check.findings import SkipCase, format_value
from antiphon.check.prompts import TOOL_CALL, TWO_CALLS, WEATHER, user_message
from antiphon.check.session import Body, CaseSession
from antiphon.protocol.codec import decode_json
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.response import Response


async def check_nested_tools(session: CaseSession) -> None:
    """TOOL-1: the error message must show the flat form."""
    nested_tool = {"type": "function", "function": {key: value for key, value in WEATHER.items() if key != "type"}}
    error = await session.expect_refusal({**TOOL_CALL, "tools": [nested_tool]}, param="tools[0]")
    if "name" not in error.message:
        exchange = await session.post({**TOOL_CALL, "tools": [nested_tool]})
        session.report(
            f"error.message is {format_value(error.message)}; "
            'expected a message that shows the flat form: {"type": "function", "name": …}',
            exchange,
        )


async def check_echoed_tools(session: CaseSession) -> None:
    _, exchange = await session.get_response(TOOL_CALL, may_refuse="tools")
    match exchange.json.get("tools"):
        case [{"type": "function", "name": "get_weather", "parameters": parameters}] if (
            parameters == WEATHER["parameters"]
        ):
            pass
        case echoed_tools:
            session.report(
                f"tools are echoed as {format_value(echoed_tools)}; expected the flat tools as sent", exchange
            )


async def check_required_call(session: CaseSession) -> None:
    response, exchange = await session.get_response(TOOL_CALL, may_refuse="tools")
    calls = _function_calls(response)
    if not calls:
        raise SkipCase("the model called no tool although tool_choice was required")
    for call in calls:
        if call.name != "get_weather":
            session.report(f"the call names {call.name!r}; expected an offered tool: 'get_weather'", exchange)
        if not call.call_id:
            session.report("the call has an empty call_id; expected an id", exchange)
        if not _is_object(call.arguments):
            session.report(
                f"the arguments are {format_value(call.arguments)}; expected a JSON object as a string", exchange
            )


async def check_named_call(session: CaseSession) -> None:
    body = {**TWO_CALLS, "tool_choice": {"type": "function", "name": "get_time"}}
    await _check_called_tools(session, body, "get_time", must_call=True)


async def check_forbidden_calls(session: CaseSession) -> None:
    await _check_called_tools(session, {**TWO_CALLS, "tool_choice": "none"}, None)


async def check_allowed_tools(session: CaseSession) -> None:
    tool_choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_time"}]}
    body = {
        **TWO_CALLS,
        "input": [user_message('Please call get_weather {"city":"Paris"}')],
        "tool_choice": tool_choice,
    }
    await _check_called_tools(session, body, "get_time")


async def check_single_call(session: CaseSession) -> None:
    response, exchange = await session.get_response({**TWO_CALLS, "parallel_tool_calls": False}, may_refuse="tools")
    calls = _function_calls(response)
    if len(calls) > 1:
        session.report(
            f"the response has {len(calls)} calls although parallel_tool_calls is false; expected at most one", exchange
        )
    elif not calls:
        raise SkipCase("the model called no tool although tool_choice was required")


async def _check_called_tools(
    session: CaseSession, body: Body, allowed_name: str | None, *, must_call: bool = False
) -> None:
    """Report calls of other tools. A server that enforces `tool_choice` may fail the turn with `tool_not_allowed`."""
    exchange = await session.post(body)
    session.skip_refusal(exchange, "this tool_choice")
    if exchange.error is not None and exchange.error.code == "tool_not_allowed":
        return
    response, exchange = await session.get_response(body)
    calls = _function_calls(response)
    for call in calls:
        if call.name != allowed_name:
            expectation = f"calls of {allowed_name!r} only" if allowed_name else "none"
            session.report(
                f"the response calls {call.name!r}, which tool_choice does not allow; expected {expectation}", exchange
            )
    if must_call and not calls:
        raise SkipCase("the model called no tool although tool_choice named one")


def _function_calls(response: Response) -> list[FunctionCall]:
    return [item for item in response.output if isinstance(item, FunctionCall)]


def _is_object(arguments: str) -> bool:
    try:
        value: Any = decode_json(arguments)
    except msgspec.DecodeError:
        return False
    return isinstance(value, dict)


CASES: Final = (
    CheckCase(
        id="tools.nested",
        rows=("TOOL-1",),
        title="the nested form of Chat Completions returns 400 with a helpful message",
        run=check_nested_tools,
    ),
    CheckCase(id="tools.echo", rows=("TOOL-1",), title="flat tools are accepted and echoed", run=check_echoed_tools),
    CheckCase(
        id="tools.required",
        rows=("TOOL-2",),
        title="tool_choice required: the response calls an offered tool",
        run=check_required_call,
    ),
    CheckCase(
        id="tools.named",
        rows=("TOOL-2",),
        title="a named function: no other function is called",
        run=check_named_call,
    ),
    CheckCase(
        id="tools.none", rows=("TOOL-2",), title="tool_choice none: no tool is called", run=check_forbidden_calls
    ),
    CheckCase(
        id="tools.allowed",
        rows=("TOOL-3",),
        title="allowed_tools: no tool outside the set is called",
        run=check_allowed_tools,
    ),
    CheckCase(
        id="tools.one-at-a-time",
        rows=("TOOL-4",),
        title="parallel_tool_calls false: at most one call",
        run=check_single_call,
    ),
)
