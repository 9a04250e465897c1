"""Plans how the conversation of a turn is shortened: `compaction_trigger`, `context_management`, `truncation`.

Most turns ask for none of these, and the check is quick. The model's context size is looked up only for those that do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.dialects.common.token_estimate import estimate_items, estimate_request
from antiphon.errors import ClientFault, InvalidValue, MissingField, UnsupportedParameter
from antiphon.gateway.compaction import (
    MIN_SUMMARY_TOKENS,
    Conversation,
    EncodedConversation,
    encode_conversation,
    select_verbatim_items,
    verbatim_token_limit,
)
from antiphon.gateway.sealing import Seal
from antiphon.gateway.truncation import input_token_limit, truncate_request
from antiphon.protocol import codec
from antiphon.protocol.items import CompactionTrigger, ItemParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items


class ContextPlan(Struct, frozen=True, kw_only=True):
    """How the conversation of a turn is shortened."""

    request: Request  # the whole conversation, compactions opened; empty if it is encoded
    sealed_items: list[ItemParam]  # the whole conversation, compactions sealed
    #: Of a plan that was made in a worker process: the conversation, and the request without its items.
    encoded_conversation: EncodedConversation | None = None
    encoded_settings: bytes | None = None
    compacts: bool = False  # the conversation is compacted first
    threshold: int | None = None
    only_compacts: bool = False
    truncates: bool = False
    context_size: int | None = None

    @property
    def conversation(self) -> Conversation | EncodedConversation:
        return self.encoded_conversation or Conversation(request=self.request, sealed_items=self.sealed_items)

    def encode(self) -> ContextPlan:
        """The plan with its request as JSON, so that no other process has to decode it."""
        encoded: EncodedConversation | None = None
        if self.compacts or self.truncates:  # otherwise the conversation is sent as it is
            sealed_items = self.sealed_items if self.compacts else []
            encoded = encode_conversation(Conversation(request=self.request, sealed_items=sealed_items))
        return replace(
            self,
            request=Request(),
            sealed_items=[],
            encoded_conversation=encoded,
            encoded_settings=codec.encode(replace(self.request, input=[])),
        )


async def plan_context(
    request: Request,
    sealed_items: list[ItemParam],
    new_items: list[ItemParam],
    seal: Seal,
    find_context_size: Callable[[], Awaitable[int | None]],
    losses: Losses,
) -> ContextPlan:
    """The plan for a request with its whole conversation, compactions opened; `sealed_items` is the same with
    compactions sealed."""
    only_compacts = _ends_with_trigger(new_items)
    if only_compacts:
        if not input_items(request):
            raise MissingField("input: there are no items before the compaction_trigger to compact", param="input")
        seal.check_keys()
    context_size = await find_context_size()
    threshold = None if only_compacts else _compaction_threshold(request, context_size, losses)
    truncates = request.truncation == "auto"
    compacts = only_compacts or (threshold is not None and _shortens_clearly(request, context_size, threshold))
    if compacts:
        seal.check_keys()
    elif truncates and context_size is not None:
        request = truncate_request(request, input_token_limit(context_size, request), losses)
    return ContextPlan(
        request=request,
        sealed_items=sealed_items,
        compacts=compacts,
        threshold=threshold,
        only_compacts=only_compacts,
        truncates=truncates,
        context_size=context_size,
    )


def has_trigger(new_items: list[ItemParam]) -> bool:
    """Whether the items contain a compaction trigger."""
    return any(type(item) is CompactionTrigger for item in new_items)


def _ends_with_trigger(new_items: list[ItemParam]) -> bool:
    """Whether the request asks for a compaction only."""
    if not has_trigger(new_items):
        return False
    index = next(index for index, item in enumerate(new_items) if type(item) is CompactionTrigger)
    if index != len(new_items) - 1:
        raise InvalidValue(
            f"input[{index}]: a compaction_trigger must be the last item of the input",
            param=f"input[{index}]",
        )
    return True


def _compaction_threshold(request: Request, context_size: int | None, losses: Losses) -> int | None:
    """The number of tokens above which the conversation is compacted; None for never."""
    lowest_threshold: int | None = None
    for index, entry in enumerate(request.context_management or ()):
        path = f"context_management[{index}]"
        kind = entry.get("type")
        if kind != "compaction":
            raise UnsupportedParameter(
                f"{path}.type: expected 'compaction', got {_abbreviate(kind)}", param=f"{path}.type"
            )
        threshold = entry.get("compact_threshold")
        if threshold is None:
            threshold = context_size * DEFAULT_THRESHOLD_PERCENT // 100 if context_size is not None else None
        elif isinstance(threshold, bool) or not isinstance(threshold, int) or threshold < 1:
            raise ClientFault(
                f"{path}.compact_threshold: expected a number of tokens of at least 1, got {_abbreviate(threshold)}",
                param=f"{path}.compact_threshold",
            )
        if threshold is None:
            losses.add(
                path, "automatic compaction", "neither compact_threshold nor the context size of the model is known"
            )
        else:
            lowest_threshold = threshold if lowest_threshold is None else min(lowest_threshold, threshold)
    return lowest_threshold


def _shortens_clearly(request: Request, context_size: int | None, threshold: int) -> bool:
    """Whether the conversation exceeds the threshold and a compaction would shorten it clearly: most of it may be kept
    verbatim."""
    if estimate_request(request) <= threshold:
        return False
    items = input_items(request)
    permanent, verbatim = select_verbatim_items(items, verbatim_token_limit(context_size, threshold))
    return estimate_items(items) - estimate_items([*permanent, *verbatim]) > max(MIN_SUMMARY_TOKENS, threshold // 8)


def _abbreviate(value: Any) -> str:
    return repr(value)[:50]


DEFAULT_THRESHOLD_PERCENT: Final = 80  # default threshold, per cent of the context size
