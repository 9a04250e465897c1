"""`gateway/client_body`: the dialect of a path, bodies of every form, the limits of one request, and parts of unknown
types."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.dialects.dialect import ClientDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.errors import ApiError, InvalidJson, InvalidValue
from antiphon.gateway.client_body import (
    ClientBody,
    InputLimits,
    InvalidMessage,
    check_input,
    check_part_types,
    decode_create_message,
    dialect_at_path,
    is_turn_path,
    read_client_body,
)
from antiphon.protocol.losses import Loss

LIMITS = InputLimits(max_items=3, max_tools=2)
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
PATHS = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
    "ollama": "/api/chat",
    "vscode": "/v1/vscode/chat",
}


def body_with(dialect: str, messages: int, tools: int = 0) -> ClientBody:
    """A body with this many messages and tools, in the client's own words."""
    fields: dict[str, Any]
    match dialect:
        case "responses":
            fields = {
                "input": [{"role": "user", "content": "Hi"}] * messages,
                "tools": [{"type": "function", **TOOL["function"]}] * tools,
            }
        case "gemini":
            declarations = [{"name": f"f{number}"} for number in range(tools)]
            fields = {
                "contents": [{"role": role, "parts": [{"text": "Hi"}]} for role in turns(messages, "model")],
                "tools": [{"functionDeclarations": declarations}] if tools else [],
            }
        case "messages":
            fields = {
                "max_tokens": 16,
                "messages": [{"role": role, "content": "Hi"} for role in turns(messages, "assistant")],
                "tools": [{"name": f"f{number}", "input_schema": {"type": "object"}} for number in range(tools)],
            }
        case "vscode":
            fields = {
                "messages": [{"role": 1, "content": [{"kind": "text", "value": "Hi"}]}] * messages,
                "options": {"tools": [{"name": f"f{number}", "description": "x"} for number in range(tools)]},
            }
        case _:
            fields = {"messages": [{"role": "user", "content": "Hi"}] * messages, "tools": [TOOL] * tools}
    content = msgspec.json.encode({"model": "m", **fields})
    return ClientBody(content=content, dialect=dialect, path=PATHS[dialect])  # type: ignore[arg-type]


def turns(count: int, other: str) -> list[str]:
    return ["user" if number % 2 == 0 else other for number in range(count)]


def refusal(body: ClientBody) -> InvalidValue:
    request, *_ = read_client_body(body)
    with pytest.raises(InvalidValue) as caught:
        check_input(request, LIMITS, CLIENT_DIALECTS[body.dialect].input_field)
    return caught.value


@pytest.mark.parametrize(
    ("path", "dialect", "asks"),
    [
        ("/v1/responses", "responses", True),
        ("/v1/chat/completions", "chat", True),
        ("/v1/messages", "messages", True),
        ("/v1/messages/count_tokens", "messages", False),
        ("/v1/vscode/chat", "vscode", True),
        ("/v1beta/models/m:generateContent", "gemini", True),
        ("/v1/models/m:streamGenerateContent", "gemini", True),
        ("/v1/models/m:countTokens", "gemini", False),
        ("/v1/models", "responses", False),
        ("/nowhere", "responses", False),
    ],
)
def test_path_determines_the_dialect_and_whether_it_is_a_turn(path: str, dialect: str, asks: bool) -> None:
    assert dialect_at_path(path).name == dialect
    assert is_turn_path(path) is asks


@pytest.mark.parametrize("dialect", list(PATHS))
def test_items_over_the_limit_are_refused_in_the_words_of_the_client(dialect: str) -> None:
    allowed = body_with(dialect, 3)
    check_input(read_client_body(allowed)[0], LIMITS, "")
    error = refusal(body_with(dialect, 4))
    field = {"responses": "input", "gemini": "contents"}.get(dialect, "messages")
    assert (error.status, error.code, error.param) == (400, "invalid_value", field)
    assert error.message == f"{field}: expected at most 3 items in one request, got 4"


