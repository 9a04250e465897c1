"""The policy, by laws over generated responses, then row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec.structs import replace
from tests.generate.events import ENDINGS
from tests.generate.events import lives as anyones_lives

from antiphon.errors import UpstreamFault
from antiphon.protocol.base import Shape
from antiphon.protocol.codec import encode
from antiphon.protocol.content import LogProb, OutputText
from antiphon.protocol.events import (
    ArgumentsDelta,
    ContentPartDone,
    CustomInputDelta,
    DeltaEvent,
    ErrorEvent,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    OutputTextDone,
    ResponseCompleted,
    ResponseIncomplete,
    StreamEvent,
    TerminalEvent,
    UnknownEvent,
)
from antiphon.protocol.fold import fold_events, replay_response
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import (
    ApplyPatchCall,
    CodeInterpreterCall,
    CustomToolCall,
    FileSearchCall,
    FunctionCall,
    Item,
    LocalShellCall,
    Message,
    Reasoning,
    ShellCall,
    UnknownItem,
    WebSearchCall,
)
from antiphon.protocol.losses import Loss
from antiphon.protocol.policy import Policy
from antiphon.protocol.request import ENCRYPTED_IF_ANY, Request, StreamOptions
from antiphon.protocol.response import IncompleteDetails, make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.tools import AllowedToolsParam, SpecificCustom, SpecificFunction, UnknownToolChoice
from antiphon.protocol.writer import ResponseWriter

ALL_HOSTED = ["web_search_call.action.sources", "file_search_call.results", "code_interpreter_call.outputs"]
ALL_INCLUDED = ["reasoning.encrypted_content", "message.output_text.logprobs", *ALL_HOSTED]
LOGPROB = LogProb(token="x", logprob=-1, bytes=[120], top_logprobs=[])
ASK = Request(model="m", input="hi")


def pad(length: int) -> str:
    return "~" * (32 - length % 32)


# Generated responses


class Life:
    """A response being written, with everything that a policy could remove."""

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []
        ids = iter(range(10_000))
        stamps = Stamps(lambda prefix: f"{prefix}_{next(ids)}", lambda: 7)
        self.writer = ResponseWriter(make_initial_response(ASK, id="resp_1", created_at=1), self.events.append, stamps)
        self.writer.start()

    def function(self, key: Any, name: str, *, namespace: str | None = None, arguments: str = '{"a":1}') -> None:
        self.writer.open_call(key, name=name, call_id=f"call_{key}", namespace=namespace)
        self.writer.add_arguments(key, arguments)

    def custom(self, key: Any, name: str, *, namespace: str | None = None) -> None:
        self.writer.open_custom_call(key, name=name, call_id=f"call_{key}", namespace=namespace)
        self.writer.add_custom_input(key, "free text")

    def hosted(self, key: Any) -> None:
        whole: list[Item] = [
            WebSearchCall(
                id=f"ws_{key}", status="completed", action={"type": "search", "query": "q", "sources": [{"url": "u"}]}
            ),
            FileSearchCall(id=f"fs_{key}", status="completed", queries=["q"], results=[{"text": "found"}]),
            CodeInterpreterCall(id=f"ci_{key}", status="completed", code="1", outputs=[{"type": "logs", "logs": "1"}]),
        ]
        for at, item in enumerate(whole):
            self.writer.open_item((key, at), replace(item, status="in_progress"))
            self.writer.finish_item((key, at), item)


@st.composite
def lives(draw: st.DrawFn) -> list[StreamEvent]:
    """Any response: items of every kind, open at once, interleaved, ended in any way; deltas padded by the upstream or
    not."""
    life = Life()
    write = life.writer
    kinds = {key: draw(st.sampled_from(KINDS)) for key in range(5)}
    started: set[int] = set()
    for step in range(draw(st.integers(0, 12))):
        key = draw(st.integers(0, 4))
        begin, go_on = kinds[key]
        if key not in started:
            started.add(key)
            begin(life, key, draw)
        elif write.is_open(key) and draw(st.booleans()):
            go_on(life, key, draw)
        elif write.is_open(key):
            write.close_item(key)
        if draw(st.integers(0, 5)) == 0:
            write.emit_unknown_event("acme:tick", {"step": step}, key=draw(st.sampled_from([None, key])))
    draw(st.sampled_from(OWN_ENDINGS))(life)
    padding = draw(st.sampled_from([UNSET, UNSET, "…"]))
    return [replace(e, obfuscation=padding) if isinstance(e, DeltaEvent) and padding else e for e in life.events]


def _text(life: Life, key: int, draw: st.DrawFn) -> None:
    life.writer.add_text(key, f"text {key}", logprobs=draw(st.sampled_from([None, [LOGPROB]])))


def _refusal(life: Life, key: int, _: st.DrawFn) -> None:
    life.writer.add_refusal(key, f"no {key}")


def _no_op(life: Life, key: int, _: st.DrawFn) -> None:
    if not life.writer.is_open(key):
        life.writer.open_message(key)


def _reasoning(life: Life, key: int, draw: st.DrawFn) -> None:
    life.writer.add_reasoning(key, f"thought {key}")
    life.writer.add_summary(key, f"in short {key}")
    if draw(st.booleans()):
        life.writer.set_encrypted_content(key, f"sealed {key}")


def _function(life: Life, key: int, draw: st.DrawFn) -> None:
    life.function(key, draw(st.sampled_from(["f", "g"])), namespace=draw(st.sampled_from([None, None, "ns"])))


def _custom(life: Life, key: int, draw: st.DrawFn) -> None:
    life.custom(key, draw(st.sampled_from(["f", "c"])), namespace=draw(st.sampled_from([None, "ns"])))


def _hosted(life: Life, key: int, _: st.DrawFn) -> None:
    life.hosted(key)


def _extension(life: Life, key: int, _: st.DrawFn) -> None:
    life.writer.open_extension_item(key, "acme:thing", {"step": key})


Step = Callable[[Life, int, st.DrawFn], None]
KINDS: list[tuple[Step, Step]] = [
    (_text, _text),
    (_text, _refusal),
    (_no_op, _no_op),
    (_reasoning, _reasoning),
    (_function, lambda life, key, _: life.writer.add_arguments(key, " ")),
    (_function, lambda life, key, _: life.writer.add_arguments(key, " ")),
    (_custom, lambda life, key, _: life.writer.add_custom_input(key, " more")),
    (_hosted, lambda _life, _key, _: None),
    (_extension, lambda life, key, _: life.writer.emit_unknown_event("acme:progress", {"call": "none"}, key=key)),
]
OWN_ENDINGS: list[Callable[[Life], None]] = [
    lambda life: life.writer.complete(),
    lambda life: life.writer.complete(),
    lambda life: life.writer.end_incomplete("max_output_tokens"),
    lambda life: life.writer.fail(UpstreamFault("gone", code="upstream_disconnected")),
]


@st.composite
def asked(draw: st.DrawFn) -> Request:
    """Any request from which a policy can be made."""
    f, c = SpecificFunction(name="f"), SpecificCustom(name="c", namespace="ns")
    group = UnknownToolChoice(kind="namespace", raw=Raw(b'{"type":"namespace","name":"ns"}'))
    choices: list[Any] = [
        UNSET,
        UNSET,
        "auto",
        "none",
        "required",
        f,
        c,
        SpecificCustom(name="f"),
        SpecificFunction(name="f", namespace="ns"),
        AllowedToolsParam(tools=[f]),
        AllowedToolsParam(tools=[f, c], mode="required"),
        AllowedToolsParam(tools=[f], mode="none"),
        AllowedToolsParam(tools=[group]),
        UnknownToolChoice(kind="web_search", raw=Raw(b'{"type":"web_search"}')),
    ]
    return Request(
        model="m",
        tool_choice=draw(st.sampled_from(choices)),
        parallel_tool_calls=draw(st.one_of(st.just(UNSET), st.booleans())),
        include=draw(st.one_of(st.just(UNSET), st.lists(st.sampled_from(ALL_INCLUDED), unique=True))),
        top_logprobs=draw(st.one_of(st.just(UNSET), st.integers(0, 1))),
        stream_options=draw(
            st.sampled_from(
                [UNSET, None, StreamOptions(include_obfuscation=True), StreamOptions(include_obfuscation=False)]
            )
        ),
    )


def ruled(request: Request, events: list[StreamEvent]) -> tuple[list[StreamEvent], list[Loss]]:
    policy = Policy.for_request(request, pad=pad)
    delivered = [out for event in events for out in policy.feed(event)]
    return delivered, list(policy.losses)


def is_call(item: object) -> bool:
    return isinstance(item, FunctionCall | CustomToolCall)


def may_be_called(request: Request, item: FunctionCall | CustomToolCall) -> bool:
    """TOOL-2 and TOOL-3 again, in the simplest code."""
    kind = "function" if isinstance(item, FunctionCall) else "custom"
    match request.tool_choice:
        case "none" | AllowedToolsParam(mode="none"):
            return False
        case AllowedToolsParam(tools=tools):
            return any(_names(choice, kind, item) for choice in tools)
        case SpecificFunction() | SpecificCustom() as choice:
            return _names(choice, kind, item)
        case _:
            return True


def _names(choice: Any, kind: str, item: FunctionCall | CustomToolCall) -> bool:
    if isinstance(choice, UnknownToolChoice):
        return item.namespace == "ns"
    named = (choice.__struct_config__.tag, choice.name, choice.namespace or None)
    return named == (kind, item.name, item.namespace or None)


def items_of(events: list[StreamEvent]) -> list[Item]:
    last = events[-1]
    assert isinstance(last, TerminalEvent)
    return last.response.output


# Laws


@settings(max_examples=40)
@given(request=asked(), events=lives())
def test_policy_output_passes_the_grammar(request: Request, events: list[StreamEvent]) -> None:
    """STR-5, STR-6, STR-7: also where calls were withheld or the response failed because of them."""
    assert find_violations(events) == []
    delivered, _ = ruled(request, events)
    assert find_violations(delivered) == []


@settings(max_examples=40)
@given(request=asked(), events=lives())
def test_numbers_in_passed_through_events_are_adjusted(request: Request, events: list[StreamEvent]) -> None:
    """STR-5, ITEM-5: an unknown event has its numbers in its bytes."""
    delivered, _ = ruled(request, events)
    places = {event.item.string_member("id"): event.output_index for event in delivered if _is_extension(event)}  # type: ignore[union-attr]
    for number, event in enumerate(delivered):
        members = msgspec.json.decode(encode(event))
        assert members["sequence_number"] == number == event.sequence_number
        if members["type"] == "acme:progress":
            assert members["output_index"] == places[members["item_id"]]


def _is_extension(event: StreamEvent) -> bool:
    return isinstance(event, ItemAdded) and isinstance(event.item, UnknownItem)


@settings(max_examples=40)
@given(request=asked(), events=lives())
def test_forbidden_call_is_withheld_and_reported(request: Request, events: list[StreamEvent]) -> None:
    """TOOL-3, F-4."""
    delivered, losses = ruled(request, events)
    forbidden = [
        (event.output_index, event.item)
        for event in events
        if isinstance(event, ItemAdded)
        and isinstance(event.item, FunctionCall | CustomToolCall)
        and not may_be_called(request, event.item)
    ]
    encoded = b"".join(map(encode, delivered))
    for index, item in forbidden:
        assert f'"{item.id}"'.encode() not in encoded
        assert f'"{item.call_id}"'.encode() not in encoded
        assert any(loss.path == f"output[{index}]" and item.name in loss.what for loss in losses)


@settings(max_examples=40)
@given(request=asked(), events=lives())
def test_parallel_tool_calls_false_delivers_at_most_one_call(request: Request, events: list[StreamEvent]) -> None:
    """TOOL-4: and it is the first allowed one."""
    delivered, losses = ruled(request, events)
    calls = [e.item for e in events if isinstance(e, ItemAdded) and isinstance(e.item, FunctionCall | CustomToolCall)]
    allowed = [call.id for call in calls if may_be_called(request, call)]
    wanted = allowed[:1] if request.parallel_tool_calls is False else allowed
    assert [item.id for item in items_of(delivered) if isinstance(item, FunctionCall | CustomToolCall)] == wanted
    assert len(losses) == len(calls) - len(wanted)


@settings(max_examples=40)
@given(request=asked(), events=lives())
def test_policy_withholds_only_calls(request: Request, events: list[StreamEvent]) -> None:
    """RSN-1, F-4: everything else is delivered in order, without unrequested parts and otherwise unchanged."""
    delivered, _ = ruled(request, events)
    left = [event for event in delivered if not isinstance(event, ErrorEvent | TerminalEvent)]
    calls = {e.output_index for e in events if isinstance(e, ItemAdded) and is_call(e.item)}
    before = [e for e in events if not isinstance(e, ErrorEvent | TerminalEvent) and _index(e) not in calls]
    places = {e.output_index for e in delivered if isinstance(e, ItemAdded) and is_call(e.item)}
    after = [e for e in left if _index(e) not in places]
    assert list(map(_bare, after)) == list(map(_bare, before))


@settings(max_examples=30)
@given(events=lives())
def test_unrestricted_policy_passes_the_same_objects(events: list[StreamEvent]) -> None:
    """RSN-1, RSN-2, STR-12: unchanged events are not copied."""
    bare = [replace(event, obfuscation=UNSET) if isinstance(event, DeltaEvent) else event for event in events]
    delivered, losses = ruled(replace(ASK, include=ALL_INCLUDED), bare)
    assert list(map(id, delivered)) == list(map(id, bare))
    assert losses == []


@settings(max_examples=30)
@given(
    choice=st.sampled_from(
        [UNSET, "none", SpecificFunction(name="look"), SpecificCustom(name="patch", namespace="files")]
    ),
    parallel=st.booleans(),
    events=anyones_lives(ENDINGS),
)
def test_fold_of_policy_output_equals_its_terminal_response(
    choice: Any, parallel: bool, events: list[StreamEvent]
) -> None:
    """STR-6: over the responses of all other laws of the hub."""
    delivered, _ = ruled(replace(ASK, tool_choice=choice, parallel_tool_calls=parallel), events)
    assert find_violations(delivered) == []
    last = delivered[-1]
    assert isinstance(last, TerminalEvent)
    assert fold_events(delivered) == last.response


@settings(max_examples=30)
@given(request=asked(), events=lives())
def test_plain_response_follows_the_same_policy(request: Request, events: list[StreamEvent]) -> None:
    """STR-14: inside the gateway everything is a stream, so there is no second policy."""
    streamed, losses = ruled(request, events)
    whole, losses_of_whole = ruled(request, replay_response(fold_events(events)))
    assert fold_events(whole) == fold_events(streamed)
    assert losses_of_whole == losses
    policy = Policy.for_request(request)
    assert policy.apply_to_response(fold_events(events)) == fold_events(streamed)
    assert set(policy.losses) >= set(losses)


def _index(event: StreamEvent) -> int | None:
    if isinstance(event, UnknownEvent):
        index = msgspec.json.decode(event.raw).get("output_index")
        return index if isinstance(index, int) else None
    return getattr(event, "output_index", None)


def _bare(event: StreamEvent) -> Any:
    """An event without its numbers and without its optional parts."""
    members = msgspec.json.decode(encode(event))
    return _without(members, {"sequence_number", "output_index", "logprobs", "obfuscation", "encrypted_content"})


def _without(value: Any, names: set[str]) -> Any:
    match value:
        case dict():
            return {name: _without(member, names) for name, member in value.items() if name not in names}
        case list():
            return [_without(member, names) for member in value]
        case _:
            return value


# Row by row


@pytest.mark.parametrize(
    ("choice", "delivered"),
    [
        (UNSET, ["f", "ns.f", "custom f", "custom ns.f"]),
        ("required", ["f", "ns.f", "custom f", "custom ns.f"]),
        ("none", []),
        (SpecificFunction(name="f"), ["f"]),
        (SpecificFunction(name="f", namespace="ns"), ["ns.f"]),
        (SpecificCustom(name="f"), ["custom f"]),
        (SpecificCustom(name="f", namespace="ns"), ["custom ns.f"]),
        (
            AllowedToolsParam(tools=[SpecificFunction(name="f"), SpecificCustom(name="f", namespace="ns")]),
            ["f", "custom ns.f"],
        ),
        (AllowedToolsParam(tools=[SpecificFunction(name="f")], mode="none"), []),
        (
            AllowedToolsParam(
                tools=[UnknownToolChoice(kind="namespace", raw=Raw(b'{"type":"namespace","name":"ns"}'))]
            ),
            ["ns.f", "custom ns.f"],
        ),
        (AllowedToolsParam(tools=[UnknownToolChoice(kind="web_search", raw=Raw(b'{"type":"web_search"}'))]), []),
    ],
)
def test_tool_choice_allows_tools_by_kind_and_namespace(choice: Any, delivered: list[str]) -> None:
    """TOOL-2, TOOL-3."""
    life = Life()
    life.writer.add_text("m", "so:")
    life.function("a", "f")
    life.function("b", "f", namespace="ns")
    life.custom("c", "f")
    life.custom("d", "f", namespace="ns")
    life.writer.complete()
    events, losses = ruled(replace(ASK, tool_choice=choice), life.events)
    assert [
        _call_key(item) for item in items_of(events) if isinstance(item, FunctionCall | CustomToolCall)
    ] == delivered
    assert len(losses) == 4 - len(delivered)


def _call_key(call: FunctionCall | CustomToolCall) -> str:
    kind = "custom " if isinstance(call, CustomToolCall) else ""
    return f"{kind}{call.namespace}.{call.name}" if call.namespace else f"{kind}{call.name}"


def test_response_with_only_forbidden_calls_is_incomplete() -> None:
    """TOOL-3: reasoning and an empty message are no answer."""
    life = Life()
    life.writer.add_reasoning("r", "let me see")
    life.writer.open_message("m")
    life.function("a", "g")
    life.custom("b", "g")
    life.writer.complete()
    delivered, losses = ruled(replace(ASK, tool_choice=SpecificFunction(name="f")), life.events)
    last = delivered[-1]
    assert isinstance(last, ResponseIncomplete)
    assert (last.response.status, last.response.completed_at, last.response.error) == ("incomplete", None, None)
    assert last.response.incomplete_details == IncompleteDetails(reason="tool_not_allowed")
    assert [loss.path for loss in losses] == ["output[2]", "output[3]"]
    assert find_violations(delivered) == []


def test_response_with_other_output_completes_without_the_forbidden_call() -> None:
    """TOOL-3: text, a refusal, an allowed call or a hosted tool's receipt is an answer."""
    begins: list[Callable[[Life], None]] = [
        lambda life: life.writer.add_text("x", "said"),
        lambda life: life.writer.add_refusal("x", "no"),
        lambda life: life.function("x", "f"),
        lambda life: life.hosted("x"),
    ]
    for begin in begins:
        life = Life()
        begin(life)
        life.function("a", "g")
        life.writer.complete()
        delivered, losses = ruled(replace(ASK, tool_choice=SpecificFunction(name="f")), life.events)
        assert isinstance(delivered[-1], ResponseCompleted)
        assert len(losses) == 1


