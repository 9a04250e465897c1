"""Quirks: named pure functions from a request to the request that a particular server takes, telling what was lost on the way.

A profile lists them by name; they run in that order, before the dialect writes the request. None of them knows a provider.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec import Struct

from antiphon.profiles.quirks.assistant import assistant_as_string
from antiphon.profiles.quirks.content import StringsAsParts, parts_as_strings, strings_as_parts
from antiphon.profiles.quirks.items import OnlyItems, drop_item_ids, only_items, strip_cache_control
from antiphon.profiles.quirks.media import files_as_notes, images_as_notes, media_as_notes
from antiphon.profiles.quirks.reasoning import ReasoningAsText, drop_reasoning, open_reasoning, reasoning_as_text
from antiphon.profiles.quirks.rewriting import NoOptions
from antiphon.profiles.quirks.roles import (
    InstructionsToSystem,
    SystemToInstructions,
    developer_as_system,
    instructions_to_system,
    system_as_developer,
    system_to_instructions,
)
from antiphon.profiles.quirks.settings import ShortenUser, shorten_user
from antiphon.profiles.quirks.tool_history import tool_history_as_text, tool_results_in_user_messages
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


class KnownQuirk(NamedTuple):
    """What a name in a profile stands for: the function, and the type of the options it takes."""

    apply: Callable[[Request, Losses, Any], Request]
    options: type[Struct] = NoOptions


class Quirk(Struct, frozen=True):
    """A quirk as a profile asks for it: its name, and its options, checked."""

    name: str
    options: Struct

    def apply(self, request: Request, losses: Losses) -> Request:
        return QUIRKS[self.name].apply(request, losses, self.options)


QUIRKS: Final[dict[str, KnownQuirk]] = {
    "assistant_as_string": KnownQuirk(assistant_as_string),
    "developer_as_system": KnownQuirk(developer_as_system),
    "drop_item_ids": KnownQuirk(drop_item_ids),
    "drop_reasoning": KnownQuirk(drop_reasoning),
    "files_as_notes": KnownQuirk(files_as_notes),
    "images_as_notes": KnownQuirk(images_as_notes),
    "instructions_to_system": KnownQuirk(instructions_to_system, InstructionsToSystem),
    "media_as_notes": KnownQuirk(media_as_notes),
    "only_items": KnownQuirk(only_items, OnlyItems),
    "open_reasoning": KnownQuirk(open_reasoning),
    "parts_as_strings": KnownQuirk(parts_as_strings),
    "reasoning_as_text": KnownQuirk(reasoning_as_text, ReasoningAsText),
    "shorten_user": KnownQuirk(shorten_user, ShortenUser),
    "strings_as_parts": KnownQuirk(strings_as_parts, StringsAsParts),
    "strip_cache_control": KnownQuirk(strip_cache_control),
    "system_as_developer": KnownQuirk(system_as_developer),
    "system_to_instructions": KnownQuirk(system_to_instructions, SystemToInstructions),
    "tool_history_as_text": KnownQuirk(tool_history_as_text),
    "tool_results_in_user_messages": KnownQuirk(tool_results_in_user_messages),
}
