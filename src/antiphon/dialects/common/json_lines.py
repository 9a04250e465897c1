"""JSON lines: bytes in, in any cut, whole lines out. Lines end in LF or CRLF; blank ones are passed over. Pure.

And for those who write them: JSON that no reader of lines cuts in two.
"""

from __future__ import annotations

from typing import Final

from antiphon.errors import UpstreamFault

MAX_LENGTH: Final = 64 * 1024 * 1024


class JsonLines:
    """Reads one stream of lines; a line may be as long as the limit, no longer."""

    def __init__(self, max_length: int = MAX_LENGTH) -> None:
        self._max_length = max_length
        self._rest: list[bytes] = []  # the beginning of a line whose end has not come
        self._rest_size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes."""
        *ends, rest = data.split(b"\n")
        if ends:
            ends[0] = b"".join([*self._rest, ends[0]])
            self._rest.clear()
            self._rest_size = 0
        if rest:
            self._rest.append(rest)
            self._rest_size += len(rest)
        if self._rest_size > self._max_length or any(len(line) > self._max_length for line in ends):
            raise UpstreamFault(
                f"the agent wrote a line longer than {self._max_length} bytes", code="upstream_invalid_response"
            )
        return [line for end in ends if (line := end.strip())]

    def finish(self) -> list[bytes]:
        """The line that the end leaves over, if there is one: whoever reads it sees whether it is whole."""
        line = b"".join(self._rest).strip()
        self._rest.clear()
        return [line] if line else []


def escape_line_ends(data: bytes) -> bytes:
    """JSON without anything that a reader of lines may take for a line's end: common clients also cut at these three characters.
    As the bytes of one character they stand nowhere but in strings, where an escape says the same; real line ends only between
    tokens, where a space does as well."""
    for end, escape in LINE_ENDS.items():
        if end in data:
            data = data.replace(end, escape)
    return data


LINE_ENDS: Final = {
    b"\n": b" ",
    b"\r": b" ",
    "\x85".encode(): b"\\u0085",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}
