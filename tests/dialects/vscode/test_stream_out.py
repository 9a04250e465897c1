"""Hub events → an editor's lines: laws over generated responses, then each kind of event."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import Raw
from tests.dialects.vscode.reading import ASSISTANT, USER, lines_in, message, read
from tests.generate.events import counting_stamps, lives, responses

from antiphon.dialects import vscode
from antiphon.dialects.vscode import EventsFromHub, response_from_hub
from antiphon.errors import ApiError, ClientFault, UpstreamFault
from antiphon.protocol.content import (
    InputFile,
    InputImage,
    InputText,
    LogProb,
    OutputText,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    UnknownContent,
    UrlCitation,
)
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import (
    ErrorEvent,
    ItemDone,
    OutputTextDelta,
    ResponseFailed,
    StreamEvent,
    TextRun,
    UnknownEvent,
)
from antiphon.protocol.fold import fold_events, replay_response
from antiphon.protocol.items import (
    FunctionCall,
    ImageGenerationCall,
    Item,
    Message,
    Reasoning,
    ReasoningParam,
    WebSearchCall,
)
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.response import (
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    Usage,
    make_initial_response,
)
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.writer import ResponseWriter

REQUEST = Request(model="m")
USAGE = Usage(
    input_tokens=30,
    output_tokens=12,
    total_tokens=42,
    input_tokens_details=InputTokensDetails(cached_tokens=8),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=5),
)


def written_lines(events: list[StreamEvent]) -> tuple[list[dict[str, Any]], list[str]]:
    from_hub = EventsFromHub(REQUEST)
    out = b"".join(map(from_hub.feed, events)) + from_hub.finish()
    return lines_in(out), [loss.path for loss in from_hub.losses]


def lines_of_items(*items: Item) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines for whole items, without the end."""
    events = [ItemDone(sequence_number=at, output_index=at, item=item) for at, item in enumerate(items)]
    lines, loss_paths = written_lines(list(events))
    return lines[:-1], loss_paths


def whole(response: Response) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(response_from_hub(response, REQUEST)[0])
    return body


def response_with(*items: Item, **members: Any) -> Response:
    initial_response = make_initial_response(REQUEST, id="resp_1", created_at=1)
    return Response(
        **{name: getattr(initial_response, name) for name in initial_response.__struct_fields__}
        | {"output": list(items), **members}
    )


def reasoning(**members: Any) -> Reasoning:
    return Reasoning(**{"id": "rs_1", "summary": [], **members})


def call(arguments: str, status: ItemStatus = ItemStatus.COMPLETED) -> FunctionCall:
    return FunctionCall(id="fc_1", call_id="call_1", name="look", arguments=arguments, status=status)


def assistant_message(*content: Any) -> Message:
    return Message(id="msg_1", role="assistant", status=ItemStatus.COMPLETED, content=list(content))


# Laws


@settings(max_examples=30)
@given(lives())
def test_stream_ends_with_one_done_or_error_line(events: list[StreamEvent]) -> None:
    """C-4, STR-7: a truncated answer never looks complete."""
    lines, _ = written_lines(events)
    ends = [line["type"] for line in lines if line["type"] in ("done", "error")]
    assert ends == [lines[-1]["type"]]
    assert (ends == ["done"]) == (type(events[-1]).__name__ in ("ResponseCompleted", "ResponseIncomplete"))


@settings(max_examples=30)
@given(responses(("complete", "incomplete")))
def test_stream_equals_the_plain_answer(response: Response) -> None:
    """A-8, STR-14."""
    lines, _ = written_lines(replay_response(response))
    answer = whole(response)
    assert answer["end"] == lines[-1]
    for kind in ("text", "thinking"):
        assert _text_of(answer["parts"], kind) == _text_of(lines, kind)
    calls = [part for part in answer["parts"] if part["type"] == "tool_call"]
    assert calls == [line for line in lines if line["type"] == "tool_call"]
    kinds = [(part["type"], part.get("id")) for part in answer["parts"]]
    assert not any(here == there for here, there in pairwise(kinds) if here[0] in ("text", "thinking"))


def _text_of(parts: list[dict[str, Any]], kind: str) -> str:
    return "".join(part["value"] for part in parts if part["type"] == kind)


@pytest.mark.parametrize("text", ["plain", "zwei\nZeilen", "\u2028 \u2029 \x85", ""])
def test_text_run_is_encoded_like_its_events(text: str) -> None:
    """C-4: and a line is one line, for any content."""
    run = TextRun(3, "msg_1", 0, 0, [text, "b"])
    out = EventsFromHub(REQUEST).text_run(run)
    assert out == b"".join(map(EventsFromHub(REQUEST).feed, run.events()))
    assert lines_in(out) == [{"type": "text", "value": value} for value in (text, "b") if value]


