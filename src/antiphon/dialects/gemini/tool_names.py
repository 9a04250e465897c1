"""Names of tools as servers of this dialect take them: flat, and never begun by a digit or a dash. Both directions of the map."""

from __future__ import annotations

import re
from typing import Final

from antiphon.dialects.common.tool_names import MAX_NAME_LENGTH, ToolNames, ToolRef
from antiphon.protocol.request import Request


class GeminiToolNames:
    """`ToolNames` with a mark before the names that begin as they may not."""

    def __init__(self, request: Request) -> None:
        self._names = ToolNames.for_request(request)
        self._marked = {_marked(name): name for name in self._names.wire_names if not BEGINS_WELL.match(name)}

    def wire_name(self, ref: ToolRef | tuple[str, str, str | None]) -> str:
        """The name under which a tool goes out."""
        name = self._names.wire_name(ref)  # type: ignore[arg-type]  # the same three, made cheaply
        return name if BEGINS_WELL.match(name) else _marked(name)

    def original_tool(self, sent_name: str) -> ToolRef:
        """The tool behind a name that came back."""
        return self._names.original_tool(self._marked.get(sent_name, sent_name))


def _marked(name: str) -> str:
    return f"_{name}"[:MAX_NAME_LENGTH]


BEGINS_WELL: Final = re.compile("[A-Za-z_]")
