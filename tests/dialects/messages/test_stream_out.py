"""Hub events → a Messages client's stream: laws over generated responses, then each kind of event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from tests.dialects.messages.client_stream import REQUEST, USAGE, MessagesWriter, frames_of, stream_to_client
from tests.generate.events import Life as Written
from tests.generate.events import counting_stamps, lives, written

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.common.token_estimate import FEW_SAMPLES, estimate_request
from antiphon.dialects.messages.stream_in import EventsToHub
from antiphon.dialects.messages.stream_out import EventsFromHub, response_from_hub
from antiphon.dialects.messages.wire import STOP_REASON_FIELD, STOP_SEQUENCE_FIELD, block_to_item
from antiphon.errors import UpstreamFault
from antiphon.protocol.content import (
    Content,
    InputText,
    LogProb,
    OutputText,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    UnknownAnnotation,
    UnknownContent,
    UrlCitation,
)
from antiphon.protocol.events import (
    AnnotationAdded,
    ErrorEvent,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    ResponseFailed,
    ResponseInProgress,
    StreamEvent,
    TextRun,
)
from antiphon.protocol.fold import fold_events
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, Reasoning, WebSearchCall
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage, make_initial_response
from antiphon.protocol.status import ItemStatus

SIGNATURE = seal_reasoning("messages", {"thinking": "hm", "signature": "s"})
DONE = ItemStatus.COMPLETED
# Laws


@given(lives())
def test_messages_stream_has_the_order_of_the_api_and_one_end(events: list[StreamEvent]) -> None:
    """Blocks follow each other with rising indexes although hub items overlap; a second start is a known bug."""
    stream = stream_to_client(events)
    message = stream.message
    assert len(stream.of_type("message_start")) == bool(events)
    ended = [event for event in stream.events if event["type"] in ("message_stop", "error")]
    assert ended == stream.events[-1:]
    if "error" not in message:
        assert [event["type"] for event in stream.events[:2]] == ["message_start", "ping"]
        assert (message["id"], message["model"], message["role"]) == ("msg_1", "m", "assistant")


@given(lives(("complete", "incomplete", "fail")))
def test_stream_contains_all_content_in_order(events: list[StreamEvent]) -> None:
    """RSN-1, law (d): hub → messages, item by item: thoughts with seals, texts, and every call with its arguments."""
    expected = [block for item in fold_events(events).output for block in blocks_of(item)]
    assert squeezed(stream_to_client(events).message["content"]) == squeezed(expected)


@given(written(("complete", "incomplete")))
def test_stream_equals_the_whole_answer(life: Written) -> None:
    """STR-14. Summaries come first in a plain answer, at any time in the stream."""
    body, losses = response_from_hub(life.response, REQUEST)
    stream = stream_to_client(life.events)
    whole, streamed = json.loads(body), stream.message
    assert squeezed(whole.pop("content")) == squeezed(streamed.pop("content"))
    assert whole == streamed
    assert {loss.path for loss in losses} <= set(stream.lost)


@given(lives(("complete", "incomplete")))
def test_events_survive_hub_to_messages_to_hub(events: list[StreamEvent]) -> None:
    """Law (d): except for the `losses`. Sealed reasoning returns in a new seal: it is the signature here."""
    stream = stream_to_client(events)
    to_hub = EventsToHub(REQUEST, make_initial_response(REQUEST, id="resp_2", created_at=1), counting_stamps())
    again = [event for frame in stream.frames for event in to_hub.feed(frame)] + to_hub.finish()
    assert contents_in(fold_events(again).output) == contents_in(fold_events(events).output)
    assert to_hub.error is None
    if stream.message["stop_reason"] != "refusal":
        assert fold_events(again).status == fold_events(events).status


@given(lives(("complete", "incomplete", "fail")))
def test_unsupported_content_is_a_loss(events: list[StreamEvent]) -> None:
    """F-4, ITEM-5."""
    lost = stream_to_client(events).lost
    for event in events:
        match event:
            case ItemAdded(item=item, output_index=at) if not isinstance(
                item, Message | Reasoning | FunctionCall | CustomToolCall
            ):
                assert f"output[{at}]" in lost
            case ItemDone(item=Message() as item, output_index=at) if item.phase:
                assert f"output[{at}].phase" in lost
            case OutputTextDelta(output_index=at) if event.logprobs:
                assert f"output[{at}].logprobs" in lost


def blocks_of(item: Item) -> list[dict[str, Any]]:
    """The blocks for an item of the generated responses."""
    match item:
        case Reasoning():
            text = "".join(map(words_of, [*item.summary, *(item.content or ())]))
            sealed = item.encrypted_content or ""
            if text:
                return [{"type": "thinking", "thinking": text, "signature": sealed}]
            return [{"type": "redacted_thinking", "data": sealed}] if sealed else []
        case Message(role="assistant"):
            return [block for part in item.content if (block := text_block_of(part))]
        case FunctionCall() | CustomToolCall():
            name = f"{item.namespace}__{item.name}" if item.namespace else item.name
            return [{"type": "tool_use", "id": item.call_id, "name": name, "input": input_of(item)}]
        case _:
            return []


def words_of(part: Content) -> str:
    match part:
        case OutputText(text=text) | SummaryText(text=text) | ReasoningText(text=text) | Refusal(refusal=text):
            return text
        case _:
            return ""


def text_block_of(part: Any) -> dict[str, Any] | None:
    text = words_of(part)
    cited = [annotation for annotation in getattr(part, "annotations", ()) if isinstance(annotation, UrlCitation)]
    if not text and not cited:
        return None
    citation = {"type": "web_search_result_location", "title": "Example", "url": "https://example.org/"}
    citations = [{**citation, "cited_text": "", "encrypted_index": ""} for _ in cited]
    return {"type": "text", "text": text} | ({"citations": citations} if cited else {})


def input_of(call: FunctionCall | CustomToolCall) -> Any:
    if isinstance(call, CustomToolCall):
        text = json.dumps({"input": call.input}, ensure_ascii=False, separators=(",", ":"))
        return {"input": call.input} if call.status == DONE else {"arguments": text.removesuffix('"}')}
    try:
        value = json.loads(call.arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": call.arguments}


def squeezed(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Thoughts without their order and the gaps between them: a stream sends them in arrival order."""
    return [
        {**block, "thinking": sorted(block["thinking"].replace("\n", ""))} if block["type"] == "thinking" else block
        for block in content
    ]