@pytest.mark.parametrize("dialect", [name for name in PATHS if name != "vscode"])
def test_tools_over_the_limit_are_refused(dialect: str) -> None:
    check_input(read_client_body(body_with(dialect, 1, 2))[0], LIMITS, "")
    error = refusal(body_with(dialect, 1, 3))
    assert (error.status, error.code, error.param) == (400, "invalid_value", "tools")


def test_text_input_is_one_item() -> None:
    body = ClientBody(content=b'{"input": "Hi"}', path="/v1/responses")
    check_input(read_client_body(body)[0], InputLimits(max_items=1, max_tools=1), "input")


def test_count_is_read_without_side_effects() -> None:
    content = b'{"model":"m","input":[{"role":"user","content":"Hi"},{"type":"compaction_trigger"}],"stream":true}'
    request, *_ = read_client_body(ClientBody(content=content, form="count", path="/v1/responses/input_tokens"))
    assert (request.store, request.stream) == (False, msgspec.UNSET)
    assert isinstance(request.input, list)
    assert len(request.input) == 1
    request, *_ = read_client_body(ClientBody(content=b'{"input":"Hi"}', form="count", path="/v1/responses"))
    assert request.input == "Hi"


def test_count_reads_the_turn_inside_a_body_of_gemini() -> None:
    turn = {"model": "models/m", "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    content = msgspec.json.encode({"generateContentRequest": turn})
    path = "/v1beta/models/m:countTokens"
    request, *_ = read_client_body(ClientBody(content=content, form="count", dialect="gemini", path=path))
    assert request.model == "m"


def test_messages_and_stored_requests_are_streamed() -> None:
    message = b'{"type":"response.create","model":"m","input":"Hi","stream":false}'
    assert read_client_body(ClientBody(content=message, form="message"))[0].stream is True
    assert read_client_body(ClientBody(content=b'{"model":"m","input":"Hi"}', form="stored"))[0].stream is True


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (b'{"type":"response.create","stream_options":{},"previous_response_id":"resp_1"}', "stream_options"),
        (b'{"type":"response.create","background":true,"previous_response_id":"resp_1"}', "background"),
        (b'{"type":"response.create","stream_options":1,"previous_response_id":"resp_1","x":1}', "stream_options"),
        (b'{"type":"other","previous_response_id":"resp_1"}', "type"),
        (b'{"type":5,"previous_response_id":"resp_1"}', "type"),
        (b'{"previous_response_id":"resp_1"}', "type"),
    ],
)
def test_invalid_message_names_the_response_that_it_continues(message: bytes, param: str) -> None:
    """WS-7."""
    with pytest.raises(InvalidMessage) as caught:
        decode_create_message(message)
    assert caught.value.previous_id == "resp_1"
    assert caught.value.error.param == param


@pytest.mark.parametrize("message", [b"[]", b"{", b'{"type":"response.create","background":true}'])
def test_invalid_message_that_continues_nothing_raises_its_error(message: bytes) -> None:
    with pytest.raises(ApiError):
        decode_create_message(message)


def test_message_that_is_no_json_names_the_place_of_the_fault() -> None:
    with pytest.raises(InvalidJson, match=r"not valid JSON: trailing comma in object \(byte 7\)"):
        decode_create_message(b'{"a":1,}')


def test_message_with_unknown_fields_is_read() -> None:
    request = decode_create_message(b'{"type":"response.create","model":"m","input":"Hi","x":1,"stream":true}')
    assert (request.model, request.input) == ("m", "Hi")


# Parts of unknown types


TEXT = {"type": "text", "text": "Hi"}
HOLOGRAM = {"type": "hologram"}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": [HOLOGRAM]}


CONTENTS = [{"parts": [{"text": "Hi"}]}]


def system(instruction: Any) -> dict[str, Any]:
    return {"contents": CONTENTS, "systemInstruction": instruction}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def assistant(*parts: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(parts)}


def check(dialect: ClientDialectName, body: dict[str, Any]) -> None:
    content = msgspec.json.encode({"model": "m", **body})
    request, losses = CLIENT_DIALECTS[dialect].request_to_hub(content)
    check_part_types(request, ClientBody(content=content, dialect=dialect), losses)


