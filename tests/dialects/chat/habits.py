"""One message, a hundred spellings: Hypothesis draws what a model says and the habits of the server that says it in
chunks.

The law is that the habits do not matter. `messages()` are what is said, `habits()` how, `spelled(message, habit, draw)` the chunks.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

# Words, tags that are none, joined emoji, separators, forged frames. Texts do not begin with white space: a tag would
# eat it.
TEXTS = st.text(alphabet=st.sampled_from('ab "\\<>{}/é😀\u2028\n'), min_size=1, max_size=14).filter(
    lambda text: not text[0].isspace()
)


class Called(NamedTuple):
    """A call as the hub knows it, and how a server that knows only functions spells it."""

    id: str
    line: str  # as `reading.summary_of` tells it, without the id
    name: str
    arguments: str


class Message(NamedTuple):
    reasoning: str
    text: str
    calls: list[Called]

    def lines(self, ids: list[str]) -> list[str]:
        told = [f"ReasoningText: {self.reasoning}"] if self.reasoning else []
        told += [f"OutputText: {self.text}"] if self.text else []
        return told + [f"{id} = {call.line}" for id, call in zip(ids, self.calls, strict=True)]


class Habit(NamedTuple):
    """What servers do differently."""

    reasoning: str  # the field, the tags, or the parts that it stands in
    content_parts: bool
    halves: bool  # whether pieces are cut between the halves of characters
    empties: bool  # null and empty members in every chunk
    ids: str  # "first", "always", "late", "never", "changing"
    indexes: str  # "given", "zero", "none"
    names: str  # "first", "always", "pieces"
    order: str  # "one after another", "interleaved", "all at once"
    objects: bool  # arguments as objects
    usage: str  # "before", "with", "after", "never"
    both_forms: bool = False  # an empty `delta` beside a whole `message`, and the message so far beside each `delta`
    empty_custom: bool = False  # an empty `custom` beside each `function`


@st.composite
def messages(draw: Draw) -> Message:
    count = draw(st.integers(0, 3))
    return Message(
        draw(st.just("") | TEXTS), draw(st.just("") | TEXTS), [_called(draw, f"call_{at}") for at in range(count)]
    )


@st.composite
def habits(draw: Draw) -> Habit:
    """Any habits that leave it possible to tell which call a piece belongs to."""
    indexes = draw(st.sampled_from(["given", "zero", "none"]))
    if indexes == "given":
        order = draw(st.sampled_from(["one after another", "interleaved", "all at once"]))
        # Where another call begins, the last one's name counts as whole, and its id as missing.
        ids = draw(st.sampled_from(["first", "always", "never", "changing"] + ["late"] * (order != "interleaved")))
        names = draw(st.sampled_from(["first", "always"] + ["pieces"] * (order != "interleaved" and ids != "changing")))
    else:
        ids, names, order = draw(
            st.sampled_from(
                [
                    ("always", "first", "interleaved"),
                    ("first", "first", "one after another"),
                    ("always", "always", "one after another"),
                    ("first", "first", "all at once"),
                    ("never", "first", "all at once"),
                ]
            )
        )
    return Habit(
        reasoning=draw(
            st.sampled_from(["reasoning_content", "reasoning", "both", "object", "tags", "parts", "details"])
        ),
        content_parts=draw(st.booleans()),
        halves=draw(st.booleans()),
        empties=draw(st.booleans()),
        ids=ids,
        indexes=indexes,
        names=names,
        order=order,
        objects=draw(st.booleans()),
        usage=draw(st.sampled_from(["before", "with", "after", "never"])),
        both_forms=draw(st.booleans()),
        empty_custom=draw(st.booleans()),
    )


def spelled(message: Message, habit: Habit, draw: Draw) -> list[bytes]:
    """The data of the frames, the last of them `[DONE]`."""
    deltas = [{"role": "assistant", "content": ""}] if habit.empties else []
    deltas += (
        _reasoning(message.reasoning, habit, draw)
        + _text(message.text, habit, draw)
        + _calls(message.calls, habit, draw)
    )
    chunks = [_chunk({**EMPTIES, **delta} if habit.empties else delta) for delta in deltas]
    last = _chunk({}, finish_reason="tool_calls" if message.calls else "stop")
    if habit.both_forms:
        _tell_so_far([*chunks, last])
    match habit.usage:
        case "before":
            chunks = [{"choices": [], "usage": USAGE}, *chunks, last]
        case "with":
            chunks = [*chunks, {**last, "usage": USAGE}]
        case "after":
            chunks = [*chunks, last, {"choices": [], "usage": USAGE}]
        case _:
            chunks = [*chunks, last]
    return [json.dumps(chunk).encode() for chunk in chunks] + [b"[DONE]"]


def whole(message: Message, habit: Habit) -> bytes:
    """The same message from the same server, without a stream."""
    said: dict[str, Any] = {"role": "assistant", "content": message.text}
    if habit.reasoning == "tags" and message.reasoning:
        said["content"] = f"<think>\n{message.reasoning}</think>\n\n{message.text}"
    elif message.reasoning:
        for delta in _reasoning_deltas([message.reasoning], habit):
            content = (
                [*delta["content"], {"type": "text", "text": message.text}] if "content" in delta else message.text
            )
            said = {**said, **delta, "content": content}
    if message.calls:
        said["tool_calls"] = [
            {"id": "" if habit.ids == "never" else call.id, "type": "function", "function": _function(call, habit)}
            | (EMPTY_CUSTOM if habit.empty_custom else {})
            for call in message.calls
        ]
    body: dict[str, Any] = {"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}
    if habit.both_forms:
        body["choices"][0]["delta"] = {"role": "assistant", "content": ""}
    return json.dumps(body if habit.usage == "never" else {**body, "usage": USAGE}).encode()


def cut(text: str, habit: Habit, draw: Draw) -> list[str]:
    """A text in pieces; where the server counts in UTF-16, also between the halves of a character."""
    units = text
    if habit.halves:
        raw = text.encode("utf-16-le")
        units = "".join(raw[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(raw), 2))
    places = sorted(draw(st.lists(st.integers(0, len(units)), max_size=4)))
    edges = [0, *places, len(units)]
    return [units[start:end] for start, end in itertools.pairwise(edges)]


def _called(draw: Draw, id: str) -> Called:
    match draw(st.sampled_from(["function", "same function", "namespace", "custom"])):
        case "custom":
            text = draw(TEXTS)
            arguments = json.dumps({"input": text}, ensure_ascii=draw(st.booleans()))
            return Called(id, f"apply_patch[{text}]", "apply_patch", arguments)
        case "namespace":
            name, shown = "files__read", "files.read"
        case "function":
            name = shown = "get_time"
        case _:
            name = shown = "get_weather"
    arguments = json.dumps(
        draw(st.dictionaries(TEXTS, TEXTS | st.integers(), max_size=2)), ensure_ascii=False, separators=(",", ":")
    )
    return Called(id, f"{shown}({arguments})", name, arguments)


def _reasoning(text: str, habit: Habit, draw: Draw) -> list[dict[str, Any]]:
    if not text:
        return []
    if habit.reasoning == "tags":
        return [{"content": piece} for piece in cut(f"<think>\n{text}</think>\n\n", habit, draw)]
    return _reasoning_deltas(cut(text, habit, draw), habit)


def _reasoning_deltas(pieces: list[str], habit: Habit) -> list[dict[str, Any]]:
    match habit.reasoning:
        case "both":
            return [{"reasoning_content": piece, "reasoning": piece} for piece in pieces]
        case "object":
            return [{"reasoning": {"text": piece}} for piece in pieces if piece]
        case "parts":
            return [
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]} for piece in pieces
            ]
        case "details":
            return [{"reasoning_details": [{"type": "reasoning.text", "text": piece}]} for piece in pieces]
        case "tags":
            return []
        case field:
            return [{field: piece} for piece in pieces]


def _text(text: str, habit: Habit, draw: Draw) -> list[dict[str, Any]]:
    pieces = cut(text, habit, draw)
    if habit.content_parts:
        return [{"content": [{"type": "text", "text": piece}]} for piece in pieces]
    return [{"content": piece} for piece in pieces]


def _calls(calls: list[Called], habit: Habit, draw: Draw) -> list[dict[str, Any]]:
    if habit.order == "all at once":
        entries = [_entry(at, habit, call.id, _function(call, habit)) for at, call in enumerate(calls)]
        return [{"tool_calls": entries}] if entries else []
    queues = [_entries(at, call, habit, draw) for at, call in enumerate(calls)]
    if habit.order == "one after another":
        return [{"tool_calls": [entry]} for queue in queues for entry in queue]
    deltas = [{"tool_calls": [queue.pop(0)]} for queue in queues]  # calls begin in their order; then anything may come
    while queues := [queue for queue in queues if queue]:
        deltas.append({"tool_calls": [draw(st.sampled_from(queues)).pop(0)]})
    return deltas


def _entries(at: int, call: Called, habit: Habit, draw: Draw) -> list[dict[str, Any]]:
    """A call in pieces: the name, in one piece or several, then the arguments."""
    names = [call.name[:3], call.name[3:]] if habit.names == "pieces" else [call.name]
    entries = [
        _entry(at, habit, call.id if not number else "", {"name": name, "arguments": ""})
        for number, name in enumerate(names)
    ]
    if habit.ids == "changing" and habit.names == "always":
        entries = []  # a second id and the name again, and no arguments yet: that would be another call
    if habit.ids == "late":
        entries[0].pop("id", None)
        entries.append(_entry(at, habit, call.id, {"arguments": ""}))
    for piece in [call.arguments] if habit.objects else [piece for piece in cut(call.arguments, habit, draw) if piece]:
        value = json.loads(piece) if habit.objects and call.name != "apply_patch" else piece
        function = {"arguments": value, **({"name": call.name} if habit.names == "always" else {})}
        entries.append(_entry(at, habit, "", function))
    for number, entry in enumerate(entries):
        if habit.ids == "always":
            entry["id"] = call.id
        if habit.ids == "changing":
            entry["id"] = f"{call.id}_{number}" if number else call.id
    return entries


def _entry(at: int, habit: Habit, id: str, function: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {"function": function, **(EMPTY_CUSTOM if habit.empty_custom else {})}
    if id and habit.ids != "never":
        entry |= {"id": id, "type": "function"}
    if habit.indexes != "none":
        entry["index"] = at if habit.indexes == "given" else 0
    return entry


def _function(call: Called, habit: Habit) -> dict[str, Any]:
    as_object = habit.objects and call.name != "apply_patch"
    return {"name": call.name, "arguments": json.loads(call.arguments) if as_object else call.arguments}


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def _tell_so_far(chunks: list[dict[str, Any]]) -> None:
    text = ""
    for chunk in chunks:
        content = chunk["choices"][0]["delta"].get("content")
        text += content if isinstance(content, str) else ""
        chunk["choices"][0]["message"] = {"role": "assistant", "content": text}


EMPTY_CUSTOM = {"custom": {"name": "", "input": ""}}
EMPTIES: dict[str, Any] = {"role": "assistant", "reasoning_content": None, "tool_calls": None, "refusal": None}
USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}}
