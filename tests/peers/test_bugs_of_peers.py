"""Known bugs of other gateways, each over every pair of a server's and a client's dialect where it can occur.

From the server's bytes to the client's, without sockets. A reader that accumulates deltas must get the right result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.gateway.scripted import JSON, ScriptedAnswer
from tests.peers import server_streams
from tests.peers.client_answers import ClientAnswer, read_answer
from tests.peers.server_streams import OSLO, ROME, SIGNATURE

from antiphon.config import Config, UpstreamConfig
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.gateway.client_body import request_at_path
from antiphon.gateway.routes import Routes
from antiphon.gateway.turn import UpstreamTurn
from antiphon.gateway.turn_data import PreparedRequest, prepare_request
from antiphon.gateway.upstreams import Target
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_request
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps

pytestmark = pytest.mark.without_coverage
DIALECTS = ("chat", "responses", "messages", "gemini")
every_client = pytest.mark.parametrize("client", DIALECTS)
every_server = pytest.mark.parametrize("server", DIALECTS)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
CONVERSATION: Any = [{"role": "user", "content": "Rome?"}]
FUNCTION = {"name": "get_weather", "parameters": SCHEMA}
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/m:streamGenerateContent",
}
ASKED: dict[str, dict[str, Any]] = {
    "chat": {
        **{"model": "m", "stream": True, "stream_options": {"include_usage": True}, "messages": CONVERSATION},
        "tools": [{"type": "function", "function": FUNCTION}],
    },
    "responses": {"model": "m", "stream": True, "input": "Rome?", "tools": [{"type": "function", **FUNCTION}]},
    "messages": {
        **{"model": "m", "stream": True, "max_tokens": 100, "messages": CONVERSATION},
        "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
    },
    "gemini": {
        "contents": [{"parts": [{"text": "Rome?"}]}],
        "tools": [{"functionDeclarations": [FUNCTION]}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
    },
}
TEXT = ("text", "Let me look.")
THOUGHT = ("thought", "Hm, Rome.")
CALL = ("call", "call_a", "get_weather", ROME)


def target(server: Any) -> Target:
    profile = "deepseek" if server == "chat" else None  # one that reasons, and requires its reasoning back
    upstream = UpstreamConfig(name="lab", dialect=server, profile=profile, base_url="http://lab/v1", models=["*"])
    return Routes(Config(upstreams=[upstream]), {}, {}).find("m")


def asking(client: Any, server: str) -> UpstreamTurn:
    request, _ = request_at_path(PATHS[client], CLIENT_DIALECTS[client], json.dumps(ASKED[client]).encode())
    return make_turn(request, target(server))


def make_turn(request: Request, target: Target) -> UpstreamTurn:
    numbers = iter(range(1000))
    stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1)
    return UpstreamTurn(prepare_request(request, target.plan_translation()), target, stamps, None)


def streamed(client: Any, server: str, frames: list[bytes]) -> ClientAnswer:
    """The content that a client gets of a server's stream, the same for the whole stream and frame by frame."""
    results: list[bytes] = []
    for pieces in (frames, [b"".join(frames)]):
        turn = asking(client, server)
        pipe = turn.make_pipe(CLIENT_DIALECTS[client].events_from_hub(turn.prepared.request))
        results.append(b"".join(map(pipe.feed, pieces)) + pipe.finish())
    assert results[0] == results[1]
    return read_answer(client, results[0])


def content(result: ClientAnswer, *, has_call: bool = True) -> set[tuple[str, ...]]:
    """The content, independent of the dialect's order, with arguments as JSON."""
    assert bool(result.calls) == has_call
    return {(*part[:-1], json.dumps(json.loads(part[-1]))) if part[0] == "call" else part for part in result.parts}


def without_ids(result: ClientAnswer) -> list[tuple[str, ...]]:
    return [(name, json.dumps(json.loads(arguments))) for _, _, name, arguments in result.calls]


TEXT_AND_CALL: dict[str, list[bytes]] = {
    "chat": server_streams.chat(
        {"content": TEXT[1], "tool_calls": [server_streams.chat_call("call_a", ROME)]}, finish="tool_calls"
    ),
    "responses": server_streams.responses(
        server_streams.message_item(0, TEXT[1]), server_streams.call_item(1, "call_a", ROME)
    ),
    "messages": server_streams.messages(
        *server_streams.text_block(0, TEXT[1]), *server_streams.call_block(1, "call_a", ROME), stop="tool_use"
    ),
    "gemini": server_streams.gemini([{"text": TEXT[1]}, server_streams.gemini_call(ROME, "call_a")]),
}


