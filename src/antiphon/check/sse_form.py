"""Check the form of an event stream line by line, where `antiphon.sse` is lenient (HTTP-3, HTTP-4, HTTP-5)."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Struct, field

from antiphon.check.findings import Flaw, excerpt
from antiphon.protocol.codec import decode_json
from antiphon.sse import DONE


class EventBlock(Struct):
    """The lines of one event, by field."""

    event_lines: list[bytes] = field(default_factory=list)
    data_lines: list[bytes] = field(default_factory=list)
    id_lines: list[bytes] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        return b"\n".join(self.data_lines)

    @property
    def is_done(self) -> bool:
        return self.data.strip() == DONE


def parse_blocks(body: bytes) -> list[EventBlock]:
    """Return the events of a stream as written. Comments are ignored."""
    blocks: list[EventBlock] = []
    block = EventBlock()
    for line in [*LINE_END.split(body.removeprefix(b"\xef\xbb\xbf")), b""]:
        if not line:
            if block.event_lines or block.data_lines or block.id_lines:
                blocks.append(block)
            block = EventBlock()
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"event":
                block.event_lines.append(value)
            case b"data":
                block.data_lines.append(value)
            case b"id":
                block.id_lines.append(value)
    return blocks


def judge_form(blocks: list[EventBlock]) -> list[Flaw]:
    """Return all flaws in the form of the events."""
    flaws = [flaw for index, block in enumerate(blocks) if not block.is_done for flaw in _judge_block(index, block)]
    flaws += _judge_end(blocks)
    blocks_with_ids = [block for block in blocks if block.id_lines]
    if blocks_with_ids:
        received = excerpt(b"id: " + blocks_with_ids[0].id_lines[0])
        flaws.append(Flaw("HTTP-5", f"{len(blocks_with_ids)} events have an id: line; expected none", received))
    return flaws


def _judge_block(index: int, block: EventBlock) -> list[Flaw]:
    received = excerpt(block.data)
    kind = event_type_of(block.data)
    if not block.data_lines:
        return [Flaw("HTTP-3", f"event {index} has no data: line; expected one data: line with its JSON", received)]
    flaws: list[Flaw] = []
    if len(block.data_lines) > 1:
        flaws.append(
            Flaw("HTTP-3", f"the data of event {index} is on {len(block.data_lines)} lines; expected one", received)
        )
    if not block.event_lines:
        expected_line = f"event: {kind}" if kind else "one equal to its type"
        flaws.append(Flaw("HTTP-3", f"event {index} has no event: line; expected `{expected_line}`", received))
    elif kind is None:
        flaws.append(
            Flaw(
                "HTTP-3",
                f"the data of event {index} is not a typed object; expected a JSON object with a type",
                received,
            )
        )
    elif block.event_lines[-1] != kind.encode():
        line = block.event_lines[-1].decode("utf-8", "replace")
        flaws.append(Flaw("HTTP-3", f"event {index} has the line `event: {line}`; expected its type, {kind}", received))
    return flaws


def _judge_end(blocks: list[EventBlock]) -> list[Flaw]:
    done_indexes = [index for index, block in enumerate(blocks) if block.is_done]
    if not done_indexes:
        received = excerpt(blocks[-1].data) if blocks else ""
        return [Flaw("HTTP-4", "the stream ends without `data: [DONE]`; expected it as the last line", received)]
    if done_indexes[0] != len(blocks) - 1:
        return [
            Flaw(
                "HTTP-4",
                "the stream has data after `data: [DONE]`; expected its end",
                excerpt(blocks[done_indexes[0] + 1].data),
            )
        ]
    return []


def event_type_of(data: bytes) -> str | None:
    """Return the type of an event; None if it has none."""
    try:
        value = decode_json(data)
    except msgspec.DecodeError:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


LINE_END: Final = re.compile(rb"\r\n|\r|\n")
