"""Makes the names and ids of calls valid for sending back: legal names, and a unique id for each call (REQ-8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from antiphon.dialects.common.tool_names import ILLEGAL_CHARACTERS, LEGAL_NAME, MAX_NAME_LENGTH, ToolRef
from antiphon.protocol.losses import Losses


class SendableCalls:
    """The calls of one answer; `place` is the path of a call in the dialect. Each replacement is a loss."""

    def __init__(self, place: str, losses: Losses, new_id: Callable[[str], str]) -> None:
        self._place = place
        self._losses = losses
        self._new_id = new_id
        self._ids: set[str] = set()

    def name(self, called: ToolRef) -> str:
        """A legal name of a called tool. Only the name of a tool that was not offered can be illegal."""
        if called.kind == "custom" or LEGAL_NAME.fullmatch(called.name):
            return called.name
        name = ILLEGAL_CHARACTERS.sub("_", called.name)[:MAX_NAME_LENGTH]
        self._losses.add(
            f"{self._place}.name", f"the tool name {called.name[:80]!r}", f"it is not a valid name; {name!r} is used"
        )
        return name

    def id(self, id: str) -> str:
        """The id of a call. A missing, duplicate or too long id is replaced by a new one."""
        if id in self._ids:
            self._losses.add(f"{self._place}.id", f"the id {id!r}", "two calls have it; the second call gets a new id")
            id = ""
        if len(id) > MAX_CALL_ID:
            self._losses.add(
                f"{self._place}.id", f"an id of {len(id)} characters", f"the maximum is {MAX_CALL_ID}; a new id is used"
            )
            id = ""
        id = id or self._new_id("call")
        self._ids.add(id)
        return id


MAX_CALL_ID: Final = 64
