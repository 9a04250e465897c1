"""Plans how the conversation of a turn is shortened: `compaction_trigger`, `context_management`, `truncation`.

Most turns ask for none of these, and the check is quick. The model's context size is looked up only for those that do.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from antiphon.errors import ClientFault, InvalidValue, MissingField, UnsupportedParameter
from antiphon.gateway.compaction import select_verbatim_items
from antiphon.gateway.compactor import MIN_SUMMARY_TOKENS, Compactor, verbatim_token_limit
from antiphon.gateway.managed_turn import ContextPlan
from antiphon.gateway.model_catalog import ModelCatalog
from antiphon.gateway.routes import Target
from antiphon.gateway.sealing import Seal
from antiphon.gateway.token_estimate import estimate_items, estimate_request
from antiphon.gateway.truncation import input_token_limit, truncate_request
from antiphon.protocol.items import CompactionTrigger, ItemParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.stamps import Stamps


def needs_context_plan(request: Request, own: list[ItemParam] | None) -> bool:
    """Whether a request asks for compaction or truncation. `own` are its new items, if its history was resolved."""
    return bool(request.context_management) or request.truncation == "auto" or (own is not None and _has_trigger(own))


class ContextPlanner(Struct, frozen=True, kw_only=True):
    """Makes context plans."""

    seal: Seal
    models: ModelCatalog
    stamps: Stamps

    async def make_plan(
        self, request: Request, raw: list[ItemParam], own: list[ItemParam], target: Target, owner: str, losses: Losses
    ) -> ContextPlan:
        """The plan for a request with its whole conversation, compactions opened; `raw` is the same with compactions
        sealed."""
        only_compacts = _is_triggered(own)
        if only_compacts:
            if not input_items(request):
                raise MissingField("input: there are no items before the compaction_trigger to compact", param="input")
            self.seal.check_keys()
        context = await self.models.context_size(target)
        threshold = None if only_compacts else _threshold(request, context, losses)
        truncates = request.truncation == "auto"
        compactor = None
        if only_compacts or (threshold is not None and _is_worth_it(request, context, threshold)):
            self.seal.check_keys()
            compactor = Compactor(seal=self.seal, owner=owner, target=target, context=context, stamps=self.stamps)
        elif truncates and context is not None:
            request = truncate_request(request, input_token_limit(context, request), losses)
        return ContextPlan(
            request=request,
            sealed_items=raw,
            compactor=compactor,
            threshold=threshold,
            only_compacts=only_compacts,
            truncates=truncates,
            context=context,
        )


def _has_trigger(own: list[ItemParam]) -> bool:
    return any(type(item) is CompactionTrigger for item in own)


def _is_triggered(own: list[ItemParam]) -> bool:
    """Whether the request asks for a compaction only."""
    if not _has_trigger(own):
        return False
    place = next(place for place, item in enumerate(own) if type(item) is CompactionTrigger)
    if place != len(own) - 1:
        raise InvalidValue(
            f"input[{place}]: a compaction_trigger must be the last item of the input",
            param=f"input[{place}]",
        )
    return True


def _threshold(request: Request, context: int | None, losses: Losses) -> int | None:
    """The number of tokens above which the conversation is compacted; None for never."""
    lowest: int | None = None
    for place, entry in enumerate(request.context_management or ()):
        path = f"context_management[{place}]"
        kind = entry.get("type")
        if kind != "compaction":
            raise UnsupportedParameter(f"{path}.type: expected 'compaction', got {_shown(kind)}", param=f"{path}.type")
        threshold = entry.get("compact_threshold")
        if threshold is None:
            threshold = context * FULL // 100 if context is not None else None
        elif isinstance(threshold, bool) or not isinstance(threshold, int) or threshold < 1:
            raise ClientFault(
                f"{path}.compact_threshold: expected a number of tokens of at least 1, got {_shown(threshold)}",
                param=f"{path}.compact_threshold",
            )
        if threshold is None:
            losses.add(
                path, "automatic compaction", "neither compact_threshold nor the context size of the model is known"
            )
        else:
            lowest = threshold if lowest is None else min(lowest, threshold)
    return lowest


def _is_worth_it(request: Request, context: int | None, threshold: int) -> bool:
    """Whether the conversation exceeds the threshold and a compaction would shorten it clearly: most of it may be kept
    verbatim."""
    if estimate_request(request) <= threshold:
        return False
    items = input_items(request)
    permanent, verbatim = select_verbatim_items(items, verbatim_token_limit(context, threshold))
    return estimate_items(items) - estimate_items([*permanent, *verbatim]) > max(MIN_SUMMARY_TOKENS, threshold // 8)


def _shown(value: Any) -> str:
    return repr(value)[:50]


FULL: Final = 80  # default threshold, per cent of the context size
