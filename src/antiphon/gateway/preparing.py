"""What a turn sends, worked out before anything is sent. Pure.

Of a request that goes on from an earlier one (`recall`) only what is new is translated, where that gives the same: all that stands
around the messages is then known, and so are the messages before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from antiphon.errors import UnsupportedParameter
from antiphon.gateway.recall import Recalled
from antiphon.gateway.routes import Target
from antiphon.protocol.items import AdditionalTools, ItemParam, ReasoningParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.response import Response, opening
from antiphon.upstream.speech import History

# What the gateway does itself, and no upstream hears of.
OURS: Final[dict[str, Any]] = dict.fromkeys(
    ("previous_response_id", "conversation", "background", "generate", "context_management"), UNSET
)


class Prepared(Struct, kw_only=True):
    """A turn before anything was sent. The history is in the body alone, which is let go of once it is sent: the answer may last,
    and who reads it needs only to know what was offered. So it is with what would be sent if the reasoning in it were refused."""

    target: Target
    request: Request  # as the client asked, settled by the gateway
    sent: Request  # as the upstream is asked
    body: bytes
    losses: Losses
    without_reasoning: Callable[[], bytes] | None = None  # the body once more; None if there is no reasoning in it
    opening: Response | None = None  # what `opening_with` gives, if it is known

    def opening_with(self, id: str, created_at: int) -> Response:
        """The response with which the turn begins."""
        if self.opening is None:
            return opening(self.request, id=id, created_at=created_at)
        return replace(self.opening, id=id, created_at=created_at)


def prepare(request: Request, target: Target, *, keeps: bool = False, recalled: Recalled | None = None) -> Prepared:
    """What is sent to the upstream, and what could not be. State is ours to keep: an upstream is told the whole conversation, and
    to keep none of it. `recalled` counts if the request is still the one that was recalled."""
    if recalled is None or recalled.request is not request:
        return _prepare(request, target, keeps)[0]
    mould: _Mould | None = recalled.frame.known.get((id(target.upstream), target.model, keeps))
    if mould is not None:
        told = recalled.work_out(mould, mould.nothing, _go_on) if recalled.whole.items else None
        if told is not None:
            return mould.filled(told, target, request.previous_response_id)
    prepared, sent = _prepare(request, target, keeps)
    if mould is None and recalled.frame.recurs:
        mould = _mould_of(prepared, sent)
        if mould is not None:
            recalled.frame.known[id(target.upstream), target.model, keeps] = mould
    return prepared


class _Mould:
    """What all requests of one frame become for one target, but for their messages."""

    __slots__ = ("after", "before", "losses", "nothing", "opening", "request", "sent")

    def __init__(self, prepared: Prepared, nothing: History, before: bytes, after: bytes) -> None:
        self.request = prepared.request
        self.sent = prepared.sent
        self.opening = opening(prepared.request, id="", created_at=0)
        self.losses = Losses()
        self.losses.extend(prepared.losses)
        self.nothing = nothing  # a conversation before its first item
        self.before = before
        self.after = after

    def filled(self, told: History, target: Target, previous: str | UnsetType | None) -> Prepared:
        """With this conversation, which continues that response."""
        losses = Losses()
        losses.extend(self.losses)
        body = b"%b%b%b" % (self.before, told.whole(), self.after)
        request, begins = self.request, self.opening
        if previous != request.previous_response_id:
            request = replace(request, previous_response_id=previous)
            begins = replace(begins, previous_response_id=previous or None)
        return Prepared(target=target, request=request, sent=self.sent, body=body, losses=losses, opening=begins)


def _mould_of(prepared: Prepared, sent: Request) -> _Mould | None:
    """Found in a body that was made in full; None if its messages cannot be told from what stands around them, or if what
    is done to a conversation depends on more than the dialect."""
    upstream = prepared.target.upstream
    if upstream.speech.history_from_hub is None or upstream.profile.looks_at_history:
        return None
    nothing = upstream.speech.history_from_hub(sent, upstream.profile.wire)
    told = nothing.go_on(input_items(sent))
    messages = told.whole() if told is not None else b""
    if not messages or prepared.body.count(messages) != 1:
        return None
    before, _, after = prepared.body.partition(messages)
    return _Mould(prepared, nothing, before, after)


def _go_on(told: History, items: list[ItemParam]) -> History | None:
    return told.go_on(items)


def _prepare(request: Request, target: Target, keeps: bool) -> tuple[Prepared, Request]:
    """All of it, and the request as it was translated."""
    losses = Losses()
    profile = target.upstream.profile
    settled = _settle(request, keeps=keeps, losses=losses)
    sent, found = profile.prepare(replace(settled, model=target.model, store=False, **OURS))
    losses.extend(found)
    body, found = target.upstream.speech.request_from_hub(sent, profile.wire)
    losses.extend(found)
    kept = _without_history(settled)
    prepared = Prepared(
        target=target,
        request=kept,
        sent=kept if sent is settled else _without_history(sent),
        body=body,
        losses=losses,
        without_reasoning=partial(_body_without_reasoning, sent, target) if _holds_reasoning(sent) else None,
    )
    return prepared, sent


def _without_history(request: Request) -> Request:
    items = request.input
    offers: list[ItemParam] = []
    if type(items) is list and AdditionalTools in map(type, items):
        offers = [item for item in items if type(item) is AdditionalTools]
    return replace(request, input=offers or UNSET)


def _holds_reasoning(request: Request) -> bool:
    return type(request.input) is list and ReasoningParam in map(type, request.input)


def _body_without_reasoning(sent: Request, target: Target) -> bytes:
    items = [item for item in input_items(sent) if type(item) is not ReasoningParam]
    return target.upstream.speech.request_from_hub(replace(sent, input=items), target.upstream.profile.wire)[0]


def _settle(request: Request, *, keeps: bool, losses: Losses) -> Request:
    """What a turn may ask of this gateway, with its effective values: they are what the client is told."""
    if request.background and not keeps:
        why = "this gateway keeps no responses" if request.store is not False else "store is false"
        said = f"background: got true, but {why}, and what runs in the background must be kept"
        raise UnsupportedParameter(said, param="background")
    if not keeps and request.store:
        losses.add("store", "the response is not stored", "this gateway keeps no responses")
    return request if request.store is keeps else replace(request, store=keeps)
