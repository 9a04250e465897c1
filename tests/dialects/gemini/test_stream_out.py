"""Hub events → a gemini client's stream: laws over generated responses, then each kind of event."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from msgspec import Raw
from tests.dialects.gemini.client_stream import HEAD, REQUEST, USAGE, GeminiWriter, signed, stream_to_client
from tests.dialects.gemini.reading import frames_of
from tests.generate.events import counting_stamps, lives

from antiphon.dialects.common.call_arguments import arguments_as_object
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.dialects.common.freeform_tools import wrap_input
from antiphon.dialects.gemini import EventsFromHub, EventsToHub
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
    TopLogProb,
    UnknownAnnotation,
    UnknownContent,
    UrlCitation,
)
from antiphon.protocol.errors import Error
from antiphon.protocol.events import (
    ContentPartAdded,
    ErrorEvent,
    ItemDone,
    OutputTextDelta,
    ReasoningDelta,
    RefusalDelta,
    ResponseFailed,
    StreamEvent,
    SummaryPartAdded,
    SummaryTextDelta,
    TextRun,
)
from antiphon.protocol.fold import fold_events
from antiphon.protocol.items import CustomToolCall, FunctionCall, Message, Reasoning, UnknownItem, WebSearchCall
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.tools import FunctionToolParam

# Laws


@settings(max_examples=30)
@given(lives())
def test_gemini_frames_have_a_part_and_only_the_last_has_an_end(events: list[StreamEvent]) -> None:
    """Clients reject an answer without parts and drop the whole turn."""
    stream = stream_to_client(events)
    ends = ["error" in answer or "finishReason" in answer["candidates"][0] for answer in stream.answers]
    assert ends == [False] * (len(ends) - 1) + [True]
    for answer in stream.answers:
        if "error" not in answer:
            assert answer["candidates"][0]["content"]["parts"]
            assert (answer["modelVersion"], answer["responseId"]) == ("m", "resp_1")


@settings(max_examples=30)
@given(lives())
def test_events_survive_hub_to_gemini_to_hub(events: list[StreamEvent]) -> None:
    """Law (d), RSN-2: texts in order, thoughts, every seal, and every call with its own arguments."""
    stream = stream_to_client(events)
    to_hub = EventsToHub(REQUEST, make_initial_response(REQUEST, id="resp_2", created_at=1), counting_stamps())
    again = [event for frame in frames_of(stream.data) for event in to_hub.feed(frame)] + to_hub.finish()
    assert squeezed(words_of(again)) == squeezed(words_of(events))
    assert squeezed(thoughts_of(again)) == squeezed(thoughts_of(events))
    assert calls_of(again) == calls_of(events)
    before, after = fold_events(events).status if has_ended(events) else "failed", fold_events(again).status
    refused = any(isinstance(event, RefusalDelta) for event in events)
    assert after == ("incomplete" if before == "completed" and refused else before)
    if after == "completed":  # a truncated answer has no usable seal
        assert seals_of(again) == [sealed for event in events if (sealed := sealed_by(event))]


@settings(max_examples=30)
@given(lives())
def test_json_array_has_the_same_answers_as_the_stream(events: list[StreamEvent]) -> None:
    from_hub = EventsFromHub(REQUEST, as_json_array=True)
    data = b"".join(map(from_hub.feed, events)) + from_hub.finish()
    assert json.loads(data) == stream_to_client(events).answers


@settings(max_examples=30)
@given(lives())
def test_gemini_frame_is_one_line_for_splitlines(events: list[StreamEvent]) -> None:
    """Common clients of this API split a stream as `str.splitlines` does, also at U+0085, U+2028 and U+2029."""
    stream = stream_to_client(events)
    assert [line.removeprefix("data: ") for line in stream.data.decode().splitlines() if line] == [
        frame.data.decode() for frame in frames_of(stream.data)
    ]


def has_ended(events: Sequence[StreamEvent]) -> bool:
    return bool(events) and fold_events(events).status in ("completed", "incomplete", "failed")


def whole(events: Sequence[StreamEvent]) -> list[int]:
    """The output indexes of items without deltas."""
    streamed = {event.output_index for event in events if isinstance(event, ContentPartAdded | SummaryPartAdded)}
    return [
        event.output_index for event in events if isinstance(event, ItemDone) and event.output_index not in streamed
    ]


def words_of(events: Sequence[StreamEvent]) -> str:
    words = ""
    for event in events:
        match event:
            case OutputTextDelta() | RefusalDelta():
                words += event.delta
            case ItemDone(item=Message(role="assistant") as item, output_index=at) if at in whole(events):
                words += "".join(part.text for part in item.content if isinstance(part, OutputText))
    return words


def thoughts_of(events: Sequence[StreamEvent]) -> str:
    thoughts = ""
    for event in events:
        match event:
            case ReasoningDelta() | SummaryTextDelta():
                thoughts += event.delta
            case ItemDone(item=Reasoning() as item, output_index=at) if at in whole(events):
                thoughts += "".join(getattr(part, "text", "") for part in [*item.summary, *(item.content or ())])
    return thoughts


def squeezed(text: str) -> str:
    """Without the gaps between the parts of a summary, and between the messages of an answer."""
    return text.replace("\n", "")


def sealed_by(event: StreamEvent) -> str:
    return (
        event.item.encrypted_content or "" if isinstance(event, ItemDone) and isinstance(event.item, Reasoning) else ""
    )


def seals_of(events: Sequence[StreamEvent]) -> list[str]:
    """The client's signatures, taken from the envelopes of the reader."""
    envelopes = [unseal_reasoning(sealed) for event in events if (sealed := sealed_by(event))]
    signatures = [envelope.content.get("signature") for envelope in envelopes if envelope]
    return [base64.b64decode(signature).decode() for signature in signatures if signature]


