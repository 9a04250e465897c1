"""HTTP-1 … HTTP-8 and API-5: what can be seen of a server before a model has said anything, and how its answers are wrapped."""

from __future__ import annotations

from typing import Final

from antiphon.check.case import Case
from antiphon.check.findings import Skip
from antiphon.check.prompts import TEXT, TURNS
from antiphon.check.session import KeyChoice, Session


async def wants_json(session: Session) -> None:
    await session.refused(b'{"model":"m","input":"hi"}', status=415, code="unsupported_media_type", content="text/plain")


async def says_where_json_broke(session: Session) -> None:
    error = await session.refused(b'{"model": "m", "input": ', code="invalid_json")
    if not error.message:
        session.find("error.message is empty; wanted one that says where the JSON broke")


async def wants_an_object(session: Session) -> None:
    await session.refused(b'["hi"]', code="invalid_json")


async def whole_answers(session: Session) -> None:
    """Every turn in one piece: `application/json`, and each of the required fields."""
    _, exchange = await session.response(TEXT)
    if exchange.content_type != "application/json":
        session.find(f"the content type is {exchange.content_type!r}; wanted application/json", exchange)
    for body in TURNS:
        exchange = await session.post(body)
        if exchange.status == 200:
            session.add([flaw for flaw in exchange.response_flaws if flaw.row == "HTTP-2"], exchange)


async def streams_have_their_type(session: Session) -> None:
    await session.streamed(TEXT)
    await judge_streams(session, "HTTP-3")


async def streams_end_with_done(session: Session) -> None:
    await session.streamed(TEXT)
    await judge_streams(session, "HTTP-4")


async def streams_have_no_ids(session: Session) -> None:
    await session.streamed(TEXT)
    await judge_streams(session, "HTTP-5")


async def refuses_a_wrong_key(session: Session) -> None:
    await _refuses_key(session, "wrong")


async def refuses_no_key(session: Session) -> None:
    await _refuses_key(session, "none")


async def tells_request_ids(session: Session) -> None:
    """Answers of all three kinds."""
    for kind, exchange in (
        ("a whole answer", await session.post(TEXT)),
        ("a stream", await session.post({**TEXT, "stream": True})),
        ("an error", await session.post_raw(b"[]")),
    ):
        if not any(exchange.headers.get(name) for name in REQUEST_IDS):
            session.find(
                f"{kind} has no request id in its headers; wanted x-request-id, to be found by in the server's log", exchange
            )


async def lists_models(session: Session) -> None:
    exchange = await session.get("/models")
    session.demand(
        exchange.status == 200, f"the answer has the status {exchange.status}; wanted 200 and a list of models", exchange
    )
    match exchange.json:
        case {"object": "list", "data": list() as models}:
            for at, model in enumerate(models):
                if not isinstance(model, dict) or not isinstance(model.get("id"), str) or model.get("object") != "model":
                    session.find(f'data[{at}] is no model; wanted an object with its "id", and "model" as its "object"', exchange)
                    break
        case _:
            session.find('the body is no list; wanted {"object": "list", "data": [{"id": "…", "object": "model"}]}', exchange)


async def judge_streams(session: Session, *rows: str) -> None:
    """What is wrong under these rows with any of the streams that the server gives."""
    for body in TURNS:
        exchange = await session.post({**body, "stream": True})
        if exchange.is_stream:
            session.add(exchange.stream.flaws_of(*rows), exchange)


async def _refuses_key(session: Session, key: KeyChoice) -> None:
    if not session.has_key:
        raise Skip("no key was given (--key-env), so a wrong one cannot be told from it")
    exchange = await session.post(TEXT, key=key)
    session.demand(exchange.status == 401, f"the answer to {key} key has the status {exchange.status}; wanted 401", exchange)
    session.error_of(exchange)
    if exchange.error_flaws:
        session.find('the 401 has no structured error; wanted {"error": {"type", "code", "message", "param"}}', exchange)


REQUEST_IDS: Final = ("x-request-id", "request-id")
CASES: Final = (
    Case(id="models.list", rows=("API-5",), title="GET /models lists the models", run=lists_models),
    Case(id="http.content-type", rows=("HTTP-1",), title="a body that is not announced as JSON gets 415", run=wants_json),
    Case(id="http.broken-json", rows=("HTTP-1",), title="a body that is cut gets 400 invalid_json", run=says_where_json_broke),
    Case(id="http.no-object", rows=("HTTP-1",), title="a body that is no object gets 400 invalid_json", run=wants_an_object),
    Case(id="http.whole-answer", rows=("HTTP-2",), title="answers are JSON, and whole response objects", run=whole_answers),
    Case(
        id="http.stream",
        rows=("HTTP-3",),
        title="streams are events, each with its type on an event: line",
        run=streams_have_their_type,
    ),
    Case(id="http.done", rows=("HTTP-4",), title="streams end with data: [DONE]", run=streams_end_with_done),
    Case(id="http.no-event-ids", rows=("HTTP-5",), title="streams have no id: lines", run=streams_have_no_ids),
    Case(id="http.wrong-key", rows=("HTTP-6", "ERR-1"), title="a wrong key gets 401", run=refuses_a_wrong_key),
    Case(id="http.no-key", rows=("HTTP-6", "ERR-1"), title="no key gets 401", run=refuses_no_key),
    Case(id="http.request-id", rows=("HTTP-8",), title="every answer has a request id", run=tells_request_ids),
)
