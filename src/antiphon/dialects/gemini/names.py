"""Names of tools as servers of this dialect take them: flat, and never begun by a digit or a dash. Both directions of the map."""

from __future__ import annotations

import re
from typing import Final

from antiphon.dialects.common.names import MAX_LENGTH, ToolNames, ToolRef
from antiphon.protocol.request import Request


class GeminiNames:
    """`ToolNames` with a mark before the names that begin as they may not."""

    def __init__(self, request: Request) -> None:
        self._names = ToolNames.of(request)
        self._marked = {_marked(name): name for name in self._names.all_sent if not BEGINS_WELL.match(name)}

    def sent(self, ref: ToolRef | tuple[str, str, str | None]) -> str:
        """The name under which a tool goes out."""
        name = self._names.sent(ref)  # type: ignore[arg-type]  # the same three, made cheaply
        return name if BEGINS_WELL.match(name) else _marked(name)

    def original(self, sent_name: str) -> ToolRef:
        """The tool behind a name that came back."""
        return self._names.original(self._marked.get(sent_name, sent_name))


def _marked(name: str) -> str:
    return f"_{name}"[:MAX_LENGTH]


BEGINS_WELL: Final = re.compile("[A-Za-z_]")
