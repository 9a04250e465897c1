"""Lines of JSON from bytes in any cut."""

from __future__ import annotations

import pytest

from antiphon.dialects.common.json_lines import JsonLines
from antiphon.errors import UpstreamFault

DATA = b'{"a":1}\r\n\n {"b":"\xc3\xbc"}\n{"c":3}'


def test_every_cut_gives_the_same_lines() -> None:
    for place in range(len(DATA)):
        lines = JsonLines()
        found = [*lines.feed(DATA[:place]), *lines.feed(DATA[place:]), *lines.finish()]
        assert found == [b'{"a":1}', '{"b":"ü"}'.encode(), b'{"c":3}']
    assert lines.finish() == []


@pytest.mark.parametrize("data", [b"123456", b"123456\n"])
def test_a_line_beyond_the_limit_is_the_agents_fault(data: bytes) -> None:
    with pytest.raises(UpstreamFault, match="longer than 5 bytes"):
        JsonLines(max_length=5).feed(data)
