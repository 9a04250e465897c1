"""Ids for a gemini client's calls, which need not have any: the same conversation always gets the same ones.

Calls without ids are numbered through the whole conversation. A result without one belongs to the first call of its name that waits
for one, in the turn before it.
"""

from __future__ import annotations

from antiphon.dialects.gemini.request_in import ContentIn, FunctionCallIn, FunctionResponseIn


class CallIds:
    """Both sides of the calls of one conversation, taken in its order."""

    def __init__(self, contents: list[ContentIn]) -> None:
        calls = [part.function_call for content in contents for part in content.parts or () if part.function_call]
        self._taken = {call.id for call in calls if call.id}
        self._count = 0
        self._waiting: list[tuple[str, str]] = []  # name and id of the calls that nobody answered yet
        self._is_answering = False

    def id_of_call(self, call: FunctionCallIn) -> str:
        """The id of a call. The first one after results begins another turn: what waited for a result in the last one has none."""
        if self._is_answering:
            self._waiting, self._is_answering = [], False
        id = call.id or self._next()
        self._waiting.append((call.name, id))
        return id

    def id_of_result(self, result: FunctionResponseIn) -> str:
        """The id of the call that a result is for; that of a result which is nobody's is made up too."""
        self._is_answering = True
        found = [(name, id) for name, id in self._waiting if id == result.id]
        if not found and result.id not in self._taken:
            found = [(name, id) for name, id in self._waiting if name == result.name]
        if not found:
            return result.id or self._next()
        self._waiting.remove(found[0])
        return found[0][1]

    def _next(self) -> str:
        while True:
            self._count += 1
            id = f"call_{self._count}"
            if id not in self._taken:
                return id