def test_empty_text_does_not_count_as_an_answer() -> None:
    """TOOL-3."""
    life = Life()
    life.writer.add_text("m", "")
    life.writer.end_part("m")
    life.function("a", "g")
    life.writer.complete()
    delivered, _ = ruled(replace(ASK, tool_choice="none"), life.events)
    assert isinstance(delivered[-1], ResponseIncomplete)


def test_incomplete_response_stays_incomplete() -> None:
    """TOOL-3, REQ-3: it would not have completed, so the rest of its answer is unknown."""
    life = Life()
    life.function("a", "g")
    life.writer.end_incomplete("max_output_tokens")
    delivered, _ = ruled(replace(ASK, tool_choice="none"), life.events)
    assert isinstance(delivered[-1], ResponseIncomplete)
    assert delivered[-1].response.output == []
    assert find_violations(delivered) == []


def test_empty_response_without_calls_completes() -> None:
    life = Life()
    life.writer.complete()
    delivered, _ = ruled(replace(ASK, tool_choice="none"), life.events)
    assert isinstance(delivered[-1], ResponseCompleted)


def test_namespace_choice_without_a_name_allows_no_tool() -> None:
    """TOOL-3."""
    life = Life()
    life.function("a", "f")
    life.writer.complete()
    nameless = UnknownToolChoice(kind="namespace", raw=Raw(b'{"type":"namespace"}'))
    delivered, _ = ruled(replace(ASK, tool_choice=AllowedToolsParam(tools=[nameless])), life.events)
    assert isinstance(delivered[-1], ResponseIncomplete)


