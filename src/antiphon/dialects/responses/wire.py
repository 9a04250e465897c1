"""What differs between servers of this API. Its shapes are the hub's own; those of poor servers are in `answers`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class ResponsesWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs between servers of this dialect. A profile's `[wire]` table fills it."""

    #: How the assistant's own turns must look in the history: parts of either type, or one string.
    assistant_content: Literal["output_text", "input_text", "string"] = "output_text"
    #: System messages: where they stand, or moved into `instructions`.
    system: Literal["keep", "instructions"] = "keep"
    #: What becomes of `developer` messages: servers that do not know the role get `system`.
    developer: Literal["developer", "system"] = "developer"
    #: Ids of items: some servers refuse those that they did not make.
    item_ids: Literal["keep", "drop"] = "keep"
    #: Statuses of items in the history.
    status_fields: Literal["keep", "drop"] = "keep"
    #: The phase of assistant messages (ITEM-7).
    phase: Literal["keep", "drop"] = "keep"
    #: Reasoning in the history: all of it, only what is sealed (without its open text), or none.
    reasoning: Literal["keep", "encrypted_only", "drop"] = "keep"
    #: Items of types that nobody knows.
    unknown_items: Literal["keep", "drop"] = "keep"
    #: Custom tools, namespaces, hosted tools and `additional_tools`: as they are, or made into plain functions where that can be.
    extension_tools: Literal["keep", "flatten"] = "keep"
    #: Whether the server keeps state for us: else `store` is false, and neither earlier responses nor conversations are named.
    stateful: bool = False
    #: Request fields that the server has no place for; each is reported as lost.
    lacks: list[str] = []
    #: What ends an answer that has no terminal event: nothing does, or its last item being done.
    end: Literal["terminal", "items"] = "terminal"
    #: Whether an answer was cut by `max_output_tokens`: the server tells, or says "completed" and its usage tells.
    cut: Literal["told", "by_usage"] = "told"
