"""`dialects/ollama/request_out`: a hub request as a body for a server: laws over generated requests, then each part."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import UNSET, Raw
from tests.generate.conversations import marks_of, requests
from tests.testing.requests import make_request

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.ollama import request_from_hub, request_to_hub
from antiphon.dialects.ollama.wire import OllamaWire
from antiphon.errors import ApiError
from antiphon.protocol import codec
from antiphon.protocol.content import (
    InputFileParam,
    InputImageParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    SummaryText,
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
from antiphon.protocol.request import (
    JsonObjectFormat,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    Request,
    TextFormat,
    TextParam,
    input_items,
)
from antiphon.protocol.tools import (
    AllowedToolsParam,
    CustomTool,
    FunctionToolParam,
    NamespaceTool,
    SpecificFunction,
    WebSearchTool,
)
from antiphon.testing.ollama.server import OllamaBehavior

PNG = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
OBJECT = {"type": "object", "properties": {}}
CALL = FunctionCallParam(call_id="c1", name="f", arguments='{"a":1}')
RESULT = FunctionCallOutputParam(call_id="c1", output="ok")


def send(*items: ItemParam, wire: OllamaWire = OllamaWire(), **fields: Any) -> tuple[dict[str, Any], list[str]]:  # noqa: B008
    request = Request(**{"model": "m", "input": list(items) or "Hi", **fields})
    body, losses = request_from_hub(request, wire)
    return json.loads(body), [loss.path for loss in losses]


def messages(*items: ItemParam, wire: OllamaWire = OllamaWire()) -> list[dict[str, Any]]:  # noqa: B008
    sent: list[dict[str, Any]] = send(*items, wire=wire)[0]["messages"]
    return sent


def user(*parts: Any) -> MessageParam:
    return MessageParam(role="user", content=list(parts))


# Laws


@settings(max_examples=60)
@given(requests(orderly=True))
def test_strict_server_accepts_every_request(request: Request) -> None:
    body, _ = request_from_hub(request)
    refusal = OllamaBehavior().find_refusal(make_request({"model": "m", **json.loads(body)}))
    assert refusal is None, refusal


@settings(max_examples=60)
@given(requests(orderly=True))
def test_requests_survive_hub_to_ollama_to_hub(request: Request) -> None:
    """Law (d): every text of the conversation, in its order, and every call."""
    body, _ = request_from_hub(request)
    again, losses = request_to_hub(body)
    assert list(losses) == []
    before, after = (_texts(each) for each in (request, again))
    assert before == after
    calls = [[item.call_id for item in input_items(each) if isinstance(item, FunctionCallParam)] for each in (again,)]
    sent = [call["id"] for message in json.loads(body)["messages"] for call in message.get("tool_calls", ())]
    assert calls == [sent]


def _texts(request: Request) -> list[str]:
    kinds = (MessageParam, FunctionCallOutputParam, CustomToolCallOutputParam)
    items = [item for item in input_items(request) if isinstance(item, kinds)]
    return marks_of((request.instructions or "") + codec.encode(items).decode())


# Messages


def test_instructions_and_system_messages_are_system_messages() -> None:
    late = MessageParam(role="developer", content="Late.")
    sent = send(MessageParam(role="user", content="Hi"), late, instructions="First.")[0]["messages"]
    assert sent == [
        {"role": "system", "content": "First."},
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "Late."},
    ]


def test_images_are_data_beside_the_text() -> None:
    sent = messages(user(InputText(text="What"), InputImageParam(image_url=PNG), InputText(text="is it?")))
    assert sent == [{"role": "user", "content": "What\nis it?", "images": ["iVBORw0KGgo="]}]


@pytest.mark.parametrize(
    ("part", "wire", "note", "paths"),
    [
        (InputImageParam(image_url="https://x/y.png"), OllamaWire(), "[image omitted: https://x/y.png]", [""]),
        (InputImageParam(file_id="f1"), OllamaWire(), "[image omitted: f1]", [""]),
        (InputImageParam(image_url=PNG), OllamaWire(images=False), "[image omitted: image/png data]", [""]),
        (InputFileParam(filename="a.pdf"), OllamaWire(), "[file omitted: a.pdf]", [""]),
    ],
)
def test_content_without_a_place_becomes_a_note(part: Any, wire: OllamaWire, note: str, paths: list[str]) -> None:
    sent, losses = send(user(part), wire=wire)
    assert sent["messages"] == [{"role": "user", "content": note}]
    assert losses == [f"input[0].content[0]{path}" for path in paths]


def test_details_of_an_image_are_losses() -> None:
    part = InputImageParam(image_url=PNG, detail="high", file_id="f1")
    assert send(user(part))[1] == ["input[0].content[0].detail", "input[0].content[0].file_id"]
    assert send(user(InputImageParam(image_url=PNG, detail="auto")))[1] == []


def test_image_of_the_assistant_is_a_note() -> None:
    message = MessageParam(role="assistant", content=[OutputTextParam(text="See:"), InputImageParam(image_url=PNG)])
    assert messages(user(InputText(text="Hi")), message)[1]["content"] == "See:\n[image omitted: image/png data]"


def test_calls_and_results_have_ids_and_names() -> None:
    assert messages(user(InputText(text="Hi")), CALL, RESULT)[1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "content": "ok", "tool_name": "f", "tool_call_id": "c1"},
    ]


@pytest.mark.parametrize(("arguments", "sent"), [("", {}), ("[1]", {"arguments": "[1]"}), ("{", {"arguments": "{"})])
def test_arguments_that_are_no_object_are_wrapped(arguments: str, sent: Any) -> None:
    call = FunctionCallParam(call_id="c1", name="f", arguments=arguments)
    body, losses = send(user(InputText(text="Hi")), call, RESULT)
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == sent
    assert losses == ([] if not arguments else ["input[1].arguments"])


def test_custom_calls_are_functions_of_one_string() -> None:
    call = CustomToolCallParam(call_id="c1", name="patch", input="+ a")
    output = CustomToolCallOutputParam(call_id="c1", output="ok")
    sent = messages(user(InputText(text="Hi")), call, output)
    assert sent[1]["tool_calls"][0]["function"] == {"index": 0, "name": "patch", "arguments": {"input": "+ a"}}
    assert sent[2]["tool_name"] == "patch"


def test_images_of_results_follow_all_results_in_a_user_message() -> None:
    """TOOL-6: a note in the result replaces each image, and a label names its call."""
    output: Any = [InputText(text="A map."), InputImageParam(image_url=PNG)]
    results = [FunctionCallOutputParam(call_id=call_id, output=output) for call_id in ("c1", "c2")]
    other_call = FunctionCallParam(call_id="c2", name="f", arguments="{}")
    sent = messages(user(InputText(text="Hi")), CALL, other_call, *results)
    assert [message["role"] for message in sent[2:]] == ["tool", "tool", "user"]
    assert {message["content"] for message in sent[2:4]} == {"A map.\n[image 1 of this result follows below]"}
    assert sent[4]["content"] == "Image 1 of the result of call c1:\nImage 1 of the result of call c2:"
    assert sent[4]["images"] == ["iVBORw0KGgo="] * 2


def test_failed_result_is_marked() -> None:
    result = FunctionCallOutputParam(call_id="c1", output="no", extra={"is_error": Raw(b"true")})
    assert messages(user(InputText(text="Hi")), CALL, result)[2]["content"] == "[tool error] no"


@pytest.mark.parametrize(
    ("item", "thinking", "paths"),
    [
        (ReasoningParam(summary=[], content=[ReasoningText(text="Hm.")]), "Hm.", []),
        (ReasoningParam(summary=[SummaryText(text="Short.")]), "Short.", []),
        (
            ReasoningParam(summary=[SummaryText(text="Short.")], content=[ReasoningText(text="Hm.")]),
            "Hm.",
            ["input[1].summary"],
        ),
        (
            ReasoningParam(
                summary=[], content=[ReasoningText(text="Hm.")], encrypted_content=seal_reasoning("ollama", {})
            ),
            "Hm.",
            [],
        ),
        (ReasoningParam(summary=[], encrypted_content=seal_reasoning("ollama", {"thinking": "Hm."})), "Hm.", []),
        (ReasoningParam(summary=[], encrypted_content=seal_reasoning("other", {})), None, ["input[1]"]),
        (ReasoningParam(summary=[], encrypted_content="opaque"), None, ["input[1]"]),
    ],
)
def test_earlier_reasoning_is_thinking(item: ReasoningParam, thinking: str | None, paths: list[str]) -> None:
    """RSN-2, RSN-3."""
    answer = MessageParam(role="assistant", content="Four.")
    body, losses = send(user(InputText(text="Hi")), item, answer)
    assert body["messages"][1].get("thinking") == thinking
    assert losses == paths


def test_message_fields_without_a_place_are_losses() -> None:
    odd = MessageParam(role="user", content="Hi", phase="commentary", extra={"mood": Raw(b"1")})
    assert send(odd, odd)[1] == ["input[0].mood", "input[0].phase", "input[1].mood"]


def test_message_without_content_is_left_out() -> None:
    empty = MessageParam(role="assistant", content=[])
    assert messages(MessageParam(role="user", content=""), empty, user(InputText(text="Hi"))) == [
        {"role": "user", "content": "Hi"}
    ]


def test_server_counts_no_tokens_and_needs_no_reasoning_back() -> None:
    assert (OllamaWire().counts_tokens, OllamaWire().wants_reasoning_back) == (False, False)


def test_other_items_are_losses() -> None:
    other = UnknownItem(kind="x:y", raw=Raw(b'{"type":"x:y"}'))
    offered = AdditionalTools(role="developer", tools=[FunctionToolParam(name="g")])
    body, losses = send(user(InputText(text="Hi")), other, offered)
    assert losses == ["input[1]"]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["g"]


@pytest.mark.parametrize("input", [[], [MessageParam(role="system", content="Only this.")]])
def test_request_without_content_is_refused(input: Any) -> None:
    with pytest.raises(ApiError) as caught:
        request_from_hub(Request(model="m", input=input))
    assert caught.value.param == "input"


# Tools


def test_tools_are_functions() -> None:
    tools = [
        FunctionToolParam(name="f", description="d", parameters=SCHEMA, strict=True, defer_loading=True),
        FunctionToolParam(name="bare"),
        CustomTool(name="patch", description="Patches."),
        NamespaceTool(name="ns", description="N", tools=[FunctionToolParam(name="g")]),
        WebSearchTool(),
    ]
    body, losses = send(tools=tools)
    functions = [tool["function"] for tool in body["tools"]]
    assert functions[0] == {"name": "f", "description": "d", "parameters": SCHEMA}
    assert functions[1] == {"name": "bare", "parameters": OBJECT}
    assert [function["name"] for function in functions[2:]] == ["patch", "ns__g"]
    assert losses == ["tools[0].strict", "tools[0].defer_loading", "tools[3].description", "tools[4]"]


def test_last_definition_of_a_tool_is_used() -> None:
    body, losses = send(tools=[FunctionToolParam(name="f"), FunctionToolParam(name="f", description="new")])
    assert [tool["function"].get("description") for tool in body["tools"]] == ["new"]
    assert losses == ["tools[1]"]


@pytest.mark.parametrize(
    ("choice", "has_tools", "paths"),
    [
        ("auto", True, []),
        ("none", False, []),
        ("required", True, ["tool_choice"]),
        (SpecificFunction(name="f"), True, ["tool_choice"]),
        (AllowedToolsParam(tools=[SpecificFunction(name="f")], mode="auto"), True, []),
        (AllowedToolsParam(tools=[SpecificFunction(name="f")], mode="required"), True, ["tool_choice"]),
    ],
)
def test_tool_choice_is_sent_as_far_as_possible(choice: Any, has_tools: bool, paths: list[str]) -> None:
    body, losses = send(tools=[FunctionToolParam(name="f")], tool_choice=choice)
    assert ("tools" in body, losses) == (has_tools, paths)


def test_limit_of_one_call_is_a_loss_with_tools() -> None:
    assert send(parallel_tool_calls=False)[1] == []
    assert send(parallel_tool_calls=False, tools=[FunctionToolParam(name="f")])[1] == ["parallel_tool_calls"]


# Settings


@pytest.mark.parametrize(
    ("effort", "levels", "think", "paths"),
    [
        ("none", ("low", "medium", "high", "max"), False, []),
        ("medium", ("low", "medium", "high", "max"), True, []),
        ("low", ("low", "medium", "high", "max"), "low", []),
        ("minimal", ("low", "medium", "high", "max"), "low", ["reasoning.effort"]),
        ("xhigh", ("low", "medium", "high"), "high", ["reasoning.effort"]),
        ("high", (), True, ["reasoning.effort"]),
        (None, (), None, []),
    ],
)
def test_effort_becomes_think(effort: Any, levels: Any, think: Any, paths: list[str]) -> None:
    """RSN-4."""
    body, losses = send(reasoning=ReasoningConfigParam(effort=effort), wire=OllamaWire(levels=levels))
    assert (body.get("think"), losses) == (think, paths)


@pytest.mark.parametrize(("effort", "paths"), [("high", ["reasoning.effort"]), ("none", []), (None, [])])
def test_effort_for_a_model_without_thinking_is_a_loss(effort: Any, paths: list[str]) -> None:
    """RSN-3, RSN-4."""
    body, losses = send(reasoning=ReasoningConfigParam(effort=effort), wire=OllamaWire(thinking=False))
    assert ("think" in body, losses) == (False, paths)


@pytest.mark.parametrize(
    ("format", "sent", "paths"),
    [
        (JsonObjectFormat(), "json", []),
        (TextFormat(), None, []),
        (JsonSchemaFormatParam(name="n", schema=SCHEMA), SCHEMA, []),
        (JsonSchemaFormatParam(name="n", schema=SCHEMA, description="d"), {**SCHEMA, "description": "d"}, []),
        (
            JsonSchemaFormatParam(name="n", schema={**SCHEMA, "description": "own"}, description="d"),
            {**SCHEMA, "description": "own"},
            ["text.format.description"],
        ),
        (JsonSchemaFormatParam(name="n"), "json", []),
    ],
)
def test_format_is_json_or_a_schema(format: Any, sent: Any, paths: list[str]) -> None:
    """REQ-1."""
    body, losses = send(text=TextParam(format=format))
    assert (body.get("format"), losses) == (sent, paths)


def test_settings_become_options() -> None:
    extra = {
        "chat:stop": Raw(b'"x"'),
        "messages:stop_sequences": Raw(b'["y"]'),
        "gemini:topK": Raw(b"5"),
        "ollama:num_ctx": Raw(b"4096"),
        "ollama:temperature": Raw(b"2"),
        "ollama:model": Raw(b'"x"'),
        "ollama:generate": Raw(b"{}"),
        "chat:mood": Raw(b"1"),
    }
    body, losses = send(
        temperature=0.5, top_p=0.9, presence_penalty=0.1, frequency_penalty=0.2, max_output_tokens=20, extra=extra
    )
    assert body["options"] == {
        "temperature": 0.5,
        "top_p": 0.9,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "num_predict": 20,
        "stop": ["x"],
        "top_k": 5,
        "num_ctx": 4096,
    }
    assert losses == ["stop_sequences", "model", "mood", "temperature"]


def test_stream_is_always_explicit() -> None:
    assert send(stream=True)[0]["stream"] is True
    assert send(stream=UNSET)[0]["stream"] is False


def test_logprobs_are_requested() -> None:
    assert send(top_logprobs=2)[0]["logprobs"] is True
    body, _ = send(include=["message.output_text.logprobs"])
    assert (body["logprobs"], "top_logprobs" in body) == (True, False)


def test_fields_without_a_place_are_losses() -> None:
    paths = send(
        text=TextParam(verbosity="low"),
        reasoning=ReasoningConfigParam(summary="auto"),
        metadata={"a": "b"},
        service_tier="default",
        safety_identifier="s",
        prompt_cache_key="k",
        prompt_cache_retention="24h",
        client_metadata={"a": 1},
        user="u",
        include=["code_interpreter_call.outputs", "x"],
    )[1]
    assert paths == [
        "text.verbosity",
        "metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "client_metadata",
        "user",
        "include[0]",
        "include[1]",
    ]


def test_unknown_fields_stay_in_their_place() -> None:
    """REQ-7: a field of the body stays in the body, and an option stays an option."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "new": 1, "options": {"newer": 2}}
    request, _ = request_to_hub(json.dumps(body).encode())
    sent, losses = request_from_hub(request)
    assert (json.loads(sent), list(losses)) == ({**body, "stream": True}, [])
