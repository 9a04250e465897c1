"""Which dialect a server speaks, and which model it has, where nobody said so."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antiphon.probe.run import STEPS
from antiphon.probe.samples import Form
from antiphon.probe.target import Came, Line, Target
from antiphon.upstream.speech import SPEECHES
from antiphon.upstream.transport import Transport


class Nothing(Exception):
    """No server that can be tried is there; the message says what is."""


async def first_model(targets: Sequence[Target], transport: Transport) -> str:
    """The first model that the server lists."""
    said = ""
    for target in targets:
        came = await Line(target, transport).ask(None, path=SPEECHES[target.dialect].models_path, method="GET")
        _check_there(target, came)
        name = _name_in(came.body) if came.verdict == "accepted" else ""
        if name:
            return name
        said = said or came.said
    raise Nothing(f"{targets[0].base_url} lists no models ({said}); say which one to ask with --model")


async def spoken(targets: Sequence[Target], transport: Transport) -> Target:
    """The first of these that is answered."""
    said: list[str] = []
    for target in targets:
        steps = STEPS[target.dialect]
        model = {} if target.dialect == "gemini" else {"model": target.model}
        forms: tuple[Form, ...] = ("parts", "string") if target.dialect == "responses" else ("string",)
        for form in forms:
            came = await Line(target, transport).ask({**model, **steps.limited(steps.minimal(form), steps.LIMITS[0], 64)})
            _check_there(target, came)
            if came.verdict == "accepted":
                return target
        said.append(f"{target.dialect} {came.said}")
    raise Nothing(f"{targets[0].base_url} speaks no dialect that is known here: {'; '.join(said)}")


def _check_there(target: Target, came: Came) -> None:
    """A server that is not there, or is none, need not be asked again."""
    if came.is_no_api:
        raise Nothing(f"{target.base_url}: {came.said}")


def _name_in(body: bytes) -> str:
    try:
        listed = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    match listed:
        case {"data": [{"id": str(name)}, *_]}:
            return name
        case {"models": [{"name": str(name)}, *_]}:
            return name.removeprefix("models/")
        case _:
            return ""