def calls_of(events: Sequence[StreamEvent]) -> list[tuple[str, str | None, str, str, Any]]:
    """The calls that can be sent, in the order of their ends. A call that is sent again is one call."""
    collected: list[tuple[str, str | None, str, str, Any]] = []
    ids: set[str] = set()  # the generated responses repeat two ids; a reader replaces a repeated id
    sent: set[tuple[str, str, str]] = set()

    def id_of(call: FunctionCall | CustomToolCall) -> str:
        is_first = call.call_id in ("c_1", "c_2") and call.call_id not in ids
        ids.add(call.call_id)
        return call.call_id if is_first else ""

    for event in events:
        match event:
            case ItemDone(item=FunctionCall() as item):
                was_cut = item.status == ItemStatus.INCOMPLETE
                arguments = object_of(item.arguments or ("" if was_cut else "{}"))
                if arguments is None and was_cut:
                    continue
                arguments = {"arguments": item.arguments} if arguments is None else arguments
                call = (item.call_id, item.name, json.dumps(arguments, sort_keys=True))
                if call in sent:
                    continue
                sent.add(call)
                collected.append(("function", item.namespace or None, item.name, id_of(item), arguments))
            case ItemDone(item=CustomToolCall() as item) if item.status != ItemStatus.INCOMPLETE:
                if (item.call_id, item.name, item.input) not in sent:
                    sent.add((item.call_id, item.name, item.input))
                    collected.append(("custom", item.namespace or None, item.name, id_of(item), item.input))
    return collected


def object_of(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


# Each kind of event


def test_text_is_sent_in_pieces_and_the_end_has_reason_and_usage() -> None:
    """REQ-4: cached tokens inside the prompt's, thoughts apart from the candidate's."""
    life = GeminiWriter()
    life.add_text(1, "Hello")
    life.add_text(1, "")
    life.add_text(1, " “you”\n")
    life.complete(USAGE)
    assert life.client_stream().answers == [
        {"candidates": [{"content": {"parts": [{"text": "Hello"}], "role": "model"}, "index": 0}], **HEAD},
        {"candidates": [{"content": {"parts": [{"text": " “you”\n"}], "role": "model"}, "index": 0}], **HEAD},
        {
            "candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {
                "promptTokenCount": 30,
                "candidatesTokenCount": 7,
                "totalTokenCount": 42,
                "cachedContentTokenCount": 8,
                "thoughtsTokenCount": 5,
            },
            **HEAD,
        },
    ]


