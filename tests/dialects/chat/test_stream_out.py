"""Hub events → chat chunks: laws over generated responses, then each kind of event."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.dialects.chat.reading import frames_of
from tests.dialects.recording_writer import RecordingWriter
from tests.generate.events import CALLED_TOOLS, counting_stamps, lives

from antiphon import sse
from antiphon.dialects.chat import EventsFromHub, EventsToHub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.errors import UpstreamFault
from antiphon.protocol.content import (
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
from antiphon.protocol.errors import Error
from antiphon.protocol.events import (
    ContentPartAdded,
    ErrorEvent,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    ReasoningDelta,
    RefusalDelta,
    ResponseFailed,
    StreamEvent,
    SummaryPartAdded,
    SummaryTextDelta,
)
from antiphon.protocol.fold import fold_events
from antiphon.protocol.items import CustomToolCall, FunctionCall, Message, Reasoning, WebSearchCall
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage, make_initial_response
from antiphon.protocol.status import ItemStatus

# Offers the tools that the generated responses call.
REQUEST = Request(
    model="m",
    tools=CALLED_TOOLS,
)
USAGE = Usage(
    input_tokens=3,
    output_tokens=4,
    total_tokens=7,
    input_tokens_details=InputTokensDetails(cached_tokens=1),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=2),
)


class ClientStream(NamedTuple):
    frames: list[sse.Frame]
    from_hub: EventsFromHub

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(frame.data) for frame in self.frames if frame.data != sse.DONE]

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [chunk["choices"][0]["delta"] for chunk in self.chunks if chunk.get("choices")]

    @property
    def loss_paths(self) -> list[str]:
        return [loss.path for loss in self.from_hub.losses]


def write_stream(events: Sequence[StreamEvent], request: Request = REQUEST) -> ClientStream:
    from_hub = EventsFromHub(request)
    data = b"".join(map(from_hub.feed, events)) + from_hub.finish()
    return ClientStream(frames_of(data), from_hub)


class ChatWriter(RecordingWriter[ClientStream]):
    """A writer whose stream is that of a Chat client."""

    default_request = REQUEST
    encode_stream = staticmethod(write_stream)


# Laws


@given(lives())
def test_chat_stream_has_the_role_first_and_one_end(events: list[StreamEvent]) -> None:
    stream = write_stream(events)
    assert stream.frames[-1].data == sse.DONE
    assert [frame.data for frame in stream.frames].count(sse.DONE) == 1
    chunks = [chunk for chunk in stream.chunks if "error" not in chunk]
    assert {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks} <= {
        ("chatcmpl-resp_1", "chat.completion.chunk", 1_700_000_000, "m")
    }
    assert [delta["role"] for delta in stream.deltas if "role" in delta] == ["assistant"] * bool(chunks)
    assert not chunks or "role" in stream.deltas[0]
    ends = [chunk for chunk in stream.chunks if "error" in chunk or chunk["choices"][0]["finish_reason"]]
    assert ends == stream.chunks[-1:]


@given(lives())
def test_hub_to_chat_to_hub_keeps_the_content(events: list[StreamEvent]) -> None:
    """E-6, E-3, law (d): texts joined in order, refusals, reasoning, and every call with its own arguments."""
    stream = write_stream(events)
    to_hub = EventsToHub(
        REQUEST,
        make_initial_response(REQUEST, id="resp_2", created_at=1),
        counting_stamps(),
        ChatWire(think_tags="off"),
    )
    again = [event for frame in stream.frames for event in to_hub.feed(frame)] + to_hub.finish()
    assert fold_events(again).status == (fold_events(events).status if fold_ended(events) else "failed")
    assert text_of(again) == text_of(events)
    assert refusal_of(again) == refusal_of(events)
    assert squeezed(reasoning_of(again)) == squeezed(reasoning_of(events))
    # A call without arguments may not have its whole name: a failed stream does not deliver it (TOOL-3).
    has_failed = fold_events(again).status == "failed"
    # A call that waits behind another is sent after it, which then never ends.
    calls, reread_calls = calls_of(events, has_failed), calls_of(again, has_failed)
    assert reread_calls == ([call for call in calls if call in reread_calls] if has_failed else calls)


@given(lives())
def test_unsupported_output_is_a_loss(events: list[StreamEvent]) -> None:
    """F-4, ITEM-5."""
    loss_paths = write_stream(events).loss_paths
    for event in events:
        match event:
            case ItemAdded(item=item, output_index=at) if not isinstance(
                item, Message | Reasoning | FunctionCall | CustomToolCall
            ):
                assert f"output[{at}]" in loss_paths
            case ItemDone(item=Message() as item, output_index=at) if item.phase:
                assert f"output[{at}].phase" in loss_paths


def fold_ended(events: list[StreamEvent]) -> bool:
    return bool(events) and fold_events(events).status in ("completed", "incomplete", "failed")


def streamed(events: list[StreamEvent]) -> set[int]:
    return {event.output_index for event in events if isinstance(event, ContentPartAdded | SummaryPartAdded)}


def whole(events: list[StreamEvent]) -> list[Message | Reasoning]:
    """Content that was not streamed in deltas."""
    done = [event for event in events if isinstance(event, ItemDone) and event.output_index not in streamed(events)]
    return [event.item for event in done if isinstance(event.item, Message | Reasoning)]


def text_of(events: list[StreamEvent]) -> str:
    text = ""
    for event in events:
        match event:
            case OutputTextDelta():
                text += event.delta
            case ItemDone(item=Message(role="assistant") as item) if item in whole(events):
                text += "".join(part.text for part in item.content if isinstance(part, OutputText))
    return text


def refusal_of(events: list[StreamEvent]) -> str:
    return "".join(event.delta for event in events if isinstance(event, RefusalDelta))


def reasoning_of(events: list[StreamEvent]) -> str:
    text = ""
    for event in events:
        match event:
            case ReasoningDelta() | SummaryTextDelta():
                text += event.delta
            case ItemDone(item=Reasoning() as item) if item in whole(events):
                text += "".join(getattr(part, "text", "") for part in [*item.summary, *(item.content or ())])
    return text


def squeezed(text: str) -> str:
    """Without the gaps between the parts of a summary."""
    return text.replace("\n", "")


def calls_of(events: list[StreamEvent], has_failed: bool) -> list[tuple[str, str | None, str, str]]:
    calls = []
    announced = [event.output_index for event in events if isinstance(event, ItemAdded)]
    output = dict(zip(announced, fold_events(events).output, strict=True)) if announced else {}
    for item in output.values():
        match item:
            case FunctionCall():
                call = ("function", item.namespace or None, item.name, item.arguments or ("" if has_failed else "{}"))
            case CustomToolCall():
                call = ("custom", item.namespace or None, item.name, item.input)
            case _:
                continue
        if call[3] or not has_failed:
            calls.append(call)
    return calls


# Each kind of event


def test_text_is_sent_in_pieces_between_role_and_finish_reason() -> None:
    life = ChatWriter()
    life.add_text(1, "Hello")
    life.add_text(1, " “you”\n")
    life.complete()
    stream = life.client_stream()
    assert stream.deltas == [{"role": "assistant", "content": ""}, {"content": "Hello"}, {"content": " “you”\n"}, {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in stream.chunks] == [None, None, None, "stop"]
    assert stream.chunks[1] == {
        "id": "chatcmpl-resp_1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "Hello"}, "logprobs": None, "finish_reason": None}],
    }


def test_interleaved_calls_are_numbered_and_sent_one_by_one() -> None:
    """STR-9, API-6: the official SDK reads the arguments of a call as soon as another starts."""
    life = ChatWriter()
    life.open_call("a", name="look", call_id="c_a")
    life.open_call("b", name="look", call_id="c_b", namespace="files")
    life.add_arguments("b", '{"x"')
    life.add_arguments("a", "{}")
    life.add_arguments("b", ":1}")
    life.complete()
    stream = life.client_stream()
    assert [delta["tool_calls"] for delta in stream.deltas if "tool_calls" in delta] == [
        [{"index": 0, "id": "c_a", "type": "function", "function": {"name": "look", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": "{}"}}],
        [{"index": 1, "id": "c_b", "type": "function", "function": {"name": "files__look", "arguments": ""}}],
        [{"index": 1, "function": {"arguments": '{"x"'}}],
        [{"index": 1, "function": {"arguments": ":1}"}}],
    ]
    assert stream.chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def custom_life() -> ChatWriter:
    life = ChatWriter()
    life.open_custom_call("a", name="patch", call_id="c_a")
    life.add_custom_input("a", '*** "Begin')
    life.add_custom_input("a", "\n")
    life.complete()
    return life


def test_custom_call_is_sent_as_custom_if_offered() -> None:
    assert [delta["tool_calls"] for delta in custom_life().client_stream().deltas if "tool_calls" in delta] == [
        [{"index": 0, "id": "c_a", "type": "custom", "custom": {"name": "patch", "input": ""}}],
        [{"index": 0, "custom": {"input": '*** "Begin'}}],
        [{"index": 0, "custom": {"input": "\n"}}],
    ]


def test_custom_call_is_sent_as_a_function_otherwise() -> None:
    stream = custom_life().client_stream(Request(model="m"))
    pieces = [delta["tool_calls"][0] for delta in stream.deltas if "tool_calls" in delta]
    assert (pieces[0]["type"], pieces[0]["function"]["name"]) == ("function", "patch")
    assert json.loads("".join(piece["function"]["arguments"] for piece in pieces)) == {"input": '*** "Begin\n'}


def test_truncated_custom_call_is_truncated_json() -> None:
    life = ChatWriter()
    life.open_custom_call("a", name="patch", call_id="c_a")
    life.add_custom_input("a", "half")
    life.end_incomplete("max_output_tokens")
    stream = life.client_stream(Request(model="m"))
    pieces = [delta["tool_calls"][0] for delta in stream.deltas if "tool_calls" in delta]
    assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"input":"half'
    assert stream.chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_reasoning_is_sent_beside_the_text_and_summaries_as_paragraphs() -> None:
    """E-3, RSN-1."""
    life = ChatWriter()
    life.add_summary("r", "one", part_key=0)
    life.add_summary("r", " more", part_key=0)
    life.add_summary("r", "two", part_key=1)
    life.close_item("r")
    life.add_reasoning("s", "three")
    life.add_reasoning("s", "four")
    life.set_encrypted_content("s", "sealed")
    life.add_text("m", "answer")
    life.complete()
    stream = life.client_stream()
    pieces = [delta["reasoning_content"] for delta in stream.deltas if "reasoning_content" in delta]
    assert pieces == ["one", " more", "\n\ntwo", "\n\nthree", "four"]
    assert [delta["reasoning_details"] for delta in stream.deltas if "reasoning_details" in delta] == [
        [{"type": "reasoning.encrypted", "data": "sealed", "index": 0}]
    ]
    assert stream.loss_paths == []


def test_refusals_and_citations_are_sent() -> None:
    """STR-11."""
    life = ChatWriter()
    life.add_text(1, "see")
    life.add_annotation(1, UrlCitation(start_index=0, end_index=3, url="u", title="t"))
    life.add_annotation(1, UnknownAnnotation(kind="file_citation", raw=Raw(b'{"type":"file_citation","file_id":"f"}')))
    life.add_refusal(1, "no")
    life.complete()
    deltas = life.client_stream().deltas
    assert deltas[2] == {"refusal": "no"}
    assert deltas[3] == {
        "annotations": [
            {"type": "url_citation", "url_citation": {"start_index": 0, "end_index": 3, "url": "u", "title": "t"}},
            {"type": "file_citation", "file_id": "f"},
        ]
    }
    assert deltas[4] == {}  # the chunk with the finish reason


def test_log_probabilities_are_sent_with_their_delta() -> None:
    """STR-12."""
    life = ChatWriter()
    life.add_text(1, "a", logprobs=[LogProb(token="a", logprob=-0.5, bytes=[97], top_logprobs=[])])
    life.complete()
    assert life.client_stream().chunks[1]["choices"][0]["logprobs"] == {
        "content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}],
        "refusal": None,
    }


@pytest.mark.parametrize(
    ("reason", "wanted", "loss_paths"),
    [
        ("max_output_tokens", "length", []),
        ("max_output_bytes", "length", []),
        ("max_output_items", "length", []),
        ("content_filter", "content_filter", []),
        ("max_tool_calls", "length", ["incomplete_details.reason"]),
    ],
)
def test_finish_reason_names_the_cause_of_an_early_end(reason: str, wanted: str, loss_paths: list[str]) -> None:
    """REQ-3."""
    life = ChatWriter()
    life.end_incomplete(reason)
    stream = life.client_stream()
    assert stream.chunks[-1]["choices"][0]["finish_reason"] == wanted
    assert stream.loss_paths == loss_paths


@pytest.mark.parametrize(
    ("options", "is_requested"),
    [(b'{"include_usage":true}', True), (b'{"include_usage":false}', False), (b"null", False), (b"{}", False)],
)
def test_usage_is_the_last_chunk_if_requested(options: bytes, is_requested: bool) -> None:
    """REQ-4."""
    request = Request(model="m", extra={"chat:stream_options": Raw(options)})
    life = ChatWriter()
    life.update_response(service_tier="flex")
    life.complete(USAGE)
    last = life.client_stream(request).chunks[-1]
    assert (last["choices"] == []) == is_requested
    if is_requested:
        assert last["usage"] == {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 2},
        }
    else:
        assert last["service_tier"] == "flex"


def test_missing_usage_is_not_invented() -> None:
    life = ChatWriter()
    life.complete()
    assert (
        life.client_stream(Request(model="m", extra={"chat:stream_options": Raw(b'{"include_usage":true}')})).chunks[
            -1
        ]["choices"]
        != []
    )


def test_failure_is_an_error_object_before_the_end() -> None:
    """STR-8."""
    life = ChatWriter()
    life.add_text(1, "half")
    life.fail(UpstreamFault("busy", code="rate_limit_exceeded", type="too_many_requests", status=429))
    stream = life.client_stream()
    assert stream.chunks[-1] == {
        "error": {"message": "busy", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}
    }
    assert sum("error" in chunk for chunk in stream.chunks) == 1
    assert stream.frames[-1].data == sse.DONE


def test_failure_without_an_error_event_is_sent() -> None:
    life = ChatWriter()
    life.fail(UpstreamFault("gone", code="upstream_disconnected"))
    events = [event for event in life.collector.events if not isinstance(event, ErrorEvent)]
    assert write_stream(events).chunks[-1]["error"]["code"] == "upstream_disconnected"
    failed = events[-1]
    assert isinstance(failed, ResponseFailed)
    assert failed.response.error == Error(code="upstream_disconnected", message="gone")


def test_truncated_stream_ends_once_with_an_error() -> None:
    life = ChatWriter()
    life.add_text(1, "half")
    from_hub = EventsFromHub(REQUEST)
    for event in life.collector.events:
        from_hub.feed(event)
    end = from_hub.finish()
    assert b'"code":"upstream_disconnected"' in end
    assert end.endswith(sse.DONE_FRAME)
    assert from_hub.finish() == b""


def test_items_without_deltas_are_sent_at_their_end() -> None:
    done = ItemStatus.COMPLETED
    chart = UnknownContent(kind="acme:chart", raw=Raw(b'{"type":"acme:chart"}'))
    life = ChatWriter()
    life.add_whole_item(
        "m",
        Message(
            id="m", status=done, role="assistant", content=[Text(text="a"), InputText(text="b"), Refusal(refusal="no")]
        ),
    )
    life.add_whole_item("u", Message(id="u", status=done, role="user", content=[]))
    life.add_whole_item("e", Message(id="e", status=done, role="assistant", content=[chart]))
    life.add_whole_item("f", FunctionCall(id="f", status=done, call_id="c", name="look", arguments="{}"))
    life.add_whole_item("w", WebSearchCall(id="w", status="completed"))
    life.add_whole_item(
        "r", Reasoning(id="r", summary=[SummaryText(text="s")], content=[ReasoningText(text="t"), chart])
    )
    life.add_whole_item("n", Reasoning(id="n", summary=[]))
    life.complete()
    stream = life.client_stream()
    assert stream.deltas[1:-1] == [
        {"content": "ab", "refusal": "no"},
        {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "look", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {"reasoning_content": "s\n\nt"},
    ]
    assert stream.loss_paths == ["output[1]", "output[2].content", "output[4]", "output[5].content"]


def test_extension_events_phases_and_unknown_fields_are_losses() -> None:
    """F-4, ITEM-5, ITEM-7."""
    cited = UrlCitation(start_index=0, end_index=1, url="u", title="t")
    text = OutputText(text="a", annotations=[cited], extra={"acme": Raw(b"1")})
    life = ChatWriter()
    life.emit_extension_event("acme:progress", {"percent": 50})
    life.add_whole_item(
        "m", Message(id="m", status=ItemStatus.COMPLETED, role="assistant", content=[text], phase="commentary")
    )
    life.update_response(extra={"acme": Raw(b'"x"')})
    life.complete()
    stream = life.client_stream()
    assert stream.deltas[1] == {"content": "a"}
    assert len(stream.deltas[2]["annotations"]) == 1
    assert stream.loss_paths == ["events", "output[0].phase", "output[0].content.acme", "response.acme"]


@given(st.text(max_size=5))
def test_delta_is_valid_json_for_any_text(text: str) -> None:
    life = ChatWriter()
    life.add_text(1, "x" + text)
    life.complete()
    assert life.client_stream().deltas[1] == {"content": "x" + text}
