"""The request of the Responses endpoint that counts tokens."""

from __future__ import annotations

from typing import Final

from antiphon.dialects.common.token_count import count_request_with

count_request: Final = count_request_with(
    *("model", "input", "instructions", "parallel_tool_calls", "reasoning", "text", "tool_choice", "tools"),
    "truncation",
)
