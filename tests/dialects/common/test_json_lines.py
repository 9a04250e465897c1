"""Lines of JSON from bytes in any split."""

from __future__ import annotations

import json

import pytest

from antiphon.dialects.common.json_lines import JsonLines, escape_line_ends
from antiphon.errors import UpstreamFault

DATA = b'{"a":1}\r\n\n {"b":"\xc3\xbc"}\n{"c":3}'


def test_json_lines_are_the_same_for_every_split() -> None:
    for place in range(len(DATA)):
        lines = JsonLines()
        matches = [*lines.feed(DATA[:place]), *lines.feed(DATA[place:]), *lines.finish()]
        assert matches == [b'{"a":1}', '{"b":"ü"}'.encode(), b'{"c":3}']
    assert lines.finish() == []


@pytest.mark.parametrize("data", [b"123456", b"123456\n"])
def test_json_line_over_the_limit_is_an_upstream_fault(data: bytes) -> None:
    with pytest.raises(UpstreamFault, match="more than 5 bytes"):
        JsonLines(max_length=5).feed(data)


def test_escape_line_ends_gives_one_line_of_equal_json() -> None:
    text = "a\x85b\u2028c\u2029d\ne"
    data = json.dumps({"text": text, "other": 1}, ensure_ascii=False, indent=1).replace("\n", "\r\n").encode()
    line = escape_line_ends(data)
    assert len(line.decode().splitlines()) == 1
    assert json.loads(line) == {"text": text, "other": 1}


@pytest.mark.parametrize("pieces", [(b"12345", b"\n"), (b"12345\n",), (b"12", b"345\n")])
def test_line_of_the_longest_length_is_read(pieces: tuple[bytes, ...]) -> None:
    lines = JsonLines(max_length=5)
    assert [line for piece in pieces for line in lines.feed(piece)] == [b"12345"]