def test_calls_are_sent_whole_with_ids_and_arguments() -> None:
    """STR-9: two calls of one name stay separate, also with interleaved pieces; a call and a text in one answer both
    arrive."""
    life = GeminiWriter()
    life.add_text("t", "Let me see.")
    life.open_call("a", name="look", call_id="c_a")
    life.open_call("b", name="look", call_id="c_b")
    life.add_arguments("b", '{"x"')
    life.add_arguments("a", '{"y":\n2}')
    life.add_arguments("b", ":1}")
    life.complete()
    stream = life.client_stream()
    assert stream.parts == [
        {"text": "Let me see."},
        {"functionCall": {"id": "c_a", "name": "look", "args": {"y": 2}}},
        {"functionCall": {"id": "c_b", "name": "look", "args": {"x": 1}}},
        {"text": ""},
    ]
    assert stream.end == "STOP"


def test_call_without_arguments_has_an_empty_object() -> None:
    life = GeminiWriter()
    life.open_call("a", name="look", call_id="c_a")
    life.complete()
    assert life.client_stream().parts[0] == {"functionCall": {"id": "c_a", "name": "look", "args": {}}}


def test_tool_keeps_its_client_name_and_namespaces_are_flattened() -> None:
    """Names with dots and colons are valid in this API, though not on every upstream."""
    request = Request(model="m", tools=[FunctionToolParam(name="files.read:v2")])
    life = GeminiWriter(request)
    life.open_call("a", name="files.read:v2", call_id="c_a")
    life.open_call("b", name="look", call_id="c_b", namespace="files")
    life.complete()
    names = [part["functionCall"]["name"] for part in life.client_stream(request).parts if "functionCall" in part]
    assert names == ["files.read:v2", "files__look"]


def test_custom_call_is_sent_as_a_function_of_one_string() -> None:
    life = GeminiWriter()
    life.open_custom_call("a", name="patch", call_id="c_a")
    life.add_custom_input("a", '*** "Begin\n')
    life.complete()
    assert life.client_stream().parts[0] == {
        "functionCall": {"id": "c_a", "name": "patch", "args": json.loads(wrap_input('*** "Begin\n'))}
    }


def test_arguments_that_are_no_object_are_wrapped_and_reported() -> None:
    """A call is never lost because of its form."""
    life = GeminiWriter()
    life.open_call("a", name="look", call_id="c_a")
    life.add_arguments("a", "[1]")
    life.complete()
    stream = life.client_stream()
    assert stream.parts[0]["functionCall"]["args"] == {"arguments": "[1]"}
    assert stream.lost == ["output[0].arguments"]


@pytest.mark.parametrize("arguments", ["", '{"x": 1'])
def test_truncated_call_is_not_delivered(arguments: str) -> None:
    """REQ-3: an answer cut by length is never sent as completed."""
    life = GeminiWriter()
    life.open_call("a", name="look", call_id="c_a")
    if arguments:
        life.add_arguments("a", arguments)
    life.end_incomplete("max_output_tokens")
    stream = life.client_stream()
    assert stream.parts == [{"text": ""}]
    assert stream.end == "MAX_TOKENS"
    assert stream.lost == ["output[0]"]


def test_truncated_custom_call_is_not_delivered() -> None:
    life = GeminiWriter()
    life.open_custom_call("a", name="patch", call_id="c_a")
    life.add_custom_input("a", "half")
    life.end_incomplete("max_output_tokens")
    assert life.client_stream().parts == [{"text": ""}]


def thinking(*, sealed: str = "") -> GeminiWriter:
    life = GeminiWriter()
    life.add_summary("r", "First", part_key=0)
    life.add_summary("r", "Second", part_key=1)
    life.add_reasoning("r", "deep")
    if sealed:
        life.set_encrypted_content("r", sealed)
    life.close_item("r")
    return life


def test_thoughts_are_sent_only_on_request() -> None:
    """RSN-1: like the API; each part of a summary is a paragraph."""
    life = thinking()
    life.add_text("t", "Done")
    life.complete()
    assert life.client_stream().parts == [
        {"text": "First", "thought": True},
        {"text": "\n\nSecond", "thought": True},
        {"text": "\n\ndeep", "thought": True},
        {"text": "Done"},
        {"text": ""},
    ]
    assert life.client_stream(Request(model="m")).parts == [{"text": "Done"}, {"text": ""}]
    assert life.client_stream(Request(model="m")).lost == []


