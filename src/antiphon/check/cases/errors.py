"""ERR-1 … ERR-5: errors for refused and failed requests."""

from __future__ import annotations

from typing import Final

from antiphon.check.case import CheckCase
from antiphon.check.exchange import CheckExchange
from antiphon.check.findings import SkipCase
from antiphon.check.prompts import TEXT, user_message
from antiphon.check.session import CaseSession


async def check_error_shape(session: CaseSession) -> None:
    for exchange in await _provoke_errors(session):
        session.report_flaws(exchange.error_flaws, exchange)
        if exchange.content_type != "application/json":
            session.report(
                f"the content type of an error is {exchange.content_type!r}; expected application/json", exchange
            )


async def check_error_type(session: CaseSession) -> None:
    for exchange in await _provoke_errors(session):
        error = session.expect_error(exchange)
        if exchange.status == 400 and error.type != "invalid_request":
            session.report(f"error.type is {error.type!r}; expected 'invalid_request' with the status 400", exchange)


async def check_error_path(session: CaseSession) -> None:
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": 5}]}
    await session.expect_refusal({"input": [user_message("Hi."), message]}, param="input[1].content[0]")


async def check_wrong_type_error(session: CaseSession) -> None:
    error = await session.expect_refusal({**TEXT, "temperature": "warm"}, param="temperature")
    if not error.message:
        session.report("error.message is empty; expected the received value and the allowed values")


async def check_unknown_model(session: CaseSession) -> None:
    exchange = await session.post({**TEXT, "model": "no-such-model-anywhere"})
    if exchange.status == 200:
        raise SkipCase("the server accepts any model name")
    session.require(
        exchange.status in (400, 404),
        f"the status for an unknown model is {exchange.status}; expected 404 or 400",
        exchange,
    )
    error = session.expect_error(exchange)
    expected_type = "not_found" if exchange.status == 404 else "invalid_request"
    if error.type != expected_type:
        session.report(
            f"error.type is {error.type!r}; expected {expected_type!r} with the status {exchange.status}", exchange
        )


async def check_internal_details(session: CaseSession) -> None:
    for exchange in await _provoke_errors(session):
        text = exchange.body.decode("utf-8", "replace")
        leaked_text = next((detail for detail in INTERNAL_DETAILS if detail in text), None)
        if leaked_text is not None:
            session.report(
                f"an error shows internal details of the server ({leaked_text}…); "
                "expected a message for the client only",
                exchange,
            )


async def _provoke_errors(session: CaseSession) -> list[CheckExchange]:
    """Send invalid requests and return the errors. Other cases report invalid requests that the server accepts."""
    exchanges = [
        await session.post({**TEXT, "temperature": "warm"}),
        await session.post({**TEXT, "input": 5}),
        await session.post_raw(b'{"model": "m", "input": '),
        await session.post({**TEXT, "previous_response_id": "resp_check_that_never_was"}),
    ]
    error_exchanges = [exchange for exchange in exchanges if exchange.status >= 400]
    session.require(
        bool(error_exchanges),
        "the server accepted every invalid request; expected status 400 and an error",
        exchanges[0],
    )
    return error_exchanges


INTERNAL_DETAILS: Final = (
    "Traceback (most recent call last)",
    'File "/',
    "node_modules/",
    "at Object.<anonymous>",
    "goroutine 1 [",
)
CASES: Final = (
    CheckCase(
        id="error.shape", rows=("ERR-1",), title="errors have type, code, message and param", run=check_error_shape
    ),
    CheckCase(id="error.type", rows=("ERR-2",), title="a 400 has the type invalid_request", run=check_error_type),
    CheckCase(id="error.param", rows=("ERR-3",), title="param is the path of the invalid field", run=check_error_path),
    CheckCase(
        id="error.wrong-type",
        rows=("ERR-3",),
        title="the error for a setting of the wrong type names it",
        run=check_wrong_type_error,
    ),
    CheckCase(
        id="error.unknown-model", rows=("ERR-2",), title="an unknown model returns 404 or 400", run=check_unknown_model
    ),
    CheckCase(
        id="error.inside", rows=("ERR-5",), title="errors show no traceback and no path", run=check_internal_details
    ),
)
