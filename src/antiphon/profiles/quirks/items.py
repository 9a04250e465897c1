"""Quirks for items: their ids, their types, and fields that a server does not accept."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from antiphon.dialects.common.cache_marks import CACHE_CONTROL, CACHE_MARK
from antiphon.dialects.common.placeholders import type_of
from antiphon.profiles.quirks.rewriting import NoOptions, are_identical, change_items
from antiphon.protocol.base import Shape, Unknown, is_extension_type
from antiphon.protocol.items import (
    Compaction,
    CompactionParam,
    CustomToolCall,
    CustomToolCallOutput,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    ItemReference,
    Message,
    MessageParam,
    Reasoning,
    ReasoningParam,
    UnknownItem,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import PromptCacheOptions, Request
from antiphon.protocol.suggestions import suggest_names


class OnlyItemsOptions(Struct, frozen=True, forbid_unknown_fields=True):
    #: The types of input items that the server accepts.
    types: list[str]

    def __post_init__(self) -> None:
        for kind in self.types:
            if kind not in ITEM_TYPES and not is_extension_type(kind):
                raise ValueError(f"unknown item type {kind!r}{suggest_names(kind, ITEM_TYPES)}")


def only_items(request: Request, losses: Losses, options: OnlyItemsOptions) -> Request:
    """Leave out items of other types."""

    def change(path: str, item: ItemParam) -> ItemParam | None:
        kind = type_of(item)
        if kind in options.types:
            return item
        losses.add(path, f"an item of type {kind!r}", f"the server accepts only {', '.join(options.types)}")
        return None

    return change_items(request, change)


def drop_item_ids(request: Request, _losses: Losses, _options: NoOptions) -> Request:
    """For servers that refuse ids that they did not issue. Item references keep their id."""

    def change(_: str, item: ItemParam) -> ItemParam:
        if isinstance(item, ItemReference) or not getattr(item, "id", None):
            return item
        without_id: ItemParam = replace(_as_param(item), id=UNSET)
        return without_id

    return change_items(request, change)


class StripCacheControlOptions(Struct, frozen=True, forbid_unknown_fields=True):
    #: The fields to remove.
    names: tuple[Literal["cache_control", "prompt_cache_breakpoint"], ...] = (CACHE_CONTROL, CACHE_MARK)


def strip_cache_control(request: Request, losses: Losses, options: StripCacheControlOptions) -> Request:
    """E-4: remove cache marks from every part of the request."""
    stripped: Request = _MarkStripper(frozenset(options.names), losses).strip(request, "")
    return stripped


def _as_param(item: ItemParam) -> Any:
    """Convert an output item to its input form, in which the id is optional."""
    param_type = PARAM_TYPES.get(type(item))
    if param_type is None:
        return item
    return param_type(**{name: getattr(item, name) for name in param_type.__struct_fields__})


class _MarkStripper:
    """Removes the fields of the given names."""

    def __init__(self, names: frozenset[str], losses: Losses) -> None:
        self._names = names
        self._losses = losses

    def strip(self, value: Any, path: str) -> Any:
        match value:
            case list():
                new_members = [self.strip(member, f"{path}[{index}]") for index, member in enumerate(value)]
                return value if are_identical(new_members, value) else new_members
            case PromptCacheOptions():  # the writer of a request translates a `cache_control` of the whole request
                return value
            case Shape():
                return self._strip_shape(value, path)
            case Unknown():
                members = value.raw_members()
                remaining = self._without_marks(members, path)
                return value if remaining is members else replace(value, raw=Raw(msgspec.json.encode(remaining)))
            case dict():  # a block inside a tool result
                return self._without_marks(value, path)
            case _:
                return value

    def _strip_shape(self, shape: Shape, path: str) -> Shape:
        changes: dict[str, Any] = {}
        for name in shape.__struct_fields__:
            member = getattr(shape, name)
            # A dict in its own field is the user's data (a schema, arguments, metadata) and may have any key.
            if isinstance(member, list | Shape):
                new_member = self.strip(member, f"{path}.{name}" if path else name)
                changes |= {} if new_member is member else {name: new_member}
        if shape.extra:
            remaining = self._without_marks(shape.extra, path)
            changes |= {} if remaining is shape.extra else {"extra": remaining or UNSET}
        return replace(shape, **changes) if changes else shape

    def _without_marks(self, members: dict[str, Any], path: str) -> dict[str, Any]:
        """Return the members without the marks; the same dict if there are none."""
        marks = self._names & members.keys()
        for name in marks:
            self._losses.add(f"{path}.{name}" if path else name, f"the field {name!r}")
        return {name: member for name, member in members.items() if name not in marks} if marks else members


ITEM_TYPES: Final = tuple(sorted(item.__struct_config__.tag for item in get_args(ItemParam) if item is not UnknownItem))
PARAM_TYPES: Final[dict[type, type[Shape]]] = {
    Message: MessageParam,
    FunctionCall: FunctionCallParam,
    FunctionCallOutput: FunctionCallOutputParam,
    Reasoning: ReasoningParam,
    Compaction: CompactionParam,
    CustomToolCall: CustomToolCallParam,
    CustomToolCallOutput: CustomToolCallOutputParam,
}
