"""Maps tool names to the names that gemini servers accept, and back: flat, not starting with a digit or a dash."""

from __future__ import annotations

import re
from typing import Final

from antiphon.dialects.common.tool_names import MAX_NAME_LENGTH, ToolNames, ToolRef
from antiphon.protocol.request import Request


class GeminiToolNames:
    """`ToolNames` that puts `_` before names with an invalid first character."""

    def __init__(self, request: Request) -> None:
        self._names = ToolNames.for_request(request)
        self._original_names = {
            _with_prefix(name): name for name in self._names.wire_names if not VALID_FIRST_CHARACTER.match(name)
        }

    def wire_name(self, ref: ToolRef | tuple[str, str, str | None]) -> str:
        """The name that the server gets for a tool."""
        name = self._names.wire_name(ref)  # type: ignore[arg-type]  # a plain tuple is cheaper to build than a ToolRef
        return name if VALID_FIRST_CHARACTER.match(name) else _with_prefix(name)

    def original_tool(self, sent_name: str) -> ToolRef:
        """The tool for a name that the server sent."""
        return self._names.original_tool(self._original_names.get(sent_name, sent_name))


def _with_prefix(name: str) -> str:
    return f"_{name}"[:MAX_NAME_LENGTH]


VALID_FIRST_CHARACTER: Final = re.compile("[A-Za-z_]")
