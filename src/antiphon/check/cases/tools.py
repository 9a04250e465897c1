"""TOOL-1 … TOOL-4: accepted forms of tools, and allowed calls."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.check.case import CheckCase
from antiphon.check.findings import SkipCase, format_value
from antiphon.check.prompts import TOOL_CALL, TWO_CALLS, WEATHER, user
from antiphon.check.session import Body, CaseSession
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.response import Response


async def refuses_nested_tools(session: CaseSession) -> None:
    """TOOL-1: the error message must show the flat form."""
    nested = {"type": "function", "function": {key: value for key, value in WEATHER.items() if key != "type"}}
    error = await session.expect_refusal({**TOOL_CALL, "tools": [nested]}, param="tools[0]")
    if "name" not in error.message:
        exchange = await session.post({**TOOL_CALL, "tools": [nested]})
        session.report(
            f"error.message is {format_value(error.message)}; "
            'expected a message that shows the flat form: {"type": "function", "name": …}',
            exchange,
        )


async def echoes_flat_tools(session: CaseSession) -> None:
    _, exchange = await session.get_response(TOOL_CALL, may_refuse="tools")
    match exchange.json.get("tools"):
        case [{"type": "function", "name": "get_weather", "parameters": parameters}] if (
            parameters == WEATHER["parameters"]
        ):
            pass
        case other:
            session.report(f"tools are echoed as {format_value(other)}; expected the flat tools as sent", exchange)


async def calls_when_required(session: CaseSession) -> None:
    response, exchange = await session.get_response(TOOL_CALL, may_refuse="tools")
    calls = _calls(response)
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


async def calls_the_named_tool(session: CaseSession) -> None:
    named = {**TWO_CALLS, "tool_choice": {"type": "function", "name": "get_time"}}
    await _calls_only(session, named, "get_time", must_call=True)


async def calls_nothing_when_forbidden(session: CaseSession) -> None:
    await _calls_only(session, {**TWO_CALLS, "tool_choice": "none"}, None)


async def keeps_to_allowed_tools(session: CaseSession) -> None:
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_time"}]}
    body = {**TWO_CALLS, "input": [user('Please call get_weather {"city":"Paris"}')], "tool_choice": allowed}
    await _calls_only(session, body, "get_time")


async def makes_one_call_at_a_time(session: CaseSession) -> None:
    response, exchange = await session.get_response({**TWO_CALLS, "parallel_tool_calls": False}, may_refuse="tools")
    calls = _calls(response)
    if len(calls) > 1:
        session.report(
            f"the response has {len(calls)} calls although parallel_tool_calls is false; expected at most one", exchange
        )
    elif not calls:
        raise SkipCase("the model called no tool although tool_choice was required")


async def _calls_only(session: CaseSession, body: Body, allowed: str | None, *, must_call: bool = False) -> None:
    """Report calls of other tools. A server that enforces `tool_choice` may fail the turn with `tool_not_allowed`."""
    exchange = await session.post(body)
    session.skip_refusal(exchange, "this tool_choice")
    if exchange.error is not None and exchange.error.code == "tool_not_allowed":
        return
    response, exchange = await session.get_response(body)
    calls = _calls(response)
    for call in calls:
        if call.name != allowed:
            wanted = f"calls of {allowed!r} only" if allowed else "none"
            session.report(
                f"the response calls {call.name!r}, which tool_choice does not allow; expected {wanted}", exchange
            )
    if must_call and not calls:
        raise SkipCase("the model called no tool although tool_choice named one")


def _calls(response: Response) -> list[FunctionCall]:
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
        run=refuses_nested_tools,
    ),
    CheckCase(id="tools.echo", rows=("TOOL-1",), title="flat tools are accepted and echoed", run=echoes_flat_tools),
    CheckCase(
        id="tools.required",
        rows=("TOOL-2",),
        title="tool_choice required: the response calls an offered tool",
        run=calls_when_required,
    ),
    CheckCase(
        id="tools.named",
        rows=("TOOL-2",),
        title="a named function: no other function is called",
        run=calls_the_named_tool,
    ),
    CheckCase(
        id="tools.none", rows=("TOOL-2",), title="tool_choice none: no tool is called", run=calls_nothing_when_forbidden
    ),
    CheckCase(
        id="tools.allowed",
        rows=("TOOL-3",),
        title="allowed_tools: no tool outside the set is called",
        run=keeps_to_allowed_tools,
    ),
    CheckCase(
        id="tools.one-at-a-time",
        rows=("TOOL-4",),
        title="parallel_tool_calls false: at most one call",
        run=makes_one_call_at_a_time,
    ),
)
