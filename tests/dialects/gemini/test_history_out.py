"""Conversations as a gemini server accepts them: turns, calls and results, signatures, media."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.dialects.gemini.reading import call, frame, parts, read, read_frames
from tests.dialects.gemini.sending import contents, judged, lost, send

from antiphon.dialects.common.empty_conversation import CONTINUE
from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.common.tool_errors import ERROR_MARK
from antiphon.dialects.gemini import request_to_hub
from antiphon.dialects.gemini.history_out import EARLIER_MESSAGES_OMITTED
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.protocol import codec
from antiphon.protocol.content import (
    InputAudio,
    InputAudioData,
    InputFileParam,
    InputImageParam,
    InputText,
    InputVideo,
    LogProb,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    UnknownContent,
    UrlCitationParam,
)
from antiphon.protocol.items import (
    AdditionalTools,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    ReasoningParam,
    UnknownItem,
    WebSearchCall,
)
from antiphon.protocol.request import Request

PICTURE = "data:image/png;base64,iVBORw0KGgo="
ASKED = MessageParam(role="user", content="Weather?")


def assistant_message(text: str) -> MessageParam:
    return MessageParam(role="assistant", content=[OutputTextParam(text=text)])


def function_call(id: str, city: str = "Rome") -> FunctionCallParam:
    return FunctionCallParam(call_id=id, name="get_weather", arguments=f'{{"city":"{city}"}}')


def function_output(id: str, output: Any = "rain") -> FunctionCallOutputParam:
    return FunctionCallOutputParam(call_id=id, output=output)


def sealed(**content: Any) -> ReasoningParam:
    return ReasoningParam(summary=[], encrypted_content=seal_reasoning("gemini", content))


# Turns.


def test_consecutive_messages_of_one_role_are_one_content() -> None:
    """Issue 7, point 3: alternation."""
    sent_contents = contents(
        ASKED,
        MessageParam(role="user", content="In Rome."),
        assistant_message("Rain."),
        assistant_message("Much."),
        ASKED,
    )
    assert sent_contents == [
        {"role": "user", "parts": [{"text": "Weather?"}, {"text": "In Rome."}]},
        {"role": "model", "parts": [{"text": "Rain."}, {"text": "Much."}]},
        {"role": "user", "parts": [{"text": "Weather?"}]},
    ]


def test_results_of_parallel_calls_are_one_content_in_order() -> None:
    """Issue 7, point 3: also where pairs were interleaved or results were in another order."""
    sent_contents = contents(
        ASKED,
        assistant_message("Let me see."),
        function_call("a"),
        function_call("b", "Oslo"),
        function_output("b", "snow"),
        function_output("a", "rain"),
    )
    assert sent_contents[1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "Let me see."},
                {"functionCall": {"name": "get_weather", "args": {"city": "Rome"}}},
                {"functionCall": {"name": "get_weather", "args": {"city": "Oslo"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "get_weather", "response": {"output": "rain"}}},
                {"functionResponse": {"name": "get_weather", "response": {"output": "snow"}}},
            ],
        },
    ]
    judged({"contents": sent_contents})


def test_call_ids_are_sent_if_supported() -> None:
    sent_contents = contents(ASKED, function_call("a"), function_output("a"), wire=GeminiWire(call_ids=True))
    assert [
        sent_contents[1]["parts"][0]["functionCall"]["id"],
        sent_contents[2]["parts"][0]["functionResponse"]["id"],
    ] == ["a", "a"]


@pytest.mark.parametrize(
    ("given", "response"),
    [("no", {"error": "no"}), ("", {"error": "[tool error]"}), ([InputText(text="no")], {"error": "no"})],
)
def test_failed_tool_is_an_error_response(given: Any, response: Any) -> None:
    """F-4: this API has a member for it."""
    failed = FunctionCallOutputParam(call_id="a", output=given, extra=ERROR_MARK)
    body, losses = send(Request(input=[ASKED, function_call("a"), failed]))
    assert body["contents"][2]["parts"][0]["functionResponse"]["response"] == response
    assert list(losses) == []


def test_call_without_a_result_gets_an_error_result() -> None:
    request = Request(input=[ASKED, function_call("a")])
    sent_contents = send(request)[0]["contents"]
    assert sent_contents[2]["parts"][0]["functionResponse"]["response"] == {"error": "[no result for this call]"}
    assert lost(request) == ["input[1]"]


def test_custom_calls_are_functions_of_one_string() -> None:
    call_, output = (
        CustomToolCallParam(call_id="a", name="patch", input='"x"'),
        CustomToolCallOutputParam(call_id="a", output="ok"),
    )
    assert contents(ASKED, call_, output)[1]["parts"] == [{"functionCall": {"name": "patch", "args": {"input": '"x"'}}}]


@pytest.mark.parametrize(
    ("arguments", "args"), [("", {}), (" {} ", {}), ("[1]", {"arguments": "[1]"}), ("{", {"arguments": "{"})]
)
def test_arguments_are_always_an_object(arguments: str, args: dict[str, Any]) -> None:
    request = Request(
        input=[ASKED, FunctionCallParam(call_id="a", name="f", arguments=arguments), function_output("a")]
    )
    assert send(request)[0]["contents"][1]["parts"][0]["functionCall"]["args"] == args
    assert lost(request) == (["input[1].arguments"] if "arguments" in args else [])


def test_result_object_of_a_gemini_client_is_sent_unchanged() -> None:
    """REQ-7."""
    output = FunctionCallOutputParam(call_id="a", output='{"t":3}', extra={"gemini:resultObject": Raw(b'{"t":3}')})
    request = Request(input=[ASKED, function_call("a"), output])
    assert send(request)[0]["contents"][2]["parts"][0]["functionResponse"]["response"] == {"t": 3}
    assert lost(request) == []


def test_conversation_that_starts_with_a_call_gets_a_user_message() -> None:
    request = Request(input=[function_call("a"), function_output("a")])
    body, losses = send(request)
    assert judged(body)["contents"][0]["parts"] == [{"text": EARLIER_MESSAGES_OMITTED}]
    assert [loss.path for loss in losses] == ["input"]


def test_user_message_is_added_after_a_final_model_message() -> None:
    request = Request(input=[ASKED, assistant_message("Rain, and")])
    body, losses = send(request)
    assert judged(body)["contents"][-1] == {"role": "user", "parts": [{"text": CONTINUE}]}
    assert [loss.path for loss in losses] == ["input"]
    assert send(request, GeminiWire(ends_with_model=True))[0]["contents"][-1]["role"] == "model"


@pytest.mark.parametrize(
    ("wire", "system", "second"),
    [(GeminiWire(system="first"), "A\n\nB", "Weather?"), (GeminiWire(system="as_user"), "A", "[developer] B")],
)
def test_system_text_is_placed_by_the_wire_option(wire: GeminiWire, system: str, second: str) -> None:
    """Issue 7, point 3: at the start, and in the middle by the profile; the change is a loss."""
    empty, late = MessageParam(role="system", content=""), MessageParam(role="developer", content="B")
    request = Request(input=[MessageParam(role="system", content="A"), empty, ASKED, late, ASKED])
    body, losses = send(request, wire)
    assert body["systemInstruction"] == {"parts": [{"text": system}]}
    assert body["contents"][0]["parts"][1] == {"text": second}
    assert [loss.path for loss in losses] == ["input[3]"]


def test_empty_texts_are_omitted() -> None:
    """Issue 7, point 3: the API refuses empty parts and contents."""
    empty = MessageParam(role="user", content=[InputText(text=""), InputText(text="x")])
    assert contents(MessageParam(role="user", content=""), assistant_message(""), empty) == [
        {"role": "user", "parts": [{"text": "x"}]}
    ]


def test_unsupported_items_and_fields_are_losses() -> None:
    """F-4, ITEM-5."""
    message = MessageParam(role="user", content="x", extra={"cache_control": Raw(b'{"type":"ephemeral"}')})
    items: list[ItemParam] = [
        message,
        WebSearchCall(id="ws"),
        AdditionalTools(tools=[], extra={"x": Raw(b"1")}),
        MessageParam(role="assistant", content="y", phase="commentary"),
        MessageParam(role="assistant", content="z", phase="commentary"),
        MessageParam(role="user", content="x"),
    ]
    assert lost(Request(input=items)) == ["input[0].cache_control", "input[3].phase", "input[1]", "input[2].x"]


# Reasoning.


def again(answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of the model's content after an answer went through the hub and came back with the history."""
    response = read_frames([frame(parts(*answer, finishReason="STOP"))]).response
    items = [codec.decode_item_param(codec.encode(item)) for item in response.output]
    outputs = [function_output(item.call_id) for item in items if isinstance(item, FunctionCallParam)]
    tools_request = Request(model="m", input=[ASKED, *items, *outputs, ASKED])
    body, losses = send(tools_request, GeminiWire(call_ids=True))
    assert not list(losses)
    sent_parts: list[dict[str, Any]] = body["contents"][1]["parts"]
    return sent_parts


