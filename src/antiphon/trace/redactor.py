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

REDACTION_MARK: Final = "[removed]"
_Span = tuple[int, int, bytes]  # start, end, replacement
MIN_KEY_LENGTH: Final = 4  # a shorter key protects nothing and would match everywhere


class Redactor:
    """Removes a set of keys from bytes, text, URLs and headers."""

    def __init__(self, secrets: Iterable[str]) -> None:
        keys = sorted({key for key in secrets if len(key) >= MIN_KEY_LENGTH}, key=lambda key: (-len(key), key))
        self._literals = [form for key in keys for form in _literal_forms(key)]
        self._escape_signs = _escape_signs_of(keys)
        self._key_pattern = _key_pattern(tuple(keys))
        # A character takes at most 15 bytes: eight backslashes, `u`, four digits; twice that above U+FFFF.
        self._max_match_bytes = max((30 * len(key) for key in keys), default=0)

    def redact_data(self, data: bytes) -> bytes:
        return _replace_spans([data], self._find_key_spans(data))[0]

    def redact_text(self, text: str) -> str:
        return self.redact_data(text.encode("utf-8", "replace")).decode()

    def redact_url(self, url: str) -> str:
        """A URL without user info and without parameters whose names denote keys."""
        return self.redact_text(
            KEY_PARAMETER.sub(rf"\g<1>{REDACTION_MARK}", USER_INFO.sub(rf"\g<1>{REDACTION_MARK}@", url))
        )

    def redact_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The allowed headers, which do not identify the client."""
        lowercase_headers = {name.lower(): value for name, value in headers.items()}
        return {
            name: REDACTION_MARK if name in KEY_HEADERS else self.redact_text(value)
            for name, value in lowercase_headers.items()
            if name in KEY_HEADERS or name in KNOWN_HEADERS or name.startswith(KNOWN_PREFIXES)
        }

    def redact_pieces(self, pieces: list[bytes]) -> list[bytes]:
        """The redacted pieces, as many as given. A key that is split over several leaves its mark in the first."""
        pieces = _replace_spans(pieces, self._find_key_spans(b"".join(pieces)))
        return _replace_spans(pieces, self._find_spelled_spans(b"".join(pieces)))

    def _find_key_spans(self, data: bytes) -> list[_Span]:
        """The spans of keys, sorted and disjoint."""
        if not any(literal in data for literal in self._literals) and not any(
            sign in data for sign in self._escape_signs
        ):
            return []
        # The pattern is slow and holds the interpreter lock, so the search runs in small windows.
        spans: list[_Span] = []
        position = 0
        while position < len(data):
            match = self._key_pattern.search(data, position, position + SEARCH_WINDOW + self._max_match_bytes)
            if match is not None and match.start() < position + SEARCH_WINDOW:
                spans.append((*match.span(), REDACTION_MARK_BYTES))
                position = match.end()
            else:
                position += SEARCH_WINDOW
        return spans

    def _find_spelled_spans(self, stream: bytes) -> list[_Span]:
        """The spans of parts of keys that are complete only when all `delta` or all `content` members of a stream are
        joined."""
        if not self._literals:
            return []
        parts_by_member: dict[bytes, list[tuple[int, int]]] = {}
        for match in STRING_MEMBER.finditer(stream):
            parts_by_member.setdefault(match[1], []).append(match.span(2))
        return sorted(span for parts in parts_by_member.values() for span in self._spelled_spans_in(stream, parts))

    def _spelled_spans_in(self, stream: bytes, parts: list[tuple[int, int]]) -> Iterator[_Span]:
        part_ends = list(accumulate(end - start for start, end in parts))
        for start, end, mark in self._find_key_spans(b"".join(stream[start:end] for start, end in parts)):
            for index in range(bisect_right(part_ends, start), bisect_left(part_ends, end) + 1):
                offset = parts[index][1] - part_ends[index]
                end_in_part = min(end, part_ends[index])
                yield start + offset, end_in_part + offset, mark
                start, mark = end_in_part, b""


def keys_in_headers(headers: Mapping[str, str]) -> list[str]:
    """The keys in the headers of a request. Ignores short ones, which are placeholder words for servers that need no
    key."""
    values = (value.rpartition(" ")[2] for name, value in headers.items() if name.lower() in KEY_HEADERS - COOKIES)
    return [key for key in values if len(key) >= MIN_HEADER_KEY_LENGTH and key.isprintable()]


def _replace_spans(pieces: list[bytes], spans: list[_Span]) -> list[bytes]:
    """The pieces without the spans; the mark of a span is put at its start."""
    if not spans:
        return pieces
    data = b"".join(pieces)
    span_starts = [span[0] for span in spans]
    span_ends = [span[1] for span in spans]
    piece_ends = list(accumulate(map(len, pieces)))
    return [
        _slice_without_spans(data, start, end, spans[bisect_right(span_ends, start) : bisect_left(span_starts, end)])
        for start, end in zip([0, *piece_ends], piece_ends, strict=False)
    ]


def _slice_without_spans(data: bytes, start: int, end: int, spans: list[_Span]) -> bytes:
    """`data[start:end]` without the spans that touch it."""
    parts: list[bytes] = []
    position = start
    for span_start, span_end, mark in spans:
        if span_start >= start:
            parts += (data[position:span_start], mark)
        position = min(span_end, end)
    parts.append(data[position:end])
    return b"".join(parts)


def _literal_forms(secret: str) -> set[bytes]:
    quoted = quote(secret, safe="", errors="replace")
    lowercase_quoted = PERCENT_ESCAPE.sub(lambda match: match[0].lower(), quoted)
    return {form.encode("utf-8", "replace") for form in (secret, quoted, lowercase_quoted)}


def _escape_signs_of(secrets: list[str]) -> list[bytes]:
    """Byte strings that occur in any data with an escaped key. Data without them needs no slow search."""
    characters = set("".join(secrets))
    if not characters:
        return []
    unicode_sign = b"\\u00" if max(characters) < "\u0100" else b"\\u"
    return [unicode_sign, *(b"\\" + escape.encode() for escape in SHORT_ESCAPES if escape in characters)]


@lru_cache(maxsize=256)
def _key_pattern(secrets: tuple[str, ...]) -> re.Pattern[bytes]:
    forms = [
        form
        for secret in secrets
        for form in (_key_spelling_pattern(secret), *map(re.escape, sorted(_literal_forms(secret))))
    ]
    return re.compile(b"|".join(forms) or NEVER_MATCHING)


def _key_spelling_pattern(secret: str) -> bytes:
    return b"".join(map(_character_pattern, secret))


def _character_pattern(character: str) -> bytes:
    """A pattern for a character, literal or JSON-escaped; nested JSON doubles the backslashes."""
    literal = SHORT_ESCAPES.get(character) or re.escape(character.encode("utf-8", "replace"))
    units = character.encode("utf-16-be", "surrogatepass").hex()
    escaped = b"".join(rb"\\{1,8}u" + _any_case_pattern(units[start : start + 4]) for start in range(0, len(units), 4))
    return b"(?:%b|%b)" % (literal, escaped)


def _any_case_pattern(digits: str) -> bytes:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits).encode()


MIN_HEADER_KEY_LENGTH: Final = 8
REDACTION_MARK_BYTES: Final = REDACTION_MARK.encode()
STRING_MEMBER: Final = re.compile(rb'"(\w{1,40})":[ ]?"((?:[^"\\]++|\\.)*+)"')
SEARCH_WINDOW: Final = 16 * 1024
NEVER_MATCHING: Final = rb"(?!)"
SHORT_ESCAPES: Final = {"/": rb"\\{0,8}/", '"': rb'\\{0,8}"', "\\": rb"\\{1,8}"}
PERCENT_ESCAPE: Final = re.compile("%[0-9A-F]{2}")
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
