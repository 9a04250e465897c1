"""Assigns ids to the calls of a gemini client, which may omit them. One conversation always gets the same ids.

Calls without ids are numbered through the whole conversation. A result without an id belongs to the first unanswered
call of that name in the preceding turn.
"""

from __future__ import annotations

from antiphon.dialects.gemini.request_in import ContentIn, FunctionCallIn, FunctionResponseIn


class CallIds:
    """Assigns ids to the calls and results of one conversation, in its order."""

    def __init__(self, contents: list[ContentIn]) -> None:
        calls = [part.function_call for content in contents for part in content.parts or () if part.function_call]
        self._client_ids = {call.id for call in calls if call.id}
        self._count = 0
        self._unanswered: list[tuple[str, str]] = []  # name and id of each call without a result
        self._is_answering = False

    def id_of_call(self, call: FunctionCallIn) -> str:
        """The id of a call. The first call after results starts a new turn; unanswered calls of the last turn are
        dropped.
        """
        if self._is_answering:
            self._unanswered, self._is_answering = [], False
        id = call.id or self._next_free_id()
        self._unanswered.append((call.name, id))
        return id

    def id_of_result(self, result: FunctionResponseIn) -> str:
        """The id of the call that a result answers; a new id if there is no such call."""
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