@pytest.mark.parametrize(
    "answer",
    [
        [{"text": "Yes.", "thoughtSignature": "a"}],
        [{"text": "Yes."}, {"text": "", "thoughtSignature": "a"}],
        [{**call("get_time", id="t"), "thoughtSignature": "a"}],
        [
            {"text": "Look:", "thoughtSignature": "b"},
            {**call("get_time", id="t"), "thoughtSignature": "a"},
            call("get_time", id="u"),
        ],
        [{"text": "Hmm", "thought": True, "thoughtSignature": "a"}, {"text": "Yes."}],
        [{"text": "", "thoughtSignature": "a"}],
        [{"executableCode": {"code": "1", "language": "PYTHON"}, "thoughtSignature": "a"}, {"text": "x"}],
        [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}],
    ],
)
def test_signed_parts_return_to_their_server_unchanged(answer: list[dict[str, Any]]) -> None:
    """RSN-2: signatures keep their place; on a text in pieces, on the whole of it."""
    whole = [{"text": "Yes.", "thoughtSignature": "a"}] if len(answer) > 1 and answer[1].get("text") == "" else answer
    assert again(answer) == whole


def test_unsigned_thought_is_omitted_without_a_loss() -> None:
    """RSN-2: it describes the content of the signature, and is not part of the conversation."""
    thought = {"text": "Hmm", "thought": True}
    signed = {**call("get_time", id="t"), "thoughtSignature": "a"}
    assert again([thought, signed]) == [signed]


