"""`trace/redactor`: every key is removed, in any spelling and for any split; everything else is kept."""

from __future__ import annotations

import itertools
import json
import re
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.trace.redactor import Redactor, keys_in_headers

SIZE = 16 * 1024
KEY = 'sk-aB3/+="\\é😀x'


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(ends)]


def in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def all_escaped(text: str) -> str:
    units = text.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


SPELLINGS = {
    "as it is": KEY,
    "json": json.dumps(KEY, ensure_ascii=False)[1:-1],
    "json, ascii": in_json(KEY),
    "json in json": in_json(in_json(KEY)),
    "json, three deep": in_json(in_json(in_json(KEY))),
    "slashes escaped": in_json(KEY).replace("/", "\\/"),
    "plus and equals escaped": in_json(KEY).replace("+", "\\u002B").replace("=", "\\u003d"),
    "all escaped": all_escaped(KEY),
    "all escaped, upper case": all_escaped(KEY).upper().replace("\\U", "\\u"),
    "percent": quote(KEY, safe=""),
    "percent, lower case": "".join(part.lower() if part[:1] == "%" else part for part in map(quote, KEY)).replace(
        "/", "%2f"
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_redactor_removes_a_key_in_every_spelling(spelling: str) -> None:
    assert Redactor([KEY]).redact_text(f"before {spelling} after") == "before [removed] after"


@settings(max_examples=30)
@given(st.sampled_from(sorted(SPELLINGS.values())), st.lists(st.integers(0, 10_000), max_size=12))
def test_redactor_removes_a_key_across_any_split(spelling: str, places: list[int]) -> None:
    pieces = cut(f"before {spelling} between {spelling} after".encode(), places)
    cleaned = Redactor([KEY]).redact_pieces(pieces)
    assert b"".join(cleaned) == b"before [removed] between [removed] after"
    assert len(cleaned) == len(pieces)


def test_redactor_keeps_the_other_bytes_of_pieces() -> None:
    pieces = [b"one", b"", b"two secret", b"-ke", b"y three", b"four"]
    assert Redactor(["secret-key"]).redact_pieces(pieces) == [b"one", b"", b"two [removed]", b"", b" three", b"four"]


@pytest.mark.parametrize("parts", [["sk-", "lab", "", "-12", "34"], ["sk\\u002d", "lab-1234"], [*"sk-lab-1234"]])
@pytest.mark.parametrize("member", ["content", "delta"])
def test_redactor_removes_a_key_split_over_events(parts: list[str], member: str) -> None:
    deltas = ["It is ", *parts, ", I think."]
    events = [f'data: {{"id":"x","{member}":"{part}","n":{number}}}\n\n' for number, part in enumerate(deltas)]
    cleaned = Redactor(["sk-lab-1234"]).redact_pieces([event.encode() for event in events])
    texts = [msgspec.json.decode(piece.removeprefix(b"data: "))[member] for piece in cleaned]
    assert texts == ["It is ", "[removed]", *[""] * (len(parts) - 1), ", I think."]


def test_keys_spelled_in_two_texts_are_redacted_in_each() -> None:
    stream = b'{"a":"one sk-"}{"b":"sk-lab"}{"a":"lab-1234 two"}{"b":"-1234"}{"a":"sk-lab-1234"}'
    expected = b'{"a":"one [removed]"}{"b":"[removed]"}{"a":" two"}{"b":""}{"a":"[removed]"}'
    assert b"".join(Redactor(["sk-lab-1234"]).redact_pieces([stream[:30], stream[30:]])) == expected


def test_data_without_keys_is_unchanged() -> None:
    pieces = [b"\xff\x00 text \\u00e9 and \\u002d", b"sk-"]
    assert Redactor(["sk-lab-1234"]).redact_pieces(pieces) is pieces


@pytest.mark.parametrize("offset", [-20, -5, 0, 5])
def test_redactor_removes_a_key_anywhere_in_a_long_body(offset: int) -> None:
    data = b"x" * (3 * SIZE + offset) + b"sk-\\u006cab-1234" + b"y" * SIZE
    assert Redactor(["sk-lab-1234"]).redact_data(data) == b"x" * (3 * SIZE + offset) + b"[removed]" + b"y" * SIZE


def test_redactor_removes_the_longer_of_two_overlapping_keys() -> None:
    assert Redactor(["lab-key", "lab-key-and-more"]).redact_text("lab-key-and-more, lab-key") == "[removed], [removed]"


def test_overlapping_keys_are_removed_together() -> None:
    assert Redactor(["lab-key", "key-lab"]).redact_text("a lab-key-lab b") == "a [removed] b"


def test_key_of_backslashes_is_removed_as_it_is() -> None:
    redactor = Redactor(["\\" * 6])
    assert redactor.redact_text("a " + "\\" * 6 + " b") == "a [removed] b"
    assert redactor.redact_text("a \\\\ b") == "a \\\\ b"


def test_redactor_caches_no_patterns_of_keys() -> None:
    """Requests bring keys, and a pattern of each would stay in memory."""
    re.purge()
    for number in range(50):
        redactor = Redactor([f"sk-request-{number}"])
        assert redactor.redact_text(f"a sk\\u002drequest-{number} b") == "a [removed] b"
    assert not [pattern for _, pattern, _ in vars(re)["_cache"] if "request" in repr(pattern)]


@pytest.mark.parametrize("secrets", [[], [""], ["abc"]])
def test_short_keys_are_not_redacted(secrets: list[str]) -> None:
    assert Redactor(secrets).redact_text("abc and \\u0061bc") == "abc and \\u0061bc"


def test_headers_are_an_allow_list() -> None:
    headers = {
        "Authorization": "Bearer x",
        "x-api-key": "x",
        "Cookie": "x",
        "content-type": "application/json",
        "x-forwarded-for": "10.0.0.1",
        "x-ratelimit-remaining-tokens": "3",
        "user-agent": "lab-key inside",
        "antiphon-style": "older",
    }
    assert Redactor(["lab-key"]).redact_headers(headers) == {
        "authorization": "[removed]",
        "x-api-key": "[removed]",
        "cookie": "[removed]",
        "content-type": "application/json",
        "x-ratelimit-remaining-tokens": "3",
        "user-agent": "[removed] inside",
        "antiphon-style": "older",
    }


def test_redactor_removes_secrets_from_urls() -> None:
    redactor = Redactor(["lab-key"])
    assert (
        redactor.redact_url("https://user:pass@host/v1?x=1&key=abc&y=2")
        == "https://[removed]@host/v1?x=1&key=[removed]&y=2"
    )
    assert redactor.redact_url("http://host/lab-key/v1?API_KEY=abc#d") == "http://host/[removed]/v1?API_KEY=[removed]#d"
    assert redactor.redact_url("/v1/responses?user=a@b") == "/v1/responses?user=a@b"


def test_keys_in_headers_returns_the_keys_of_a_request() -> None:
    headers = {
        "Authorization": "Bearer client-key-1",
        "X-Api-Key": "client-key-2",
        "cookie": "a=long-enough-too",
        "accept": "anything",
    }
    assert keys_in_headers(headers) == ["client-key-1", "client-key-2"]


@pytest.mark.parametrize("placeholder", ["none", "ollama", "", "with\x00control-characters"])
def test_keys_in_headers_ignores_placeholders(placeholder: str) -> None:
    assert keys_in_headers({"authorization": f"Bearer {placeholder}"}) == []