@every_client
@every_server
def test_call_beside_text_in_one_chunk_is_not_lost(client: str, server: str) -> None:
    """STR-3."""
    result = streamed(client, server, TEXT_AND_CALL[server])
    assert content(result) == {TEXT, (*CALL[:-1], '{"city": "Rome"}')}
    assert (
        result.stop
        == {"chat": "tool_calls", "responses": "completed", "messages": "tool_use", "gemini": "STOP"}[client]
    )


WHOLE: dict[str, Any] = {
    "chat": {
        "choices": [
            {
                "message": {"content": TEXT[1], "tool_calls": [server_streams.chat_call("call_a", ROME)]},
                "finish_reason": "tool_calls",
            }
        ]
    },
    "responses": {
        "status": "completed",
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": TEXT[1], "annotations": []}],
            },
            {"type": "function_call", "call_id": "call_a", "name": "get_weather", "arguments": ROME},
        ],
    },
    "messages": {
        "content": [
            {"type": "text", "text": TEXT[1]},
            {"type": "tool_use", "id": "call_a", "name": "get_weather", "input": {"city": "Rome"}},
        ],
        "stop_reason": "tool_use",
    },
    "gemini": {
        "candidates": [
            {
                "content": {"parts": [{"text": TEXT[1]}, server_streams.gemini_call(ROME, "call_a")]},
                "finishReason": "STOP",
            }
        ]
    },
}


@every_client
@every_server
def test_call_beside_text_in_a_plain_answer_is_not_lost(client: Any, server: str) -> None:
    turn = asking(client, server)
    work = turn.read_response(ScriptedAnswer([json.dumps(WHOLE[server]).encode()], JSON))
    with pytest.raises(StopIteration) as over:
        work.send(None)
    body, _ = CLIENT_DIALECTS[client].response_from_hub(over.value.value, turn.prepared.request)
    for words in (TEXT[1], "call_a", "get_weather", "Rome"):
        assert words in body.decode()


HISTORY: dict[str, dict[str, Any]] = {
    "chat": {
        "messages": [
            *CONVERSATION,
            {"role": "assistant", "content": TEXT[1], "tool_calls": [server_streams.chat_call("call_a", ROME)]},
            {"role": "tool", "tool_call_id": "call_a", "content": "sunny"},
        ]
    },
    "responses": {
        "input": [
            *CONVERSATION,
            {"role": "assistant", "content": TEXT[1]},
            {"type": "function_call", "call_id": "call_a", "name": "get_weather", "arguments": ROME},
            {"type": "function_call_output", "call_id": "call_a", "output": "sunny"},
        ]
    },
    "messages": {
        "messages": [
            *CONVERSATION,
            {"role": "assistant", "content": WHOLE["messages"]["content"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_a", "content": "sunny"}]},
        ]
    },
    "gemini": {
        "contents": [
            {"parts": [{"text": "Rome?"}]},
            {"role": "model", "parts": [{"text": TEXT[1]}, server_streams.gemini_call(ROME, "call_a")]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "call_a", "name": "get_weather", "response": {"a": "sunny"}}}],
            },
        ]
    },
}


@every_client
@every_server
def test_call_beside_text_in_the_history_is_not_lost(client: Any, server: str) -> None:
    body = json.dumps({**ASKED[client], **HISTORY[client]}).encode()
    request, _ = request_at_path(PATHS[client], CLIENT_DIALECTS[client], body)
    sent = prepare_request(request, target(server).plan_translation()).body.decode()
    assert [sent.count(words) for words in (TEXT[1], "sunny")] == [1, 1]
    assert sent.index("Rome?") < sent.index(TEXT[1]) < sent.index("sunny")
    assert sent.count("city") == 2  # once in the schema, once in the call


SHARED: dict[str, list[bytes]] = {
    "chat": server_streams.chat(
        {"tool_calls": [server_streams.chat_call("call_a", ROME)]},
        {"tool_calls": [server_streams.chat_call("call_b", OSLO)]},
        finish="tool_calls",
    ),
    "responses": server_streams.responses(
        server_streams.call_item(0, "call_a", ROME, ids=("fc_a",) * 3),
        server_streams.call_item(0, "call_b", OSLO, ids=("fc_b",) * 3),
    ),
    "messages": server_streams.messages(
        *server_streams.call_block(0, "call_a", ROME), *server_streams.call_block(0, "call_b", OSLO), stop="tool_use"
    ),
    "gemini": server_streams.gemini([server_streams.gemini_call(ROME), server_streams.gemini_call(OSLO)]),
}