def contents_in(output: list[Item]) -> list[tuple[str, ...]]:
    collected: list[tuple[str, ...]] = []
    for item in output:
        match item:
            case Reasoning():
                text = "".join(map(words_of, [*item.summary, *(item.content or ())]))
                if text or item.encrypted_content:
                    collected.append(("thought", *sorted(text.replace("\n", ""))))
            case Message(role="assistant"):
                texts = map(words_of, item.content)
                collected += [("said", text) for text in texts if text]
            case FunctionCall():
                collected.append(("called", item.namespace or "", item.name, item.arguments or "{}"))
            case CustomToolCall():
                collected.append(("called", item.namespace or "", item.name, item.input))
            case _:
                pass
    return collected


# Each kind of event


def test_text_is_sent_in_pieces_in_one_block() -> None:
    life = MessagesWriter()
    life.add_text(1, "Hello")
    life.add_text(1, " “you”\n")
    life.complete(USAGE)
    assert life.client_stream().events == [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {
                    "input_tokens": estimate_request(REQUEST, FEW_SAMPLES),
                    "cache_creation_input_tokens": None,
                    "cache_read_input_tokens": 0,
                    "output_tokens": 0,
                },
            },
        },
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " “you”\n"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {
                "input_tokens": 3,
                "cache_creation_input_tokens": None,
                "cache_read_input_tokens": 7,
                "output_tokens": 4,
                "output_tokens_details": {"thinking_tokens": 2},
            },
        },
        {"type": "message_stop"},
    ]


def test_stream_starts_with_an_estimate_of_the_input_that_its_end_corrects() -> None:
    request = Request(model="m", input="Tell me the weather in Paris, in one sentence.")
    writer = EventsFromHub(request)
    life = MessagesWriter()
    life.add_text(1, "Rain.")
    life.complete(USAGE)
    frames = [json.loads(frame.data) for frame in frames_of(b"".join(map(writer.feed, life.collector.events)))]
    start, end = frames[0]["message"]["usage"], frames[-2]["usage"]
    assert start["input_tokens"] == estimate_request(request, FEW_SAMPLES) > 10
    assert (end["input_tokens"], end["cache_read_input_tokens"]) == (3, 7)


