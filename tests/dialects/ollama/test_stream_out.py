"""`dialects/ollama/stream_out`: hub events as a client's lines: laws over generated responses, then each event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import Raw
from msgspec.structs import replace
from tests.generate.events import lives, responses

from antiphon.dialects.ollama import EventsFromHub, response_from_hub
from antiphon.errors import ApiError
from antiphon.protocol.content import (
    InputImage,
    InputText,
    LogProb,
    OutputText,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    TopLogProb,
    UnknownContent,
    UrlCitation,
)
from antiphon.protocol.errors import Error, ErrorPayload
from antiphon.protocol.events import (
    ErrorEvent,
    ItemDone,
    OutputTextDelta,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    UnknownEvent,
)
from antiphon.protocol.fold import replay_response
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, Reasoning, WebSearchCall
from antiphon.protocol.request import Request
from antiphon.protocol.response import (
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    Usage,
    make_initial_response,
)
from antiphon.protocol.status import ItemStatus, ResponseStatus

REQUEST = Request(model="m")
GENERATE = Request(model="m", extra={"ollama:generate": Raw(b"{}")})
USAGE = Usage(
    input_tokens=30,
    output_tokens=12,
    total_tokens=42,
    input_tokens_details=InputTokensDetails(cached_tokens=8),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=5),
)


def written_lines(events: list[StreamEvent], request: Request = REQUEST) -> tuple[list[dict[str, Any]], list[str]]:
    from_hub = EventsFromHub(request)
    out = b"".join(map(from_hub.feed, events)) + from_hub.finish()
    assert out.endswith(b"\n")
    return [json.loads(line) for line in out.splitlines()], [loss.path for loss in from_hub.losses]


def messages_of_items(*items: Item) -> tuple[list[dict[str, Any]], list[str]]:
    """The messages of the lines for whole items, without the end."""
    events = [ItemDone(sequence_number=at, output_index=at, item=item) for at, item in enumerate(items)]
    lines, losses = written_lines(list(events))
    return [line["message"] for line in lines[:-1]], losses


def response_with(*items: Item, **members: Any) -> Response:
    initial_response = make_initial_response(REQUEST, id="resp_1", created_at=1_700_000_000)
    return Response(
        **{name: getattr(initial_response, name) for name in initial_response.__struct_fields__}
        | {"output": list(items), "status": ResponseStatus.COMPLETED, **members}
    )


def whole(response: Response, request: Request = REQUEST) -> tuple[dict[str, Any], list[str]]:
    body, losses = response_from_hub(response, request)
    return json.loads(body), [loss.path for loss in losses]


def message(*content: Any, **members: Any) -> Message:
    return Message(id="msg_1", role="assistant", status=ItemStatus.COMPLETED, content=list(content), **members)


def call(arguments: str, status: ItemStatus = ItemStatus.COMPLETED, **members: Any) -> FunctionCall:
    return FunctionCall(id="fc_1", call_id="call_1", name="look", arguments=arguments, status=status, **members)


# Laws


@settings(max_examples=60)
@given(lives())
def test_stream_ends_with_one_done_or_error_line(events: list[StreamEvent]) -> None:
    """STR-7: a truncated answer never looks complete."""
    lines, _ = written_lines(events)
    ends = [line for line in lines if line.get("done") or "error" in line]
    assert ends == lines[-1:]
    is_complete = bool(events) and isinstance(events[-1], ResponseCompleted | ResponseIncomplete)
    assert bool(ends[0].get("done")) == is_complete


@settings(max_examples=60)
@given(responses(("complete", "incomplete")))
def test_stream_equals_the_plain_answer(response: Response) -> None:
    """STR-14."""
    lines, lost_in_stream = written_lines(replay_response(response))
    answer, losses = whole(response)
    pieces = [line["message"] for line in lines]
    for name in ("content", "thinking"):
        assert answer["message"].get(name, "") == "".join(piece.get(name, "") for piece in pieces)
    assert answer["message"].get("tool_calls", []) == [call for piece in pieces for call in piece.get("tool_calls", ())]
    assert answer.get("logprobs", []) == [token for line in lines for token in line.get("logprobs", ())]
    ends = ("done", "done_reason", "prompt_eval_count", "eval_count", "model", "created_at")
    assert [answer.get(name) for name in ends] == [lines[-1].get(name) for name in ends]
    assert losses == lost_in_stream


# The form


def test_lines_of_a_chat() -> None:
    response = response_with(message(OutputText(text="Hi", annotations=[], logprobs=[])), usage=USAGE)
    head = {"model": "m", "created_at": "2023-11-14T22:13:20Z"}
    said = {**head, "message": {"role": "assistant", "content": "Hi"}, "done": False}
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 30, "eval_count": 12}
    lines, losses = written_lines(replay_response(response))
    assert lines == [said, {**head, "message": {"role": "assistant", "content": ""}, **end}]
    assert whole(response) == ({**said, **end}, [])
    assert losses == []


def test_lines_of_a_generated_text() -> None:
    thought = Reasoning(id="rs_1", summary=[], content=[ReasoningText(text="Hm.")])
    response = response_with(thought, message(OutputText(text="Hi", annotations=[], logprobs=[])))
    lines, _ = written_lines(replay_response(response), GENERATE)
    assert [(line["response"], line.get("thinking")) for line in lines] == [("", "Hm."), ("Hi", None), ("", None)]
    body, _ = whole(response, GENERATE)
    assert (body["response"], body["thinking"], "message" in body) == ("Hi", "Hm.", False)


@pytest.mark.parametrize(
    ("reason", "sent", "paths"),
    [
        (None, "stop", []),
        ("max_output_tokens", "length", []),
        ("max_output_bytes", "length", []),
        ("content_filter", "length", ["incomplete_details.reason"]),
    ],
)
def test_done_reason(reason: str | None, sent: str, paths: list[str]) -> None:
    """REQ-3."""
    details = IncompleteDetails(reason=reason) if reason else None
    status = ResponseStatus.INCOMPLETE if reason else ResponseStatus.COMPLETED
    body, losses = whole(response_with(status=status, incomplete_details=details))
    assert (body["done_reason"], losses) == (sent, paths)


# Errors


def test_error_is_the_last_line() -> None:
    error = ErrorEvent(
        sequence_number=1, error=ErrorPayload(type="server_error", code="x", message="It broke.", param=None)
    )
    failed = ResponseFailed(
        sequence_number=2, response=response_with(status=ResponseStatus.FAILED, error=Error(code="x", message="Again."))
    )
    assert written_lines([error, failed])[0] == [{"error": "It broke."}]
    assert written_lines([failed])[0] == [{"error": "Again."}]
    assert written_lines([])[0] == [{"error": "the stream ended before the response was complete"}]


def test_failed_response_is_raised() -> None:
    with pytest.raises(ApiError):
        response_from_hub(response_with(status=ResponseStatus.FAILED, error=Error(code="x", message="m")), REQUEST)


# Items


@pytest.mark.parametrize(
    ("arguments", "status", "sent", "paths"),
    [
        ('{"a":1}', ItemStatus.COMPLETED, {"a": 1}, []),
        ("", ItemStatus.COMPLETED, {}, []),
        ("[1]", ItemStatus.COMPLETED, {"arguments": "[1]"}, ["output[0].arguments"]),
        ('{"a":', ItemStatus.INCOMPLETE, None, ["output[0]"]),
        ("", ItemStatus.INCOMPLETE, None, ["output[0]"]),
    ],
)
def test_call_is_sent_whole_with_an_object(arguments: str, status: ItemStatus, sent: Any, paths: list[str]) -> None:
    messages, losses = messages_of_items(call(arguments, status))
    calls = [call for message in messages for call in message["tool_calls"]]
    expected = {"id": "call_1", "function": {"index": 0, "name": "look", "arguments": sent}}
    assert calls == ([] if sent is None else [expected])
    assert losses == paths


def test_calls_are_numbered_and_namespaces_are_flattened() -> None:
    messages, _ = messages_of_items(call("{}"), call("{}", namespace="files"))
    functions = [message["tool_calls"][0]["function"] for message in messages]
    assert [(function["index"], function["name"]) for function in functions] == [(0, "look"), (1, "files__look")]


def test_custom_call_is_a_call_with_one_string() -> None:
    custom = CustomToolCall(id="ctc_1", call_id="c", name="patch", input="+", status=ItemStatus.COMPLETED)
    assert messages_of_items(custom)[0][0]["tool_calls"][0]["function"]["arguments"] == {"input": "+"}
    cut = CustomToolCall(id="ctc_1", call_id="c", name="patch", input="+", status=ItemStatus.INCOMPLETE)
    assert messages_of_items(cut) == ([], ["output[0]"])


def test_parts_of_a_whole_message() -> None:
    cited = OutputText(text="A", annotations=[UrlCitation(url="u", title="t", start_index=0, end_index=1)], logprobs=[])
    image = InputImage(image_url="data:image/png;base64,AA==", detail="auto")
    parts = [
        cited,
        Text(text="B"),
        InputText(text="C"),
        Refusal(refusal="D"),
        OutputText(text="", annotations=[], logprobs=[]),
        image,
        UnknownContent(kind="x", raw=Raw(b'{"type":"x"}')),
    ]
    messages, losses = messages_of_items(message(*parts, phase="commentary"))
    assert [each["content"] for each in messages] == ["A", "B", "C", "D"]
    assert losses == ["output[0].phase", "output[0].annotations", "output[0].content", "output[0].content"]


def test_paragraphs_of_a_summary() -> None:
    item = Reasoning(id="rs_1", summary=[SummaryText(text="One."), SummaryText(text="Two.")], encrypted_content="x")
    messages, losses = messages_of_items(item)
    assert "".join(each["thinking"] for each in messages) == "One.\n\nTwo."
    assert losses == ["encrypted_content"]
    assert messages_of_items(item, replace(item, id="rs_2"))[1] == ["encrypted_content"]  # once
    empty = Reasoning(id="rs_1", summary=[SummaryText(text="")])
    assert messages_of_items(empty) == ([], [])


def test_logprobs_are_beside_the_message() -> None:
    top = TopLogProb(token="Yo", logprob=-1, bytes=[89, 111])
    token = LogProb(token="Hi", logprob=-0.5, bytes=[72, 105], top_logprobs=[top])
    delta = OutputTextDelta(
        sequence_number=1, item_id="msg_1", output_index=0, content_index=0, delta="Hi", logprobs=[token]
    )
    lines, _ = written_lines([delta])
    sent = {"token": "Yo", "logprob": -1, "bytes": [89, 111]}
    assert lines[0]["logprobs"] == [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": [sent]}]


def test_other_items_and_events_are_losses() -> None:
    search = WebSearchCall(id="ws_1", status=ItemStatus.COMPLETED, extra={"x": Raw(b"1")})
    assert messages_of_items(search) == ([], ["output[0].x", "output[0]"])
    unknown = UnknownEvent(sequence_number=1, kind="x:y", raw=Raw(b'{"type":"x:y"}'))
    assert written_lines([unknown])[1] == ["events"]