def test_event_of_a_withheld_call_is_withheld_by_item_id() -> None:
    """TOOL-3: an unknown event may name the item and not the index."""
    life = Life()
    life.writer.add_text("m", "hello")
    life.function("a", "g")
    call = next(e.item for e in life.events if isinstance(e, ItemAdded) and isinstance(e.item, FunctionCall))
    life.writer.emit_unknown_event("acme:peek", {"item_id": call.id, "arguments": "{}"})
    life.writer.emit_unknown_event("acme:tick", {"output_index": "odd"})
    life.writer.complete()
    delivered, _ = ruled(replace(ASK, tool_choice="none"), life.events)
    assert [event.kind for event in delivered if isinstance(event, UnknownEvent)] == ["acme:tick"]
    assert b'"output_index":"odd"' in bytes(next(e.raw for e in delivered if isinstance(e, UnknownEvent)))


def test_logprobs_are_sent_only_on_request() -> None:
    """STR-12: on deltas, done, part, item and response."""
    for request, wanted in [
        (ASK, []),
        (replace(ASK, top_logprobs=0), []),
        (replace(ASK, top_logprobs=1), [LOGPROB]),
        (replace(ASK, include=["message.output_text.logprobs"]), [LOGPROB]),
    ]:
        life = Life()
        life.writer.add_text("m", "x", logprobs=[LOGPROB])
        life.writer.complete()
        delivered, losses = ruled(request, life.events)
        assert losses == []
        assert list(map(_logprobs_in, delivered[4:])) == [wanted] * 5
        assert find_violations(delivered) == []


