"""The head of a request that comes again: a client on one connection sends the same lines, and another length of the body.

The parser has judged them once. What differs is a number, which says where the body ends, and nothing else is taken for it.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from antiphon.server.asgi import BY_NAME, DIRECT, FACTS, Scope, by_name

LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,10})[ \t]*\r\n", re.IGNORECASE)
LONGEST: Final = 10  # digits of a length
END: Final = b"\r\n\r\n"


class Found(NamedTuple):
    """A request with such a head."""

    length: bytes
    body: bytes


class KnownHead:
    """One head, in two halves around the digits of its length, and the scope that was made of it."""

    __slots__ = ("_after", "_at", "_before", "_by_name", "_headers", "_scope")

    def __init__(self, before: bytes, after: bytes, scope: Scope, at: int) -> None:
        self._before = before
        self._after = after
        self._at = at  # of the length among the headers
        self._headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        self._by_name = by_name(self._headers)
        own = ("headers", "state", BY_NAME, DIRECT)
        self._scope = {name: value for name, value in scope.items() if name not in own}
        self._scope[FACTS] = {}

    @classmethod
    def of(cls, data: bytes, scope: Scope) -> KnownHead | None:
        """The head in `data`, which is one request; None if there is more to its framing than a length."""
        end = data.find(END)
        head = data[: end + len(END)]
        lengths = [at for at, (name, _) in enumerate(scope["headers"]) if name == b"content-length"]
        found = LENGTH.findall(head)
        if len(lengths) != 1 or len(found) != 1 or any(name in SPECIAL for name, _ in scope["headers"]):
            return None
        if len(data) != len(head) + int(found[0]):
            return None
        start, stop = LENGTH.search(head).span(1)  # type: ignore[union-attr]
        return cls(head[:start], head[stop:], scope, lengths[0])

    def split(self, data: bytes) -> Found | None:
        """The parts of a request with this head that is here to its last byte, and not a byte more."""
        if not data.startswith(self._before):
            return None
        start = len(self._before)
        stop = data.find(b"\r", start, start + LONGEST + 1)
        length = data[start:stop]
        if stop < 0 or not length.isdigit() or not data.startswith(self._after, stop):
            return None
        body = stop + len(self._after)
        return Found(length, data[body:]) if len(data) == body + int(length) else None

    def scope(self, length: bytes, state: dict[str, Any]) -> Scope:
        """A scope of its own for another request."""
        headers = self._headers.copy()
        headers[self._at] = (b"content-length", length)
        named = {**self._by_name, b"content-length": [length]}
        return {**self._scope, "headers": headers, BY_NAME: named, "state": state}


# Heads with these are for the parser, each time: what they ask for is done once.
SPECIAL: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"trailer", b"te"})
