"""What is looked at besides single turns: usage, the order of a stream, errors, state and the WebSocket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from antiphon import sse
from antiphon.errors import ApiError, UpstreamFault
from antiphon.probe.finding import Body, Evidence, ProbeFinding, Verdict, excerpt
from antiphon.probe.target import ProbeResult, ServerConnection
from antiphon.protocol.codec import decode_event
from antiphon.protocol.grammar import Grammar
from antiphon.protocol.nesting import decode_json
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport
from antiphon.upstream.websocket import UpgradeRefused, open_websocket

#: Asks carefully, as every experiment is asked.
Ask = Callable[[Body], Awaitable[ProbeResult]]


def usage(least: ProbeResult) -> ProbeFinding:
    told = least.response is not None and least.response.usage is not None
    said = "tokens are counted" if told else "tokens are not counted, so what is ignored cannot always be told from what is read"
    return ProbeFinding(
        id="usage", title="usage of an answer", verdict="accepted" if told else "ignored", said=said, evidence=least.evidence
    )


async def wrong_request(ask: Ask, least: Body) -> ProbeFinding:
    """What a mistake is answered with."""
    field = next(name for name in ("input", "messages", "contents") if name in least)
    came = await ask({**least, field: 7})
    return _error("error.shape", "error for a request that is wrong", came)


async def wrong_model(ask: Ask, least: Body) -> ProbeFinding:
    came = await ask({**least, "model": "no-such-model-for-probe"})
    return _error("error.model", "error for a model that is not there", came)


async def stream_order(line: ServerConnection, least: Body) -> ProbeFinding:
    """Whether the events of a stream come in the order that the specification wants."""
    id, title = "stream.order", "order of a stream's events"
    came = await line.ask({**least, "stream": True}, streams=True)
    if came.verdict != "accepted":
        return ProbeFinding(id=id, title=title, verdict=came.verdict, said=came.message, evidence=came.evidence)
    grammar = Grammar()
    problems: list[str] = []
    frames = sse.Decoder()
    for frame in [*frames.feed(came.body), *frames.finish()]:
        if frame.data.strip() == sse.DONE:
            continue
        try:
            problems += [violation.message for violation in grammar.feed(decode_event(frame.data))]
        except ApiError as error:
            problems.append(error.message)
    problems += [violation.message for violation in grammar.finish()]
    said = f"{len(problems)} faults, the first: {excerpt(problems[0], 120)}" if problems else "as the specification wants it"
    return ProbeFinding(id=id, title=title, verdict="ignored" if problems else "accepted", said=said, evidence=came.evidence)


async def state(ask: Ask, least: Body) -> ProbeFinding:
    """Whether a response can be continued by its id."""
    id, title = "state", "response continued by its id"
    first = await ask({**least, "store": True})
    kept = _json(first.body).get("id")
    if first.verdict != "accepted" or not isinstance(kept, str):
        return ProbeFinding(
            id=id, title=title, verdict="refused", said=f"nothing is kept: {first.message}", evidence=first.evidence
        )
    second = await ask({**least, "previous_response_id": kept})
    if second.verdict != "accepted":
        return ProbeFinding(id=id, title=title, verdict=second.verdict, said=second.message, evidence=second.evidence)
    counts = [came.response.usage.input_tokens for came in (first, second) if came.response and came.response.usage]
    grown = len(counts) == 2 and counts[1] > counts[0]
    said = "the earlier turn was read again" if grown else "taken, and no token was counted for the earlier turn"
    return ProbeFinding(id=id, title=title, verdict="accepted" if grown else "ignored", said=said, evidence=second.evidence)


async def websocket(line: ServerConnection, transport: Transport) -> ProbeFinding:
    """Whether turns can be asked over a WebSocket."""
    id, title = "websocket", "turns over a WebSocket"
    url = line.target.url()
    evidence = Evidence(request=f"GET {url.removeprefix(line.target.base_url)} (upgrade)", body=None, status=None, excerpt="")
    if not isinstance(transport, HttpTransport):
        return ProbeFinding(id=id, title=title, verdict="untried", said="this network has none", evidence=evidence)
    line.count += 1
    headers = {name: value for name, value in line.target.headers.items() if name != "content-type"}
    try:
        socket = await open_websocket(transport, url, headers, line.target.timeouts)
    except UpgradeRefused as refused:
        told = msgspec.structs.replace(evidence, status=refused.status, excerpt=excerpt(refused.body))
        return ProbeFinding(id=id, title=title, verdict="refused", said=f"{refused.status} to the upgrade", evidence=told)
    except UpstreamFault as fault:
        return ProbeFinding(id=id, title=title, verdict="refused", said=excerpt(fault.message, 120), evidence=evidence)
    socket.close()
    opened = msgspec.structs.replace(evidence, status=101)
    return ProbeFinding(id=id, title=title, verdict="accepted", said="the upgrade is taken", evidence=opened)


def _error(id: str, title: str, came: ProbeResult) -> ProbeFinding:
    verdict: Verdict = "accepted"
    match _json(came.body):
        case _ if came.verdict == "accepted":
            verdict, said = "ignored", "it is answered as though nothing were wrong"
        case {"error": {"message": str()} as error}:
            said = f"{came.evidence.status}, an object with {', '.join(sorted(error))}"
        case _:
            verdict, said = "refused", f"{came.evidence.status}, in no form that clients read"
    return ProbeFinding(id=id, title=title, verdict=verdict, said=said, evidence=came.evidence)


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = decode_json(body)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
