"""REQ-1 … REQ-8, HTTP-2 and PREV-*: the effects and the limits of the other request fields."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.check.case import CheckCase
from antiphon.check.cases.items import text_of
from antiphon.check.exchange import CheckExchange
from antiphon.check.findings import SkipCase, format_value
from antiphon.check.prompts import CALL, JSON_SCHEMA, TEXT, TOOL_CALL, TURNS, TWO_CALLS, WEATHER, user_message
from antiphon.check.session import Body, CaseSession
from antiphon.protocol.codec import decode_json
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.response import Response


async def check_echoed_settings(session: CaseSession) -> None:
    settings: Body = {
        "temperature": 0.5,
        "top_p": 0.75,
        "presence_penalty": 0.25,
        "frequency_penalty": 0.25,
        "max_output_tokens": 64,
        "instructions": "Be brief.",
        "parallel_tool_calls": False,
        "truncation": "disabled",
        "store": False,
    }
    await _check_echo(session, settings, may_refuse="these settings")


async def check_echoed_labels(session: CaseSession) -> None:
    settings: Body = {"metadata": {"check": "yes"}, "prompt_cache_key": "check-1", "safety_identifier": "check-2"}
    await _check_echo(session, settings)
    _, exchange = await session.get_response({**TEXT, "text": {"verbosity": "low"}}, may_refuse="verbosity")
    text = exchange.json.get("text")
    if not isinstance(text, dict) or text.get("verbosity") != "low":
        session.report(f"text is echoed as {format_value(text)}; expected verbosity 'low' in it, as sent", exchange)


async def check_unknown_fields(session: CaseSession) -> None:
    await session.get_response({**TEXT, "acme:hint": {"depth": 1}, "x_unheard_of": True})


async def check_json_schema(session: CaseSession) -> None:
    response, exchange = await session.get_response(JSON_SCHEMA, may_refuse="json_schema")
    match _decode_json(text_of(response)):
        case {"name": str(), "age": int()}:
            pass
        case _:
            session.report(
                f"the text is {format_value(text_of(response))}; expected JSON that follows the schema: a name and an "
                "age",
                exchange,
            )
    match exchange.json.get("text"):
        case {"format": {"type": "json_schema", "name": "person"}}:
            pass
        case echoed_text:
            session.report(
                f"text is echoed as {format_value(echoed_text)}; expected the json_schema format that was sent",
                exchange,
            )


async def check_json_object(session: CaseSession) -> None:
    body = {
        "input": [user_message("Give a JSON object with the key greeting.")],
        "text": {"format": {"type": "json_object"}},
    }
    response, exchange = await session.get_response(body, may_refuse="json_object")
    if not isinstance(_decode_json(text_of(response)), dict):
        session.report(f"the text is {format_value(text_of(response))}; expected a JSON object", exchange)


async def check_usage(session: CaseSession) -> None:
    await session.get_response(TEXT)
    for body in TURNS:
        exchange = await session.post(body)
        if exchange.status == 200:
            _judge_usage(session, exchange, exchange.json.get("usage"))
            session.report_flaws([flaw for flaw in exchange.response_flaws if flaw.row == "REQ-4"], exchange)


async def check_stream_usage(session: CaseSession) -> None:
    exchange = await session.get_stream(TEXT)
    usages = [frame["response"].get("usage") for frame in exchange.frames if isinstance(frame.get("response"), dict)]
    session.require(
        bool(usages), "the stream has no response in any event; expected one with usage in the last event", exchange
    )
    _judge_usage(session, exchange, usages[-1])


async def check_unknown_previous_response(session: CaseSession) -> None:
    body = {**TEXT, "previous_response_id": "resp_check_that_never_was"}
    await session.expect_refusal(body, param="previous_response_id", code="previous_response_not_found")


async def check_unstored_response(session: CaseSession) -> None:
    response, exchange = await session.get_response({**TEXT, "store": False})
    if exchange.json.get("store") is not False:
        session.report(
            f"store is echoed as {format_value(exchange.json.get('store'))}; expected false, as sent", exchange
        )
    body = {"input": [user_message("And then?")], "previous_response_id": response.id}
    await session.expect_refusal(body, param="previous_response_id", code="previous_response_not_found")


async def check_continued_response(session: CaseSession) -> None:
    first, _ = await session.get_response({**TEXT, "store": True})
    body = {"input": [user_message("Say it again.")], "previous_response_id": first.id}
    exchange = await session.post(body)
    if exchange.status != 200 and exchange.error is not None and exchange.error.code == "previous_response_not_found":
        raise SkipCase("the server does not store responses")
    _, exchange = await session.get_response(body)
    echoed_value = exchange.json.get("previous_response_id")
    if echoed_value != first.id:
        session.report(
            f"previous_response_id is echoed as {format_value(echoed_value)}; expected {first.id!r}, as sent", exchange
        )


def _limit_case(param: str, **settings: Any) -> Any:
    """Return a case for a limit: with these settings the request is refused, and `param` names the field."""

    async def run(session: CaseSession) -> None:
        await session.expect_refusal({**TEXT, **settings}, param=param)

    return run


async def check_long_call_id(session: CaseSession) -> None:
    """REQ-8: a server may take ids that the schema does not allow."""
    body = {**TEXT, "input": [user_message("What is the weather?"), LONG_CALL, LONG_OUTPUT]}
    await _get_response_or_refusal(session, body, "input[1].call_id")


async def check_function_name(session: CaseSession) -> None:
    """REQ-8: a server may take names that the schema does not allow. Then calls have these names."""
    body = {**TOOL_CALL, "tools": [{**WEATHER, "name": NAME_WITH_SPACE}]}
    served = await _get_response_or_refusal(session, body, "tools[0].name")
    if served is None:
        return
    response, exchange = served
    for call in response.output:
        if isinstance(call, FunctionCall) and call.name != NAME_WITH_SPACE:
            session.report(f"the call names {call.name!r}; expected an offered tool: {NAME_WITH_SPACE!r}", exchange)


async def _get_response_or_refusal(
    session: CaseSession, body: Body, param: str
) -> tuple[Response, CheckExchange] | None:
    """Return the response, or None after a refusal with status 400 and an error about `param`."""
    exchange = await session.post(body)
    if exchange.status != 400:
        return await session.get_response(body)
    session.expect_error(exchange, param=param)
    return None


async def _check_echo(session: CaseSession, settings: Body, *, may_refuse: str = "") -> None:
    _, exchange = await session.get_response({**TEXT, **settings}, may_refuse=may_refuse)
    for name, value in settings.items():
        echoed_value = exchange.json.get(name)
        if echoed_value != value:
            session.report(
                f"{name} is echoed as {format_value(echoed_value)}; expected {format_value(value)}, as sent", exchange
            )


def _judge_usage(session: CaseSession, exchange: CheckExchange, usage: Any) -> None:
    match usage:
        case {
            "input_tokens": int(input_tokens),
            "output_tokens": int(output_tokens),
            "total_tokens": int(total_tokens),
        }:
            if input_tokens + output_tokens != total_tokens:
                session.report(
                    f"usage.total_tokens is {total_tokens}; expected {input_tokens + output_tokens}, "
                    "the sum of input and output tokens",
                    exchange,
                )
        case _:
            expectation = "input_tokens, output_tokens and total_tokens"
            session.report(
                f"usage is {format_value(usage)}; expected {expectation}, "
                "in a whole response and at the end of a stream",
                exchange,
            )


def _decode_json(text: str) -> Any:
    try:
        return decode_json(text)
    except msgspec.DecodeError:
        return None


LONG_CALL: Final = {**CALL, "call_id": "c" * 65}
LONG_OUTPUT: Final = {"type": "function_call_output", "call_id": "c" * 65, "output": "Sunny."}
NAME_WITH_SPACE: Final = "get weather"
NO_TOOLS: Final = {"type": "allowed_tools", "mode": "auto", "tools": []}
CASES: Final = (
    CheckCase(
        id="settings.echo", rows=("HTTP-2",), title="settings are echoed with their values", run=check_echoed_settings
    ),
    CheckCase(
        id="settings.labels",
        rows=("REQ-5",),
        title="metadata, keys, identifiers and verbosity are echoed",
        run=check_echoed_labels,
    ),
    CheckCase(id="settings.unknown", rows=("REQ-7",), title="unknown fields are accepted", run=check_unknown_fields),
    CheckCase(
        id="settings.json-schema",
        rows=("REQ-1",),
        title="json_schema: the text follows the schema",
        run=check_json_schema,
    ),
    CheckCase(
        id="settings.json-object",
        rows=("REQ-1",),
        title="json_object: the text is a JSON object",
        run=check_json_object,
    ),
    CheckCase(id="usage.whole", rows=("REQ-4",), title="usage has its details", run=check_usage),
    CheckCase(id="usage.stream", rows=("REQ-4",), title="usage is sent at the end of a stream", run=check_stream_usage),
    CheckCase(
        id="previous.unknown",
        rows=("PREV-3",),
        title="an unknown previous_response_id returns not_found",
        run=check_unknown_previous_response,
    ),
    CheckCase(
        id="previous.not-stored",
        rows=("PREV-4",),
        title="a response with store false cannot be continued",
        run=check_unstored_response,
    ),
    CheckCase(
        id="previous.chain", rows=("PREV-1",), title="a stored response can be continued", run=check_continued_response
    ),
    CheckCase(
        id="limits.max-output-tokens",
        rows=("REQ-8",),
        title="max_output_tokens below 16 returns 400",
        run=_limit_case("max_output_tokens", max_output_tokens=1),
    ),
    CheckCase(
        id="limits.max-tool-calls",
        rows=("REQ-8",),
        title="max_tool_calls below 1 returns 400",
        run=_limit_case("max_tool_calls", max_tool_calls=0),
    ),
    CheckCase(
        id="limits.top-logprobs",
        rows=("REQ-8",),
        title="top_logprobs above 20 returns 400",
        run=_limit_case("top_logprobs", top_logprobs=21),
    ),
    CheckCase(
        id="limits.metadata-pairs",
        rows=("REQ-8",),
        title="more than 16 metadata pairs return 400",
        run=_limit_case("metadata", metadata={f"key{number}": "x" for number in range(17)}),
    ),
    CheckCase(
        id="limits.metadata-value",
        rows=("REQ-8",),
        title="a metadata value over 512 characters returns 400",
        run=_limit_case("metadata", metadata={"key": "x" * 513}),
    ),
    CheckCase(
        id="limits.cache-key",
        rows=("REQ-8",),
        title="a prompt_cache_key over 64 characters returns 400",
        run=_limit_case("prompt_cache_key", prompt_cache_key="x" * 65),
    ),
    CheckCase(
        id="limits.call-id",
        rows=("REQ-8",),
        title="a call_id over 64 characters is accepted, or returns 400",
        run=check_long_call_id,
    ),
    CheckCase(
        id="limits.function-name",
        rows=("REQ-8",),
        title="a function name with a space is accepted and kept, or returns 400",
        run=check_function_name,
    ),
    CheckCase(
        id="limits.allowed-tools",
        rows=("REQ-8",),
        title="an empty set of allowed tools returns 400",
        run=_limit_case("tool_choice", tools=TWO_CALLS["tools"], tool_choice=NO_TOOLS),
    ),
)
