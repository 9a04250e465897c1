"""Small damage to good documents: JSON that is nearly right, and bytes that nearly are what they were.

All chance comes in as a `Random`, so that a case can be had again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, Final

from antiphon.dialects.dialect import Framing

Container = dict[str, Any] | list[Any]


def damaged_json(document: bytes, chance: Random) -> bytes:
    """A document with one to four things wrong in it, now and then in the bytes too."""
    holder: list[Any] = [json.loads(document)]
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        place = _place(holder, chance)
        chance.choice(CHANGES)(*place, chance)
    text = _spelled(holder[0] if holder else None, chance)
    return damaged_bytes(text, chance) if chance.random() < 0.1 else text


def damaged_bytes(data: bytes, chance: Random) -> bytes:
    """Bytes with one to four things wrong."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = chance.choice(DAMAGES)(data, chance)
    return data


def damaged_stream(stream: bytes, chance: Random, framing: Framing = "sse") -> bytes:
    """A stream with damage inside the JSON of its frames, to their order, or to any byte."""
    if chance.random() < 0.5:
        return damaged_bytes(stream, chance)
    frame_pattern, data_pattern = PATTERNS[framing]
    frames = frame_pattern.findall(stream)
    for _ in range(chance.choice((1, 1, 2))):
        at = chance.randrange(len(frames))
        match chance.randrange(5):
            case 0:
                frames.insert(chance.randrange(len(frames)), frames[at])
            case 1 if len(frames) > 1:
                del frames[at]
            case 2:
                frames[at : at + 1] = [frames[at]] * chance.choice((2, 3, 40))
            case _:
                frames[at] = data_pattern.sub(lambda found: found[1] + _damaged_data(found[2], chance), frames[at])
    return b"".join(frames)


def pieces(data: bytes, chance: Random) -> list[bytes]:
    """The same bytes, cut anywhere."""
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 1, 3, 20))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _damaged_data(data: bytes, chance: Random) -> bytes:
    try:
        return damaged_json(data, chance)
    except (ValueError, RecursionError):  # `[DONE]`, or a frame that was broken before
        return damaged_bytes(data, chance)


# JSON


def _place(inside: list[Any], chance: Random) -> tuple[Container, Any]:
    """Some place in a document: what holds it, and under which name or number. The document itself has one too."""
    if not inside:
        inside.append({})
    holder: Container = inside
    key: Any = 0
    while True:
        below = holder[key]
        if not isinstance(below, dict | list) or not below or chance.random() < 0.2:
            return holder, key
        holder, key = below, chance.choice(list(below) if isinstance(below, dict) else range(len(below)))


def _value(chance: Random) -> Any:
    """Something that does not belong there; one of its own, since what is put into it later must not be in others
    too."""
    return deepcopy(chance.choice(VALUES))


def _drop(holder: Container, key: Any, chance: Random) -> None:
    del chance
    del holder[key]


def _retype(holder: Container, key: Any, chance: Random) -> None:
    holder[key] = _value(chance)


def _rename(holder: Container, key: Any, chance: Random) -> None:
    if isinstance(holder, dict):
        value = holder.pop(key)
        holder[chance.choice((key + "_", key.upper(), "acme:" + key, "", "\ud800", chance.choice(NAMES)))] = value
    else:
        holder.insert(chance.randrange(len(holder)), holder.pop(key))


def _duplicate(holder: Container, key: Any, chance: Random) -> None:
    if isinstance(holder, list):
        holder[key:key] = deepcopy([holder[key]]) * chance.choice((1, 1, 2, 200))
    else:
        holder[TWICE + key] = chance.choice((holder[key], _value(chance)))


def _swap(holder: Container, key: Any, chance: Random) -> None:
    keys: list[Any] = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    other = chance.choice(keys)
    holder[key], holder[other] = holder[other], holder[key]


def _wrap(holder: Container, key: Any, chance: Random) -> None:
    value = holder[key]
    holder[key] = chance.choice(
        ([value], {"type": value}, {"type": "text", "text": value}, [[value]], json.dumps(value)[:100_000])
    )


def _twist(holder: Container, key: Any, chance: Random) -> None:
    """A value of its own kind, but an odd one."""
    match holder[key]:
        case bool() as value:
            holder[key] = not value
        case int() | float():
            holder[key] = chance.choice(NUMBERS)
        case str() as value:
            at = chance.randrange(len(value) + 1)
            holder[key] = chance.choice(
                (value[:at] + chance.choice(STRINGS) + value[at:], value[:at], value * 2, chance.choice(WORDS))
            )
        case dict() as value:
            value[chance.choice(NAMES)] = _value(chance)
        case list() as value:
            value.append(_value(chance))
        case _:
            holder[key] = _value(chance)


def _spelled(value: Any, chance: Random) -> bytes:
    """As JSON, with what no encoder writes: names twice, numbers beyond all measure, nesting without end."""
    written = json.dumps(value, ensure_ascii=chance.random() < 0.5, separators=(",", ":"))
    written = written.replace(TWICE, "")
    for marker, spelled in MARKERS.items():
        if marker in written:
            written = written.replace(f'"{marker}"', spelled)
    return written.encode("utf-8", "surrogatepass")


