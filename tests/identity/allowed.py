"""The closed table of differences that are allowed between what one side sent and what the other side received."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, Literal

from msgspec import Struct
from tests.recorded_traffic.json_diff import Delta

from antiphon.dialects.dialect import ServerDialectName

Direction = Literal["request", "answer", "stream"]


class AllowedDifference(Struct, frozen=True, kw_only=True):
    """Paths and changes may contain `*`."""

    dialect: ServerDialectName
    directions: tuple[Direction, ...]
    paths: tuple[str, ...]
    reason: str
    changes: tuple[str, ...] = ("*",)

    def matches(self, direction: Direction, delta: Delta) -> bool:
        return (
            direction in self.directions
            and any(_matches(pattern, delta.path) for pattern in self.paths)
            and any(_matches(pattern, delta.change) for pattern in self.changes)
        )


def find_allowed(dialect: ServerDialectName, direction: Direction, delta: Delta) -> AllowedDifference | None:
    """The row of the table that allows a difference."""
    rows = (row for row in ALLOWED if row.dialect == dialect)
    return next((row for row in rows if row.matches(direction, delta)), None)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def _matches(pattern: str, text: str) -> bool:
    return _compile(pattern).fullmatch(text) is not None


#: The members of a response that Open Responses requires, except those that every server sends.
REQUIRED_MEMBERS: Final = (
    *("background", "completed_at", "error", "frequency_penalty", "incomplete_details", "instructions"),
    *("max_output_tokens", "max_tool_calls", "metadata", "presence_penalty", "previous_response_id"),
    *("prompt_cache_key", "reasoning", "safety_identifier", "service_tier", "store", "temperature", "text"),
    *("top_logprobs", "top_p", "truncation", "usage"),
)
#: The members of a block with a file, and those of the note in its place.
FILE_BLOCK_MEMBERS: Final = (
    "type",
    "text",
    "source",
    "title",
    "citations",
    "transformations",
    "cache_control",
    "context",
    "unknown_member",
)
ALLOWED: Final = (
    # Chat
    AllowedDifference(
        dialect="chat",
        directions=("request",),
        paths=("tools[].*", "tool_choice*", "messages[].tool_calls[].*"),
        changes=("missing*", "added*", "changed", "object → string"),
        reason="The profile `chat` sends custom tools as functions, and a set of allowed tools as the tools themselves.",
    ),
    AllowedDifference(
        dialect="chat",
        directions=("request",),
        paths=("max_tokens", "max_completion_tokens"),
        reason="The profile `chat` names the limit of tokens `max_tokens`.",
    ),
    AllowedDifference(
        dialect="chat",
        directions=("request",),
        paths=("metadata", "service_tier", "safety_identifier", "verbosity", "prompt_cache_*"),
        changes=("missing*",),
        reason="The profile `chat` does not list these fields, which few servers accept.",
    ),
    AllowedDifference(
        dialect="chat",
        directions=("request",),
        paths=("messages[].content[].prompt_cache_breakpoint",),
        changes=("missing",),
        reason="The profile `chat` sends no cache marks.",
    ),
    AllowedDifference(
        dialect="chat",
        directions=("request",),
        paths=("messages[].content[].image_url.detail",),
        changes=("changed",),
        reason="Few servers know the detail `original`. The profile `chat` sends `high`.",
    ),
    AllowedDifference(
        dialect="chat",
        directions=("request",),
        paths=("user",),
        changes=("changed",),
        reason="The profile `chat` replaces a long `user` by a short one.",
    ),
    AllowedDifference(
        dialect="chat",
        directions=("request",),
        paths=("store",),
        changes=("missing*",),
        reason="The gateway stores responses itself, and asks no server to store them.",
    ),
    AllowedDifference(
        dialect="chat",
        directions=("request",),
        paths=("stream_options", "stream_options.*"),
        reason="The gateway asks for the usage of every stream, and pads deltas itself.",
    ),
    AllowedDifference(
        dialect="chat",
        directions=("request",),
        paths=("messages[].content",),
        changes=("added null",),
        reason="The profile `chat` sends null as the content of an assistant message that only calls tools.",
    ),
    AllowedDifference(
        dialect="chat",
        directions=("request",),
        paths=("messages[].content",),
        changes=("list → string",),
        reason="The profile `chat` sends no cache marks. A list of texts that loses its marks becomes one text.",
    ),
    AllowedDifference(
        dialect="chat",
        directions=("request",),
        paths=("messages[].content", "messages[].refusal"),
        changes=("added",),
        reason="A refusal is sent as the member `refusal`. If there is no other content, it is sent as content too.",
    ),
    # Messages
    AllowedDifference(
        dialect="messages",
        directions=("request",),
        paths=("thinking.*", "output_config", "output_config.*", "system"),
        changes=("missing*", "added*", "changed", "string → list"),
        reason="The profile `messages` sends budgets of thinking, no efforts, and formats as system text.",
    ),
    AllowedDifference(
        dialect="messages",
        directions=("request",),
        paths=("tools[].strict", "tools[].defer_loading"),
        changes=("missing",),
        reason="The profile `messages` has no strict tools. Without a tool search all tools are offered at once.",
    ),
    AllowedDifference(
        dialect="messages",
        directions=("request",),
        paths=(
            *(f"messages[].content[].{name}" for name in FILE_BLOCK_MEMBERS),
            *(f"messages[].content[].content[].{name}" for name in FILE_BLOCK_MEMBERS),
        ),
        changes=("missing*", "added", "changed"),
        reason="A file id is valid only on the server that issued it, which the gateway does not know.",
    ),
    # Gemini
    AllowedDifference(
        dialect="gemini",
        directions=("request",),
        paths=("contents[].parts[].functionCall.id", "contents[].parts[].functionResponse.id"),
        changes=("missing",),
        reason="The profile `gemini` sends no ids of calls, which many servers refuse.",
    ),
    AllowedDifference(
        dialect="gemini",
        directions=("request",),
        paths=("contents[].parts",),
        changes=("length",),
        reason="The profile `gemini` moves media of tool results behind the results.",
    ),
    AllowedDifference(
        dialect="gemini",
        directions=("request",),
        paths=("generationConfig.thinkingConfig.*",),
        changes=("missing", "added", "changed"),
        reason="The profile `gemini` sends budgets of thinking in place of levels.",
    ),
    AllowedDifference(
        dialect="gemini",
        directions=("request",),
        paths=("store",),
        changes=("missing",),
        reason="The gateway stores responses itself, and asks no server to store them.",
    ),
    AllowedDifference(
        dialect="gemini",
        directions=("request",),
        paths=(
            "generationConfig.responseSchema",
            "generationConfig.responseJsonSchema",
            "tools",
            "tools[].*",
        ),
        changes=("missing*", "added*", "length"),
        reason="Schemas with keywords that servers refuse are sent without them, as JSON Schema and in one tool.",
    ),
    AllowedDifference(
        dialect="gemini",
        directions=("request",),
        paths=("contents[].parts[].fileData.displayName",),
        changes=("missing",),
        reason="Few servers accept the name of a file.",
    ),
    # Ollama
    AllowedDifference(
        dialect="ollama",
        directions=("request",),
        paths=("stream",),
        changes=("added",),
        reason="A stream is the default. The gateway asks for it in every case.",
    ),
    # Responses
    AllowedDifference(
        dialect="responses",
        directions=("request",),
        paths=("store",),
        reason="The gateway stores responses itself, and asks no server to store them.",
    ),
    AllowedDifference(
        dialect="responses",
        directions=("answer",),
        paths=("id", "previous_response_id", "conversation", "background"),
        reason="The gateway stores and continues responses itself, under its own ids.",
    ),
    AllowedDifference(
        dialect="responses",
        directions=("stream",),
        paths=tuple(
            f"events[].response.{name}" for name in ("id", "previous_response_id", "conversation", "background")
        ),
        reason="The gateway stores and continues responses itself, under its own ids.",
    ),
    AllowedDifference(
        dialect="responses",
        directions=("stream",),
        paths=("events[].obfuscation",),
        changes=("added",),
        reason="A client that asks for obfuscation gets it from the gateway if the server sends none.",
    ),
    AllowedDifference(
        dialect="responses",
        directions=("answer",),
        paths=REQUIRED_MEMBERS,
        changes=("added*",),
        reason="Open Responses requires these members. The gateway adds those that a server left out.",
    ),
    AllowedDifference(
        dialect="responses",
        directions=("stream",),
        paths=tuple(f"events[].response.{name}" for name in REQUIRED_MEMBERS),
        changes=("added*",),
        reason="Open Responses requires these members. The gateway adds those that a server left out.",
    ),
)
