"""Detect the dialect and the model of a server when the user does not name them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import msgspec

from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.probe.experiments import EXPERIMENTS
from antiphon.probe.run import BRIEF_TOKENS
from antiphon.probe.samples import TextForm
from antiphon.probe.target import ProbeResult, ProbeTarget, ServerConnection
from antiphon.protocol.codec import decode_json
from antiphon.upstream.transport import Transport


class NoServerFound(Exception):
    """No server that can be probed is at the URL; the message describes the answer."""


async def first_model(targets: Sequence[ProbeTarget], transport: Transport) -> str:
    """Return the first model that the server lists."""
    first_error = ""
    for target in targets:
        result = await ServerConnection(target, transport).send_request(
            None, path=SERVER_DIALECTS[target.dialect].models_path, method="GET"
        )
        _raise_if_no_api(target, result)
        name = _first_listed_name(result.body) if result.verdict == "accepted" else ""
        if name:
            return name
        first_error = first_error or result.message
    raise NoServerFound(f"{targets[0].base_url} lists no models ({first_error}); set a model with --model")


async def detect_dialect(targets: Sequence[ProbeTarget], transport: Transport) -> ProbeTarget:
    """Return the first target that answers. A demand for a key (401, 403) counts as an answer."""
    errors: list[str] = []
    for target in targets:
        result = await _send_minimal_request(target, transport)
        if result.verdict == "accepted" or result.evidence.status in (401, 403):
            return target
        errors.append(f"{target.dialect} {result.message}")
    raise NoServerFound(f"{targets[0].base_url} does not answer in any supported dialect: {'; '.join(errors)}")


async def _send_minimal_request(target: ProbeTarget, transport: Transport) -> ProbeResult:
    """Send the minimal request in each form until the server accepts it or fails for a reason other than its form."""
    steps = EXPERIMENTS[target.dialect].steps
    forms: tuple[TextForm, ...] = ("string", "parts")
    connection = ServerConnection(target, transport)
    for form, limit_name in product(forms, (*steps.LIMIT_NAMES, "")):
        body = steps.minimal_body(form)
        result = await connection.send_request(
            {**target.model_field, **(steps.with_token_limit(body, limit_name, BRIEF_TOKENS) if limit_name else body)}
        )
        _raise_if_no_api(target, result)
        if result.evidence.status not in (400, 422):
            break
    return result


def _raise_if_no_api(target: ProbeTarget, result: ProbeResult) -> None:
    """Raise `NoServerFound` if no API is at the URL, so that no further form is tried."""
    if result.is_no_api:
        raise NoServerFound(f"{target.base_url}: {result.message}")


def _first_listed_name(body: bytes) -> str:
    try:
        model_list = decode_json(body)
    except msgspec.DecodeError:
        return ""
    match model_list:
        case {"data": [{"id": str(name)}, *_]}:
            return name
        case {"models": [{"name": str(name)}, *_]}:
            return name.removeprefix("models/")
        case _:
            return ""
