"""The prefix law: in a growing conversation, the upstream gets the bytes of the earlier request again (E-4).

A prompt cache matches only equal prefixes. So the tools, the system text and all messages of one request are the start
of those of the next one, for every client dialect and every server. Cache marks, which clients move to the newest
message, are taken out before the comparison; without marks the bytes themselves are compared. No shipped profile needs
an exception; `EXCEPTIONS` lists the wire options that change a prefix.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS
from antiphon.gateway.turn_data import OriginalRequest, prepare_request
from antiphon.gateway.upstreams import TranslationPlan
from antiphon.profiles import load_profile

Json = dict[str, Any]
PNG = "iVBORw0KGgo="
SCHEMA: Json = {"type": "object", "properties": {"q": {"type": "string"}}}
MARK: Json = {"cache_control": {"type": "ephemeral"}}
CHAT_IMAGE: Json = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
RESPONSES_IMAGE: Json = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}
MESSAGES_IMAGE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
GEMINI_IMAGE: Json = {"inlineData": {"mimeType": "image/png", "data": PNG}}
BREAKPOINT: Json = {"prompt_cache_breakpoint": {"mode": "explicit"}}


class Call(NamedTuple):
    id: str
    result: str
    has_image: bool  # the result has an image, which some servers get in a message of its own


class Exchange(NamedTuple):
    """The user's text, empty if the exchange only answers calls, and the answer of the model."""

    text: str
    has_image: bool
    thought: str
    answer: str
    calls: list[Call]


@st.composite
def conversations(draw: st.DrawFn) -> list[Exchange]:
    """Two to five exchanges. Calls are answered by the next exchange."""
    exchanges: list[Exchange] = []
    for number in range(draw(st.integers(2, 5))):
        follows_calls = bool(exchanges and exchanges[-1].calls)
        count = draw(st.integers(0, 2))
        exchanges.append(
            Exchange(
                text="" if follows_calls and draw(st.booleans()) else f"question {number}",
                has_image=draw(st.booleans()),
                thought=draw(st.sampled_from(["", f"thought {number}"])),
                answer=f"answer {number}" if not count or draw(st.booleans()) else "",
                calls=[
                    Call(f"call_{number}_{index}", f"result {number} {index}", draw(st.booleans()))
                    for index in range(count)
                ],
            )
        )
    return exchanges


# The requests of each client: the system text, a tool, and the exchanges before the last one with their answers.


def chat_body(exchanges: list[Exchange], is_marked: bool) -> Json:
    messages: list[Json] = [{"role": "system", "content": [{"type": "text", "text": "rules", **marks(is_marked)}]}]
    results: list[Call] = []
    for exchange in exchanges:
        messages += [{"role": "tool", "tool_call_id": call.id, "content": chat_result(call)} for call in results]
        if exchange.text:
            parts: list[Json] = [{"type": "text", "text": exchange.text}]
            if exchange.has_image:
                parts.insert(0, CHAT_IMAGE)
            messages.append({"role": "user", "content": parts})
        results = exchange.calls
        if exchange is exchanges[-1]:
            break
        answer: Json = {"role": "assistant", "content": exchange.answer or None}
        if exchange.thought:
            answer["reasoning_content"] = exchange.thought
        if exchange.calls:
            answer["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": "look", "arguments": '{"q":"x"}'}}
                for call in exchange.calls
            ]
        messages.append(answer)
    if is_marked and isinstance(messages[-1]["content"], list):
        messages[-1]["content"][-1].update(MARK)
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    return {"messages": messages, "tools": tools}


def chat_result(call: Call) -> str | list[Json]:
    return [{"type": "text", "text": call.result}, CHAT_IMAGE] if call.has_image else call.result


