"""Redacts traces: known keys anywhere, key headers by name, and all headers that are not on the allow-list.

A key is found literally, percent-encoded, with any characters JSON-escaped (several levels deep), split over pieces,
and spelled out by a model over several events of a stream.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Final
from urllib.parse import quote

REMOVED: Final = "[removed]"
_Span = tuple[int, int, bytes]  # start, end, replacement
MIN_LENGTH: Final = 4  # a shorter key protects nothing and would match everywhere


class Redactor:
    """Removes a set of keys from bytes, text, URLs and headers."""

    def __init__(self, secrets: Iterable[str]) -> None:
        keys = sorted({each for each in secrets if len(each) >= MIN_LENGTH}, key=lambda each: (-len(each), each))
        self._literals = [form for each in keys for form in _literal_forms(each)]
        self._signs = _signs_of_escapes(keys)
        self._pattern = _pattern(tuple(keys))
        # A character takes at most 15 bytes: eight backslashes, `u`, four digits; twice that above U+FFFF.
        self._longest = max((30 * len(each) for each in keys), default=0)

    def data(self, data: bytes) -> bytes:
        return _cut_out([data], self._spans(data))[0]

    def text(self, text: str) -> str:
        return self.data(text.encode("utf-8", "replace")).decode()

    def url(self, url: str) -> str:
        """A URL without user info and without parameters whose names denote keys."""
        return self.text(KEY_PARAMETER.sub(rf"\g<1>{REMOVED}", USER_INFO.sub(rf"\g<1>{REMOVED}@", url)))

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The allowed headers, which do not identify the client."""
        shown = {name.lower(): value for name, value in headers.items()}
        return {
            name: REMOVED if name in KEY_HEADERS else self.text(value)
            for name, value in shown.items()
            if name in KEY_HEADERS or name in KNOWN_HEADERS or name.startswith(KNOWN_PREFIXES)
        }

    def pieces(self, pieces: list[bytes]) -> list[bytes]:
        """The redacted pieces, as many as given. A key that is split over several leaves its mark in the first."""
        pieces = _cut_out(pieces, self._spans(b"".join(pieces)))
        return _cut_out(pieces, self._spelled(b"".join(pieces)))

    def _spans(self, data: bytes) -> list[_Span]:
        """The spans of keys, sorted and disjoint."""
        if not any(each in data for each in self._literals) and not any(sign in data for sign in self._signs):
            return []
        # The pattern is slow and holds the interpreter lock, so the search runs in small windows.
        spans: list[_Span] = []
        at = 0
        while at < len(data):
            match = self._pattern.search(data, at, at + SEARCH_WINDOW + self._longest)
            if match is not None and match.start() < at + SEARCH_WINDOW:
                spans.append((*match.span(), MARK))
                at = match.end()
            else:
                at += SEARCH_WINDOW
        return spans

    def _spelled(self, stream: bytes) -> list[_Span]:
        """The spans of parts of keys that are complete only when all `delta` or all `content` members of a stream are
        joined."""
        if not self._literals:
            return []
        texts: dict[bytes, list[tuple[int, int]]] = {}
        for match in MEMBER.finditer(stream):
            texts.setdefault(match[1], []).append(match.span(2))
        return sorted(span for parts in texts.values() for span in self._spelled_in(stream, parts))

    def _spelled_in(self, stream: bytes, parts: list[tuple[int, int]]) -> Iterator[_Span]:
        ends = list(accumulate(last - first for first, last in parts))
        for start, end, mark in self._spans(b"".join(stream[first:last] for first, last in parts)):
            for index in range(bisect_right(ends, start), bisect_left(ends, end) + 1):
                shift = parts[index][1] - ends[index]
                upto = min(end, ends[index])
                yield start + shift, upto + shift, mark
                start, mark = upto, b""


def keys_in_headers(headers: Mapping[str, str]) -> list[str]:
    """The keys in the headers of a request. Ignores short ones, which are placeholder words for servers that need no
    key."""
    values = (value.rpartition(" ")[2] for name, value in headers.items() if name.lower() in KEY_HEADERS - COOKIES)
    return [each for each in values if len(each) >= MIN_CARRIED and each.isprintable()]