@pytest.mark.parametrize(
    "reasoning",
    [
        ReasoningParam(summary=[], encrypted_content=seal_reasoning("another", {"on": "call", "signature": "s"})),
        ReasoningParam(summary=[], encrypted_content="no envelope at all"),
        ReasoningParam(summary=[SummaryText(text="I thought")]),
        ReasoningParam(summary=[], content=[ReasoningText(text="so")]),
    ],
)
def test_reasoning_of_other_servers_is_never_sent(reasoning: ReasoningParam) -> None:
    """RSN-3, and the note of it."""
    request = Request(input=[ASKED, reasoning, function_call("a"), function_output("a")])
    body, losses = send(request)
    assert "thoughtSignature" not in json.dumps(body)
    assert [loss.path for loss in losses] == ["input[1]"]


def test_empty_reasoning_is_no_loss() -> None:
    assert lost(Request(input=[ASKED, ReasoningParam(summary=[]), function_call("a"), function_output("a")])) == []


def test_signature_before_a_text_is_put_on_it() -> None:
    """RSN-2: clients of this dialect put it there."""
    sent_contents = contents(ASKED, sealed(on="text", signature="s"), assistant_message("Rain."), ASKED)
    assert sent_contents[1]["parts"] == [{"text": "Rain.", "thoughtSignature": "s"}]
    after_media = contents(
        ASKED,
        UnknownItem(kind="gemini:fileData", raw=Raw(b'{"type":"gemini:fileData","fileData":{"fileUri":"https://a"}}')),
        sealed(on="text", signature="s"),
        ASKED,
    )
    assert after_media[1]["parts"][1:] == [{"text": "", "thoughtSignature": "s"}]


