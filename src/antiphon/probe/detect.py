"""Which dialect a server speaks, and which model it has, where nobody said so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import msgspec

from antiphon.probe.run import BRIEF_TOKENS, STEPS
from antiphon.probe.samples import TextForm
from antiphon.probe.target import ProbeResult, ProbeTarget, ServerConnection
from antiphon.protocol.nesting import decode_json
from antiphon.upstream.server_dialects import SERVER_DIALECTS
from antiphon.upstream.transport import Transport


class NoServerFound(Exception):
    """No server that can be tried is there; the message says what is."""


async def first_model(targets: Sequence[ProbeTarget], transport: Transport) -> str:
    """The first model that the server lists."""
    said = ""
    for target in targets:
        came = await ServerConnection(target, transport).ask(None, path=SERVER_DIALECTS[target.dialect].models_path, method="GET")
        _check_there(target, came)
        name = _name_in(came.body) if came.verdict == "accepted" else ""
        if name:
            return name
        said = said or came.message
    raise NoServerFound(f"{targets[0].base_url} lists no models ({said}); say which one to ask with --model")


async def detect_dialect(targets: Sequence[ProbeTarget], transport: Transport) -> ProbeTarget:
    """The first of these that is answered. Where a key is asked for there is a server, too."""
    said: list[str] = []
    for target in targets:
        came = await _send_minimal_request(target, transport)
        if came.verdict == "accepted" or came.evidence.status in (401, 403):
            return target
        said.append(f"{target.dialect} {came.message}")
    raise NoServerFound(f"{targets[0].base_url} speaks no dialect that is known here: {'; '.join(said)}")


async def _send_minimal_request(target: ProbeTarget, transport: Transport) -> ProbeResult:
    """The plainest request, in one form after the other, as long as somebody is there who does not take it."""
    steps = STEPS[target.dialect]
    model = {} if target.dialect == "gemini" else {"model": target.model}
    forms: tuple[TextForm, ...] = ("string", "parts")
    line = ServerConnection(target, transport)
    for form, limit in product(forms, (*steps.LIMITS, "")):
        body = steps.minimal(form)
        came = await line.ask({**model, **(steps.limited(body, limit, BRIEF_TOKENS) if limit else body)})
        _check_there(target, came)
        if came.evidence.status not in (400, 422):
            break
    return came


def _check_there(target: ProbeTarget, came: ProbeResult) -> None:
    """A server that is not there, or is none, need not be asked again."""
    if came.is_no_api:
        raise NoServerFound(f"{target.base_url}: {came.message}")


def _name_in(body: bytes) -> str:
    try:
        listed = decode_json(body)
    except msgspec.DecodeError:
        return ""
    match listed:
        case {"data": [{"id": str(name)}, *_]}:
            return name
        case {"models": [{"name": str(name)}, *_]}:
            return name.removeprefix("models/")
        case _:
            return ""
