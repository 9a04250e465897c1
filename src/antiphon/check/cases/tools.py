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
            'wanted the flat form shown: {"type": "function", "name": …}',
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
            session.report(f"tools are echoed as {format_value(other)}; wanted them as they were sent, flat", exchange)


async def calls_when_required(session: CaseSession) -> None:
    response, exchange = await session.get_response(TOOL_CALL, may_refuse="tools")
    calls = _calls(response)
    if not calls:
        raise SkipCase("the model called no tool although tool_choice was required")
    for call in calls:
        if call.name != "get_weather":
            session.report(f"the call is of {call.name!r}; wanted a tool that was offered: 'get_weather'", exchange)
        if not call.call_id:
            session.report("the call has an empty call_id; wanted one", exchange)
        if not _is_object(call.arguments):
            session.report(
                f"the arguments are {format_value(call.arguments)}; wanted a JSON object as a string", exchange
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
        session.report(f"{len(calls)} calls came, and parallel_tool_calls is false; wanted at most one", exchange)
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
            wanted = f"no call but of {allowed!r}" if allowed else "none"
            session.report(f"a call of {call.name!r} came, which tool_choice does not allow; wanted {wanted}", exchange)
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
        title="the nested form of chat gets 400, with a message that helps",
        run=refuses_nested_tools,
    ),
    CheckCase(id="tools.echo", rows=("TOOL-1",), title="flat tools are taken and echoed", run=echoes_flat_tools),
    CheckCase(
        id="tools.required",
        rows=("TOOL-2",),
        title="tool_choice required: a call of a tool that was offered",
        run=calls_when_required,
    ),
    CheckCase(
        id="tools.named", rows=("TOOL-2",), title="a named function: no call of another", run=calls_the_named_tool
    ),
    CheckCase(id="tools.none", rows=("TOOL-2",), title="tool_choice none: no call", run=calls_nothing_when_forbidden),
    CheckCase(
        id="tools.allowed", rows=("TOOL-3",), title="allowed_tools: no call outside the set", run=keeps_to_allowed_tools
    ),
    CheckCase(
        id="tools.one-at-a-time",
        rows=("TOOL-4",),
        title="parallel_tool_calls false: at most one call",
        run=makes_one_call_at_a_time,
    ),
)