@pytest.mark.parametrize(
    ("tier", "word"), [("default", "standard"), ("priority", "priority"), ("auto", None), (None, None)]
)
def test_service_tier_reaches_the_client(tier: str | None, word: str | None) -> None:
    """`auto` means that the server has not named the tier."""
    life = MessagesWriter()
    life.update_response(service_tier=tier)
    life.add_text(1, "Hi")
    life.complete(USAGE)
    events = life.client_stream().events
    assert (events[0]["message"]["usage"].get("service_tier"), events[-2]["usage"].get("service_tier")) == (word, word)


def test_cached_tokens_are_counted_once() -> None:
    """REQ-4: a known bug of peers is to count them in `input_tokens` as well."""
    life = MessagesWriter()
    details = InputTokensDetails(
        cached_tokens=60, cache_write_tokens=30, extra={"cache_creation": Raw(b'{"ephemeral_5m_input_tokens":30}')}
    )
    life.complete(
        Usage(
            input_tokens=100,
            output_tokens=5,
            total_tokens=105,
            input_tokens_details=details,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        )
    )
    assert life.client_stream().message["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 30},
        "cache_read_input_tokens": 60,
        "output_tokens": 5,
    }


def test_interleaved_calls_are_sent_one_after_the_other() -> None:
    """STR-9: the known bug of peers is that blocks overlap, or that two calls share an index."""
    life = MessagesWriter()
    life.open_call("a", name="look", call_id="c_a")
    life.open_call("b", name="look", call_id="c_b", namespace="files")
    life.add_arguments("b", '{"x"')
    life.add_arguments("a", '{"y":')
    life.add_arguments("b", ":1}")
    life.add_arguments("a", "2}")
    life.add_text("m", "and more")
    life.complete()
    message = life.client_stream().message
    assert message["content"] == [
        {"type": "tool_use", "id": "c_a", "name": "look", "input": {"y": 2}},
        {"type": "tool_use", "id": "c_b", "name": "files__look", "input": {"x": 1}},
        {"type": "text", "text": "and more"},
    ]
    assert message["stop_reason"] == "tool_use"


def test_text_and_call_in_one_turn_are_two_blocks_with_stop_reason_tool_use() -> None:
    """E-3: a call lost when text and call share a turn is a known bug of peers."""
    life = MessagesWriter()
    life.add_text("m", "I look.")
    life.open_call("a", name="look", call_id="c_a")
    life.add_arguments("a", "{}")
    life.complete()
    message = life.client_stream().message
    assert [block["type"] for block in message["content"]] == ["text", "tool_use"]
    assert message["stop_reason"] == "tool_use"


def test_arguments_without_deltas_are_sent_at_the_end() -> None:
    """Arguments only in `.done` are a known bug of peers, and so is a call without any."""
    life = MessagesWriter()
    life.add_whole_item("f", FunctionCall(id="f", status=DONE, call_id="c", name="look", arguments='{"a":1}'))
    life.add_whole_item("g", FunctionCall(id="g", status=DONE, call_id="d", name="look", arguments=""))
    life.add_whole_item("h", CustomToolCall(id="h", status=DONE, call_id="e", name="patch", input='a"b'))
    life.complete()
    stream = life.client_stream()
    assert [block["input"] for block in stream.message["content"]] == [{"a": 1}, {}, {"input": 'a"b'}]
    assert stream.lost == []


def test_arguments_that_are_no_object_are_passed_on_and_reported() -> None:
    life = MessagesWriter()
    life.open_call("a", name="look", call_id="c_a")
    life.add_arguments("a", '{"x": 1}}')
    life.open_call("b", name="look", call_id="c_b")
    life.add_arguments("b", "[1]")
    life.complete()
    assert life.client_stream().lost == ["output[0].arguments", "output[1].arguments"]


def test_custom_call_is_sent_as_a_call_of_one_string() -> None:
    life = MessagesWriter()
    life.open_custom_call("a", name="patch", call_id="c_a")
    life.add_custom_input("a", '*** "Begin')
    life.add_custom_input("a", "\n")
    life.complete()
    stream = life.client_stream()
    assert stream.message["content"] == [
        {"type": "tool_use", "id": "c_a", "name": "patch", "input": {"input": '*** "Begin\n'}}
    ]