@every_client
@every_server
def test_calls_with_a_shared_index_or_without_ids_stay_separate(client: str, server: str) -> None:
    """TOOL-1."""
    result = streamed(client, server, SHARED[server])
    assert without_ids(result) == [("get_weather", '{"city": "Rome"}'), ("get_weather", '{"city": "Oslo"}')]
    ids = [call[1] for call in result.calls]
    assert len(set(ids)) == 2
    assert server == "gemini" or ids == ["call_a", "call_b"]


DRIFTING: dict[str, list[bytes]] = {
    "chat": server_streams.chat(
        {"tool_calls": [server_streams.chat_call("call_a", '{"city":')]},
        {"tool_calls": [server_streams.chat_call("call_b", '"Rome"}', name=None)]},
        finish="tool_calls",
    ),
    "responses": server_streams.responses(server_streams.call_item(0, "call_a", ROME, ids=("fc_1", "fc_2", "fc_3"))),
}


@every_client
@pytest.mark.parametrize("server", DRIFTING)
def test_item_ids_are_stable_during_a_stream(client: str, server: str) -> None:
    """STR-9, ITEM-1: the reader of the hub's dialect compares the id of each item in all events that contain it."""
    result = streamed(client, server, DRIFTING[server])
    assert content(result) == {(*CALL[:-1], '{"city": "Rome"}')}