def _logprobs_in(event: StreamEvent) -> Any:
    match event:
        case OutputTextDelta(logprobs=found) | OutputTextDone(logprobs=found):
            return found
        case (
            ContentPartDone(part=OutputText(logprobs=found))
            | ItemDone(item=Message(content=[OutputText(logprobs=found)]))
            | ResponseCompleted(response=Shape(output=[Message(content=[OutputText(logprobs=found)])]))
        ):
            return found


def test_sealed_reasoning_is_sent_only_on_request() -> None:
    """RSN-1, RSN-2: its text and summary are always sent."""
    asked = {(): UNSET, ("reasoning.encrypted_content",): "sealed", (ENCRYPTED_IF_ANY,): "sealed"}
    for include, wanted in asked.items():
        request = replace(ASK, include=list(include))
        life = Life()
        life.writer.add_reasoning("r", "thought")
        life.writer.set_encrypted_content("r", "sealed")
        life.writer.complete()
        delivered, losses = ruled(request, life.events)
        items = [e.item for e in delivered if isinstance(e, ItemDone)] + items_of(delivered)
        assert [item.encrypted_content for item in items if isinstance(item, Reasoning)] == [wanted, wanted]
        assert b"thought" in encode(delivered[-1])
        assert losses == []


def test_results_of_hosted_tools_that_a_server_sends_unasked_stay() -> None:
    """Only stored items are read without them, unless the client asks for them (TOOL-7)."""
    life = Life()
    life.hosted("h")
    life.writer.complete()
    answer, losses = ruled(ASK, life.events)
    assert losses == []
    starts = [b'"sources":[', b'"results":[', b'"outputs":[']
    assert [start in encode(answer[-1]) for start in starts] == [True] * 3
    for names, expected in [([], 0), *(([name], 1) for name in ALL_HOSTED)]:
        policy = Policy.for_request(replace(ASK, include=names))
        stored = [encode(policy.trim_stored_item(item)) for item in items_of(answer)]
        assert sum(start in item for item in stored for start in starts) == expected