# Parts


def test_text_is_sent_in_pieces_and_calls_whole() -> None:
    """A-8, A-4, C-4."""
    collector = EventCollector()
    writer = ResponseWriter(make_initial_response(REQUEST, id="resp_1", created_at=1), collector, counting_stamps())
    writer.start()
    writer.add_text("t", "Hel")
    writer.add_text("t", "lo")
    writer.open_call("c", call_id="call_1", name="look")
    writer.add_arguments("c", '{"path":\n')
    writer.add_arguments("c", ' "a.py"}')
    writer.complete(usage=USAGE)
    lines, loss_paths = written_lines(collector.events)
    assert loss_paths == []
    assert lines == [
        {"type": "text", "value": "Hel"},
        {"type": "text", "value": "lo"},
        {"type": "tool_call", "callId": "call_1", "name": "look", "input": {"path": "a.py"}},
        {
            "type": "done",
            "responseId": "resp_1",
            "model": "m",
            "status": "completed",
            "usage": {
                "inputTokens": 30,
                "cachedTokens": 8,
                "outputTokens": 12,
                "reasoningTokens": 5,
                "totalTokens": 42,
            },
        },
    ]


def test_thinking_has_id_and_seal_and_survives_the_round_trip() -> None:
    """A-8, RSN-2."""
    item = reasoning(
        summary=[SummaryText(text="One."), SummaryText(text="Two.")],
        content=[ReasoningText(text="Hm."), ReasoningText(text=""), ReasoningText(text="So.")],
        encrypted_content="sealed",
    )
    lines, loss_paths = lines_of_items(item)
    assert loss_paths == []
    assert [line["value"] for line in lines] == ["One.", "\n\nTwo.", "\n\nHm.", "So.", ""]
    assert {line["id"] for line in lines} == {"rs_1"}
    assert lines[-1]["metadata"] == {"signature": "sealed"}
    request, loss_paths = read(message(USER, "x"), message(ASSISTANT, *lines))
    back = input_items(request)[1]
    assert isinstance(back, ReasoningParam)
    assert (back.encrypted_content, loss_paths) == ("sealed", [])
    assert back.content == [ReasoningText(text="One.\n\nTwo.\n\nHm.So.")]


def test_streamed_thinking_is_sent_once() -> None:
    """RSN-2, STR-14."""
    item = reasoning(summary=[SummaryText(text="One.")], content=[ReasoningText(text="Hm.")], encrypted_content="s")
    response = response_with(item, status="completed")
    [part] = whole(response)["parts"]
    assert part == {"type": "thinking", "id": "rs_1", "value": part["value"], "metadata": {"signature": "s"}}
    assert sorted(part["value"].split("\n\n")) == ["Hm.", "One."]


@pytest.mark.parametrize(
    ("arguments", "input"),
    [("", {}), (' {"a":1} ', {"a": 1}), ("[1]", {"arguments": "[1]"}), ("{", {"arguments": "{"})],
)
def test_call_input_is_always_an_object(arguments: str, input: Any) -> None:
    """A-4."""
    [line], loss_paths = lines_of_items(call(arguments))
    assert line["input"] == input
    assert loss_paths == (["output[0].arguments"] if "arguments" in input else [])


@pytest.mark.parametrize("arguments", ["", '{"a":'])
def test_truncated_call_is_not_delivered(arguments: str) -> None:
    """C-4: the editor would run it."""
    assert lines_of_items(call(arguments, ItemStatus.INCOMPLETE)) == ([], ["output[0]"])


def test_images_and_files_in_an_answer_become_data_parts() -> None:
    """A-8."""
    lines, loss_paths = lines_of_items(
        ImageGenerationCall(id="ig_1", result="aGk="),
        assistant_message(
            InputImage(image_url="data:image/gif;base64,aGk=", detail="auto"),
            InputFile(file_data="data:application/pdf;base64,aGk="),
            InputImage(image_url="https://example.com/a.png", detail="auto"),
        ),
        ImageGenerationCall(id="ig_2"),
    )
    assert lines == [
        {"type": "data", "mimeType": mime, "data": "aGk="} for mime in ("image/png", "image/gif", "application/pdf")
    ]
    assert loss_paths == ["output[1].content", "output[2]"]


