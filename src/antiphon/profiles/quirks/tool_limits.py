"""Quirks for limits of tools: their number, and the length of the ids of their calls."""

from __future__ import annotations

import hashlib
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from antiphon.errors import InvalidValue
from antiphon.profiles.quirks.rewriting import change_items
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


class LimitToolsOptions(Struct, frozen=True, forbid_unknown_fields=True):
    #: The maximum number of tools that the server allows.
    limit: Annotated[int, Meta(ge=1)] = 128


def limit_tools(request: Request, losses: Losses, options: LimitToolsOptions) -> Request:
    """Refuse a request with more tools than the server allows. Without some of them, the model would act otherwise."""
    del losses
    count = len(request.tools or ())
    if count > options.limit:
        raise InvalidValue(f"tools: expected at most {options.limit} tools, got {count}", param="tools")
    return request


class ShortenCallIdsOptions(Struct, frozen=True, forbid_unknown_fields=True):
    #: The maximum length that the server allows, in characters.
    limit: Annotated[int, Meta(ge=8)] = 64


def shorten_call_ids(request: Request, losses: Losses, options: ShortenCallIdsOptions) -> Request:
    """Replace ids of calls that are too long by their hash, in calls and results alike. This is not a loss."""
    del losses
    return change_items(request, lambda _, item: _with_short_id(item, options.limit))


def _with_short_id(item: ItemParam, limit: int) -> ItemParam:
    match item:
        case (
            FunctionCallParam(call_id=call_id)
            | FunctionCallOutputParam(call_id=call_id)
            | CustomToolCallParam(call_id=call_id)
            | CustomToolCallOutputParam(call_id=call_id)
        ) if len(call_id) > limit:
            return replace(item, call_id=hashlib.sha256(call_id.encode()).hexdigest()[:limit])
        case _:
            return item