# Input tokens, by each API's own arithmetic: 100 in total, of which 40 came from a cache.
COUNTED: dict[str, list[bytes]] = {
    "chat": server_streams.chat(
        {"content": "Hi"},
        usage={"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 40}},
    ),
    "responses": server_streams.responses(
        server_streams.message_item(0, "Hi"),
        usage={
            **{"input_tokens": 100, "output_tokens": 7, "total_tokens": 107},
            **{"input_tokens_details": {"cached_tokens": 40}, "output_tokens_details": {"reasoning_tokens": 0}},
        },
    ),
    "messages": server_streams.messages(
        *server_streams.text_block(0, "Hi"),
        read={"input_tokens": 50, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 10, "output_tokens": 1},
        usage={"output_tokens": 7},
    ),
    "gemini": server_streams.gemini(
        [{"text": "Hi"}],
        usage={
            "promptTokenCount": 100,
            "candidatesTokenCount": 7,
            "totalTokenCount": 107,
            "cachedContentTokenCount": 40,
        },
    ),
}


@every_client
@every_server
def test_usage_after_the_finish_reason_is_read_and_cached_tokens_count_once(client: str, server: str) -> None:
    """REQ-4."""
    assert streamed(client, server, COUNTED[server]).usage == {"read": 100, "cached": 40, "written": 7}


CUT: dict[str, list[bytes]] = {
    "chat": server_streams.chat({"content": "Once upon"}, finish="length"),
    "responses": server_streams.responses(server_streams.message_item(0, "Once upon"), reason="max_output_tokens"),
    "messages": server_streams.messages(*server_streams.text_block(0, "Once upon"), stop="max_tokens"),
    "gemini": server_streams.gemini([{"text": "Once upon"}], finish="MAX_TOKENS"),
}


@every_client
@every_server
def test_answer_cut_by_the_token_limit_is_not_completed(client: str, server: str) -> None:
    """REQ-3."""
    result = streamed(client, server, CUT[server])
    stops = {"chat": "length", "responses": "max_output_tokens", "messages": "max_tokens", "gemini": "MAX_TOKENS"}
    assert (result.parts, result.stop) == ([("text", "Once upon")], stops[client])


AT_ONCE: dict[str, list[bytes]] = {
    "responses": server_streams.responses(server_streams.call_item(0, "call_a", ROME, only_in="done")),
    "responses, in the item": server_streams.responses(server_streams.call_item(0, "call_a", ROME, only_in="item")),
    "messages": server_streams.messages(
        *server_streams.block(
            0, {"type": "tool_use", "id": "call_a", "name": "get_weather", "input": {"city": "Rome"}}
        ),
        stop="tool_use",
    ),
    "chat": server_streams.chat({"tool_calls": [server_streams.chat_call("call_a", ROME)]}, finish="tool_calls"),
    "gemini": server_streams.gemini([server_streams.gemini_call(ROME, "call_a")]),
}


@every_client
@pytest.mark.parametrize("case", AT_ONCE)
def test_arguments_in_one_piece_are_sent_as_deltas(client: str, case: str) -> None:
    """STR-9."""
    result = streamed(client, case.partition(",")[0], AT_ONCE[case])
    assert content(result) == {(*CALL[:-1], '{"city": "Rome"}')}


TEXT_THEN_THOUGHT: dict[str, list[bytes]] = {
    "chat": server_streams.chat({"content": TEXT[1]}, {"reasoning_content": THOUGHT[1]}),
    "responses": server_streams.responses(
        server_streams.message_item(0, TEXT[1]), server_streams.reasoning_item(1, THOUGHT[1])
    ),
    "messages": server_streams.messages(
        *server_streams.text_block(0, TEXT[1]), *server_streams.thinking_block(1, THOUGHT[1])
    ),
    "messages, overlapping": server_streams.messages(
        *server_streams.text_block(0, TEXT[1])[:-1],
        *server_streams.thinking_block(1, THOUGHT[1]),
        {"type": "content_block_stop", "index": 0},
    ),
    "gemini": server_streams.gemini([{"text": TEXT[1]}], [{"text": THOUGHT[1], "thought": True}]),
}


@every_client
@pytest.mark.parametrize("case", TEXT_THEN_THOUGHT)
def test_text_before_thinking_gives_separate_blocks(client: str, case: str) -> None:
    """RSN-1: the reader of messages fails if a block starts before the last one has stopped."""
    result = streamed(client, case.partition(",")[0], TEXT_THEN_THOUGHT[case])
    assert content(result, has_call=False) == {TEXT, THOUGHT}


@every_client
def test_second_message_start_is_ignored(client: str) -> None:
    """STR-1: the reader of messages requires one `message_start`, the hub's grammar one `response.created`."""
    frames = server_streams.messages(*server_streams.text_block(0, "Hel"), *server_streams.text_block(1, "lo."))
    result = streamed(client, "messages", [frames[0], *frames[:4], frames[0], *frames[4:]])
    assert "".join(text for _, text in result.parts) == "Hello."


THINKING: dict[str, list[bytes]] = {
    "chat": server_streams.chat(
        {"reasoning_content": THOUGHT[1]},
        {"tool_calls": [server_streams.chat_call("call_a", ROME)]},
        finish="tool_calls",
    ),
    "responses": server_streams.responses(
        server_streams.reasoning_item(0, THOUGHT[1]), server_streams.call_item(1, "call_a", ROME)
    ),
    "messages": server_streams.messages(
        *server_streams.thinking_block(0, THOUGHT[1]), *server_streams.call_block(1, "call_a", ROME), stop="tool_use"
    ),
    "gemini": server_streams.gemini(
        [{"text": THOUGHT[1], "thought": True}],
        [{**server_streams.gemini_call(ROME, "call_a"), "thoughtSignature": SIGNATURE}],
    ),
}
# Content that only the server of the reasoning can have made, in the form that is sent back to it.
MARKS = {"chat": THOUGHT[1], "responses": SIGNATURE, "messages": SIGNATURE, "gemini": SIGNATURE}


@every_client
@every_server
def test_thinking_is_sent_as_thinking_to_every_client(client: str, server: str) -> None:
    """RSN-1: never as text."""
    result = streamed(client, server, THINKING[server])
    assert content(result) == {THOUGHT, (*CALL[:-1], '{"city": "Rome"}')}


@pytest.mark.parametrize("then", DIALECTS)
@every_server
def test_reasoning_is_returned_only_to_its_server(server: str, then: str) -> None:
    """RSN-2, RSN-3: neither the reasoning nor its signature, in any form; and it is reported as a loss (F-4)."""
    prepared = continued(server, then)
    sent = prepared.body.decode()
    assert "Rome" in sent
    if server == then:
        assert MARKS[server] in sent
    else:
        assert not any(words in sent for words in (THOUGHT[1], SIGNATURE, "antiphon.reasoning"))
        assert any("reasoning" in f"{loss.what} {loss.why}" for loss in prepared.losses)


def continued(server: str, then: str) -> PreparedRequest:
    """The next turn of a conversation that another server started, continued by a client of the hub's dialect."""
    asked: dict[str, Any] = {**ASKED["responses"], "include": ["reasoning.encrypted_content"]}
    turn = make_turn(_request(asked), target(server))
    pipe = turn.make_pipe(CLIENT_DIALECTS["responses"].events_from_hub(turn.prepared.request))
    pipe.feed(b"".join(THINKING[server]))
    pipe.finish()
    response = pipe.response
    assert isinstance(response, Response)
    output = json.loads(codec.encode(response))["output"]
    result = {"type": "function_call_output", "call_id": "call_a", "output": "sunny"}
    return prepare_request(
        _request({**asked, "input": [*CONVERSATION, *output, result]}), target(then).plan_translation()
    )


def _request(body: dict[str, Any]) -> Request:
    return decode_request(json.dumps(body).encode())