def _cut_out(pieces: list[bytes], spans: list[_Span]) -> list[bytes]:
    """The pieces without the spans; the mark of a span is put at its start."""
    if not spans:
        return pieces
    whole = b"".join(pieces)
    firsts = [span[0] for span in spans]
    lasts = [span[1] for span in spans]
    ends = list(accumulate(map(len, pieces)))
    return [
        _without(whole, start, end, spans[bisect_right(lasts, start) : bisect_left(firsts, end)])
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def _without(whole: bytes, start: int, end: int, spans: list[_Span]) -> bytes:
    """`whole[start:end]` without the spans that touch it."""
    parts: list[bytes] = []
    at = start
    for first, last, mark in spans:
        if first >= start:
            parts += (whole[at:first], mark)
        at = min(last, end)
    parts.append(whole[at:end])
    return b"".join(parts)


def _literal_forms(secret: str) -> set[bytes]:
    quoted = quote(secret, safe="", errors="replace")
    return {
        each.encode("utf-8", "replace") for each in (secret, quoted, HEX.sub(lambda match: match[0].lower(), quoted))
    }


def _signs_of_escapes(secrets: list[str]) -> list[bytes]:
    """Byte strings that occur in any data with an escaped key. Data without them needs no slow search."""
    characters = set("".join(secrets))
    if not characters:
        return []
    unicode = b"\\u00" if max(characters) < "\u0100" else b"\\u"
    return [unicode, *(b"\\" + each.encode() for each in SHORT_ESCAPES if each in characters)]


@lru_cache(maxsize=256)
def _pattern(secrets: tuple[str, ...]) -> re.Pattern[bytes]:
    forms = [form for each in secrets for form in (_escaped_form(each), *map(re.escape, sorted(_literal_forms(each))))]
    return re.compile(b"|".join(forms) or NEVER)


def _escaped_form(secret: str) -> bytes:
    return b"".join(map(_any_spelling, secret))


def _any_spelling(character: str) -> bytes:
    """A pattern for a character, literal or JSON-escaped; nested JSON doubles the backslashes."""
    literal = SHORT_ESCAPES.get(character) or re.escape(character.encode("utf-8", "replace"))
    units = character.encode("utf-16-be", "surrogatepass").hex()
    escaped = b"".join(rb"\\{1,8}u" + _any_case(units[at : at + 4]) for at in range(0, len(units), 4))
    return b"(?:%b|%b)" % (literal, escaped)


def _any_case(digits: str) -> bytes:
    return "".join(f"[{each}{each.upper()}]" if each.isalpha() else each for each in digits).encode()


MIN_CARRIED: Final = 8
MARK: Final = REMOVED.encode()
MEMBER: Final = re.compile(rb'"(\w{1,40})":[ ]?"((?:[^"\\]++|\\.)*+)"')
SEARCH_WINDOW: Final = 16 * 1024
NEVER: Final = rb"(?!)"
SHORT_ESCAPES: Final = {"/": rb"\\{0,8}/", '"': rb'\\{0,8}"', "\\": rb"\\{1,8}"}
HEX: Final = re.compile("%[0-9A-F]{2}")
USER_INFO: Final = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/?#@]*@", re.IGNORECASE)
KEY_PARAMETER: Final = re.compile(r"([?&](?:key|api[-_]?key|(?:access_)?token|sig(?:nature)?)=)[^&#]+", re.IGNORECASE)
COOKIES: Final = frozenset({"cookie", "set-cookie"})
KEY_HEADERS: Final = COOKIES | {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key"}
KNOWN_HEADERS: Final = frozenset(
    {
        "accept",
        "cache-control",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "host",
        "originator",
        "retry-after",
        "retry-after-ms",
        "server",
        "transfer-encoding",
        "user-agent",
        "x-request-id",
    }
)
KNOWN_PREFIXES: Final = ("antiphon-", "x-ratelimit-", "x-stainless-")
