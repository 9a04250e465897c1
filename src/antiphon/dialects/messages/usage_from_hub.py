"""Translates usage. `input_tokens` excludes tokens read from and written to the cache; the hub's `input_tokens`
includes them.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from antiphon.dialects.messages.answers import CACHE_CREATION_FIELD, OutputDetailsOut, UsageOut
from antiphon.protocol.response import Usage


def usage_from_hub(usage: Usage | None) -> UsageOut:
    """The token counts. A message always has usage, so unknown usage is all zeros."""
    if usage is None:
        return UsageOut(input_tokens=0, cache_creation_input_tokens=0, cache_read_input_tokens=0, output_tokens=0)
    details = usage.input_tokens_details
    created = int(msgspec.json.decode((details.extra or {}).get(CACHE_CREATION_FIELD, b"0")))
    thoughts = usage.output_tokens_details.reasoning_tokens
    return UsageOut(
        input_tokens=max(0, usage.input_tokens - details.cached_tokens - created),
        cache_creation_input_tokens=created,
        cache_read_input_tokens=details.cached_tokens,
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputDetailsOut(thinking_tokens=thoughts) if thoughts else UNSET,
    )