def test_text_parts_of_every_kind_become_text() -> None:
    """A-8."""
    parts = [OutputText(text="a", annotations=[]), Text(text="b"), InputText(text="c"), Refusal(refusal="d")]
    lines, loss_paths = lines_of_items(assistant_message(*parts))
    assert ([line["value"] for line in lines], loss_paths) == (["a", "b", "c", "d"], [])


def test_unsupported_output_is_a_loss() -> None:
    """F-4."""
    cited = OutputText(text="a", annotations=[UrlCitation(start_index=0, end_index=1, url="u", title="t")])
    odd = UnknownContent(kind="hologram", raw=Raw(b'{"type":"hologram"}'))
    phased = Message(id="m", role="assistant", status=ItemStatus.COMPLETED, content=[cited, odd], phase="commentary")
    thought = reasoning(summary=[odd], extra={"mood": Raw(b"1")})
    lines, loss_paths = lines_of_items(phased, thought, WebSearchCall(id="ws_1"))
    assert [line["value"] for line in lines] == ["a"]
    assert loss_paths == [
        *("output[0].phase", "output[0].annotations", "output[0].content"),
        *("output[1].mood", "output[1].content", "output[2]"),
    ]


def test_log_probabilities_and_unknown_events_are_losses() -> None:
    """F-4."""
    logprob = LogProb(token="a", logprob=0, bytes=[97], top_logprobs=[])
    delta = OutputTextDelta(
        sequence_number=1, item_id="m", output_index=0, content_index=0, delta="a", logprobs=[logprob]
    )
    unknown = UnknownEvent(kind="acme:x", raw=Raw(b"{}"), sequence_number=2)
    lines, loss_paths = written_lines([delta, unknown, ItemDone(sequence_number=3, output_index=0, item=None)])
    assert lines[0] == {"type": "text", "value": "a"}
    assert loss_paths == ["output[0].logprobs", "events"]


def test_citations_in_a_stream_are_losses() -> None:
    cited = OutputText(text="a", annotations=[UrlCitation(start_index=0, end_index=1, url="u", title="t")])
    _, loss_paths = written_lines(replay_response(response_with(assistant_message(cited), status="completed")))
    assert loss_paths == ["output[0].annotations"]


def test_incomplete_answer_has_its_reason() -> None:
    """REQ-3."""
    response = response_with(status="incomplete", incomplete_details=IncompleteDetails(reason="max_output_tokens"))
    end = whole(response)["end"]
    assert (end["status"], end["reason"]) == ("incomplete", "max_output_tokens")
    assert "usage" not in end


# Errors


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (ClientFault("no such model", type="not_found", code="model_not_found"), 404, "NotFound"),
        (ClientFault("no key", code="invalid_api_key", status=401), 401, "NoPermissions"),
        (ApiError("too many", type="too_many_requests", code="rate_limit_exceeded"), 429, "Blocked"),
        (ClientFault("wrong", param="messages"), 400, None),
        (UpstreamFault("down"), 502, None),
    ],
)
def test_errors_have_the_name_of_the_editor_if_it_has_one(error: ApiError, status: int, name: str | None) -> None:
    """ERR-1, ERR-2."""
    error_status, body = vscode.error_from_hub(error)
    error_object = json.loads(body)["error"]
    assert (error_status, error_object.get("name")) == (status, name)
    assert (error_object["code"], error_object["message"], error_object["param"]) == (
        error.code,
        error.message,
        error.param,
    )


def test_failure_in_a_stream_is_sent_once() -> None:
    """STR-8."""
    payload = ErrorPayload(type="too_many_requests", code="rate_limit_exceeded", message="slow down", param=None)
    failed = response_with(status="failed")
    lines, _ = written_lines(
        [ErrorEvent(sequence_number=1, error=payload), ResponseFailed(sequence_number=2, response=failed)]
    )
    error = {
        "name": "Blocked",
        "type": "too_many_requests",
        "code": "rate_limit_exceeded",
        "message": "slow down",
        "param": None,
    }
    assert lines == [{"type": "error", "error": error}]


def test_failed_response_without_an_error_event_is_an_error_line() -> None:
    """STR-8."""
    [line], _ = written_lines([ResponseFailed(sequence_number=2, response=response_with(status="failed"))])
    assert line["error"]["message"] == "the response is failed without a reason"
    with pytest.raises(ApiError):
        response_from_hub(response_with(status="failed"), REQUEST)


def test_truncated_stream_ends_with_an_error_line() -> None:
    """STR-7."""
    [line], _ = written_lines([])
    assert line["error"]["code"] == "upstream_disconnected"
    assert fold_events(replay_response(response_with(status="completed"))).status == "completed"
