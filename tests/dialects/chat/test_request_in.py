"""`dialects/chat/request_in`: the settings of a chat client's request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw
from tests.dialects.chat.test_request_out import SETTINGS

from antiphon.dialects.chat import request_from_hub, request_to_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.errors import InvalidJson, InvalidValue, MissingField
from antiphon.protocol.content import InputText, InputVideo, UnknownContent
from antiphon.protocol.items import MessageParam
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    Request,
    StreamOptions,
    TextFormat,
    TextParam,
    input_items,
)


def taken(**fields: Any) -> tuple[Request, list[str]]:
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    request, losses = request_to_hub(json.dumps(body).encode())
    return request, [loss.path for loss in losses]


@pytest.mark.parametrize("name", [*SETTINGS, "model", "parallel_tool_calls", "store", "stream", "top_logprobs"])
def test_settings_of_the_same_name_are_decoded_REQ5(name: str) -> None:
    value = SETTINGS.get(name, {"model": "m", "top_logprobs": 2}.get(name, True))
    request, losses = taken(**{name: value})
    assert getattr(request, name) == value
    assert not losses
    assert getattr(taken(**{name: None})[0], name) in (None, UNSET)


def test_settings_of_another_name_are_decoded_REQ5() -> None:
    request, losses = taken(reasoning_effort="low", verbosity="high", logprobs=True, max_completion_tokens=5)
    assert request.reasoning == ReasoningConfigParam(effort="low")
    assert request.text == TextParam(verbosity="high", format=UNSET)
    assert request.include == ["message.output_text.logprobs", ENCRYPTED_IF_ANY]
    assert taken()[0].include == [ENCRYPTED_IF_ANY]  # RSN-2: chat clients have a field for it, and no way to request it
    assert request.max_output_tokens == 5  # allowed in chat
    assert not losses


def test_token_limit_is_read_under_both_names() -> None:
    assert taken(max_tokens=5)[0].max_output_tokens == 5
    assert taken(max_tokens=5, max_completion_tokens=5)[1] == []
    request, losses = taken(max_tokens=5, max_completion_tokens=6)
    assert request.max_output_tokens == 6
    assert losses == ["max_tokens"]


def test_server_specific_values_are_passed_through() -> None:
    request, losses = taken(reasoning_effort="default", verbosity="chatty", service_tier="on_demand")
    assert request.reasoning is request.text is request.service_tier is UNSET
    assert _extra(request) == {
        "chat:reasoning_effort": "default",
        "chat:verbosity": "chatty",
        "chat:service_tier": "on_demand",
    }
    assert not losses


def test_response_formats_are_flat_in_the_hub_REQ1() -> None:
    schema = {"name": "answer", "description": "d", "schema": {"type": "object"}, "strict": True}
    request, losses = taken(response_format={"type": "json_schema", "json_schema": schema})
    assert request.text == TextParam(
        format=JsonSchemaFormatParam(name="answer", description="d", schema={"type": "object"}, strict=True),
        verbosity=UNSET,
    )
    assert taken(response_format={"type": "json_object"})[0].text == TextParam(
        format=JsonObjectFormat(), verbosity=UNSET
    )
    assert taken(response_format={"type": "text"})[0].text == TextParam(format=TextFormat(), verbosity=UNSET)
    invalid = {"type": "json_object", "schema": "none"}
    assert isinstance(_text_of(taken(response_format=invalid)[0]).format, JsonObjectFormat)
    assert taken(response_format=None)[0].text is UNSET
    assert not losses
    grammar = {"type": "grammar", "grammar": "x"}
    request, losses = taken(response_format=grammar)
    assert request.text is UNSET
    assert _extra(request) == {"chat:response_format": grammar}
    assert not losses
    x = {"x": 1}
    odd = {"type": "json_schema", "json_schema": {**schema, **x}, **x}
    assert taken(response_format=odd)[1] == ["response_format.x", "response_format.json_schema.x"]


def test_json_object_with_a_schema_is_a_schema_in_the_hub_REQ1() -> None:
    format = {"type": "json_object", "schema": {"type": "object"}, "x": 1}
    request, losses = taken(response_format=format)
    assert _text_of(request).format == JsonSchemaFormatParam(
        name="response", schema={"type": "object"}, extra={"x": Raw(b"1")}
    )
    assert _extra(request) == {"chat:json_object_schema": True}
    assert not losses


def _text_of(request: Request) -> TextParam:
    assert isinstance(request.text, TextParam)
    return request.text


def test_stream_options_are_kept_for_the_stream_writer() -> None:
    request, losses = taken(stream=True, stream_options={"include_usage": True, "include_obfuscation": False})
    assert request.stream_options == StreamOptions(include_obfuscation=False)
    assert _extra(request) == {"chat:stream_options": {"include_usage": True}}
    assert not losses
    assert taken(stream=True, stream_options={"include_obfuscation": None})[0].extra is UNSET
    assert taken(stream_options=None)[0].stream_options is UNSET


def test_other_fields_are_passed_through_REQ7() -> None:
    others = {"stop": ["x"], "seed": 1, "logit_bias": {"5": 1}, "modalities": ["text"], "top_k": 3, "prediction": None}
    request, losses = taken(**others)
    assert _extra(request) == {f"chat:{name}": value for name, value in others.items()}
    assert not losses


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        [{"type": "text", "text": "see"}, {"type": "video_url", "video_url": {"url": "https://a.example/a"}}],
    ],
)
def test_parts_of_a_chat_client_reach_chat_servers_as_they_are(parts: list[dict[str, Any]]) -> None:
    """E-5: several texts, and media that only some servers know."""
    body = {"messages": [{"role": "user", "content": parts}]}
    request, losses = request_to_hub(json.dumps(body).encode())
    assert list(losses) == []
    sent, losses = request_from_hub(request)
    assert (json.loads(sent)["messages"], list(losses)) == (body["messages"], [])


def test_video_of_a_chat_client_is_a_video_of_the_hub() -> None:
    """C-2: servers of other dialects get it as a video; what is no video stays an unknown part."""
    url = "https://a.example/a"
    videos = [{"type": "video_url", "video_url": {"url": url}}, {"type": "video_url", "video_url": url}]
    request, _ = taken(messages=[{"role": "user", "content": [*videos, {"type": "video_url", "video_url": 1}]}])
    [message] = input_items(request)
    assert isinstance(message, MessageParam)
    *parts, unknown = list(message.content)
    assert [isinstance(part, InputVideo) and part.video_url for part in parts] == [url, url]
    assert isinstance(unknown, UnknownContent)
    assert unknown.kind == "chat:video_url"


@pytest.mark.parametrize("videos", [True, False])
def test_videos_reach_servers_that_know_them(videos: bool) -> None:
    video = InputVideo(video_url="https://a.example/a", extra={"gemini:videoMetadata": Raw(b'{"fps":1}')})
    request = Request(model="m", input=[MessageParam(role="user", content=[InputText(text="see"), video])])
    sent, losses = request_from_hub(request, ChatWire(videos=videos))
    content = json.loads(sent)["messages"][0]["content"]
    if videos:
        assert content[1] == {"type": "video_url", "video_url": {"url": "https://a.example/a"}}
        assert [loss.path for loss in losses] == ["input[0].content[1].videoMetadata"]
    else:
        assert content == "see\n[video omitted: https://a.example/a]"
        assert [loss.path for loss in losses] == ["input[0].content[1]"]


def test_media_of_a_chat_client_in_a_tool_result_are_lifted() -> None:
    """TOOL-6."""
    video = {"type": "video_url", "video_url": {"url": "https://a.example/a"}}
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "see"}, video]},
    ]
    request, _ = request_to_hub(json.dumps({"messages": messages}).encode())
    sent = json.loads(request_from_hub(request)[0])["messages"]
    assert sent[2]["content"] == "see\n[file 1 of this result follows below]"
    assert sent[3]["content"][1] == video


@pytest.mark.parametrize(("option", "role"), [("kept", "developer"), ("system", "system")])
def test_developer_role_of_a_chat_client_stays_unless_the_profile_changes_it(option: Any, role: str) -> None:
    body = {"messages": [{"role": "developer", "content": "rules"}, {"role": "user", "content": "hi"}]}
    request, _ = request_to_hub(json.dumps(body).encode())
    sent, losses = request_from_hub(request, ChatWire(developer=option))
    assert (json.loads(sent)["messages"][0], list(losses)) == ({"role": role, "content": "rules"}, [])


def test_number_of_choices_is_kept_if_there_are_several() -> None:
    assert taken(n=1)[0].extra is UNSET
    assert taken(n=2)[0].extra == {"chat:n": Raw(b"2")}


@pytest.mark.parametrize(
    ("body", "kind", "param"),
    [
        (b"", InvalidJson, None),
        (b"[]", InvalidJson, None),
        (b"{}", MissingField, "messages"),
        (b'{"messages":[]}', InvalidValue, "messages"),
        (b'{"messages":"hi"}', InvalidValue, "messages"),
        (b'{"messages":[{"role":"user","content":"hi"}],"temperature":"hot"}', InvalidValue, "temperature"),
        (b'{"messages":[{"role":"user","content":"hi"}],"n":0}', InvalidValue, "n"),
        (
            b'{"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema"}}',
            MissingField,
            "response_format.json_schema",
        ),
    ],
)
def test_invalid_bodies_are_refused_with_their_path_ERR3(body: bytes, kind: Any, param: str | None) -> None:
    with pytest.raises(kind) as caught:
        request_to_hub(body)
    assert caught.value.param == param
    assert caught.value.status == 400


def _extra(request: Request) -> dict[str, Any]:
    return {name: json.loads(bytes(raw)) for name, raw in (request.extra or {}).items()}


@pytest.mark.parametrize("stream", [{}, {"stream": False}, {"stream": None}])
def test_stream_options_without_a_stream_are_refused(stream: dict[str, Any]) -> None:
    """ERR-3."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream_options": {}, **stream}
    with pytest.raises(InvalidValue, match=r"^stream_options: allowed only with `stream: true`$") as caught:
        request_to_hub(json.dumps(body).encode())
    assert caught.value.param == "stream_options"