@pytest.mark.parametrize(
    ("dialect", "body", "param"),
    [
        ("responses", {"input": [user({"type": "input_text", "text": "Hi"}, HOLOGRAM)]}, "input[0].content[1].type"),
        ("responses", {"input": [HOLOGRAM, user(HOLOGRAM)]}, "input[1].content[0].type"),
        ("chat", {"messages": [user(TEXT), user(HOLOGRAM)]}, "messages[1].content[0].type"),
        ("chat", {"messages": [assistant(HOLOGRAM), user(HOLOGRAM)]}, "messages[1].content[0].type"),
        ("chat", {"messages": [user({"type": "messages:x"})]}, "messages[0].content[0].type"),
        ("messages", {"max_tokens": 9, "system": [HOLOGRAM], "messages": [user(TEXT)]}, "system[0].type"),
        ("messages", {"max_tokens": 9, "messages": [user(RESULT)]}, "messages[0].content[0].content[0].type"),
        ("gemini", {"contents": [{"parts": [{"text": "Hi"}, {"hologram": {}}]}]}, "contents[0].parts[1].hologram"),
        ("gemini", system({"parts": [{"text": "Hi"}, {"hologram": {}}]}), "systemInstruction.parts[1].hologram"),
        ("gemini", system({"parts": [{"thought": True, "type": ""}]}), "systemInstruction.parts[0].type"),
        ("gemini", system([{"hologram": {}}]), "systemInstruction[0].hologram"),
        (
            "gemini",
            {"contents": CONTENTS, "system_instruction": {"parts": [{"hologram": 1}]}},
            "systemInstruction.parts[0].hologram",
        ),
    ],
)
def test_part_of_unknown_type_is_refused_with_its_path(dialect: ClientDialectName, body: Any, param: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        check(dialect, body)
    assert refusal.value.param == param
    assert refusal.value.message.startswith(f"{param}: expected one of '")


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("responses", {"input": "Hi"}),
        ("responses", {"input": [{"role": "user", "content": "Hi"}, assistant(HOLOGRAM)]}),
        ("responses", {"input": [user({"type": "computer_screenshot"}, {"type": "gemini:toolResponse"})]}),
        ("chat", {"messages": [user({"type": "audio_url"})]}),
        ("messages", {"max_tokens": 9, "messages": [user({"type": "container_upload", "file_id": "f"})]}),
        ("gemini", {"contents": [{"parts": [{"toolResponse": {"id": "c"}}]}]}),
        ("gemini", system("Hi")),
        ("gemini", system({"parts": [{"text": "Hi"}, {"inline_data": {"mime_type": "image/png", "data": "AA=="}}]})),
        ("gemini", system({"parts": [{}, {"functionCall": None, "thought": True}]})),
        ("ollama", {"messages": [{"role": "user", "content": "Hi"}]}),
    ],
)
def test_other_parts_are_accepted(dialect: ClientDialectName, body: Any) -> None:
    """Parts that the client's API has, parts that the gateway gave the client, and parts of the model."""
    check(dialect, body)


def test_losses_elsewhere_say_nothing_about_the_system_instruction() -> None:
    request, _ = CLIENT_DIALECTS["gemini"].request_to_hub(msgspec.json.encode({"contents": CONTENTS}))
    body = ClientBody(content=b"not read", dialect="gemini")
    check_part_types(request, body, [Loss("contents[0].parts[0].thought", "the thought")])


@pytest.mark.parametrize("body", [b'{"messages":[]}', b'{"messages":["x", {"content": ["x"]}]}'])
def test_part_that_the_body_lacks_is_refused_with_the_field_of_the_input(body: bytes) -> None:
    request, _ = CLIENT_DIALECTS["chat"].request_to_hub(msgspec.json.encode({"messages": [user(HOLOGRAM)]}))
    with pytest.raises(InvalidValue) as refusal:
        check_part_types(request, ClientBody(content=body, dialect="chat"))
    assert refusal.value.param == "messages"