def test_truncated_custom_call_is_truncated_json() -> None:
    life = MessagesWriter()
    life.open_custom_call("a", name="patch", call_id="c_a")
    life.add_custom_input("a", "half")
    life.end_incomplete("max_output_tokens")
    stream = life.client_stream()
    pieces = [event["delta"]["partial_json"] for event in stream.of_type("content_block_delta")]
    assert "".join(pieces) == '{"input":"half'
    assert stream.message["stop_reason"] == "max_tokens"


def test_thinking_has_its_signature_before_its_end() -> None:
    """RSN-1, RSN-2: the seal of any maker is the signature, unchanged; thinking flattened to text is a known bug."""
    life = MessagesWriter()
    life.add_reasoning("r", "let me")
    life.add_reasoning("r", " see")
    life.set_encrypted_content("r", SIGNATURE)
    life.close_item("r")
    life.add_text("m", "answer")
    life.complete()
    stream = life.client_stream()
    assert stream.message["content"] == [
        {"type": "thinking", "thinking": "let me see", "signature": SIGNATURE},
        {"type": "text", "text": "answer"},
    ]
    kinds = [(event["type"], event.get("delta", {}).get("type")) for event in stream.events]
    at = kinds.index(("content_block_delta", "signature_delta"))
    assert kinds[at + 1] == ("content_block_stop", None)
    assert stream.lost == []


def test_text_before_thinking_is_closed_first() -> None:
    """Overlapping blocks when text precedes thinking are a known bug of peers."""
    life = MessagesWriter()
    life.add_text("m", "first")
    life.add_reasoning("r", "then")
    life.add_text("m", " more")
    life.add_reasoning("r", " thought")
    life.close_item("r")
    life.complete()
    assert life.client_stream().message["content"] == [
        {"type": "text", "text": "first more"},
        {"type": "thinking", "thinking": "then thought", "signature": ""},
    ]


def test_reasoning_without_text_is_a_redacted_block() -> None:
    """RSN-2: content that is only sealed (a signature on a call, a redacted thought) survives as well."""
    life = MessagesWriter()
    life.set_encrypted_content("r", SIGNATURE)
    life.close_item("r")
    life.open_call("a", name="look", call_id="c_a")
    life.complete()
    assert life.client_stream().message["content"][0] == {"type": "redacted_thinking", "data": SIGNATURE}


def test_summaries_are_paragraphs_of_one_thinking_block() -> None:
    life = MessagesWriter()
    life.add_summary("r", "one", part_key=0)
    life.add_summary("r", " more", part_key=0)
    life.add_summary("r", "two", part_key=1)
    life.close_item("r")
    life.complete()
    assert life.client_stream().message["content"] == [
        {"type": "thinking", "thinking": "one more\n\ntwo", "signature": ""}
    ]


def test_refusal_is_text_with_stop_reason_refusal() -> None:
    """STR-11."""
    life = MessagesWriter()
    life.add_refusal(1, "I will not.")
    life.complete()
    message = life.client_stream().message
    assert message["content"] == [{"type": "text", "text": "I will not."}]
    assert message["stop_reason"] == "refusal"


def test_citations_follow_their_text() -> None:
    """STR-11. The members of the server's own search are restored with the page."""
    page = {"cited_text": Raw(b'"abc"'), "encrypted_index": Raw(b'"Eo8"')}
    life = MessagesWriter()
    life.add_text(1, "see")
    life.add_annotation(1, UrlCitation(start_index=0, end_index=3, url="u", title="", extra=page))
    place = b'{"type":"messages:char_location","cited_text":"x","document_index":0}'
    life.add_annotation(1, UnknownAnnotation(kind="messages:char_location", raw=Raw(place)))
    life.add_annotation(1, UnknownAnnotation(kind="file_citation", raw=Raw(b'{"type":"file_citation"}')))
    life.add_annotation(1, UrlCitation(start_index=1, end_index=2, url="u", title="t"))
    life.complete()
    stream = life.client_stream()
    assert stream.message["content"][0]["citations"] == [
        {
            "type": "web_search_result_location",
            "url": "u",
            "title": None,
            "cited_text": "abc",
            "encrypted_index": "Eo8",
        },
        {"type": "char_location", "cited_text": "x", "document_index": 0},
        {"type": "web_search_result_location", "url": "u", "title": "t", "cited_text": "", "encrypted_index": ""},
    ]
    assert [str(loss) for loss in stream.from_hub.losses] == [
        "output[0].annotations: an annotation of type 'file_citation' (the API has no equivalent)",
        "output[0].annotations: the range of a citation (it applies to the whole block)",
    ]