def test_sealed_reasoning_is_the_signature_of_the_next_part() -> None:
    """RSN-2."""
    text, call = thinking(sealed="seal"), thinking(sealed="seal")
    text.add_text("t", "Do")
    text.add_text("t", "ne")
    text.complete()
    call.open_call("c", name="look", call_id="c_a")
    call.complete()
    assert text.client_stream(Request(model="m")).parts == [
        {"text": "Do", "thoughtSignature": signed("seal")},
        {"text": "ne"},
        {"text": ""},
    ]
    assert call.client_stream().parts[3] == {
        "functionCall": {"id": "c_a", "name": "look", "args": {}},
        "thoughtSignature": signed("seal"),
    }


def test_trailing_signature_is_on_the_last_part() -> None:
    """RSN-2: servers of this API sign a text at its end."""
    life = GeminiWriter()
    life.add_text("t", "Done")
    life.close_item("t")
    life.set_encrypted_content("r", "seal")
    life.complete()
    assert life.client_stream().parts == [{"text": "Done"}, {"text": "", "thoughtSignature": signed("seal")}]


def test_consecutive_signatures_are_all_sent() -> None:
    """RSN-2: redacted blocks in a row are each kept."""
    life = GeminiWriter()
    for number in (1, 2):
        life.set_encrypted_content(number, f"seal {number}")
        life.close_item(number)
    life.add_reasoning(3, "hm")
    life.close_item(3)
    life.open_call("c", name="look", call_id="c_a")
    life.complete()
    assert life.client_stream().parts == [
        {"text": "", "thought": True, "thoughtSignature": signed("seal 1")},
        {"text": "", "thought": True, "thoughtSignature": signed("seal 2")},
        {"text": "hm", "thought": True},
        {"functionCall": {"id": "c_a", "name": "look", "args": {}}},
        {"text": ""},
    ]


def test_refusal_is_text_with_finish_reason_safety() -> None:
    life = GeminiWriter()
    life.add_refusal("t", "I will not")
    life.complete()
    assert life.client_stream().parts[0] == {"text": "I will not"}
    assert life.client_stream().end == "SAFETY"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("max_output_tokens", "MAX_TOKENS"),
        ("max_output_bytes", "MAX_TOKENS"),
        ("max_output_items", "MAX_TOKENS"),
        ("content_filter", "SAFETY"),
        ("boredom", "OTHER"),
    ],
)
def test_incomplete_reason_becomes_a_finish_reason_of_the_api(reason: str, expected: str) -> None:
    """REQ-3."""
    life = GeminiWriter()
    life.add_text("t", "So")
    life.end_incomplete(reason)
    assert life.client_stream().end == expected
    assert life.client_stream().lost == (["incomplete_details.reason"] if expected == "OTHER" else [])


def test_log_probabilities_are_sent_with_the_text() -> None:
    """STR-12."""
    top = TopLogProb(token="Ho", logprob=-2.0, bytes=[])
    life = GeminiWriter()
    life.add_text("t", "Hi", logprobs=[LogProb(token="Hi", logprob=-0.5, bytes=[], top_logprobs=[top])])
    life.add_text("t", "", logprobs=[LogProb(token="", logprob=-1, bytes=[], top_logprobs=[])])
    life.complete()
    logprobs = [answer["candidates"][0].get("logprobsResult") for answer in life.client_stream().answers]
    assert logprobs[:2] == [
        {
            "chosenCandidates": [{"token": "Hi", "logProbability": -0.5}],
            "topCandidates": [{"candidates": [{"token": "Ho", "logProbability": -2.0}]}],
        },
        {"chosenCandidates": [{"token": "", "logProbability": -1}], "topCandidates": [{"candidates": []}]},
    ]


def test_citations_are_sent_at_the_end_with_byte_offsets() -> None:
    """STR-11."""
    life = GeminiWriter()
    life.add_refusal("r", "né")
    life.close_item("r")
    life.add_text("t", "é is a letter")
    life.add_annotation("t", UrlCitation(start_index=0, end_index=4, url="https://a.example", title="A"))
    life.add_annotation("t", UnknownAnnotation(kind="file_citation", raw=Raw(b'{"type":"file_citation"}')))
    life.complete()
    stream = life.client_stream()
    assert stream.answers[-1]["candidates"][0]["citationMetadata"] == {
        "citationSources": [{"startIndex": 3, "endIndex": 8, "uri": "https://a.example", "title": "A"}]
    }
    assert stream.lost == ["annotations"]


