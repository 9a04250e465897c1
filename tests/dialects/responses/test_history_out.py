"""`responses/history_out`: the server gets no part, member or item that only other APIs know, every call has an output,
and reasoning is followed by what the model made after it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from antiphon.dialects.responses import request_from_hub
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.profiles import load_profile
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputAudioData,
    InputFileParam,
    InputText,
    InputVideo,
    OutputTextParam,
    Refusal,
    ToolResult,
    UnknownAnnotation,
    UnknownContent,
    UrlCitation,
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
)
from antiphon.protocol.request import Request
from antiphon.protocol.tools import CustomTool, FunctionToolParam, NamespaceTool, ToolParam, UnknownTool

Json = dict[str, Any]
OPENAI = load_profile("openai").wire
USER = MessageParam(role="user", content="hi")
ANSWER = MessageParam(role="assistant", content="ho")
CALL = FunctionCallParam(call_id="a", name="f", arguments="{}")
OUTPUT = FunctionCallOutputParam(call_id="a", output="ok")
CUSTOM = CustomToolCallParam(call_id="b", name="g", input="x")
CUSTOM_OUTPUT = CustomToolCallOutputParam(call_id="b", output="ok")
THOUGHT = ReasoningParam(summary=[], encrypted_content="x")


def send(*items: ItemParam, wire: Any = OPENAI, **members: Any) -> tuple[Json, list[str]]:
    body, losses = request_from_hub(Request(model="m", input=list(items), **members), wire)
    return json.loads(body), [loss.path for loss in losses]


def types(body: Json) -> list[str]:
    return [item["role"] if item["type"] == "message" else item["type"] for item in body["input"]]


@pytest.mark.parametrize("wire", [ResponsesWire(), OPENAI, ResponsesWire(extension_tools="flatten")])
def test_call_without_an_output_gets_a_placeholder_after_its_turn(wire: Any) -> None:
    body, losses = send(USER, CALL, CUSTOM, CUSTOM_OUTPUT, USER, wire=wire)
    call, custom_call, placeholder, output = body["input"][1:5]
    assert (call["call_id"], custom_call["call_id"], output["call_id"]) == ("a", "b", "b")
    assert placeholder == {"type": "function_call_output", "call_id": "a", "output": "[no result for this call]"}
    assert losses == ["input[1]"]


def test_custom_call_at_the_end_gets_an_output_of_its_kind() -> None:
    body, losses = send(USER, CUSTOM)
    assert types(body) == ["user", "custom_tool_call", "custom_tool_call_output"]
    assert losses == ["input[1]"]


def test_calls_with_outputs_stay_unchanged_in_every_order() -> None:
    body, losses = send(OUTPUT, CALL, CUSTOM, CUSTOM_OUTPUT)
    assert (types(body)[:2], losses) == (["function_call_output", "function_call"], [])


def test_result_block_in_a_message_answers_a_call() -> None:
    result = MessageParam(role="user", content=[ToolResult(tool_use_id="a", content="ok")])
    body, losses = send(CALL, result, wire=ResponsesWire())
    assert (types(body), losses) == (["function_call", "user"], [])


def test_repeated_call_id_gets_one_output() -> None:
    body, losses = send(CALL, USER, CALL)
    assert (types(body), losses) == (["function_call", "function_call_output", "user", "function_call"], ["input[0]"])


@pytest.mark.parametrize(
    ("items", "is_kept"),
    [
        ([THOUGHT, ANSWER], True),
        ([THOUGHT, CALL, OUTPUT], True),
        ([THOUGHT, CUSTOM, CUSTOM_OUTPUT], True),
        ([THOUGHT, THOUGHT, ANSWER], True),
        ([THOUGHT, UnknownItem(kind="acme:call", raw=Raw(b'{"type":"acme:call"}'))], True),
        ([THOUGHT], False),
        ([THOUGHT, USER, ANSWER], False),
        ([CALL, THOUGHT, OUTPUT], False),
        ([THOUGHT, AdditionalTools(tools=[])], False),
        ([THOUGHT, UnknownItem(kind="messages:code", raw=Raw(b'{"type":"messages:code"}')), USER], False),
    ],
)
def test_reasoning_is_sent_only_with_what_follows_it(items: list[ItemParam], is_kept: bool) -> None:
    """RSN-3: the provider refuses reasoning without the item that it made after it."""
    body, losses = send(USER, *items)
    assert ("reasoning" in types(body)) == is_kept
    thoughts = [f"input[{index + 1}]" for index, item in enumerate(items) if item is THOUGHT]
    assert [path for path in losses if path in thoughts] == ([] if is_kept else thoughts)
    assert "reasoning" in types(send(USER, *items, wire=ResponsesWire())[0])


def test_unpaired_reasoning_is_left_out_alone() -> None:
    body, losses = send(THOUGHT, ANSWER, USER, THOUGHT, USER)
    assert (types(body), losses) == (["reasoning", "assistant", "user", "user"], ["input[3]"])


# Content


FOREIGN = {"messages:context": Raw(b'"c"'), "acme": Raw(b"1")}


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (InputText(text="a", extra=FOREIGN), {"type": "input_text", "text": "a", "acme": 1}),
        (InputFileParam(file_url="u", extra=FOREIGN), {"type": "input_file", "file_url": "u", "acme": 1}),
    ],
)
def test_members_of_other_apis_are_losses(part: Any, sent: Json) -> None:
    """F-4: unknown members of Responses clients stay (REQ-7)."""
    body, losses = send(
        MessageParam(role="user", content=[part], extra={"gemini:thought": Raw(b"true")}),
        CALL,
        FunctionCallOutputParam(call_id="a", output=[part]),
    )
    assert body["input"][0] == {"type": "message", "role": "user", "content": [sent]}
    assert body["input"][2]["output"] == [sent]
    assert losses == ["input[0].content[0].context", "input[2].output[0].context"]


def unknown(kind: str, **members: Any) -> UnknownContent:
    return UnknownContent(kind=kind, raw=Raw(json.dumps({"type": kind, **members}).encode()))


@pytest.mark.parametrize(
    ("part", "text", "is_lost"),
    [
        (InputVideo(video_url="https://a.example/a"), "[video omitted: https://a.example/a]", True),
        (InputAudio(input_audio=InputAudioData(data="", format="wav")), "[audio omitted: wav]", True),
        (unknown("messages:tool_reference", tool_name="f"), "[tool: f]", True),
        (unknown("messages:search_result", source="s", content=[{"type": "text", "text": "t"}]), "s\nt", False),
        (unknown("gemini:executableCode"), "[executableCode omitted]", True),
    ],
)
def test_parts_that_the_server_does_not_know_become_text(part: Any, text: str, is_lost: bool) -> None:
    body, losses = send(
        MessageParam(role="user", content=[part]), CALL, FunctionCallOutputParam(call_id="a", output=[part])
    )
    parts = [{"type": "input_text", "text": text}]
    assert (body["input"][0]["content"], body["input"][2]["output"]) == (parts, parts)
    assert losses == (["input[0].content[0]", "input[2].output[0]"] if is_lost else [])


def test_parts_of_a_responses_client_stay() -> None:
    """REQ-7: what the server does not know of its own API, it refuses itself."""
    part = {"type": "acme:part", "x": 1}
    body, losses = send(MessageParam(role="user", content=[unknown("acme:part", x=1)]))
    assert (body["input"][0]["content"], losses) == ([part], [])
    video = MessageParam(role="user", content=[InputVideo(video_url="v")])
    assert send(video, wire=ResponsesWire())[0]["input"][0]["content"] == [{"type": "input_video", "video_url": "v"}]


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (unknown("messages:search_result", source="s", content="t"), {"type": "output_text", "text": "s\nt"}),
        (unknown("acme:part"), {"type": "acme:part"}),
        (Refusal(refusal="no", extra={"messages:x": Raw(b"1")}), {"type": "refusal", "refusal": "no"}),
    ],
)
def test_parts_of_the_assistant_keep_the_types_of_its_role(part: ContentParam, sent: Json) -> None:
    body, _ = send(MessageParam(role="assistant", content=[part]))
    assert body["input"][0]["content"] == [sent]


def test_document_of_the_assistant_is_input_where_the_server_wants_it() -> None:
    part = unknown("messages:search_result", source="s", content="t")
    body, _ = send(MessageParam(role="assistant", content=[part]), wire=ResponsesWire(assistant_content="input_text"))
    assert body["input"][0]["content"] == [{"type": "input_text", "text": "s\nt"}]


CITATION = UrlCitation(url="u", title="t", start_index=0, end_index=1, extra={"cited_text": Raw(b'"c"')})
PLAIN_CITATION = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}


def test_citations_have_only_members_of_the_api() -> None:
    annotations: list[Any] = [
        CITATION,
        UnknownAnnotation(kind="messages:char_location", raw=Raw(b'{"type":"messages:char_location"}')),
        UnknownAnnotation(kind="file_citation", raw=Raw(b'{"type":"file_citation","file_id":"f"}')),
    ]
    message = MessageParam(role="assistant", content=[OutputTextParam(text="a", annotations=annotations)])
    body, losses = send(message)
    own = {"type": "file_citation", "file_id": "f"}
    assert body["input"][0]["content"][0]["annotations"] == [PLAIN_CITATION, own]
    path = "input[0].content[0].annotations"
    assert losses == [f"{path}[0].cited_text", f"{path}[1]"]
    body, losses = send(message, wire=ResponsesWire())
    assert body["input"][0]["content"][0]["annotations"] == [{**PLAIN_CITATION, "cited_text": "c"}, own]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("content", ["", [], [InputText(text="")]])
def test_empty_system_message_is_left_out(role: Any, content: Any) -> None:
    body, losses = send(MessageParam(role=role, content=content), USER, instructions="")
    assert (types(body), losses, "instructions" in body) == (["user"], [], False)


def test_messages_without_content_that_the_server_would_refuse() -> None:
    body, losses = send(
        MessageParam(role="user", content=[]),
        MessageParam(role="assistant", content=[]),
        CALL,
        FunctionCallOutputParam(call_id="a", output=[]),
    )
    assert types(body) == ["user", "function_call", "function_call_output"]
    assert (body["input"][0]["content"], body["input"][2]["output"], losses) == ("", "", [])


# Tools


def tool(**members: Any) -> FunctionToolParam:
    return FunctionToolParam(name="f", parameters={"type": "object"}, **members)


def test_members_of_tools_of_other_apis_are_losses() -> None:
    foreign = {"messages:input_examples": Raw(b"[{}]"), "output_schema": Raw(b"{}")}
    members: list[Any] = [tool(extra=foreign), UnknownTool(kind="acme", raw=Raw(b'{"type":"acme"}'))]
    tools: list[ToolParam] = [
        tool(extra=foreign),
        CustomTool(name="g", extra={"messages:eager_input_streaming": Raw(b"true")}),
        NamespaceTool(name="n", description="", tools=members),
    ]
    body, losses = send(USER, tools=tools)
    assert [sorted(sent) for sent in body["tools"][:2]] == [
        ["name", "output_schema", "parameters", "type"],
        ["name", "type"],
    ]
    assert sorted(body["tools"][2]["tools"][0]) == ["name", "output_schema", "parameters", "type"]
    assert losses == [
        "tools[0].input_examples",
        "tools[1].eager_input_streaming",
        "tools[2].tools[0].input_examples",
    ]


def test_deferred_tools_need_the_search_of_the_server() -> None:
    body, losses = send(USER, tools=[tool(defer_loading=True)])
    assert ("defer_loading" in body["tools"][0], losses) == (False, ["tools[0].defer_loading"])
    search = UnknownTool(kind="tool_search", raw=Raw(b'{"type":"tool_search"}'))
    body, losses = send(USER, tools=[tool(defer_loading=True), search])
    assert (body["tools"][0]["defer_loading"], losses) == (True, [])
    body, losses = send(USER, tools=[tool(defer_loading=True)], wire=ResponsesWire())
    assert (body["tools"][0]["defer_loading"], losses) == (True, [])


@pytest.mark.parametrize(("choice", "lost"), [("required", ["tool_choice"]), ("auto", []), ("none", [])])
def test_choice_among_lost_tools_is_a_loss(choice: Any, lost: list[str]) -> None:
    hosted = UnknownTool(kind="gemini:codeExecution", raw=Raw(b'{"type":"gemini:codeExecution"}'))
    body, losses = send(USER, tools=[hosted], tool_choice=choice)
    assert ("tools" in body, "tool_choice" in body, losses) == (False, False, ["tools[0]", *lost])
    body, losses = send(USER, AdditionalTools(tools=[tool()]), tools=[hosted], tool_choice=choice)
    assert (body["tool_choice"], losses) == (choice, ["tools[0]"])
