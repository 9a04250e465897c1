"""Translates a request for its upstream before anything is sent. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.errors import UnsupportedParameter
from antiphon.gateway.routes import Target
from antiphon.profiles import Wire
from antiphon.protocol.items import AdditionalTools, ItemParam, ReasoningParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items
from antiphon.upstream.server_dialects import ServerDialect

# Parameters that the gateway implements and does not send to upstreams.
OURS: Final[dict[str, Any]] = dict.fromkeys(
    ("previous_response_id", "conversation", "background", "generate", "context_management"), UNSET
)


class RetryRequest(Struct, frozen=True, kw_only=True):
    """The request for a retry without a part that the upstream refused."""

    body: bytes
    losses: Losses
    wire: Wire | None = None  # wire options without the part; None: the part was in this turn's history


class PreparedRequest(Struct, kw_only=True):
    """A translated request. Only `body` and `build_retry` hold the history; both are released once the body is sent,
    because a response may take long and its reader needs only the settings and tools."""

    target: Target
    request: Request  # the client's, with effective values
    upstream_request: Request  # the one that the upstream gets
    body: bytes
    losses: Losses
    build_retry: Callable[[RefusedPart], RetryRequest | None] | None = (
        None  # builds a body without a refused part; None: no part can be left out
    )


def prepare_request(request: Request, target: Target, *, is_stored: bool = False) -> PreparedRequest:
    """Translates a request for its target. The gateway keeps the state: the upstream gets the whole conversation, and
    `store: false`."""
    losses = Losses()
    profile = target.upstream.profile
    settled = _settle(request, is_stored=is_stored, losses=losses)
    sent, quirk_losses = profile.apply_quirks(replace(settled, model=target.model, store=False, **OURS))
    losses.extend(quirk_losses)
    wire = target.wire
    body, dialect_losses = target.upstream.server_dialect.request_from_hub(sent, wire)
    losses.extend(dialect_losses)
    without_history = _without_history(settled)
    return PreparedRequest(
        target=target,
        request=without_history,
        upstream_request=without_history if sent is settled else _without_history(sent),
        body=body,
        losses=losses,
        build_retry=partial(_repeated, sent, target, wire) if _can_leave_out(sent, target) else None,
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
    """Whether the body may hold a part that servers refuse, so that a retry must be possible."""
    return target.upstream.server_dialect.wire_after_refusal is not None or _holds_reasoning(sent)


def _repeated(sent: Request, target: Target, wire: Wire, refused: RefusedPart) -> RetryRequest | None:
    """The request without a refused part; None if it has no such part."""
    server_dialect = target.upstream.server_dialect
    if refused == "reasoning":
        return _without_reasoning(sent, server_dialect, wire) if _holds_reasoning(sent) else None
    after = (
        server_dialect.wire_after_refusal(wire, target.model, refused)
        if server_dialect.wire_after_refusal is not None
        else None
    )
    if after is None:
        return None
    body, losses = server_dialect.request_from_hub(sent, after)
    return RetryRequest(body=body, losses=losses, wire=after)


def _without_reasoning(sent: Request, server_dialect: ServerDialect, wire: Wire) -> RetryRequest:
    items = [item for item in input_items(sent) if type(item) is not ReasoningParam]
    losses = Losses()
    losses.add("input", "all earlier reasoning", "the server refused it, and the request was sent again without it")
    return RetryRequest(body=server_dialect.request_from_hub(replace(sent, input=items), wire)[0], losses=losses)


def _settle(request: Request, *, is_stored: bool, losses: Losses) -> Request:
    """The request with the effective value of `store`, which the client gets back."""
    if request.background and not is_stored:
        why = "this gateway stores no responses" if request.store is not False else "store is false"
        message = f"background: expected false, because {why}; a background response must be stored"
        raise UnsupportedParameter(message, param="background")
    if not is_stored and request.store:
        losses.add("store", "the response is not stored", "this gateway stores no responses")
    return request if request.store is is_stored else replace(request, store=is_stored)
