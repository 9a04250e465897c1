"""Redacts traces: known keys anywhere, key headers by name, and all headers that are not on the allow-list.

A key is found literally, percent-encoded, with any characters JSON-escaped (several levels deep), split over pieces,
and spelled out by a model over several events of a stream.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
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
        self._literals = [form for key in keys for form in sorted(_literal_forms(key))]
        self._unescaped_keys = [
            key
            for key in (_Unescaped(key.encode("utf-8", "replace")).data for key in keys)
            if len(key) >= MIN_KEY_LENGTH
        ]

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
        """The spans of keys, sorted and disjoint. Keys come with requests too, so they are searched as bytes: a pattern
        of each would be compiled, and the compiler would remember it."""
        spans = _find_all(data, self._literals)
        if self._unescaped_keys and b"\\" in data:
            unescaped = _Unescaped(data)
            spans += map(unescaped.original_span, _find_all(unescaped.data, self._unescaped_keys))
        return [(start, end, REDACTION_MARK_BYTES) for start, end in _join_spans(spans)]

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


def _find_all(data: bytes, literals: list[bytes]) -> list[tuple[int, int]]:
    """The spans of all literals in the data."""
    spans: list[tuple[int, int]] = []
    for literal in literals:
        start = data.find(literal)
        while start >= 0:
            spans.append((start, start + len(literal)))
            start = data.find(literal, start + len(literal))
    return spans


def _join_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans in order; those that overlap become one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


class _Unescaped:
    """Data without JSON escapes of any depth: `\\u0041` is its character, and all other backslashes are dropped. So a
    key in any spelling is found in it by its unescaped form."""

    def __init__(self, data: bytes) -> None:
        self._starts: list[int] = [0]  # of the segments in the unescaped data
        self._segments: list[tuple[int, int]] = [(0, 0)]  # start in the original; end of an escape, or 0
        parts: list[bytes] = []
        size = position = 0
        while (escape := data.find(b"\\", position)) >= 0:
            parts.append(data[position:escape])
            size += escape - position
            match = ESCAPE_RUN.match(data, escape)
            assert match is not None  # it begins with a backslash
            for character, start, end in _characters_in(match):
                self._starts.append(size)
                self._segments.append((start, end))
                parts.append(character)
                size += len(character)
            position = match.end()
            self._starts.append(size)
            self._segments.append((position, 0))
        parts.append(data[position:])
        self.data = b"".join(parts) if position else data

    def original_span(self, span: tuple[int, int]) -> tuple[int, int]:
        """The span of the original data for a span of the unescaped data, which is not empty."""
        first, last = (bisect_right(self._starts, index) - 1 for index in (span[0], span[1] - 1))
        start, escape_end = self._segments[first]
        original_start = start if escape_end else start + span[0] - self._starts[first]
        start, escape_end = self._segments[last]
        return original_start, escape_end or start + span[1] - self._starts[last]


def _characters_in(escapes: re.Match[bytes]) -> Iterator[tuple[bytes, int, int]]:
    """The characters of a run of escapes, each with its place in the data. Two escapes may be one character."""
    units = list(UNICODE_ESCAPE.finditer(escapes.string, *escapes.span()))
    index = 0
    while index < len(units):
        first = last = units[index]
        code = first[1]
        if index + 1 < len(units) and SURROGATE_PAIR.fullmatch(code + units[index + 1][1]):
            index += 1
            last = units[index]
            code += last[1]
        character = bytes.fromhex(code.decode()).decode("utf-16-be", "surrogatepass")
        if character != "\\":  # dropped like any other backslash
            yield character.encode("utf-8", "surrogatepass"), first.start(), last.end()
        index += 1


MIN_HEADER_KEY_LENGTH: Final = 8
REDACTION_MARK_BYTES: Final = REDACTION_MARK.encode()
STRING_MEMBER: Final = re.compile(rb'"(\w{1,40})":[ ]?"((?:[^"\\]++|\\.)*+)"')
ESCAPE_RUN: Final = re.compile(rb"(?:\\++u[0-9a-fA-F]{4})+|\\++")
UNICODE_ESCAPE: Final = re.compile(rb"(?<!\\)\\++u([0-9a-fA-F]{4})")
SURROGATE_PAIR: Final = re.compile(rb"[dD][89abAB].{2}[dD][c-fC-F].{2}")
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
