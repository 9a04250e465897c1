"""HTTP-1 … HTTP-8 and API-5: HTTP behaviour that does not depend on the model, and the form of answers."""

from __future__ import annotations

from typing import Final

from antiphon.check.case import CheckCase
from antiphon.check.findings import SkipCase
from antiphon.check.prompts import TEXT, TURNS
from antiphon.check.session import CaseSession, KeyChoice


async def check_content_type(session: CaseSession) -> None:
    await session.expect_refusal(
        b'{"model":"m","input":"hi"}', status=415, code="unsupported_media_type", content="text/plain"
    )


async def check_broken_json(session: CaseSession) -> None:
    error = await session.expect_refusal(b'{"model": "m", "input": ', code="invalid_json")
    if not error.message:
        session.report("error.message is empty; expected a message with the position of the JSON error")


async def check_body_is_object(session: CaseSession) -> None:
    await session.expect_refusal(b'["hi"]', code="invalid_json")


async def check_whole_answers(session: CaseSession) -> None:
    """Every turn without streaming has `application/json` and all required fields."""
    _, exchange = await session.get_response(TEXT)
    if exchange.content_type != "application/json":
        session.report(f"the content type is {exchange.content_type!r}; expected application/json", exchange)
    for body in TURNS:
        exchange = await session.post(body)
        if exchange.status == 200:
            session.report_flaws([flaw for flaw in exchange.response_flaws if flaw.row == "HTTP-2"], exchange)


async def check_event_lines(session: CaseSession) -> None:
    await session.get_stream(TEXT)
    await report_stream_flaws(session, "HTTP-3")


async def check_done_line(session: CaseSession) -> None:
    await session.get_stream(TEXT)
    await report_stream_flaws(session, "HTTP-4")


async def check_no_event_ids(session: CaseSession) -> None:
    await session.get_stream(TEXT)
    await report_stream_flaws(session, "HTTP-5")


async def check_wrong_key(session: CaseSession) -> None:
    await _check_key_refusal(session, "wrong")


async def check_missing_key(session: CaseSession) -> None:
    await _check_key_refusal(session, "none")


async def check_request_ids(session: CaseSession) -> None:
    """Responses, streams and errors have a request id."""
    for kind, exchange in (
        ("a whole answer", await session.post(TEXT)),
        ("a stream", await session.post({**TEXT, "stream": True})),
        ("an error", await session.post_raw(b"[]")),
    ):
        if not any(exchange.headers.get(name) for name in REQUEST_ID_HEADERS):
            session.report(
                f"{kind} has no request id in its headers; expected x-request-id, the id in the server's log",
                exchange,
            )


async def check_model_list(session: CaseSession) -> None:
    exchange = await session.get("/models")
    session.require(
        exchange.status == 200,
        f"the answer has the status {exchange.status}; expected 200 and a list of models",
        exchange,
    )
    match exchange.json:
        case {"object": "list", "data": list() as models}:
            for index, model in enumerate(models):
                if (
                    not isinstance(model, dict)
                    or not isinstance(model.get("id"), str)
                    or model.get("object") != "model"
                ):
                    session.report(
                        f'data[{index}] is not a model; expected an object with an "id" and the "object" "model"',
                        exchange,
                    )
                    break
        case _:
            session.report(
                'the body is not a list of models; expected {"object": "list", "data": [{"id": "…", "object": '
                '"model"}]}',
                exchange,
            )


async def report_stream_flaws(session: CaseSession, *rows: str) -> None:
    """Report the flaws of all streams under these rows."""
    for body in TURNS:
        exchange = await session.post({**body, "stream": True})
        if exchange.is_stream:
            session.report_flaws(exchange.stream.flaws_of(*rows), exchange)


async def _check_key_refusal(session: CaseSession, key: KeyChoice) -> None:
    if not session.has_key:
        raise SkipCase("no key is set (--key-env), so the check of keys is not possible")
    exchange = await session.post(TEXT, key=key)
    session.require(exchange.status == 401, f"key {key}: the status is {exchange.status}; expected 401", exchange)
    session.expect_error(exchange)
    if exchange.error_flaws:
        session.report(
            'the 401 has no structured error; expected {"error": {"type", "code", "message", "param"}}', exchange
        )


REQUEST_ID_HEADERS: Final = ("x-request-id", "request-id")
CASES: Final = (
    CheckCase(id="models.list", rows=("API-5",), title="GET /models lists the models", run=check_model_list),
    CheckCase(
        id="http.content-type",
        rows=("HTTP-1",),
        title="a body without a JSON content type returns 415",
        run=check_content_type,
    ),
    CheckCase(
        id="http.broken-json",
        rows=("HTTP-1",),
        title="a truncated body returns 400 invalid_json",
        run=check_broken_json,
    ),
    CheckCase(
        id="http.no-object",
        rows=("HTTP-1",),
        title="a body that is not an object returns 400 invalid_json",
        run=check_body_is_object,
    ),
    CheckCase(
        id="http.whole-answer",
        rows=("HTTP-2",),
        title="answers are JSON and complete response objects",
        run=check_whole_answers,
    ),
    CheckCase(
        id="http.stream",
        rows=("HTTP-3",),
        title="streams consist of events, each with its type on an event: line",
        run=check_event_lines,
    ),
    CheckCase(id="http.done", rows=("HTTP-4",), title="streams end with data: [DONE]", run=check_done_line),
    CheckCase(id="http.no-event-ids", rows=("HTTP-5",), title="streams have no id: lines", run=check_no_event_ids),
    CheckCase(id="http.wrong-key", rows=("HTTP-6", "ERR-1"), title="a wrong key returns 401", run=check_wrong_key),
    CheckCase(id="http.no-key", rows=("HTTP-6", "ERR-1"), title="a missing key returns 401", run=check_missing_key),
    CheckCase(id="http.request-id", rows=("HTTP-8",), title="every answer has a request id", run=check_request_ids),
)
