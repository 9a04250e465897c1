"""`gateway/event_lines`: the stored form of events. Long texts are stored once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.store.store_setups import STORE_SETUPS, StoreSetup
from tests.store.stores import record

from antiphon.gateway.event_lines import (
    LONG_INSTRUCTIONS,
    LONG_TEXT,
    REFERENCE_MARK,
    EventLineWriter,
    StoredEventReader,
    encode_event_line,
    run_lines,
)
from antiphon.gateway.worker_pool import LARGE_INPUT, WorkerPool
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_event
from antiphon.protocol.content import OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.events import (
    ArgumentsDone,
    ContentPartDone,
    CustomInputDone,
    ItemDone,
    OutputTextDone,
    ReasoningDone,
    RefusalDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseInProgress,
    ResponseQueued,
    StreamEvent,
    SummaryTextDone,
    TextRun,
)
from antiphon.protocol.items import CustomToolCall, FunctionCall, Message, Reasoning
from antiphon.protocol.request import Request
from antiphon.protocol.response import JsonSchemaFormat, Response, TextConfig, make_initial_response
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.tools import FunctionTool
from antiphon.store.interface import Store
from antiphon.store.work import MAX_EVENTS_BYTES

pytestmark = pytest.mark.io
RESPONSE: Response = make_initial_response(Request(model="m"), id="resp_1", created_at=1)


def answer(text: str, *, at: int = 0) -> list[StreamEvent]:
    """The last events of an answer that is one text."""
    part = OutputText(text=text, annotations=[], logprobs=[])
    item = Message(id="msg_1", status=ItemStatus.COMPLETED, role="assistant", content=[part])
    return [
        OutputTextDone(sequence_number=at, item_id="msg_1", output_index=0, content_index=0, text=text),
        ContentPartDone(sequence_number=at + 1, item_id="msg_1", output_index=0, content_index=0, part=part),
        ItemDone(sequence_number=at + 2, output_index=0, item=item),
        ResponseCompleted(sequence_number=at + 3, response=replace(RESPONSE, status="completed", output=[item])),
    ]


def lines_of(events: list[StreamEvent], queued: Response = RESPONSE) -> list[bytes]:
    writer = EventLineWriter(queued)
    for event in events:
        assert writer.feed(event)
    return writer.take_lines()


async def read_all(store: Store, after: int = -1) -> list[StreamEvent]:
    reader = StoredEventReader(store, "anna", "resp_1")
    events: list[StreamEvent] = []
    while True:
        page = await reader.read_after(after + len(events))
        assert page is not None
        events += map(decode_event, page.lines)
        if not page.has_more:
            return events


async def store_lines(store: Store, lines: list[bytes]) -> None:
    await store.enqueue("anna", replace(record("resp_1"), status="queued"), [], b"{}")
    await store.claim("r1", 600, 1)
    for number, line in enumerate(lines):
        assert await store.append("r1", "resp_1", number, [line], "in_progress")


def run_with(kind: str, law: Callable[[StoreSetup], Awaitable[None]]) -> None:
    async def run_law() -> None:
        async with STORE_SETUPS[kind]() as setup:
            await law(setup)

    asyncio.run(run_law())


@pytest.mark.parametrize("kind", STORE_SETUPS)
def test_long_text_is_stored_once_and_read_in_every_event(kind: str) -> None:
    events = answer('x"\n' * LONG_TEXT)
    lines = lines_of(events)
    assert [len(line) > LONG_TEXT for line in lines] == [True, False, False, False]

    async def law(setup: StoreSetup) -> None:
        await store_lines(setup.store, lines)
        assert await read_all(setup.store) == events
        for after in range(4):  # also without the event that has the text
            assert await read_all(setup.store, after) == events[after + 1 :]

    run_with(kind, law)


def test_short_texts_are_stored_in_every_event() -> None:
    events = answer("x" * (LONG_TEXT - 1))
    assert list(map(decode_event, lines_of(events))) == events


def test_equal_text_of_another_part_is_no_reference() -> None:
    """Only the same text is stored once; a comparison of long texts would cost more than it saves."""
    other = OutputText(text="".join(["y"] * LONG_TEXT), annotations=[], logprobs=[])
    [_, *repeated] = answer("y" * LONG_TEXT)
    done = RefusalDone(sequence_number=0, item_id="m", output_index=0, content_index=0, refusal="z" * LONG_TEXT)
    part = ContentPartDone(sequence_number=1, item_id="m", output_index=0, content_index=1, part=other)
    assert decode_event(lines_of([done, part])[1]) == part
    assert all(REFERENCE_MARK not in line for line in lines_of(repeated))


def test_every_kind_of_text_is_found_again() -> None:
    text = "é" * LONG_TEXT
    in_part: dict[str, Any] = {"item_id": "i", "output_index": 0, "content_index": 0}
    in_summary: dict[str, Any] = {"item_id": "i", "output_index": 0, "summary_index": 0}
    in_item: dict[str, Any] = {"item_id": "i", "output_index": 0}
    reasoning = Reasoning(
        id="i", status=ItemStatus.COMPLETED, summary=[SummaryText(text=text)], content=[ReasoningText(text=text)]
    )
    message = Message(id="i", status=ItemStatus.COMPLETED, role="assistant", content=[Refusal(refusal=text)])
    call = FunctionCall(id="i", status=ItemStatus.COMPLETED, call_id="c", name="f", arguments=text)
    custom_call = CustomToolCall(id="i", status=ItemStatus.COMPLETED, call_id="c", name="f", input=text)
    cases: list[tuple[StreamEvent, object]] = [
        (ReasoningDone(sequence_number=0, text=text, **in_part), reasoning),
        (SummaryTextDone(sequence_number=0, text=text, **in_summary), reasoning),
        (RefusalDone(sequence_number=0, refusal=text, **in_part), message),
        (ArgumentsDone(sequence_number=0, arguments=text, **in_item), call),
        (CustomInputDone(sequence_number=0, input=text, **in_item), custom_call),
    ]
    for done, item in cases:
        events = [done, ItemDone(sequence_number=1, output_index=0, item=item)]  # type: ignore[arg-type]

        async def law(setup: StoreSetup, events: list[StreamEvent] = events) -> None:
            lines = lines_of(events)
            assert REFERENCE_MARK in lines[1]
            await store_lines(setup.store, lines)
            assert await read_all(setup.store) == events

        run_with("sqlite", law)


def lifecycle(response: Response) -> list[StreamEvent]:
    """The events of a response without output."""
    return [
        ResponseCreated(sequence_number=0, response=response),
        ResponseQueued(sequence_number=1, response=response),
        ResponseInProgress(sequence_number=2, response=replace(response, status="in_progress")),
        ResponseCompleted(sequence_number=3, response=replace(response, status="completed")),
    ]


@pytest.mark.parametrize("kind", STORE_SETUPS)
def test_instructions_and_tools_are_stored_once_and_read_in_every_event(kind: str) -> None:
    tools: list[Any] = [FunctionTool(name="f", description="d" * 1000, parameters={}, strict=True)]
    queued = replace(RESPONSE, status="queued", instructions="é" * LONG_INSTRUCTIONS, tools=tools)
    events = lifecycle(queued)
    lines = lines_of(events, queued)
    assert [len(line) > 1000 for line in lines] == [True, False, False, False]

    async def law(setup: StoreSetup) -> None:
        await store_lines(setup.store, lines)
        for after in range(-1, 4):
            assert await read_all(setup.store, after) == events[after + 1 :]

    run_with(kind, law)


def test_other_instructions_and_short_ones_are_stored_in_every_event() -> None:
    for first, second in (("x" * (LONG_INSTRUCTIONS - 1), None), ("x" * LONG_INSTRUCTIONS, "y" * LONG_INSTRUCTIONS)):
        queued = replace(RESPONSE, status="queued", instructions=first)
        events = lifecycle(queued)[:3]
        end = replace(queued, status="completed", instructions=second or first)
        events.append(ResponseCompleted(sequence_number=3, response=end))
        assert decode_event(lines_of(events, queued)[3]) == events[3]


RUN = TextRun(0, 'msg_":0,"delta":""', 2, 0, ["a", 'b"\n', "", "é\u2028", "c" * 2000, *"12345678"])


def test_run_of_deltas_is_stored_in_one_line() -> None:
    writer, other = EventLineWriter(RESPONSE), EventLineWriter(RESPONSE)
    line = writer.text_run(RUN)
    for event in RUN.events():
        other.feed(event)
    lines, other_lines = writer.take_lines(), other.take_lines()
    assert lines == [line, *(b"%d" % place for place in range(1, len(RUN.deltas)))]
    assert run_lines(line) == other_lines


@pytest.mark.parametrize("kind", STORE_SETUPS)
def test_run_of_deltas_is_read_from_any_event_on(kind: str) -> None:
    first = replace(RUN, deltas=["x"])
    second = replace(RUN, sequence_number=1)
    events: list[StreamEvent] = [*first.events(), *second.events(), *answer("y", at=1 + len(RUN.deltas))]
    writer = EventLineWriter(RESPONSE)
    writer.text_run(first)
    writer.text_run(second)
    for event in answer("y", at=1 + len(RUN.deltas)):
        writer.feed(event)
    lines = writer.take_lines()

    async def law(setup: StoreSetup) -> None:
        await store_lines(setup.store, lines)
        for after in range(-1, len(events)):
            assert await read_all(setup.store, after) == events[after + 1 :]

    run_with(kind, law)


def test_reader_gets_a_run_of_many_bytes_in_pages() -> None:
    run = TextRun(0, "msg_1", 0, 0, ["x"] * (MAX_EVENTS_BYTES // 100))
    writer = EventLineWriter(RESPONSE)
    writer.text_run(run)

    async def law(setup: StoreSetup) -> None:
        await setup.store.enqueue("anna", replace(record("resp_1"), status="queued"), [], b"{}")
        await setup.store.claim("r1", 600, 1)
        assert await setup.store.append("r1", "resp_1", 0, writer.take_lines(), "in_progress")
        page = await StoredEventReader(setup.store, "anna", "resp_1").read_after(-1)
        assert page is not None
        assert page.has_more
        assert MAX_EVENTS_BYTES <= sum(map(len, page.lines)) < MAX_EVENTS_BYTES + 1000
        assert await read_all(setup.store) == run.events()

    run_with("sqlite", law)


def test_run_of_a_response_that_was_deleted_meanwhile_is_missing() -> None:
    async def law(setup: StoreSetup) -> None:
        await store_lines(setup.store, [b"{}", b"1"])
        assert await StoredEventReader(setup.store, "anna", "resp_1").read_after(0) is None

    run_with("sqlite", law)


def test_text_that_looks_like_a_reference_stays_as_it_is() -> None:
    text = '{"antiphon:text_of_event":0}'
    events = answer(text)

    async def law(setup: StoreSetup) -> None:
        await store_lines(setup.store, lines_of(events))
        assert await read_all(setup.store) == events

    run_with("sqlite", law)


@pytest.mark.parametrize("member", ["text", "tools", "instructions"])
def test_json_of_a_client_that_looks_like_a_reference_stays_as_it_is(member: str) -> None:
    """Otherwise a few bytes of a schema would become many megabytes."""
    schema = {"properties": {f"p{number}": {f"antiphon:{member}_of_event": 0} for number in range(50)}}
    tools: list[Any] = [FunctionTool(name="f", description="d" * 1000, parameters=schema, strict=True)]
    text = TextConfig(format=JsonSchemaFormat(name="n", schema=schema, description=None, strict=True))
    for queued in (replace(RESPONSE, status="queued", tools=tools), replace(RESPONSE, status="queued", text=text)):
        long = replace(queued, instructions="é" * LONG_INSTRUCTIONS)
        events = lifecycle(long)
        lines = lines_of(events, long)

        async def law(setup: StoreSetup, lines: list[bytes] = lines, events: list[StreamEvent] = events) -> None:
            await store_lines(setup.store, lines)
            page = await StoredEventReader(setup.store, "anna", "resp_1").read_after(-1)
            assert page is not None
            assert sum(map(len, page.lines)) < 4 * len(codec.encode(events[0])) + 1000
            if member != "text":
                assert list(map(decode_event, page.lines)) == events

        run_with("sqlite", law)


def test_line_of_an_earlier_version_refers_without_a_mark() -> None:
    done = answer("y" * LONG_TEXT)
    lines = [line.removeprefix(b" ") for line in lines_of(done)]

    async def law(setup: StoreSetup) -> None:
        await store_lines(setup.store, lines)
        assert await read_all(setup.store) == done

    run_with("sqlite", law)


def test_reference_to_a_missing_event_is_an_empty_text() -> None:
    """As when the response is deleted between two queries."""
    line = msgspec.json.encode({"type": "response.output_text.done", "text": {"antiphon:text_of_event": 7}})

    async def law(setup: StoreSetup) -> None:
        await store_lines(setup.store, [line])
        page = await StoredEventReader(setup.store, "anna", "resp_1").read_after(-1)
        assert page is not None
        assert msgspec.json.decode(page.lines[0])["text"] == ""
        assert await StoredEventReader(setup.store, "anna", "resp_2").read_after(-1) is None

    run_with("sqlite", law)


def test_line_with_large_settings_has_the_same_bytes() -> None:
    """They are joined, not encoded again."""
    tools = msgspec.Raw(b'["%b"]' % (b"x" * codec.LARGE_SETTING))
    event = ResponseCreated(sequence_number=7, response=replace(RESPONSE, tools=tools))
    assert encode_event_line(event) == codec.encode(event)


@pytest.mark.parametrize("after", [-1, 0, 1])
@pytest.mark.parametrize("member", ["instructions", "tools"])
def test_large_settings_are_read_apart_from_their_events(member: str, after: int) -> None:
    """They stay encoded, because a worker process finds them. Also without the event that has them."""
    text = "x" * LARGE_INPUT
    tools = [FunctionTool(name="f", description=text, parameters=None, strict=None)]
    value: Any = text if member == "instructions" else tools
    queued = replace(RESPONSE, status="queued", **{member: value})
    events = lifecycle(queued)

    async def law(setup: StoreSetup) -> None:
        await store_lines(setup.store, lines_of(events, queued))
        workers = WorkerPool(1)
        try:
            reader = StoredEventReader(setup.store, "anna", "resp_1", workers)
            read: list[Any] = []
            while len(read) < len(events) - after - 1:
                page = await reader.read_after(after + len(read))
                assert page is not None
                assert max(map(len, page.lines)) < LARGE_INPUT
                read += page.events()
        finally:
            await workers.close()
        assert all(type(getattr(event.response, member)) is Raw for event in read)
        assert [decode_event(codec.encode(event)) for event in read] == events[after + 1 :]

    run_with(next(iter(STORE_SETUPS)), law)