# Bytes


def _flip(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes(byte ^ 1 << chance.randrange(8) for byte in data[at : at + 1]) + data[at + 1 :]


def _overwrite(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(TOKENS) + data[at + chance.choice((1, 2, 8)) :]


def _insert(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(TOKENS) + data[at:]


def _lose(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at + chance.choice((1, 2, 10, 100)) :]


def _repeat(data: bytes, chance: Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    end = start + chance.choice((1, 5, 50, 500))
    return data[:end] + data[start:end] * chance.choice((1, 1, 3)) + data[end:]


def _cut(data: bytes, chance: Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _move(data: bytes, chance: Random) -> bytes:
    one, two, three = sorted(chance.randrange(len(data) + 1) for _ in range(3))
    return data[:one] + data[two:three] + data[one:two] + data[three:]


# What is put where it does not belong

TWICE: Final = "@twice@"  # before a name that is already there
MARKERS: Final = {
    "@huge@": "1e400",
    "@tiny@": "-1e-400",
    "@digits@": "9" * 5000,
    "@deep@": "[" * 900 + "]" * 900,
    "@deeper@": '{"a":' * 5000 + "1" + "}" * 5000,
    "@deepest@": "[" * 100_000 + "]" * 100_000,
}
NUMBERS: Final[list[Any]] = [
    *(0, -1, 1, 2, 0.5, -0.0, 1e308, 5e-324, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**40),
    *(float("nan"), float("inf"), "@huge@", "@tiny@", "@digits@"),
]
STRINGS: Final = [
    "\x00",
    "\ud800",
    "\udc00",
    "\ufeff",
    "\u2028",
    "\r\n\r\n",
    "é" * 3,
    "👋",
    "a" * 5000,
    '"',
    "\\",
    "</think>",
    "data: [DONE]\n\n",
]
WORDS: Final = [
    *(
        "",
        " ",
        "auto",
        "none",
        "required",
        "function",
        "message",
        "user",
        "assistant",
        "developer",
        "tool",
        "item_reference",
    ),
    *(
        "reasoning",
        "function_call",
        "function_call_output",
        "custom",
        "completed",
        "in_progress",
        "acme:thing",
        "mock-1",
        "{}",
        "[]",
    ),
    *(
        "input_text",
        "output_text",
        "input_image",
        "input_file",
        "json_schema",
        "call_1",
        "data:image/png;base64,AAAA",
        "{}",
        "*",
    ),
]
NAMES: Final = [
    *(
        "type",
        "id",
        "role",
        "content",
        "text",
        "name",
        "arguments",
        "call_id",
        "output",
        "input",
        "status",
        "tools",
        "tool_choice",
    ),
    *(
        "delta",
        "index",
        "choices",
        "tool_calls",
        "function",
        "finish_reason",
        "usage",
        "error",
        "item",
        "response",
        "output_index",
    ),
    *(
        "content_index",
        "sequence_number",
        "item_id",
        "part",
        "annotations",
        "logprobs",
        "stream",
        "previous_response_id",
        "n",
    ),
]
VALUES: Final[list[Any]] = [
    *(None, True, False, {}, [], [[]], {"": {}}, {"type": "acme:thing"}, [None], "@deep@", "@deeper@", "@deepest@"),
    *NUMBERS,
    *STRINGS,
    *WORDS,
]
TOKENS: Final = [
    *(
        b"\n\n",
        b"\r",
        b"\n",
        b"data: ",
        b"data: [DONE]\n\n",
        b"data: {}\n\n",
        b"event: error\n",
        b": hm\n\n",
        b"id: 1\n",
        b"retry: 0\n",
    ),
    *(
        b"\x00",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\\ud83d",
        b"\\u0000",
        b"\\",
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
    ),
    *(
        b"null",
        b"true",
        b"-1",
        b"1e400",
        b"99999999999999999999",
        b'{"error":{"message":"no","code":429}}',
        b"<html>",
        b"\r\n0\r\n\r\n",
    ),
]
Change = Callable[[Any, Any, Random], None]
CHANGES: Final[list[Change]] = [_drop, _retype, _rename, _duplicate, _swap, _wrap, _twist, _twist]
Damage = Callable[[bytes, Random], bytes]
DAMAGES: Final[list[Damage]] = [_flip, _overwrite, _insert, _lose, _repeat, _cut, _move]
#: How a frame is found in a stream, and the data in a frame.
PATTERNS: Final[dict[Framing, tuple[re.Pattern[bytes], re.Pattern[bytes]]]] = {
    "sse": (
        re.compile(rb"(?:[^\r\n]*(?:\r\n|\r|\n))*?[^\r\n]*(?:(?:\r\n){2}|\r\r|\n\n)|[^\r\n]+"),
        re.compile(rb"(data: ?)([^\r\n]+)"),
    ),
    "json_lines": (re.compile(rb"[^\n]*\n|[^\n]+"), re.compile(rb"()([^\r\n]+)")),
}