def responses_body(exchanges: list[Exchange], is_marked: bool) -> Json:
    items: list[Json] = []
    results: list[Call] = []
    for number, exchange in enumerate(exchanges):
        items += [
            {"type": "function_call_output", "call_id": call.id, "output": responses_result(call)} for call in results
        ]
        if exchange.text:
            parts: list[Json] = [{"type": "input_text", "text": exchange.text}]
            if exchange.has_image:
                parts.insert(0, RESPONSES_IMAGE)
            items.append({"type": "message", "role": "user", "content": parts})
        results = exchange.calls
        if exchange is exchanges[-1]:
            break
        if exchange.thought:
            items.append(
                {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": exchange.thought}
            )
        if exchange.answer:
            part = {"type": "output_text", "text": exchange.answer, "annotations": []}
            items.append(
                {
                    "type": "message",
                    "id": f"msg_{number}",
                    "role": "assistant",
                    "status": "completed",
                    "content": [part],
                }
            )
        items += [
            {"type": "function_call", "call_id": call.id, "name": "look", "arguments": '{"q":"x"}'}
            for call in exchange.calls
        ]
    for item in (items[0], items[-1]):
        if is_marked and "content" in item:
            item["content"][-1].update(BREAKPOINT)
    tools = [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}]
    return {"instructions": "rules", "input": items, "tools": tools}


def responses_result(call: Call) -> str | list[Json]:
    return [{"type": "input_text", "text": call.result}, RESPONSES_IMAGE] if call.has_image else call.result


def messages_body(exchanges: list[Exchange], is_marked: bool) -> Json:
    messages: list[Json] = []
    results: list[Call] = []
    for exchange in exchanges:
        blocks: list[Json] = [
            {"type": "tool_result", "tool_use_id": call.id, "content": messages_result(call)} for call in results
        ]
        if exchange.text and exchange.has_image:
            blocks.append({**MESSAGES_IMAGE})
        if exchange.text:
            blocks.append({"type": "text", "text": exchange.text})
        messages.append({"role": "user", "content": blocks})
        results = exchange.calls
        if exchange is exchanges[-1]:
            break
        answer: list[Json] = []
        if exchange.thought:
            answer.append({"type": "thinking", "thinking": exchange.thought, "signature": "c2lnbmVk"})
        if exchange.answer:
            answer.append({"type": "text", "text": exchange.answer})
        answer += [{"type": "tool_use", "id": call.id, "name": "look", "input": {"q": "x"}} for call in exchange.calls]
        messages.append({"role": "assistant", "content": answer})
    messages[-1]["content"][-1].update(marks(is_marked))
    system = [{"type": "text", "text": "rules", **marks(is_marked)}]
    tools = [{"name": "look", "input_schema": SCHEMA}]
    return {"system": system, "messages": messages, "tools": tools, "max_tokens": 999}


def messages_result(call: Call) -> str | list[Json]:
    return [{"type": "text", "text": call.result}, MESSAGES_IMAGE] if call.has_image else call.result