def test_deltas_are_padded_on_request() -> None:
    """STR-13: the padding of the upstream passes, unless the request refuses it."""
    life = Life()
    life.writer.add_text("m", "hello")
    life.writer.add_refusal("m", "no")
    life.writer.add_reasoning("r", "hm")
    life.writer.add_summary("r", "in short")
    life.function("f", "f")
    life.custom("c", "c")
    life.writer.complete()
    padded = [replace(e, obfuscation="theirs") if isinstance(e, DeltaEvent) else e for e in life.events]
    for events in (life.events, padded):
        on, losses = ruled(replace(ASK, stream_options=StreamOptions(include_obfuscation=True)), events)
        assert [e.obfuscation for e in on if isinstance(e, DeltaEvent)] == [
            e.obfuscation or pad(len(e.delta)) for e in events if isinstance(e, DeltaEvent)
        ]
        assert losses == []
        off, _ = ruled(replace(ASK, stream_options=StreamOptions(include_obfuscation=False)), events)
        assert {e.obfuscation for e in off if isinstance(e, DeltaEvent)} == {UNSET}
        assert len(off) == len(events)
        for options in (UNSET, None, StreamOptions()):
            unspecified, _ = ruled(replace(ASK, stream_options=options), events)
            assert unspecified == events


def test_unavailable_padding_is_a_loss() -> None:
    """F-4, STR-13."""
    policy = Policy.for_request(replace(ASK, stream_options=StreamOptions(include_obfuscation=True)))
    assert [loss.path for loss in policy.losses] == ["stream_options.include_obfuscation"]


