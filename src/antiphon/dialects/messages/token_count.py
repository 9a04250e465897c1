"""The request of the Messages endpoint that counts tokens."""

from __future__ import annotations

from typing import Final

from antiphon.dialects.common.token_count import count_request_with

count_request: Final = count_request_with(
    *("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format"),
    *("cache_control", "context_management", "mcp_servers"),
)
