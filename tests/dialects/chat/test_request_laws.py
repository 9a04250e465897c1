"""Laws of chat requests over generated conversations: hub to server, client to hub, and both ways in turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from tests.generate.chat_bodies import RICH, bodies, wires
from tests.generate.chat_rules import assert_chat_accepts
from tests.generate.conversations import marks_of, requests

from antiphon.dialects.chat import request_from_hub, request_to_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.unknown_fields import without_prefix
from antiphon.protocol import codec
from antiphon.protocol.content import (
    InputAudio,
    InputFileParam,
    InputImageParam,
    InputText,
    OutputTextParam,
    Refusal,
    ToolUse,
)
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    Request,
    input_items,
)

# The laws.


@given(requests(orphans=True), wires())
def test_sent_body_is_accepted_by_servers_of_every_habit_E5(request: Request, wire: ChatWire) -> None:
    body, _ = request_from_hub(request, wire)
    assert_chat_accepts(body, developer=wire.developer == "developer", media_in_tools=wire.tool_images == "keep")


@settings(max_examples=40)
@given(requests(orphans=True), wires())
def test_every_text_is_sent_or_named_as_a_loss_E5_F4(request: Request, wire: ChatWire) -> None:
    body, losses = request_from_hub(request, wire)
    sent = [text for _, text in _strings(_with_arguments_read(json.loads(body)))]
    for path, text in _strings(json.loads(codec.encode(request))):
        # Content that only its server can read is never sent to chat; it is reported where nothing else was there.
        if marks_of(text) and not path.endswith("encrypted_content"):
            assert any(text in other for other in sent) or _is_named(path, losses), f"{path}: {text!r}"


@given(requests(), wires())
def test_call_ids_are_kept_E5(request: Request, wire: ChatWire) -> None:
    body, _ = request_from_hub(request, wire)
    calls = [call["id"] for message in json.loads(body)["messages"] for call in message.get("tool_calls", ())]
    assert calls == _call_ids(input_items(request))


@given(requests(orphans=True), wires(system="anywhere"))
def test_messages_and_calls_keep_their_order_E5(request: Request, wire: ChatWire) -> None:
    body, _ = request_from_hub(request, wire)
    texts, texts_and_calls = _marks_sent(json.loads(body)["messages"])
    given_texts, given_called = _marks_given(input_items(request))
    assert [mark for mark in texts if mark in given_texts] == [mark for mark in given_texts if mark in texts]
    assert [mark for mark in texts_and_calls if mark in given_called] == given_called


@given(requests(), wires())
def test_outputs_follow_their_own_call_E2(request: Request, wire: ChatWire) -> None:
    body, _ = request_from_hub(request, wire)
    results = [message for message in json.loads(body)["messages"] if message["role"] == "tool"]
    for item in input_items(request):
        if isinstance(item, FunctionCallOutputParam | CustomToolCallOutputParam) and isinstance(item.output, str):
            assert [
                result
                for result in results
                if item.output in str(result["content"]) and result["tool_call_id"] == item.call_id
            ]


@given(requests(orderly=True))
def test_orderly_conversation_survives_the_round_trip_law_d(request: Request) -> None:
    body, losses = request_from_hub(request, RICH)
    again, more_losses = request_to_hub(body)
    assert not [loss for loss in losses if loss.path.startswith(("input", "instructions", "tools"))]
    assert not list(more_losses)
    assert _plain_conversation(again) == _plain_conversation(request)
    assert again.tools == request.tools
    for field in (
        "temperature",
        "top_p",
        "metadata",
        "service_tier",
        "user",
        "stream",
        "safety_identifier",
        "prompt_cache_key",
    ):
        assert (getattr(again, field) or None) == (getattr(request, field) or None)


@given(
    requests(orphans=True), wires(reasoning_history="all")
)  # a moved image is a user's turn, which would end a tool loop
def test_sent_body_is_unchanged_after_a_round_trip_through_the_hub_law_d(request: Request, wire: ChatWire) -> None:
    body, _ = request_from_hub(request, wire)
    again, losses = request_to_hub(body)
    assert not list(losses)
    assert _regrouped(json.loads(request_from_hub(again, wire)[0])) == _regrouped(json.loads(body))


@given(bodies())
def test_chat_body_survives_the_round_trip(body: dict[str, Any]) -> None:
    request, losses = request_to_hub(json.dumps(body).encode())
    again, more_losses = request_from_hub(request, RICH)
    assert not list(losses)
    assert not list(more_losses)
    assert _regrouped(assert_chat_accepts(again)) == _regrouped(body)


@given(bodies())
def test_hub_parts_are_typed_by_role_C2_E5(body: dict[str, Any]) -> None:
    request, _ = request_to_hub(json.dumps(body).encode())
    if request.max_output_tokens == 1:  # allowed in chat, below the hub's limit: kept, and left to the upstream
        body |= {"max_completion_tokens": 4096}
        request, _ = request_to_hub(json.dumps(body).encode())
    assert codec.decode_request(codec.encode(request)) == request
    for item in input_items(request):
        if isinstance(item, MessageParam):
            assert all(isinstance(part, PARTS_OF_ROLE[item.role]) for part in item.content)


@given(bodies())
def test_every_text_of_a_client_reaches_the_hub_E5(body: dict[str, Any]) -> None:
    request, _ = request_to_hub(json.dumps(body).encode())
    held = [text for _, text in _strings(json.loads(codec.encode(request)))]
    for path, text in _strings(body):
        assert not marks_of(text) or any(text in other for other in held), path


@given(bodies())
def test_order_and_ids_of_a_client_reach_the_hub_E5(body: dict[str, Any]) -> None:
    request, _ = request_to_hub(json.dumps(body).encode())
    sent = [mark for _, text in _strings(body["messages"]) for mark in marks_of(text)]
    held = [
        mark
        for _, text in _strings(json.loads(codec.encode([request.instructions or "", request.input])))
        for mark in marks_of(text)
    ]
    assert held == _reasoning_first(sent, body["messages"])
    assert _call_ids(input_items(request)) == [call["id"] for m in body["messages"] for call in m.get("tool_calls", ())]
    outputs = [item.call_id for item in input_items(request) if isinstance(item, OUTPUTS)]
    assert outputs == [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]


# Helpers of the laws.


def _strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield path, value
        case dict():
            for name, member in value.items():
                yield from _strings(member, f"{path}.{name}" if path else name)
        case list():
            for at, member in enumerate(value):
                yield from _strings(member, f"{path}[{at}]")


def _with_arguments_read(value: Any) -> Any:
    """The same with the content of arguments besides the arguments themselves."""
    match value:
        case {"arguments": str(arguments)}:
            return [value, json.loads(arguments)]
        case dict():
            return {name: _with_arguments_read(member) for name, member in value.items()}
        case list():
            return [_with_arguments_read(member) for member in value]
        case _:
            return value


def _is_named(path: str, losses: Losses) -> bool:
    path = without_prefix(path)
    return any(path == loss.path or path.startswith((f"{loss.path}.", f"{loss.path}[")) for loss in losses)


def _call_ids(items: list[ItemParam]) -> list[str]:
    ids = []
    for item in items:
        if isinstance(item, FunctionCallParam | CustomToolCallParam):
            ids.append(item.call_id)
        elif isinstance(item, MessageParam) and isinstance(item.content, list):
            ids += [part.id for part in item.content if isinstance(part, ToolUse)]
    return ids


def _marks_given(items: list[ItemParam]) -> tuple[list[str], list[str]]:
    """In order: the texts of all messages; the texts of users and systems, and the calls."""
    texts: list[str] = []
    called: list[str] = []
    for item in items:
        match item:
            case MessageParam(role=role, content=content):
                parts = [InputText(text=content)] if isinstance(content, str) else content
                for part in parts:
                    if isinstance(part, InputText | OutputTextParam):
                        texts += marks_of(part.text)
                        called += marks_of(part.text) if role != "assistant" else []
                    elif isinstance(part, ToolUse):
                        called += marks_of(part.input["q"])
            case FunctionCallParam(arguments=text) | CustomToolCallParam(input=text):
                called += marks_of(text)
    return texts, called


def _marks_sent(messages: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    collected: list[str] = []
    called: list[str] = []
    for message in messages:
        texts = [mark for _, text in _strings(message.get("content")) for mark in marks_of(text)]
        calls = [mark for _, text in _strings(message.get("tool_calls", [])) for mark in marks_of(text)]
        if message["role"] != "tool":
            collected += texts
            called += calls if message["role"] == "assistant" else texts
    return collected, called


def _plain_conversation(request: Request) -> list[Any]:
    """Roles, texts, calls and outputs in order; the leading system text is one, wherever it stood."""
    entries = [("system", request.instructions)] if request.instructions else []
    for item in input_items(request):
        match item:
            case (
                MessageParam(role=role, content=str(text))
                | MessageParam(role=role, content=[InputText(text=text) | OutputTextParam(text=text)])
            ):
                entries.append((role, text))
            case MessageParam(role=role, content=parts):
                entries.append((role, codec.encode(parts).decode()))
            case FunctionCallParam():
                entries.append((item.call_id, item.name + item.arguments))
            case FunctionCallOutputParam():
                entries.append((item.call_id, str(item.output)))
    leading = [
        text for at, (role, text) in enumerate(entries) if all(before[0] == "system" for before in entries[: at + 1])
    ]
    return ["\n\n".join(leading), *entries[len(leading) :]]


def _regrouped(body: dict[str, Any]) -> dict[str, Any]:
    """The documented regrouping: leading system text is one text, text parts are one text, text and calls one turn."""
    messages: list[dict[str, Any]] = []
    for message in body["messages"]:
        message = {**message, "content": _joined(message.get("content"))}
        before = messages[-1] if messages else {"role": ""}
        if message["role"] == "system" and all(other["role"] == "system" for other in messages) and messages:
            messages[-1] = {**before, "content": f"{before['content']}\n\n{message['content']}"}
        elif before["role"] == "assistant" and not before.get("tool_calls") and _only_calls(message):
            messages[-1] = {**before, "tool_calls": message["tool_calls"]}
        else:
            messages.append(message)
    return {**body, "messages": messages}


def _joined(content: Any) -> Any:
    if isinstance(content, list) and all(part["type"] == "text" for part in content):
        return "\n".join(part["text"] for part in content)
    return content


def _only_calls(message: dict[str, Any]) -> bool:
    return message["role"] == "assistant" and {name for name, value in message.items() if value} == {
        "role",
        "tool_calls",
    }


def _reasoning_first(marks: list[str], messages: list[dict[str, Any]]) -> list[str]:
    """A client may put the reasoning anywhere in a message; in the hub it is an item before the text."""
    ordered: list[str] = []
    for message in messages:
        first = {"reasoning_content": message.get("reasoning_content", "")}
        ordered += [
            mark for _, text in _strings([first, {**message, **{"reasoning_content": ""}}]) for mark in marks_of(text)
        ]
    assert sorted(ordered) == sorted(marks)
    return ordered


OUTPUTS = (FunctionCallOutputParam, CustomToolCallOutputParam)
PARTS_OF_ROLE = {
    "user": (InputText, InputImageParam, InputFileParam, InputAudio),
    "system": (InputText,),
    "developer": (InputText,),
    "assistant": (OutputTextParam, Refusal),
}