def test_native_blocks_are_restored_unchanged() -> None:
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    life = MessagesWriter()
    life.add_text("m", "I search.")
    life.add_whole_item("s", block_to_item("server_tool_use", Raw(json.dumps(block).encode()), id="x_1"))
    life.complete()
    stream = life.client_stream()
    assert stream.message["content"] == [{"type": "text", "text": "I search."}, block]
    assert stream.message["stop_reason"] == "end_turn"
    assert stream.lost == []


@pytest.mark.parametrize(
    ("reason", "wanted", "lost"),
    [
        ("max_output_tokens", "max_tokens", []),
        ("max_output_bytes", "max_tokens", []),
        ("max_output_items", "max_tokens", []),
        ("content_filter", "refusal", []),
        ("max_tool_calls", "max_tokens", ["incomplete_details.reason"]),
    ],
)
def test_stop_reason_names_the_cause_of_an_early_end(reason: str, wanted: str, lost: list[str]) -> None:
    """REQ-3: `length` reported as a normal end is a known bug of peers."""
    life = MessagesWriter()
    life.end_incomplete(reason)
    stream = life.client_stream()
    assert stream.message["stop_reason"] == wanted
    assert stream.lost == lost


def test_native_stop_reason_and_sequence_are_restored() -> None:
    """REQ-3, F-4: the stop sequence, and reasons that the hub does not have; other response fields are losses."""
    life = MessagesWriter()
    life.update_response(extra={STOP_SEQUENCE_FIELD: Raw(b'"END"'), "acme": Raw(b"1")})
    life.complete()
    stream = life.client_stream()
    assert (stream.message["stop_reason"], stream.message["stop_sequence"]) == ("stop_sequence", "END")
    assert stream.lost == ["response.acme"]
    life = MessagesWriter()
    life.update_response(extra={STOP_REASON_FIELD: Raw(b'"pause_turn"')})
    life.end_incomplete("pause_turn")
    assert life.client_stream().message["stop_reason"] == "pause_turn"


def test_failure_is_an_error_event_and_the_end() -> None:
    """STR-8."""
    life = MessagesWriter()
    life.add_text(1, "half")
    life.fail(UpstreamFault("busy", code="rate_limit_exceeded", type="too_many_requests", status=429))
    stream = life.client_stream()
    assert stream.message["error"] == {"type": "rate_limit_error", "message": "busy", "code": "rate_limit_exceeded"}
    assert stream.of_type("message_stop") == []


def test_failure_without_an_error_event_is_sent() -> None:
    life = MessagesWriter()
    life.fail(UpstreamFault("gone", code="upstream_timeout"))
    events = [event for event in life.collector.events if not isinstance(event, ErrorEvent)]
    assert isinstance(events[-1], ResponseFailed)
    assert stream_to_client(events).message["error"] == {
        "type": "timeout_error",
        "message": "gone",
        "code": "upstream_timeout",
    }


def test_truncated_stream_ends_with_one_error() -> None:
    life = MessagesWriter()
    life.add_text(1, "half")
    from_hub = EventsFromHub(REQUEST)
    for event in life.collector.events:
        from_hub.feed(event)
    assert b'"code":"upstream_disconnected"' in from_hub.finish()
    assert from_hub.finish() == b""


