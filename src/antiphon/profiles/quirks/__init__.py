"""Quirks: named pure functions that change a request into one that a particular server accepts, and report losses.

A profile lists them by name; they run in that order, before the dialect writes the request. No quirk names a provider.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec import Struct

from antiphon.profiles.quirks.assistant import assistant_as_string
from antiphon.profiles.quirks.content import StringsAsPartsOptions, parts_as_strings, strings_as_parts
from antiphon.profiles.quirks.items import (
    OnlyItemsOptions,
    StripCacheControlOptions,
    drop_item_ids,
    only_items,
    strip_cache_control,
)
from antiphon.profiles.quirks.media import files_as_notes, images_as_notes, media_as_notes
from antiphon.profiles.quirks.reasoning import ReasoningAsTextOptions, drop_reasoning, open_reasoning, reasoning_as_text
from antiphon.profiles.quirks.rewriting import NoOptions
from antiphon.profiles.quirks.roles import (
    InstructionsToSystemOptions,
    SystemToInstructionsOptions,
    developer_as_system,
    instructions_to_system,
    system_as_developer,
    system_to_instructions,
)
from antiphon.profiles.quirks.settings import ShortenUserOptions, shorten_user
from antiphon.profiles.quirks.tool_history import tool_history_as_text, tool_results_in_user_messages
from antiphon.profiles.quirks.tool_limits import (
    LimitToolsOptions,
    ShortenCallIdsOptions,
    limit_tools,
    shorten_call_ids,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


class QuirkDefinition(NamedTuple):
    """The function of a quirk, the type of its options, and the field that it concerns, if it is one."""

    apply: Callable[[Request, Losses, Any], Request]
    options: type[Struct] = NoOptions
    field: str = ""  # of the request; the quirk changes nothing in a request without it


QUIRKS: Final[dict[str, QuirkDefinition]] = {
    "assistant_as_string": QuirkDefinition(assistant_as_string),
    "developer_as_system": QuirkDefinition(developer_as_system),
    "drop_item_ids": QuirkDefinition(drop_item_ids),
    "drop_reasoning": QuirkDefinition(drop_reasoning),
    "files_as_notes": QuirkDefinition(files_as_notes),
    "images_as_notes": QuirkDefinition(images_as_notes),
    "instructions_to_system": QuirkDefinition(instructions_to_system, InstructionsToSystemOptions),
    "limit_tools": QuirkDefinition(limit_tools, LimitToolsOptions),
    "media_as_notes": QuirkDefinition(media_as_notes),
    "only_items": QuirkDefinition(only_items, OnlyItemsOptions),
    "open_reasoning": QuirkDefinition(open_reasoning),
    "parts_as_strings": QuirkDefinition(parts_as_strings),
    "reasoning_as_text": QuirkDefinition(reasoning_as_text, ReasoningAsTextOptions),
    "shorten_call_ids": QuirkDefinition(shorten_call_ids, ShortenCallIdsOptions),
    "shorten_user": QuirkDefinition(shorten_user, ShortenUserOptions, "user"),
    "strings_as_parts": QuirkDefinition(strings_as_parts, StringsAsPartsOptions),
    "strip_cache_control": QuirkDefinition(strip_cache_control, StripCacheControlOptions),
    "system_as_developer": QuirkDefinition(system_as_developer),
    "system_to_instructions": QuirkDefinition(system_to_instructions, SystemToInstructionsOptions),
    "tool_history_as_text": QuirkDefinition(tool_history_as_text),
    "tool_results_in_user_messages": QuirkDefinition(tool_results_in_user_messages),
}