def test_signature_without_its_call_is_a_loss() -> None:
    """RSN-3, F-4."""
    assert lost(Request(input=[ASKED, sealed(on="call", signature="s"), assistant_message("Rain."), ASKED])) == [
        "input"
    ]


SIGNED = GeminiWire(missing_signature="skip", signed_models=("gemini-3",))


def test_call_without_signature_gets_the_placeholder_of_the_model() -> None:
    """Issue 7, point 4: on the first call of each step since the last user message. Nothing is lost."""
    history: list[ItemParam] = [
        ASKED,
        function_call("x"),
        function_output("x"),
        assistant_message("Rain."),
        ASKED,
        function_call("a"),
        function_call("b"),
        function_output("a"),
        function_output("b"),
        function_call("c"),
        function_output("c"),
    ]
    request = Request(model="models/gemini-3-pro", input=history)
    body, losses = send(request, SIGNED)
    assert list(losses) == []
    signatures = [
        part.get("thoughtSignature")
        for content in body["contents"]
        for part in content["parts"]
        if "functionCall" in part
    ]
    assert signatures == [None, "skip", None, "skip"]
    judged(body, model="gemini-3-pro")
    assert lost(Request(model="gemini-2.5-pro", input=history), SIGNED) == []


def test_call_without_signature_gets_the_placeholder_if_text_follows_its_result() -> None:
    """The text is in one content with the result, so it does not start a turn."""
    request = Request(model="gemini-3-pro", input=[ASKED, function_call("a"), function_output("a"), ASKED, ASKED])
    body, losses = send(request, SIGNED)
    assert body["contents"][1]["parts"][0]["thoughtSignature"] == "skip"
    assert list(body["contents"][2]["parts"][0]) == ["functionResponse"]
    judged(body, model="gemini-3-pro")
    assert list(losses) == []


def test_message_with_only_media_starts_no_turn() -> None:
    """Issue 7, point 4: the server counts from the last text of the user's."""
    picture = MessageParam(role="user", content=[InputImageParam(image_url=PICTURE)])
    request = Request(model="gemini-3-pro", input=[ASKED, function_call("a"), function_output("a"), picture])
    body, losses = send(request, SIGNED)
    judged(body, model="gemini-3-pro")
    assert list(losses) == []


def test_signatures_of_separate_items_stay_separate() -> None:
    """RSN-2: text, signature, text: the signature stays with the text before it."""
    sent_contents = contents(
        ASKED, assistant_message("A"), sealed(on="text", signature="s"), assistant_message("B"), ASKED
    )
    assert sent_contents[1]["parts"] == [{"text": "A", "thoughtSignature": "s"}, {"text": "B"}]


# Content.


