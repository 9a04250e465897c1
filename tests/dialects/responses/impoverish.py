"""Poor servers, made from good ones: a legal life as JSON events, and habits that leave out or spoil what poor servers
do.

Every habit leaves enough to know what was said, so what is read from a poor life must say the same as the rich one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st
from tests.dialects.responses.upstreams import REQUEST
from tests.generate.events import ANNOTATIONS, ERRORS, LOG_PROBS, PIECES, USAGE, counting_stamps

from antiphon.protocol import codec
from antiphon.protocol.content import OutputText, Refusal, SummaryText
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.items import Compaction, Item, WebSearchCall
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.writer import ResponseWriter

Json = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]
WHOLE: tuple[Item, ...] = (
    WebSearchCall(id="ws_1", status="completed"),
    Compaction(id="cmp_1", encrypted_content="sealed"),
)


class Rich(NamedTuple):
    events: list[StreamEvent]
    response: Response


@st.composite
def one_by_one(draw: Draw) -> Rich:
    """A life whose items and parts come one after the other: then it can be told without ids and indexes."""
    collector = EventCollector()
    writer = ResponseWriter(make_initial_response(REQUEST, id="resp_1", created_at=1), collector, counting_stamps())
    writer.start()
    count = draw(st.integers(0, 4))
    for key in range(count):
        _write_item(draw, writer, key)
        if key < count - 1 or draw(st.booleans()):
            writer.close_item(key)
    usage = draw(USAGE)
    match draw(st.sampled_from(["complete", "complete", "incomplete", "fail"])):
        case "complete":
            writer.complete(usage)
        case "incomplete":
            writer.end_incomplete("max_output_tokens", usage)
        case _:
            writer.fail(draw(ERRORS), usage)
    return Rich(collector.events, writer.response)


def _write_item(draw: Draw, writer: ResponseWriter, key: int) -> None:
    pieces = st.lists(PIECES, min_size=1, max_size=3)
    match draw(st.sampled_from(["message", "message", "reasoning", "call", "custom", "whole"])):
        case "message":
            writer.open_message(key, phase=draw(st.sampled_from(["commentary", "final_answer"])))
            for part in range(draw(st.integers(0, 2))):
                _write_part(draw, writer, key, part, draw(pieces))
        case "reasoning":
            writer.open_reasoning(key)
            for part in range(draw(st.integers(0, 2))):
                for piece in draw(pieces):
                    writer.add_summary(key, piece, part_key=part)
                writer.end_part(key, SummaryText, part)
            for piece in draw(pieces):
                writer.add_reasoning(key, piece)
            if draw(st.booleans()):
                writer.set_encrypted_content(key, "sealed==")
        case "call":
            writer.open_call(key, name=draw(st.sampled_from(["look", "find"])), call_id=f"call_{key}")
            for piece in draw(pieces):
                writer.add_arguments(key, piece)
        case "custom":
            writer.open_custom_call(
                key, name="patch", call_id=f"call_{key}", namespace=draw(st.sampled_from([None, "files"]))
            )
            for piece in draw(pieces):
                writer.add_custom_input(key, piece)
        case _:
            writer.open_item(key, draw(st.sampled_from(WHOLE)))


def _write_part(draw: Draw, writer: ResponseWriter, key: int, part: int, pieces: list[str]) -> None:
    is_text = draw(st.booleans())
    for piece in pieces:
        if is_text:
            writer.add_text(key, piece, part_key=part, logprobs=draw(st.none() | st.lists(LOG_PROBS, max_size=1)))
        else:
            writer.add_refusal(key, piece, part_key=part)
    if is_text and draw(st.booleans()):
        writer.add_annotation(key, draw(ANNOTATIONS), part_key=part)
    writer.end_part(key, OutputText if is_text else Refusal, part)


def as_json(events: list[StreamEvent]) -> list[Json]:
    return [json.loads(codec.encode(event)) for event in events]


# Habits. Each takes the events of a good server and gives those of a poor one.


def without_numbers(events: list[Json]) -> list[Json]:
    return [_without(event, "sequence_number") for event in events]


def without_indexes(events: list[Json]) -> list[Json]:
    return [_without(event, "output_index") for event in events]


def with_null_indexes(events: list[Json]) -> list[Json]:
    return [{**event, "output_index": None} if "output_index" in event else event for event in events]


def every_index_zero(events: list[Json]) -> list[Json]:
    return [{**event, "output_index": 0} if "output_index" in event else event for event in events]


def without_content_indexes(events: list[Json]) -> list[Json]:
    return [_without(event, "content_index", "summary_index") for event in events]


def without_ids(events: list[Json]) -> list[Json]:
    return _change_items([_without(event, "item_id") for event in events], lambda item, _: _without(item, "id"))


def drifting_ids(events: list[Json]) -> list[Json]:
    """Another id in every phase: announced, streamed, done, and at the end."""
    drifted = [{**event, "item_id": event["item_id"] + "_b"} if "item_id" in event else event for event in events]
    return _change_items(drifted, lambda item, phase: {**item, "id": f"{item['id']}_{phase}"} if "id" in item else item)


def without_added(events: list[Json]) -> list[Json]:
    return _leave_out(events, "response.output_item.added")


def without_item_done(events: list[Json]) -> list[Json]:
    return _leave_out(events, "response.output_item.done")


def without_part_events(events: list[Json]) -> list[Json]:
    return [event for event in events if ".content_part." not in event["type"] and "_part." not in event["type"]]


def without_deltas(events: list[Json]) -> list[Json]:
    return [event for event in events if not event["type"].endswith((".delta", "annotation.added"))]


def only_items(events: list[Json]) -> list[Json]:
    """Nothing between the beginning and the end of an item."""
    return [event for event in events if _is_of_response(event) or ".output_item." in event["type"]]


def only_the_end(events: list[Json]) -> list[Json]:
    return events[-1:]


def with_empty_output(events: list[Json]) -> list[Json]:
    last = events[-1]
    return [*events[:-1], {**last, "response": {**last["response"], "output": []}}]


def without_beginning(events: list[Json]) -> list[Json]:
    return _leave_out(events, *BEGINNING)


def beginning_twice(events: list[Json]) -> list[Json]:
    return [*(event for event in events if event["type"] in BEGINNING), *events]


def with_something_after_the_end(events: list[Json]) -> list[Json]:
    return [*events, {"type": "response.output_text.delta", "delta": "late"}, events[-1], {"type": "acme:late"}]


def in_older_spelling(events: list[Json]) -> list[Json]:
    """API-6"""
    spelled = [
        {**event, "type": event["type"].replace("response.reasoning.", "response.reasoning_text.")} for event in events
    ]
    return [
        {**event, **event.get("error", {}), "type": "error"} if event["type"] == "error" else event for event in spelled
    ]


def _leave_out(events: list[Json], *types: str) -> list[Json]:
    return [event for event in events if event["type"] not in types]


def _without(members: Json, *names: str) -> Json:
    return {name: member for name, member in members.items() if name not in names}


def _is_of_response(event: Json) -> bool:
    return "response" in event or event["type"] == "error"


def _change_items(events: list[Json], change: Callable[[Json, str], Json]) -> list[Json]:
    changed: list[Json] = []
    for event in events:
        if "item" in event:
            event = {**event, "item": change(event["item"], event["type"].rpartition(".")[2])}
        if event.get("response", {}).get("output"):
            output = [change(item, "end") for item in event["response"]["output"]]
            event = {**event, "response": {**event["response"], "output": output}}
        changed.append(event)
    return changed


BEGINNING = ("response.created", "response.in_progress")
Habit = Callable[[list[Json]], list[Json]]
# Of each group at most one: together they would leave too little.
WHERE: tuple[Habit, ...] = (without_indexes, with_null_indexes, every_index_zero)
WHO: tuple[Habit, ...] = (without_ids, drifting_ids)
PARTS: tuple[Habit, ...] = (without_content_indexes, without_part_events)
ENDS: tuple[Habit, ...] = (without_item_done, with_empty_output)
STREAMED: tuple[Habit, ...] = (without_deltas, only_items)
ALWAYS: tuple[Habit, ...] = (
    without_numbers,
    without_added,
    without_beginning,
    beginning_twice,
    with_something_after_the_end,
    in_older_spelling,
)


@st.composite
def habits(
    draw: Draw, where: tuple[Habit, ...] = WHERE, who: tuple[Habit, ...] = WHO, parts: tuple[Habit, ...] = PARTS
) -> list[Habit]:
    """Habits that a server can have at the same time and still be understood."""
    chosen: list[Habit] = list(draw(st.lists(st.sampled_from(ALWAYS), unique=True, max_size=4)))
    for group in (where, who, parts, ENDS, STREAMED):
        if group and draw(st.booleans()):
            chosen.append(draw(st.sampled_from(group)))
    if without_item_done in chosen and without_added in chosen:
        chosen.remove(without_added)  # where neither is told, the order of items that say nothing cannot be known
    if every_index_zero in chosen and without_ids in chosen:
        chosen.remove(every_index_zero)  # items that say the same, under one index and no id, are one item told twice
    # `something after the end` looks at the last event, `the beginning` at the first.
    return sorted(chosen, key=lambda habit: habit in (beginning_twice, with_something_after_the_end))


def apply(chosen: list[Habit], events: list[Json]) -> list[Json]:
    for habit in chosen:
        events = habit(events)
    return events
