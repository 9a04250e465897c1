"""Experiments besides single turns: usage, the order of stream events, errors, stored responses and the WebSocket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from antiphon import sse
from antiphon.errors import ApiError, UpstreamFault
from antiphon.probe.finding import Body, Evidence, ProbeFinding, Verdict, excerpt
from antiphon.probe.target import ProbeResult, ServerConnection
from antiphon.protocol.codec import decode_event, decode_json
from antiphon.protocol.grammar import Grammar
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport
from antiphon.upstream.websocket import UpgradeRefused, open_websocket

#: Sends a body and tells a refusal from a temporary failure, as for every experiment.
SendBody = Callable[[Body], Awaitable[ProbeResult]]


def check_usage(baseline: ProbeResult) -> ProbeFinding:
    has_usage = baseline.response is not None and baseline.response.usage is not None
    detail = (
        "the answer reports usage"
        if has_usage
        else "the answer reports no usage, so ignored content cannot always be detected"
    )
    return ProbeFinding(
        id="usage",
        title="usage in an answer",
        verdict="accepted" if has_usage else "ignored",
        detail=detail,
        evidence=baseline.evidence,
    )


async def check_invalid_request(send: SendBody, baseline: Body) -> ProbeFinding:
    """Record the error for a request with a value of the wrong type."""
    field = next(name for name in ("input", "messages", "contents") if name in baseline)
    result = await send({**baseline, field: 7})
    return _judge_error("error.shape", "error for an invalid request", result)


async def check_unknown_model(send: SendBody, baseline: Body) -> ProbeFinding:
    result = await send({**baseline, "model": "no-such-model-for-probe"})
    return _judge_error("error.model", "error for an unknown model", result)


async def check_stream_order(connection: ServerConnection, baseline: Body) -> ProbeFinding:
    """Check the order of the events of a stream against the specification."""
    id, title = "stream.order", "order of stream events"
    result = await connection.send_request({**baseline, "stream": True}, streams=True)
    if result.verdict != "accepted":
        return ProbeFinding(id=id, title=title, verdict=result.verdict, detail=result.message, evidence=result.evidence)
    grammar = Grammar()
    problems: list[str] = []
    frames = sse.Decoder()
    for frame in [*frames.feed(result.body), *frames.finish()]:
        if frame.data.strip() == sse.DONE:
            continue
        try:
            problems += [violation.message for violation in grammar.feed(decode_event(frame.data))]
        except ApiError as error:
            problems.append(error.message)
    problems += [violation.message for violation in grammar.finish()]
    detail = (
        f"{len(problems)} violations, the first: {excerpt(problems[0], 120)}"
        if problems
        else "follows the specification"
    )
    return ProbeFinding(
        id=id, title=title, verdict="ignored" if problems else "accepted", detail=detail, evidence=result.evidence
    )


async def check_stored_response(send: SendBody, baseline: Body) -> ProbeFinding:
    """Check whether a response can be continued by its id."""
    id, title = "state", "stored response continued by its id"
    first_result = await send({**baseline, "store": True})
    response_id = _decode_object(first_result.body).get("id")
    if first_result.verdict != "accepted" or not isinstance(response_id, str):
        return ProbeFinding(
            id=id,
            title=title,
            verdict="refused",
            detail=f"no response was stored: {first_result.message}",
            evidence=first_result.evidence,
        )
    second_result = await send({**baseline, "previous_response_id": response_id})
    if second_result.verdict != "accepted":
        return ProbeFinding(
            id=id,
            title=title,
            verdict=second_result.verdict,
            detail=second_result.message,
            evidence=second_result.evidence,
        )
    counts = [
        result.response.usage.input_tokens
        for result in (first_result, second_result)
        if result.response and result.response.usage
    ]
    has_grown = len(counts) == 2 and counts[1] > counts[0]
    detail = (
        "the input tokens include the earlier turn"
        if has_grown
        else "answered, but no input tokens counted for the earlier turn"
    )
    return ProbeFinding(
        id=id,
        title=title,
        verdict="accepted" if has_grown else "ignored",
        detail=detail,
        evidence=second_result.evidence,
    )


async def check_websocket(connection: ServerConnection, transport: Transport) -> ProbeFinding:
    """Check whether the server accepts turns over a WebSocket."""
    id, title = "websocket", "turns over a WebSocket"
    url = connection.target.url()
    evidence = Evidence(
        request=f"GET {url.removeprefix(connection.target.base_url)} (upgrade)", body=None, status=None, excerpt=""
    )
    if not isinstance(transport, HttpTransport):
        return ProbeFinding(
            id=id, title=title, verdict="untried", detail="this transport has no WebSocket", evidence=evidence
        )
    connection.request_count += 1
    headers = {name: value for name, value in connection.target.headers.items() if name != "content-type"}
    try:
        socket = await open_websocket(transport, url, headers, connection.target.timeouts)
    except UpgradeRefused as upgrade_error:
        refusal_evidence = msgspec.structs.replace(
            evidence, status=upgrade_error.status, excerpt=excerpt(upgrade_error.body)
        )
        return ProbeFinding(
            id=id,
            title=title,
            verdict="refused",
            detail=f"upgrade refused with status {upgrade_error.status}",
            evidence=refusal_evidence,
        )
    except UpstreamFault as fault:
        return ProbeFinding(
            id=id, title=title, verdict="refused", detail=excerpt(fault.message, 120), evidence=evidence
        )
    socket.close()
    upgrade_evidence = msgspec.structs.replace(evidence, status=101)
    return ProbeFinding(id=id, title=title, verdict="accepted", detail="upgrade accepted", evidence=upgrade_evidence)


def _judge_error(id: str, title: str, result: ProbeResult) -> ProbeFinding:
    verdict: Verdict = "accepted"
    match _decode_object(result.body):
        case _ if result.verdict == "accepted":
            verdict, detail = "ignored", "answered without an error"
        case {"error": {"message": str()} as error}:
            detail = f"{result.evidence.status}, an error object with {', '.join(sorted(error))}"
        case _:
            verdict, detail = "refused", f"{result.evidence.status}, in a form that clients cannot read"
    return ProbeFinding(id=id, title=title, verdict=verdict, detail=detail, evidence=result.evidence)


def _decode_object(body: bytes) -> dict[str, Any]:
    try:
        value = decode_json(body)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