def test_native_parts_are_sent_unchanged() -> None:
    """ITEM-5: with the pending signature, if there is one."""
    raw = Raw(b'{"type":"gemini:executableCode","id":"x_1","status":"completed","executableCode":{"code":"1+1"}}')
    life = GeminiWriter()
    life.add_whole_item("a", UnknownItem(kind="gemini:executableCode", raw=raw))
    life.set_encrypted_content("r", "seal")
    life.close_item("r")
    life.add_whole_item("b", UnknownItem(kind="gemini:executableCode", raw=raw))
    life.complete()
    stream = life.client_stream()
    assert stream.parts[:2] == [
        {"executableCode": {"code": "1+1"}},
        {"executableCode": {"code": "1+1"}, "thoughtSignature": signed("seal")},
    ]
    assert stream.lost == []


def test_unsupported_content_is_a_loss() -> None:
    """F-4, ITEM-5, ITEM-7."""
    life = GeminiWriter()
    life.add_whole_item("w", WebSearchCall(id="ws_1", status="completed"))
    life.emit_extension_event("acme:progress", {"percent": 50})
    life.open_message("m", phase="commentary")
    life.add_text("m", "hm")
    life.set_extra_fields("m", {"acme": Raw(b"1")})
    life.close_item("m")
    life.add_whole_item(
        "u", Message(id="m_u", status=ItemStatus.COMPLETED, role="user", content=[InputText(text="hi")])
    )
    life.update_response(extra={"acme": Raw(b"1")})
    life.complete()
    assert life.client_stream().lost == [
        "output[0]",
        "events",
        "output[1].acme",
        "output[1].phase",
        "output[2]",
        "response.acme",
    ]


def test_message_without_deltas_is_sent_when_it_is_done() -> None:
    unknown = UnknownContent(kind="acme:chart", raw=Raw(b'{"type":"acme:chart"}'))
    citation = UrlCitation(start_index=0, end_index=1, url="https://a.example", title="A")
    life = GeminiWriter()
    life.add_whole_item(
        "m",
        Message(
            id="m_1",
            status=ItemStatus.COMPLETED,
            role="assistant",
            content=[
                OutputText(text="a", annotations=[citation], extra={"acme": Raw(b"1")}),
                Text(text="b"),
                Refusal(refusal="c"),
                unknown,
            ],
        ),
    )
    life.add_whole_item("n", Message(id="m_2", status=ItemStatus.COMPLETED, role="assistant", content=[unknown]))
    life.complete()
    stream = life.client_stream()
    assert stream.parts == [{"text": "abc"}, {"text": ""}]
    assert stream.end == "SAFETY"
    assert stream.answers[-1]["candidates"][0]["citationMetadata"]["citationSources"][0]["endIndex"] == 1
    assert stream.lost == ["output[0].content.acme", "output[0].content", "output[1].content"]


def test_reasoning_without_deltas_is_sent_when_it_is_done() -> None:
    """RSN-1."""
    content: list[Content] = [ReasoningText(text="deep"), UnknownContent(kind="acme:x", raw=Raw(b'{"type":"acme:x"}'))]
    life = GeminiWriter()
    life.add_whole_item(
        "r", Reasoning(id="r_1", summary=[SummaryText(text="short")], content=content, encrypted_content="seal")
    )
    life.complete()
    stream = life.client_stream()
    assert stream.parts == [
        {"text": "short", "thought": True},
        {"text": "\n\ndeep", "thought": True},
        {"text": "", "thoughtSignature": signed("seal")},
    ]
    assert stream.lost == ["output[0].content"]


# Runs


def test_text_run_is_encoded_like_its_events() -> None:
    run = TextRun(3, "msg_1", 0, 0, ["a", "", "é\u2028", '"%"'])
    events = run.events()
    assert EventsFromHub(REQUEST).text_run(run) == b"".join(map(EventsFromHub(REQUEST).feed, events))
    array = EventsFromHub(REQUEST, as_json_array=True)
    assert array.text_run(run) == b"".join(map(EventsFromHub(REQUEST, as_json_array=True).feed, events))


