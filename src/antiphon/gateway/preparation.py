"""Translates a request for its upstream before anything is sent.

Pure: from a request and a plan to the upstream's bytes. Both are data, and so is the result, so the translation can run
in another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.dialects.common.original_form import keep_original_form
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.dialects.common.request_fields import refuse_several_answers
from antiphon.dialects.dialect import ClientDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS, Wire
from antiphon.errors import UnsupportedParameter
from antiphon.gateway.upstreams import TranslationPlan
from antiphon.protocol.items import AdditionalTools, ItemParam, ReasoningParam, ToolSearchOutput
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items

THREAD: Final = "messages:thread"  # in the `extra` of a request that is stored as a part of a thread
OFFERING_ITEMS: Final = frozenset({AdditionalTools, ToolSearchOutput})
# Parameters that the gateway implements and does not send to upstreams.
GATEWAY_PARAMETERS: Final[dict[str, Any]] = dict.fromkeys(
    ("previous_response_id", "conversation", "background", "generate", "context_management"), UNSET
)


class OriginalRequest(Struct, frozen=True):
    """The body of a client, and its dialect."""

    dialect: ClientDialectName
    body: bytes


class PreparedRequest(Struct, kw_only=True):
    """A translated request. Only `body`, `retry_source` and `original` hold the history; they are released once the
    body is sent, because a response may take long and its reader needs only the settings and tools."""

    plan: TranslationPlan
    request: Request  # the client's, with effective values
    upstream_request: Request  # the one that the upstream gets
    body: bytes
    losses: Losses
    #: The request with its history, if it may hold a part that the upstream refuses.
    retry_source: Request | None = None
    original: OriginalRequest | None = None


class RetryRequest(Struct, frozen=True, kw_only=True):
    """The request for a retry without a part that the upstream refused."""

    body: bytes
    losses: Losses
    wire: Wire | None = None  # wire options without the part; None: the part was in this turn's history


def prepare_request(
    request: Request, plan: TranslationPlan, original: OriginalRequest | None = None
) -> PreparedRequest:
    """Translates a request. The gateway keeps the state: the upstream gets the whole conversation, and `store: false`.
    A client of the upstream's dialect, whose body is `original`, keeps the form of its request."""
    if plan.is_stored or original is None or original.dialect != plan.profile.dialect:
        refuse_several_answers(request)  # only answers that pass as they came can be several
    losses = Losses()
    if THREAD in (request.extra or ()):
        request = _offer_tools_of_thread(request)
    client_request = _settle_store(request, is_stored=plan.is_stored, losses=losses)
    sent_request = replace(client_request, model=plan.model, store=False, **GATEWAY_PARAMETERS)
    upstream_request, quirk_losses = plan.profile.apply_quirks(sent_request)
    losses.extend(quirk_losses)
    server_dialect = SERVER_DIALECTS[plan.profile.dialect]
    body, dialect_losses = server_dialect.request_from_hub(upstream_request, _wire_for(plan, original))
    losses.extend(dialect_losses)
    body = _in_original_form(body, plan, original, sent_request)
    can_retry = server_dialect.wire_after_refusal is not None or _holds_reasoning(upstream_request)
    return PreparedRequest(
        plan=plan,
        request=_without_history(client_request),
        upstream_request=_without_history(upstream_request),
        body=body,
        losses=losses,
        retry_source=upstream_request if can_retry else None,
        original=original if can_retry else None,
    )


def _wire_for(plan: TranslationPlan, original: OriginalRequest | None) -> Wire:
    is_own_client = original is not None and original.dialect == plan.profile.dialect
    has_own_wire = bool(SERVER_DIALECTS[plan.profile.dialect].own_client_wire)
    return plan.profile.own_client_wire if is_own_client and has_own_wire else plan.wire


def _in_original_form(
    body: bytes, plan: TranslationPlan, original: OriginalRequest | None, sent_request: Request
) -> bytes:
    if original is None or original.dialect != plan.profile.dialect:
        return body
    server_dialect = SERVER_DIALECTS[plan.profile.dialect]
    neutral_wire = server_dialect.wire_type(**server_dialect.own_client_wire)
    has_profile = bool(plan.profile.quirks) or _wire_for(plan, original) != neutral_wire

    def translate_neutrally() -> bytes:
        return server_dialect.request_from_hub(sent_request, neutral_wire)[0]

    read_body = CLIENT_DIALECTS[original.dialect].request_to_hub
    return keep_original_form(
        original.body,
        body,
        read_body,
        translate_neutrally if has_profile else None,
        keeps_turns=getattr(plan.wire, "consecutive_turns", False),
    )


def prepare_retry(
    upstream_request: Request,
    plan: TranslationPlan,
    refused_parts: Sequence[RefusedPart],
    original: OriginalRequest | None = None,
) -> RetryRequest | None:
    """Translates a request without the parts that the upstream refused; None if it lacks one of them."""
    server_dialect = SERVER_DIALECTS[plan.profile.dialect]
    request, wire, losses = upstream_request, plan.wire, Losses()
    for refused in refused_parts:
        if refused == "reasoning":
            if not _holds_reasoning(request):
                return None
            items = [item for item in input_items(request) if type(item) is not ReasoningParam]
            request = replace(request, input=items)
            reason = "the server refused it, and the request was sent again without it"
            losses.add("input", "all earlier reasoning", reason)
        else:
            leave_out = server_dialect.wire_after_refusal
            changed_wire = leave_out(wire, plan.model, refused) if leave_out is not None else None
            if changed_wire is None:
                return None
            wire = changed_wire
    body, dialect_losses = server_dialect.request_from_hub(
        request, _wire_for(plan, original) if wire is plan.wire else wire
    )
    if wire is plan.wire:
        return RetryRequest(body=_in_original_form(body, plan, original, upstream_request), losses=losses)
    losses.extend(dialect_losses)
    return RetryRequest(body=_in_original_form(body, plan, original, upstream_request), losses=losses, wire=wire)


def _offer_tools_of_thread(request: Request) -> Request:
    """The request with the tools that its thread began with, which are the first items of the conversation."""
    items = input_items(request)
    tools = [tool for item in items if type(item) is AdditionalTools for tool in item.tools]
    remaining_items = [item for item in items if type(item) is not AdditionalTools]
    return replace(request, tools=tools or UNSET, input=remaining_items)


def _without_history(request: Request) -> Request:
    items = request.input
    offers: list[ItemParam] = []
    if type(items) is list and not OFFERING_ITEMS.isdisjoint(map(type, items)):
        offers = [item for item in items if type(item) in OFFERING_ITEMS]
    return replace(request, input=offers or UNSET)


def _holds_reasoning(request: Request) -> bool:
    return type(request.input) is list and ReasoningParam in map(type, request.input)


def _settle_store(request: Request, *, is_stored: bool, losses: Losses) -> Request:
    """The request with the effective value of `store`, which the client gets back."""
    if request.background and not is_stored:
        why = "this gateway stores no responses" if request.store is not False else "store is false"
        message = f"background: expected false, because {why}; a background response must be stored"
        raise UnsupportedParameter(message, param="background")
    if not is_stored and THREAD in (request.extra or ()):
        message = "thread: the response is not stored here; send the whole conversation instead"
        raise UnsupportedParameter(message, param="thread")
    if not is_stored and request.store:
        losses.add("store", "the response is not stored", "this gateway stores no responses")
    return request if request.store is is_stored else replace(request, store=is_stored)