def user(*content: Any) -> Request:
    return Request(input=[MessageParam(role="user", content=list(content))])


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (InputImageParam(image_url=PICTURE), {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}),
        (
            InputImageParam(image_url="https://a.b/c.webp?x=1"),
            {"fileData": {"fileUri": "https://a.b/c.webp?x=1", "mimeType": "image/webp"}},
        ),
        (
            InputImageParam(image_url="https://a.b/c", detail="auto"),
            {"fileData": {"fileUri": "https://a.b/c", "mimeType": "image/jpeg"}},
        ),
        (
            InputFileParam(file_url="https://a.b/c.pdf"),
            {"fileData": {"fileUri": "https://a.b/c.pdf", "mimeType": "application/pdf"}},
        ),
        (InputFileParam(file_url="https://a.b/c"), {"fileData": {"fileUri": "https://a.b/c"}}),
        (InputFileParam(file_data="JVBERi0="), {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}}),
        (InputFileParam(file_data="/9j/4AA="), {"inlineData": {"mimeType": "image/jpeg", "data": "/9j/4AA="}}),
        (
            InputFileParam(file_data="data:text/csv;base64,aGk="),
            {"inlineData": {"mimeType": "text/csv", "data": "aGk="}},
        ),
        (
            InputVideo(video_url="https://v.b/watch"),
            {"fileData": {"fileUri": "https://v.b/watch", "mimeType": "video/mp4"}},
        ),
        (
            InputAudio(input_audio=InputAudioData(data="aGk=", format="wav")),
            {"inlineData": {"mimeType": "audio/wav", "data": "aGk="}},
        ),
        (Refusal(refusal="No."), {"text": "No."}),
        (
            UnknownContent(
                kind="gemini:executableCode", raw=Raw(b'{"type":"gemini:executableCode","executableCode":{"code":"1"}}')
            ),
            {"executableCode": {"code": "1"}},
        ),
        (
            InputVideo(video_url="https://v.b/c.mov", extra={"videoMetadata": Raw(b'{"fps":2}')}),
            {"fileData": {"fileUri": "https://v.b/c.mov", "mimeType": "video/mov"}, "videoMetadata": {"fps": 2}},
        ),
    ],
)
def test_content_is_sent_as_parts(part: Any, sent: dict[str, Any]) -> None:
    """Issue 7, point 6: by data or by address; nothing is fetched."""
    request = user(part)
    assert send(request)[0]["contents"] == [{"role": "user", "parts": [sent]}]
    assert lost(request) == []


@pytest.mark.parametrize(
    ("part", "note", "path"),
    [
        (InputImageParam(file_id="f1"), "[image omitted: f1]", "input[0].content[0]"),
        (InputFileParam(file_id="f1"), "[file omitted: f1]", "input[0].content[0]"),
        (
            UnknownContent(kind="acme:thing", raw=Raw(b'{"type":"acme:thing"}')),
            "[acme:thing omitted]",
            "input[0].content[0]",
        ),
    ],
)
def test_unsupported_content_is_a_note_and_a_loss(part: Any, note: str, path: str) -> None:
    """F-4."""
    request = user(part)
    assert send(request)[0]["contents"][0]["parts"] == [{"text": note}]
    assert lost(request) == [path]


def test_urls_are_notes_if_the_server_accepts_none() -> None:
    """REQ-6."""
    request = user(InputImageParam(image_url="https://a.b/c"))
    assert send(request, GeminiWire(urls=False))[0]["contents"][0]["parts"] == [
        {"text": "[image omitted: https://a.b/c]"}
    ]
    assert lost(request, GeminiWire(urls=False)) == ["input[0].content[0]"]


def test_unsupported_members_are_losses() -> None:
    """F-4."""
    unknown = {"cache_control": Raw(b'{"type":"ephemeral"}')}
    parts_: list[Any] = [
        InputImageParam(image_url=PICTURE, detail="low", extra=unknown),
        InputFileParam(file_data="aGk=", filename="a.txt", file_id="f", file_url="u"),
        OutputTextParam(
            text="x",
            annotations=[UrlCitationParam(start_index=0, end_index=1, url="u", title="t")],
            logprobs=[LogProb(token="x", logprob=0, bytes=[], top_logprobs=[])],
        ),
        InputText(text="y", extra=unknown),
        InputImageParam(image_url=PICTURE, file_id="f"),
        InputFileParam(file_url="https://a.b/c.pdf", file_id="f"),
    ]
    at = "input[0].content"
    assert lost(user(*parts_)) == [
        f"{at}[0].detail",
        f"{at}[0].cache_control",
        f"{at}[1].filename",
        f"{at}[1].file_id",
        f"{at}[1].file_url",
        f"{at}[2].annotations",
        f"{at}[2].logprobs",
        f"{at}[3].cache_control",
        f"{at}[4].file_id",
        f"{at}[5].file_id",
    ]


