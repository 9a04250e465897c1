"""What a turn sends, worked out before anything is sent. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.dialects.common.refused_reasoning import Refused
from antiphon.errors import UnsupportedParameter
from antiphon.gateway.routes import Target
from antiphon.profiles import Wire
from antiphon.protocol.items import AdditionalTools, ItemParam, ReasoningParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items
from antiphon.upstream.speech import Speech

# What the gateway does itself, and no upstream hears of.
OURS: Final[dict[str, Any]] = dict.fromkeys(
    ("previous_response_id", "conversation", "background", "generate", "context_management"), UNSET
)


class Repeated(Struct, frozen=True, kw_only=True):
    """A turn once more, without a part that the upstream refused."""

    body: bytes
    losses: Losses
    wire: Wire | None = None  # the options that leave it out; None: it was in the history of this turn alone


class Prepared(Struct, kw_only=True):
    """A turn before anything was sent. The history is in the body alone, which is let go of once it is sent: the answer may last,
    and who reads it needs only to know what was offered. So it is with `repeat`, which makes the body without a refused part."""

    target: Target
    request: Request  # as the client asked, settled by the gateway
    sent: Request  # as the upstream is asked
    body: bytes
    losses: Losses
    repeat: Callable[[Refused], Repeated | None] | None = None  # None: there is nothing that could be left out


def prepare(request: Request, target: Target, *, keeps: bool = False) -> Prepared:
    """What is sent to the upstream, and what could not be. State is ours to keep: an upstream is told the whole conversation, and
    to keep none of it."""
    losses = Losses()
    profile = target.upstream.profile
    settled = _settle(request, keeps=keeps, losses=losses)
    sent, found = profile.prepare(replace(settled, model=target.model, store=False, **OURS))
    losses.extend(found)
    wire = target.wire
    body, found = target.upstream.speech.request_from_hub(sent, wire)
    losses.extend(found)
    kept = _without_history(settled)
    return Prepared(
        target=target,
        request=kept,
        sent=kept if sent is settled else _without_history(sent),
        body=body,
        losses=losses,
        repeat=partial(_repeated, sent, target, wire) if _can_leave_out(sent, target) else None,
    )


def _without_history(request: Request) -> Request:
    items = request.input
    offers: list[ItemParam] = []
    if type(items) is list and AdditionalTools in map(type, items):
        offers = [item for item in items if type(item) is AdditionalTools]
    return replace(request, input=offers or UNSET)


def _holds_reasoning(request: Request) -> bool:
    return type(request.input) is list and ReasoningParam in map(type, request.input)


def _can_leave_out(sent: Request, target: Target) -> bool:
    """Whether something that servers refuse may be in the body, so that the request is needed until it is taken."""
    return target.upstream.speech.wire_after_refusal is not None or _holds_reasoning(sent)


def _repeated(sent: Request, target: Target, wire: Wire, refused: Refused) -> Repeated | None:
    """The body without a refused part; None if it is not in there."""
    speech = target.upstream.speech
    if refused == "reasoning":
        return _without_reasoning(sent, speech, wire) if _holds_reasoning(sent) else None
    after = speech.wire_after_refusal(wire, target.model, refused) if speech.wire_after_refusal is not None else None
    if after is None:
        return None
    body, losses = speech.request_from_hub(sent, after)
    return Repeated(body=body, losses=losses, wire=after)


def _without_reasoning(sent: Request, speech: Speech, wire: Wire) -> Repeated:
    items = [item for item in input_items(sent) if type(item) is not ReasoningParam]
    losses = Losses()
    losses.add("input", "all earlier reasoning", "the server refused it, and was asked once more without it")
    return Repeated(body=speech.request_from_hub(replace(sent, input=items), wire)[0], losses=losses)


def _settle(request: Request, *, keeps: bool, losses: Losses) -> Request:
    """What a turn may ask of this gateway, with its effective values: they are what the client is told."""
    if request.background and not keeps:
        why = "this gateway keeps no responses" if request.store is not False else "store is false"
        said = f"background: got true, but {why}, and what runs in the background must be kept"
        raise UnsupportedParameter(said, param="background")
    if not keeps and request.store:
        losses.add("store", "the response is not stored", "this gateway keeps no responses")
    return request if request.store is keeps else replace(request, store=keeps)