def test_first_delta_of_a_run_carries_the_pending_signature() -> None:
    """RSN-2."""
    life = GeminiWriter()
    life.set_encrypted_content("r", "seal")
    life.close_item("r")
    from_hub = EventsFromHub(REQUEST)
    for event in life.collector.events:
        from_hub.feed(event)
    frames = frames_of(from_hub.text_run(TextRun(9, "msg_1", 1, 0, ["a", "b"])))
    parts = [json.loads(frame.data)["candidates"][0]["content"]["parts"][0] for frame in frames]
    assert parts == [{"text": "a", "thoughtSignature": signed("seal")}, {"text": "b"}]


# Failures


def test_failure_is_one_error_in_the_stream() -> None:
    """STR-8: in this API's shape, which its SDK raises; `response.failed` after it adds nothing."""
    life = GeminiWriter()
    life.add_text("t", "He")
    life.fail(UpstreamFault("too many", type="too_many_requests", code="rate_limit_exceeded"))
    stream = life.client_stream()
    assert [type(event) for event in life.collector.events[-2:]] == [ErrorEvent, ResponseFailed]
    assert stream.answers[-1]["error"]["code"] == 429
    assert stream.answers[-1]["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert sum("error" in answer for answer in stream.answers) == 1


def test_failed_response_without_error_event_sends_an_error() -> None:
    life = GeminiWriter()
    life.add_text("t", "He")
    failed = msgspec.structs.replace(
        fold_events(life.collector.events), status="failed", error=Error(code="overloaded", message="busy")
    )
    stream = stream_to_client([ResponseFailed(sequence_number=9, response=failed)])
    assert stream.answers[0]["error"]["status"] == "UNAVAILABLE"


@pytest.mark.parametrize("array", [False, True])
def test_truncated_stream_ends_once_with_an_error(array: bool) -> None:
    """Law (e)."""
    from_hub = EventsFromHub(REQUEST, as_json_array=array)
    data = from_hub.finish()
    assert from_hub.finish() == b""
    answers = json.loads(data) if array else [json.loads(frame.data) for frame in frames_of(data)]
    assert [answer["error"]["code"] for answer in answers] == [502]


def test_missing_model_name_is_sent_as_empty() -> None:
    life = GeminiWriter(Request())
    life.add_text("t", "x")
    life.complete()
    assert life.client_stream(Request()).answers[0] == {
        "candidates": [{"content": {"parts": [{"text": "x"}], "role": "model"}, "index": 0}],
        "modelVersion": "",
        "responseId": "resp_1",
    }


def test_arguments_of_white_space_that_is_not_json_are_a_loss() -> None:
    """F-4: U+2028 is white space for Python and text for JSON."""
    assert arguments_as_object("\u2028") is None
    assert arguments_as_object(" \t\r\n") == Raw(b"{}")


def test_citation_after_an_unknown_annotation_is_sent() -> None:
    """STR-11."""
    life = GeminiWriter()
    life.add_text("t", "A letter")
    life.add_annotation("t", UnknownAnnotation(kind="file_citation", raw=Raw(b'{"type":"file_citation"}')))
    life.add_annotation("t", UrlCitation(start_index=0, end_index=1, url="https://a.example", title="A"))
    life.complete()
    stream = life.client_stream()
    assert stream.answers[-1]["candidates"][0]["citationMetadata"] == {
        "citationSources": [{"startIndex": 0, "endIndex": 1, "uri": "https://a.example", "title": "A"}]
    }
    assert stream.lost == ["annotations"]


@pytest.mark.parametrize(
    ("tier", "traffic"), [("priority", "ON_DEMAND_PRIORITY"), ("flex", "ON_DEMAND_FLEX"), ("default", "ON_DEMAND")]
)
def test_service_tier_reaches_the_client_and_comes_from_the_server(tier: str, traffic: str | None) -> None:
    life = GeminiWriter()
    life.update_response(service_tier=tier)
    life.add_text(1, "Hi")
    life.complete(USAGE)
    stream = life.client_stream()
    assert stream.answers[-1]["usageMetadata"].get("trafficType") == traffic
    to_hub = EventsToHub(REQUEST, make_initial_response(REQUEST, id="resp_2", created_at=1), counting_stamps())
    again = [event for frame in frames_of(stream.data) for event in to_hub.feed(frame)] + to_hub.finish()
    assert fold_events(again).service_tier == tier