def test_media_type_of_a_file_comes_from_its_name() -> None:
    body, losses = send(user(InputFileParam(file_data="aGk=", filename="a.TXT")))
    assert body["contents"][0]["parts"] == [{"inlineData": {"mimeType": "text/plain", "data": "aGk="}}]
    assert [loss.path for loss in losses] == ["input[0].content[0].filename"]


def test_media_in_results_are_kept_or_moved_after_all_results() -> None:
    """TOOL-6, issue 7, point 3."""
    output = [InputText(text="see"), InputImageParam(image_url=PICTURE)]
    items: list[ItemParam] = [
        ASKED,
        function_call("a"),
        function_call("b"),
        function_output("a", output),
        function_output("b", "no"),
    ]
    medium = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    lifted = contents(*items)[2]["parts"]
    assert [part["functionResponse"]["response"] for part in lifted[:2]] == [
        {"output": "see\n[media 1 of this result follows below]"},
        {"output": "no"},
    ]
    assert lifted[2:] == [{"text": "Media 1 of the result of call a:"}, medium]
    unmoved = contents(*items, wire=GeminiWire(result_media_models=("",)))[2]["parts"]
    assert unmoved[0]["functionResponse"] == {"name": "get_weather", "response": {"output": "see"}, "parts": [medium]}
    assert len(unmoved) == 2


def test_media_of_other_types_are_moved_out_of_results() -> None:
    """TOOL-6: only documented types stay, and no URL."""
    urls = ["data:image/gif;base64,R0lGOD==", "https://a.example/a.png"]
    output = [InputText(text="see"), *(InputImageParam(image_url=url) for url in urls)]
    items: list[ItemParam] = [ASKED, function_call("a"), function_output("a", output)]
    result, *moved = contents(*items, wire=GeminiWire(result_media_models=("",)))[2]["parts"]
    assert "parts" not in result["functionResponse"]
    assert len(moved) == 4


def test_result_media_of_a_gemini_client_stay_in_their_form() -> None:
    """TOOL-6: with names, URLs and any type, for models that accept media in results."""
    media = [
        {"inlineData": {"mimeType": "image/gif", "data": "R0lGODdh", "displayName": "cat.gif"}},
        {"fileData": {"fileUri": "gs://a/b", "mimeType": "application/pdf", "displayName": "b"}},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "mediaResolution": {"level": "LOW"}},
    ]
    response = {"name": "get_weather", "response": {"image": {"$ref": "cat.gif"}}, "parts": media}
    call = {"functionCall": {"name": "get_weather", "args": {}}}
    history = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [{"functionResponse": response}]},
    ]
    request, losses = request_to_hub(json.dumps({"contents": history}).encode())
    assert list(losses) == []
    body, losses = send(request, GeminiWire(result_media_models=("",), call_ids=True))
    assert (body["contents"], list(losses)) == (history, [])
    moved, _ = send(request)
    assert len(moved["contents"][2]["parts"]) == 7


def test_system_message_with_media_becomes_text() -> None:
    system = MessageParam(role="system", content=[InputText(text="A"), InputImageParam(image_url=PICTURE)])
    body, losses = send(Request(input=[system, ASKED]))
    assert body["systemInstruction"]["parts"][0]["text"] == "A\n[image omitted: image/png data]"
    assert [loss.path for loss in losses] == ["input[0].content[1]"]


def test_decoding_an_answer_is_deterministic() -> None:
    """Generated ids depend only on the position in the answer."""
    chunks = [parts(call("get_time"), call("get_time"))]
    assert read(*chunks).response == read(*chunks).response