def test_items_without_deltas_are_sent_whole() -> None:
    chart = UnknownContent(kind="acme:chart", raw=Raw(b'{"type":"acme:chart"}'))
    logprob = LogProb(token="a", logprob=-0.5, bytes=[97], top_logprobs=[])
    cited = UrlCitation(start_index=0, end_index=1, url="u", title="t")
    text = OutputText(text="c", annotations=[cited], logprobs=[logprob], extra={"acme": Raw(b"1")})
    life = MessagesWriter()
    life.add_whole_item(
        "m",
        Message(
            id="m",
            status=DONE,
            role="assistant",
            content=[Text(text="a"), InputText(text="b"), text, Refusal(refusal="no"), Text(text="")],
        ),
    )
    life.add_whole_item("u", Message(id="u", status=DONE, role="user", content=[]))
    life.add_whole_item("e", Message(id="e", status=DONE, role="assistant", content=[chart], phase="commentary"))
    life.add_whole_item("w", WebSearchCall(id="w", status="completed"))
    life.add_whole_item(
        "r", Reasoning(id="r", summary=[SummaryText(text="s")], content=[ReasoningText(text="t"), chart])
    )
    life.add_whole_item("n", Reasoning(id="n", summary=[]))
    life.emit_extension_event("acme:progress", {"percent": 50})
    life.complete()
    stream = life.client_stream()
    content = stream.message["content"]
    assert [block.get("text") or block.get("thinking") for block in content] == ["a", "b", "c", "no", "s\n\nt"]
    assert content[2]["citations"][0]["title"] == "t"
    assert stream.lost == [
        "output[0].content.acme",
        "output[0].logprobs",
        "output[1]",
        "output[2].phase",
        "output[2].content",
        "output[3]",
        "output[4].content",
        "events",
    ]


def test_empty_events_give_no_block() -> None:
    """Servers refuse empty blocks when clients send them back."""
    life = MessagesWriter()
    life.add_text("m", "")
    life.add_reasoning("r", "")
    life.add_whole_item("s", Reasoning(id="s", summary=[SummaryText(text="")], content=None))
    life.add_whole_item(
        "t", Message(id="t", status=DONE, role="assistant", content=[OutputText(text="", annotations=[])])
    )
    life.add_whole_item("c", CustomToolCall(id="c", status=ItemStatus.INCOMPLETE, call_id="c", name="patch", input=""))
    life.end_incomplete("max_output_tokens")
    events: list[StreamEvent] = []
    for event in life.collector.events:
        events.append(event)
        match event:
            case OutputTextDelta():
                empty_annotation = AnnotationAdded(
                    sequence_number=0, item_id="x", output_index=0, content_index=0, annotation_index=0, annotation=None
                )
                events.append(empty_annotation)
            case ResponseInProgress():
                events += [ItemAdded(sequence_number=0, output_index=9, item=None)]
                events += [ItemDone(sequence_number=0, output_index=9, item=None)]
    assert stream_to_client(events).message["content"] == [
        {"type": "tool_use", "id": "c", "name": "patch", "input": {"arguments": '{"input":"'}}
    ]


@given(st.lists(st.text(max_size=5), min_size=1, max_size=4), st.booleans())
def test_text_run_is_encoded_like_its_deltas(texts: list[str], has_started: bool) -> None:
    life = MessagesWriter()
    life.add_text(1, "x")
    life.add_text(1, "y")
    events = life.collector.events
    first = next(event for event in events if isinstance(event, OutputTextDelta))
    run = TextRun(first.sequence_number, first.item_id, first.output_index, first.content_index, texts)
    by_run, by_event = EventsFromHub(REQUEST), EventsFromHub(REQUEST)
    for event in events if has_started else events[: events.index(first)]:
        assert by_run.feed(event) == by_event.feed(event)
    assert by_run.text_run(run) == b"".join(map(by_event.feed, run.events()))


@given(st.text(max_size=5))
def test_delta_is_valid_json_for_any_text(text: str) -> None:
    life = MessagesWriter()
    life.add_text(1, "x")
    life.add_text(1, text)
    life.complete()
    assert life.client_stream().message["content"] == [{"type": "text", "text": "x" + text}]


def test_model_has_the_name_of_the_request() -> None:
    life = MessagesWriter()
    life.complete()
    assert life.client_stream(Request(model="claude-x")).message["model"] == "claude-x"
    assert life.client_stream(Request()).message["model"] == "m"


def test_block_is_opened_by_the_first_delta_that_is_not_empty() -> None:
    life = MessagesWriter()
    life.add_text(1, "x")
    life.complete()
    events = life.collector.events
    at, first = next((at, event) for at, event in enumerate(events) if isinstance(event, OutputTextDelta))
    stream = stream_to_client([*events[:at], replace(first, delta=""), *events[at:]])
    assert stream.message["content"] == [{"type": "text", "text": "x"}]
