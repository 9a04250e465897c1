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
        self._client_ids = {call.id for call in calls if call.id}
        self._count = 0
        self._unanswered: list[tuple[str, str]] = []  # name and id of the calls that nobody answered yet
        self._is_answering = False

    def id_of_call(self, call: FunctionCallIn) -> str:
        """The id of a call. The first one after results begins another turn: what waited for a result in the last one has none."""
        if self._is_answering:
            self._unanswered, self._is_answering = [], False
        id = call.id or self._next_free_id()
        self._unanswered.append((call.name, id))
        return id

    def id_of_result(self, result: FunctionResponseIn) -> str:
        """The id of the call that a result is for; that of a result which is nobody's is made up too."""
        self._is_answering = True
        matches = [(name, id) for name, id in self._unanswered if id == result.id]
        if not matches and result.id not in self._client_ids:
            matches = [(name, id) for name, id in self._unanswered if name == result.name]
        if not matches:
            return result.id or self._next_free_id()
        self._unanswered.remove(matches[0])
        return matches[0][1]

    def _next_free_id(self) -> str:
        while True:
            self._count += 1
            id = f"call_{self._count}"
            if id not in self._client_ids:
                return id
