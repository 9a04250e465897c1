"""Takes keys out of what is about to be written: known ones wherever they stand, headers by name, and all that is no known header.

A key is found as it is, percent-encoded, with any of its characters escaped as JSON may (several levels deep), cut over any
number of pieces, and spelled out by a model over many events of a stream.
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
_Span = tuple[int, int, bytes]  # from, to, and what stands there instead
MIN_LENGTH: Final = 4  # a shorter "key" protects nothing, and would tear holes everywhere


class Redactor:
    """Knows keys, and returns bytes and text without them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        keys = sorted({each for each in secrets if len(each) >= MIN_LENGTH}, key=lambda each: (-len(each), each))
        self._literals = [form for each in keys for form in _literal_forms(each)]
        self._signs = _signs_of_escapes(keys)
        self._pattern = _pattern(tuple(keys))
        # A character takes at most fifteen bytes: eight backslashes, `u`, four digits; twice that beyond the first 65,536.
        self._longest = max((30 * len(each) for each in keys), default=0)

    def data(self, data: bytes) -> bytes:
        return _cut_out([data], self._spans(data))[0]

    def text(self, text: str) -> str:
        return self.data(text.encode("utf-8", "replace")).decode()

    def url(self, url: str) -> str:
        """An address without what opens it: user and password, and parameters that are called like keys."""
        return self.text(KEY_PARAMETER.sub(rf"\g<1>{REMOVED}", USER_INFO.sub(rf"\g<1>{REMOVED}@", url)))

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Only the headers that say nothing about who asked."""
        shown = {name.lower(): value for name, value in headers.items()}
        return {
            name: REMOVED if name in KEY_HEADERS else self.text(value)
            for name, value in shown.items()
            if name in KEY_HEADERS or name in KNOWN_HEADERS or name.startswith(KNOWN_PREFIXES)
        }

    def pieces(self, pieces: list[bytes]) -> list[bytes]:
        """As many pieces as came. A key that is cut over several leaves its mark in the first."""
        pieces = _cut_out(pieces, self._spans(b"".join(pieces)))
        return _cut_out(pieces, self._spelled(b"".join(pieces)))

    def _spans(self, data: bytes) -> list[_Span]:
        """Where keys stand, in order, apart from each other."""
        if not any(each in data for each in self._literals) and not any(sign in data for sign in self._signs):
            return []
        # The pattern is slow and the interpreter waits for it, so it is given a little at a time.
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
        """Where parts of keys stand that are whole only once all `delta`, or all `content`, of a stream is read as one text."""
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
    """The keys that a request carries. Short ones are words that people write where a key must stand but none is needed."""
    values = (value.rpartition(" ")[2] for name, value in headers.items() if name.lower() in KEY_HEADERS - COOKIES)
    return [each for each in values if len(each) >= MIN_CARRIED and each.isprintable()]


def _cut_out(pieces: list[bytes], spans: list[_Span]) -> list[bytes]:
    """The pieces, each without what of it lies in a span; the mark of a span stands where it begins."""
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
    return {each.encode("utf-8", "replace") for each in (secret, quoted, HEX.sub(lambda match: match[0].lower(), quoted))}


def _signs_of_escapes(secrets: list[str]) -> list[bytes]:
    """What is in the data if a key is in it in an escaped form: mostly nothing, and then no slow search is needed."""
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
    """A character as it is, or as JSON may escape it; JSON inside of JSON doubles the backslashes."""
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