def test_plain_deltas_pass_as_the_same_object() -> None:
    policy = Policy.for_request(ASK)
    where: dict[str, Any] = {"item_id": "x", "output_index": 0, "sequence_number": 3, "delta": "d"}
    for event in (OutputTextDelta(content_index=0, **where), ArgumentsDelta(**where), CustomInputDelta(**where)):
        assert policy.feed(event)[0] is event


CLIENT_CALLS: list[Item] = [
    ApplyPatchCall(id="apc_1", call_id="c1", operation={}, status="completed"),
    ShellCall(id="sh_1", call_id="c2", action={}, status="completed", environment={"type": "local"}),
    LocalShellCall(id="lsh_1", call_id="c3", action={}, status="completed"),
]


@pytest.mark.parametrize(
    ("request_", "delivered"),
    [
        (ASK, ["apc_1", "sh_1", "lsh_1"]),
        (replace(ASK, tool_choice="none"), []),
        (replace(ASK, parallel_tool_calls=False), ["apc_1"]),
        (
            replace(ASK, tool_choice=AllowedToolsParam(tools=[UnknownToolChoice(kind="shell", raw=Raw(b"{}"))])),
            ["sh_1"],
        ),
    ],
)
def test_calls_of_tools_that_the_client_runs_are_checked(request_: Request, delivered: list[str]) -> None:
    """TOOL-3, TOOL-4, TOOL-8: not those of a server that has these tools, which checks them itself."""
    response = replace(make_initial_response(ASK, id="resp_1", created_at=1), status="completed", output=CLIENT_CALLS)
    checked = Policy.for_request(request_, checks_client_tools=True).apply_to_response(response)
    assert [item.id for item in checked.output if not isinstance(item, UnknownItem)] == delivered
    assert Policy.for_request(request_).apply_to_response(response).output == CLIENT_CALLS
