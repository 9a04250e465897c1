"""`gateway/managed_turn`: turns whose conversation is shortened on the way, for each combination of streaming client
and upstream."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.gateway.scripted import JSON, SSE, ScriptedAnswer, ScriptedTransport, target
from tests.gateway.test_compactor import SEAL, WORKERS, PicklingPool, answers, asked, stamps, too_long
from tests.gateway.test_conversation_steps import says

from antiphon.config import TraceConfig
from antiphon.dialects import responses
from antiphon.errors import ApiError, UpstreamFault
from antiphon.gateway.compactor import CompactionResult, Compactor
from antiphon.gateway.managed_turn import EmptyResponse, ManagedTurn, PrefixedStreamReader
from antiphon.gateway.planning import ContextPlan
from antiphon.gateway.turn import is_json
from antiphon.gateway.turn_data import prepare_request
from antiphon.gateway.worker_pool import LARGE_INPUT, WorkerPool
from antiphon.protocol.events import (
    ItemAdded,
    OutputTextDelta,
    ResponseCreated,
    ResponseQueued,
    StreamEvent,
    TextRun,
    UnknownEvent,
)
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import Compaction
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.request import input_items
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.status import ResponseStatus
from antiphon.trace.reader import read_trace
from antiphon.trace.writer import Trace, TraceWriter

LONG = "word " * 300
STREAM = (
    b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\ndata: {"choices":[{"delta":{"content":"lo"}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"."},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\ndata: [DONE]\n\n'
)
USED = {"prompt_tokens": 90, "completion_tokens": 9, "total_tokens": 99}


def turn(
    *items: dict[str, Any],
    compacts: bool = False,
    dialect: str = "chat",
    trace: Trace | None = None,
    encodes: bool = False,
    workers: WorkerPool = WORKERS,
    **settings: Any,
) -> ManagedTurn:
    request = asked(*items)
    place = target(dialect)
    compactor = Compactor(seal=SEAL, owner="alice", target=place, context_size=None, stamps=stamps(), workers=workers)
    plan = ContextPlan(request=request, sealed_items=input_items(request), compacts=compacts, **settings)
    if encodes:
        plan = plan.encode()
    prepared = prepare_request(request, place.plan_translation())
    return ManagedTurn(prepared, place, stamps(), None, trace, None, plan, compactor)


async def whole(made: ManagedTurn, *answered: ScriptedAnswer | ApiError) -> Response:
    return await made.read_response(await made.send_request(ScriptedTransport(*answered)))


async def events(made: ManagedTurn, *answered: ScriptedAnswer | ApiError) -> list[StreamEvent]:
    """The events of a turn, for any form of upstream answer."""
    reader = made.make_reader()
    answer = await made.send_request(ScriptedTransport(*answered))
    if is_json(answer):
        return await made.read_response_as_events(answer)
    received: list[StreamEvent] = []
    async for piece in answer.pieces():
        received += reader.feed(piece)
    return received + reader.finish()


def kinds(response: Response) -> list[str]:
    return [str(item.__struct_config__.tag) for item in response.output]


def test_compact_only_turn_has_one_item_and_its_usage() -> None:
    """CMP-1: exactly one compaction item, sent like any other turn."""
    made = turn(says("user", LONG), compacts=True, only_compacts=True)
    response = asyncio.run(whole(made, answers("Notes.", **USED)))
    assert (response.status, kinds(response)) == (ResponseStatus.COMPLETED, ["compaction"])
    assert response.usage is not None
    assert response.usage.total_tokens == 99
    received = asyncio.run(
        events(turn(says("user", LONG), compacts=True, only_compacts=True), answers("Notes.", **USED))
    )
    assert find_violations(received) == []
    assert kinds(fold_events(received)) == ["compaction"]


def test_compaction_is_the_first_item_for_any_upstream_answer() -> None:
    """STR-5, STR-14: numbers and indexes are those of one response."""
    items = [says("user", LONG), says("assistant", LONG), says("user", "Go on.")]
    summary = answers("Notes.", **USED)
    answered = [answers("Hello.", prompt_tokens=3, completion_tokens=2, total_tokens=5), ScriptedAnswer([STREAM], SSE)]
    cut = [STREAM[at : at + 7] for at in range(0, len(STREAM), 7)]
    results: list[Response] = [asyncio.run(whole(turn(*items, compacts=True), summary, answer)) for answer in answered]
    for answer in (*answered, ScriptedAnswer(cut, SSE)):
        received = asyncio.run(events(turn(*items, compacts=True), summary, answer))
        assert find_violations(received) == []
        assert [event.sequence_number for event in received] == list(range(len(received)))
        results.append(fold_events(received))
    for response in results:
        assert kinds(response) == ["compaction", "message"]
        assert response.usage is not None
        assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (93, 11, 104)
        assert "Hello." in str(response.output[1])


def test_upstream_receives_the_summary_instead_of_the_old_items() -> None:
    """CMP-3."""
    made = turn(
        says("system", "Rules."),
        says("user", LONG),
        says("assistant", LONG),
        says("user", "Go on."),
        compacts=True,
        threshold=400,
    )
    transport = ScriptedTransport(answers("Notes."), answers("Hello."))
    asyncio.run(made.send_request(transport))
    messages = msgspec.json.decode(transport.asked[1].body)["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "user"]
    assert "\n\nNotes.\n\n" in messages[1]["content"]
    assert messages[2]["content"] == "Go on."


def test_input_too_long_after_compaction_is_truncated() -> None:
    """REQ-2."""
    long = [
        says("user", "first"),
        says("assistant", LONG),
        *(says("user", f"{at} {LONG}") for at in range(20)),
        says("user", "Go on."),
    ]
    made = turn(*long, compacts=True, truncates=True, context_size=1000)
    transport = ScriptedTransport(answers("Notes."), answers("Hello."))
    asyncio.run(made.send_request(transport))
    messages = msgspec.json.decode(transport.asked[1].body)["messages"]
    assert "Notes." in messages[0]["content"]
    assert messages[-1]["content"] == "Go on."
    assert len(messages) < 6
    assert any("truncation is auto" in loss.why for loss in made.losses)


def test_overlong_input_is_truncated_and_retried_once() -> None:
    """REQ-2: auto, where the context is unknown or the estimate was wrong."""
    items = [*(says("user", f"{at} {LONG}") for at in range(10)), says("user", "Go on.")]
    made = turn(*items, truncates=True)
    transport = ScriptedTransport(too_long(), answers("Hello."))

    async def ask() -> Response:
        return await made.read_response(await made.send_request(transport))

    assert kinds(asyncio.run(ask())) == ["message"]
    counts = [len(msgspec.json.decode(each.body)["messages"]) for each in transport.asked]
    assert counts[0] == 11
    assert 5 <= counts[1] <= 7
    assert [loss.path for loss in made.losses] == ["input[0]"]


@pytest.mark.parametrize(
    ("items", "settings", "answered"),
    [
        (
            [says("user", LONG), says("user", "x")],
            {"truncates": True},
            [too_long(), too_long()],
        ),  # one retry, and no more
        ([says("user", LONG)], {"truncates": True}, [too_long()]),  # nothing can be dropped
        ([says("user", LONG), says("user", "x")], {}, [too_long()]),  # REQ-2: disabled never drops
    ],
)
def test_input_that_stays_too_long_is_an_error(
    items: list[Any], settings: dict[str, Any], answered: list[ScriptedAnswer]
) -> None:
    """REQ-2."""
    with pytest.raises(ApiError) as caught:
        asyncio.run(whole(turn(*items, **settings), *answered))
    assert caught.value.code == "context_length_exceeded"


def test_other_errors_are_not_retried() -> None:
    made = turn(says("user", LONG), says("user", "x"), truncates=True)
    with pytest.raises(ApiError) as caught:
        asyncio.run(whole(made, ScriptedAnswer([b'{"error":{"message":"no"}}'], JSON, 400)))
    assert caught.value.code == "invalid_value"


def test_failed_summary_fails_the_turn_with_one_end() -> None:
    """STR-8."""
    made = turn(says("user", LONG), compacts=True)
    pipe = made.make_pipe(responses.EventsFromHub(made.prepared.request))
    with pytest.raises(ApiError) as caught:
        asyncio.run(made.send_request(ScriptedTransport(UpstreamFault("gone", code="upstream_unavailable"))))
    assert b'"response.failed"' in pipe.finish(caught.value)
    assert pipe.response is not None
    assert pipe.response.output == []


def test_broken_stream_keeps_the_compaction() -> None:
    made = turn(says("user", LONG), compacts=True)
    broken = ScriptedAnswer([STREAM[:60]], SSE)
    received = asyncio.run(events(made, answers("Notes."), broken))
    assert find_violations(received) == []
    assert kinds(fold_events(received))[0] == "compaction"
    assert fold_events(received).status == ResponseStatus.FAILED


def test_trace_records_the_shortened_request(tmp_path: Any) -> None:
    traces = TraceWriter(TraceConfig(dir=str(tmp_path)))
    trace = traces.start_trace("req_1")
    trace.record_client_request("POST", "/v1/responses", [], b"{}")
    made = turn(*(says("user", f"{at} {LONG}") for at in range(9)), compacts=True, truncates=True, trace=trace)
    asyncio.run(whole(made, answers("Notes."), too_long(), answers("Hello.")))
    trace.finish()
    traces.close()
    record = read_trace(tmp_path, "req_1")
    assert record.notes["conversation"] == "shortened"
    assert record.hub_request is not None
    assert b"Notes." in record.hub_request.body.raw


def test_empty_response_has_no_pieces() -> None:
    async def pieces() -> list[bytes]:
        return [piece async for piece in EmptyResponse().pieces()]

    assert asyncio.run(pieces()) == []
    EmptyResponse().abort()


class FixedReader:
    """A reader that returns its events."""

    error = None

    def __init__(self, *stream_events: StreamEvent | TextRun) -> None:
        self.losses = Losses()
        self._told = list(stream_events)

    def feed(self, frame: object) -> list[StreamEvent]:
        raise NotImplementedError

    def finish(self, error: ApiError | None = None) -> list[Any]:
        del error
        return self._told

    def limit_output(self, limits: OutputLimits) -> None:
        pass

    def end_incomplete(self, reason: str) -> list[Any]:
        raise AssertionError(reason)


def test_prefixed_stream_reader_renumbers_every_kind_of_event() -> None:
    response = make_initial_response(asked(says("user")), id="resp_1", created_at=1)
    unknown = {"type": "acme:x", "sequence_number": 3, "output_index": 0}
    raws = [unknown, {**unknown, "output_index": "odd"}, {"type": "acme:x", "sequence_number": 3}]
    item = Compaction(id="cmp_1", encrypted_content="x")
    reader = PrefixedStreamReader(
        FixedReader(
            ResponseCreated(sequence_number=0, response=response),
            ResponseQueued(sequence_number=1, response=response),
            *asyncio.run(events(turn(says("user")), ScriptedAnswer([STREAM], SSE)))[1:2] * 2,
            *(
                UnknownEvent(kind="acme:x", raw=msgspec.Raw(msgspec.json.encode(raw)), sequence_number=3)
                for raw in raws
            ),
            TextRun(4, "msg_1", 0, 0, ["a", "b"]),
        ),
        lambda: CompactionResult(item=item, content=b"", usage=None),
        OutputLimits(),
    )
    received: list[Any] = reader.finish()
    assert [event.sequence_number for event in received] == [0, 1, 1, 2, 3, 1, 5, 5, 5, 6]
    assert isinstance(received[3], ItemAdded)
    assert [msgspec.json.decode(event.raw) for event in received[6:9]] == [
        {"type": "acme:x", "sequence_number": 5, "output_index": 1},
        {"type": "acme:x", "sequence_number": 5, "output_index": "odd"},
        {"type": "acme:x", "sequence_number": 5},
    ]
    assert (received[9].output_index, received[9].deltas) == (1, ["a", "b"])
    assert OutputTextDelta not in map(type, received)


def sent_bodies(
    *answered: ScriptedAnswer, items: list[dict[str, Any]], **settings: Any
) -> tuple[list[bytes], list[str]]:
    """What the upstream receives, and the functions that were called in worker processes."""
    pool, transport = PicklingPool(), ScriptedTransport(*answered)
    asyncio.run(turn(*items, workers=pool, context_size=10_000_000, **settings).send_request(transport))
    return [each.body for each in transport.asked], pool.functions


def test_large_conversation_is_compacted_in_worker_processes() -> None:
    items = [says("user", "a"), says("assistant", "b"), says("user", "c " * LARGE_INPUT)]
    here, encoded = (
        sent_bodies(answers("Notes."), answers("Hello."), items=items, compacts=True, truncates=True, encodes=encodes)
        for encodes in (False, True)
    )
    assert here[0] == encoded[0]
    assert here[1] == ["_encrypt", "compact_request"]  # the last message is kept as it is
    assert encoded[1] == ["draft_compaction", "_encrypt", "compact_request"]


def test_large_conversation_is_truncated_in_worker_processes() -> None:
    items = [says("user", "a " * LARGE_INPUT), says("assistant", "b"), says("user", "Go on.")]
    here, encoded = (
        sent_bodies(too_long(), answers("Hello."), items=items, truncates=True, encodes=encodes)
        for encodes in (False, True)
    )
    assert here[0] == encoded[0]
    assert len(here[0][1]) < LARGE_INPUT
    assert (here[1], encoded[1]) == ([], ["shorten_request"])


def test_plan_that_shortens_nothing_keeps_no_conversation() -> None:
    request = asked(says("user", "a"))
    plan = ContextPlan(request=request, sealed_items=input_items(request)).encode()
    assert plan.encoded_conversation is None
    assert input_items(plan.request) == plan.sealed_items == []