def gemini_body(exchanges: list[Exchange], is_marked: bool) -> Json:
    del is_marked  # this API has no marks
    contents: list[Json] = []
    results: list[Call] = []
    for exchange in exchanges:
        parts: list[Json] = [
            {"functionResponse": {"id": call.id, "name": "look", "response": {"output": call.result}, **media(call)}}
            for call in results
        ]
        if exchange.text and exchange.has_image:
            parts.append(GEMINI_IMAGE)
        if exchange.text:
            parts.append({"text": exchange.text})
        contents.append({"role": "user", "parts": parts})
        results = exchange.calls
        if exchange is exchanges[-1]:
            break
        answer: list[Json] = []
        if exchange.thought:
            answer.append({"text": exchange.thought, "thought": True})
        if exchange.answer:
            answer.append({"text": exchange.answer})
        answer += [
            {"functionCall": {"id": call.id, "name": "look", "args": {"q": "x"}}, "thoughtSignature": "c2lnbmVk"}
            for call in exchange.calls
        ]
        contents.append({"role": "model", "parts": answer})
    tools = [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": SCHEMA}]}]
    return {"systemInstruction": {"parts": [{"text": "rules"}]}, "contents": contents, "tools": tools}


def media(call: Call) -> Json:
    return {"parts": [GEMINI_IMAGE]} if call.has_image else {}


def ollama_body(exchanges: list[Exchange], is_marked: bool) -> Json:
    del is_marked  # this API has no marks
    messages: list[Json] = [{"role": "system", "content": "rules"}]
    results: list[Call] = []
    for exchange in exchanges:
        messages += [{"role": "tool", "tool_name": "look", "content": call.result} for call in results]
        if exchange.text:
            image = {"images": [PNG]} if exchange.has_image else {}
            messages.append({"role": "user", "content": exchange.text, **image})
        results = exchange.calls
        if exchange is exchanges[-1]:
            break
        answer: Json = {"role": "assistant", "content": exchange.answer}
        if exchange.thought:
            answer["thinking"] = exchange.thought
        if exchange.calls:
            answer["tool_calls"] = [{"function": {"name": "look", "arguments": {"q": "x"}}} for _ in exchange.calls]
        messages.append(answer)
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    return {"messages": messages, "tools": tools}


def marks(is_marked: bool) -> Json:
    return MARK if is_marked else {}


CLIENTS: Final[dict[ServerDialectName, Callable[[list[Exchange], bool], Json]]] = {
    "chat": chat_body,
    "responses": responses_body,
    "messages": messages_body,
    "gemini": gemini_body,
    "ollama": ollama_body,
}
#: The members of a body that a prompt cache covers; the last one is the list of messages.
PREFIX_MEMBERS: Final[dict[ServerDialectName, tuple[str, ...]]] = {
    "chat": ("tools", "messages"),
    "responses": ("tools", "instructions", "input"),
    "messages": ("tools", "system", "messages"),
    "gemini": ("tools", "systemInstruction", "contents"),
    "ollama": ("tools", "messages"),
}
SERVERS: Final = (
    *("chat", "openrouter", "deepseek", "mistral", "open-responses", "openai", "messages", "anthropic"),
    *("gemini", "google", "ollama-native"),
)

PROFILES: Final = {name: load_profile(name) for name in SERVERS}


def prefixes(client: ServerDialectName, profile_name: str, exchanges: list[Exchange], is_marked: bool) -> list[Json]:
    """What the server gets of each request of the growing conversation, as far as a cache covers it."""
    profile = PROFILES[profile_name]
    sent: list[Json] = []
    for count in range(1, len(exchanges) + 1):
        original = json.dumps({**CLIENTS[client](exchanges[:count], is_marked), "model": "gpt-5.6"}).encode()
        request, _ = CLIENT_DIALECTS[client].request_to_hub(original)
        plan = TranslationPlan(model="gpt-5.6", profile=profile, wire=profile.wire)
        body = prepare_request(request, plan, OriginalRequest(client, original)).body
        sent.append(prefix_of(body, profile.dialect, has_marks=is_marked))
    return sent


def prefix_of(body: bytes, dialect: ServerDialectName, *, has_marks: bool = False) -> Json:
    """The bytes of the members that a cache covers; the messages one by one."""
    members = msgspec.json.decode(body, type=dict[str, Raw])
    *fixed, messages = PREFIX_MEMBERS[dialect]
    prefix: Json = {name: bytes_of(members.get(name, Raw(b"null")), has_marks) for name in fixed}
    prefix[messages] = [bytes_of(raw, has_marks) for raw in msgspec.json.decode(members[messages], type=list[Raw])]
    return prefix


def bytes_of(raw: Raw, has_marks: bool) -> bytes:
    return json.dumps(without_marks(json.loads(bytes(raw)))).encode() if has_marks else bytes(raw)


def without_marks(value: Any) -> Any:
    match value:
        case dict():
            return {
                name: without_marks(member)
                for name, member in value.items()
                if name not in ("cache_control", "prompt_cache_breakpoint")
            }
        case list():
            return [without_marks(member) for member in value]
        case _:
            return value


def changed_prefix(profile_name: str, earlier: Json, later: Json) -> str | None:
    """The first difference between a request and the start of the next one; None if the prefix is the same."""
    *fixed, messages = PREFIX_MEMBERS[PROFILES[profile_name].dialect]
    for name in fixed:
        if earlier[name] != later[name]:
            return f"{name}: {earlier[name]!r} != {later[name]!r}"
    for index, message in enumerate(earlier[messages]):
        if [message] != later[messages][index : index + 1]:
            return f"{messages}[{index}]: {message!r} != {later[messages][index : index + 1]!r}"
    return None


@pytest.mark.slow
@pytest.mark.without_coverage
@pytest.mark.parametrize("client", CLIENTS)
@settings(max_examples=40)
@given(exchanges=conversations(), is_marked=st.booleans())
def test_next_request_starts_with_the_earlier_one(
    client: ServerDialectName, exchanges: list[Exchange], is_marked: bool
) -> None:
    """E-4."""
    for profile_name in SERVERS:
        sent = prefixes(client, profile_name, exchanges, is_marked)
        for earlier, later in pairwise(sent):
            assert changed_prefix(profile_name, earlier, later) is None, f"{client} to {profile_name}"


class ChangedPrefix(NamedTuple):
    """Wire options under which an earlier message changes, and why."""

    wire: Any
    reason: str
    #: The requests of a Responses client before and after the change.
    earlier: list[Json]
    later: list[Json]


QUESTION: Final[Json] = {"role": "user", "content": "q"}
LATE_RULE: Final[Json] = {"role": "system", "content": "be brief"}
LOOP: Final[list[Json]] = [
    QUESTION,
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "thought"}]},
    {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "result"},
]
EXCEPTIONS: Final = {
    "chat: reasoning of the tool loop": ChangedPrefix(
        ChatWire(reasoning_field="reasoning_content", reasoning_history="tool_loop"),
        "The server wants reasoning back only within the tool loop of the last question; a new question drops it.",
        LOOP,
        [*LOOP, {"role": "assistant", "content": "answer"}, QUESTION],
    ),
    "chat: system text first": ChangedPrefix(
        ChatWire(system="first"),
        "The server takes system text only at the start, so a later system text is added there.",
        [QUESTION],
        [QUESTION, LATE_RULE],
    ),
    "messages: system text at the top": ChangedPrefix(
        MessagesWire(system="top"),
        "The server takes system text only at the top, so a later system text is added there.",
        [QUESTION],
        [QUESTION, LATE_RULE],
    ),
}


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions_change_the_prefix(name: str) -> None:
    """E-4: each exception is needed, and its reason is a rule of the server."""
    exception = EXCEPTIONS[name]
    dialect: ServerDialectName = "chat" if isinstance(exception.wire, ChatWire) else "messages"
    sent: list[Json] = []
    for items in (exception.earlier, exception.later):
        request, _ = CLIENT_DIALECTS["responses"].request_to_hub(json.dumps({"model": "m", "input": items}).encode())
        body, _ = SERVER_DIALECTS[dialect].request_from_hub(request, exception.wire)
        sent.append(prefix_of(body, dialect))
    assert changed_prefix(dialect, *sent) is not None


def test_marks_are_compared_without_their_place() -> None:
    """The law itself finds a change of a text, and no change of a mark."""

    def sent(part: Json, tools: list[Any] | None = None) -> Json:
        body = {"tools": tools, "messages": [{"role": "user", "content": [part]}]}
        return prefix_of(json.dumps(body).encode(), "chat", has_marks=True)

    assert changed_prefix("chat", sent({"text": "a", **MARK}), sent({"text": "a"})) is None
    assert changed_prefix("chat", sent({"text": "a", **MARK}), sent({"text": "b"})) is not None
    assert changed_prefix("chat", sent({"text": "a"}, [1]), sent({"text": "a"})) is not None


def test_bytes_are_compared() -> None:
    """Values that are equal as JSON may have other bytes, and a cache does not match them."""
    plain, escaped = (b'{"messages":[{"content":"%b"}]}' % text for text in (b"/", b"\\/"))
    assert changed_prefix("chat", prefix_of(plain, "chat"), prefix_of(plain, "chat")) is None
    assert changed_prefix("chat", prefix_of(plain, "chat"), prefix_of(escaped, "chat")) is not None
