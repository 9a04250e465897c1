"""Members that clients and servers need by name arrive as they were sent: in requests, whole answers and streams.

The generated law (`test_identity`) makes these members too, or others of the same form; here each has its own case.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Literal, NamedTuple

import pytest
from tests.identity.allowed import find_allowed
from tests.identity.law import upstream_answer
from tests.identity.source import MODEL, PIXEL
from tests.recorded_traffic.answers import answer_events
from tests.recorded_traffic.json_diff import Delta, compare_json
from tests.recorded_traffic.play import ClientRequest, Outcome, Player
from tests.recorded_traffic.run import DEFAULTS, MAKERS

from antiphon.dialects.dialect import ServerDialectName

Where = Literal["request", "answer", "stream"]
Path = tuple[str | int, ...]
USER: Final = {"role": "user", "content": "Hi"}
FUNCTION: Final = {"name": "look", "parameters": {"type": "object", "properties": {}}}
ARGUMENTS: Final = {"q": "x"}
SIGNATURE: Final = "c2lnbmVk"


class Member(NamedTuple):
    """A member with its place in the plain case of a dialect. With several members, all are set."""

    dialect: ServerDialectName
    where: Where
    members: dict[Path, Any]
    profile: str = ""
    model: str = MODEL

    @property
    def name(self) -> str:
        path = next(iter(self.members))
        return f"{self.dialect}-{self.where}-{'.'.join(map(str, path))}"


# Plain cases

REQUESTS: Final[dict[ServerDialectName, dict[str, Any]]] = {
    "chat": {
        "model": MODEL,
        "tools": [{"type": "function", "function": FUNCTION}],
        "messages": [
            {"role": "system", "content": "rules"},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": "Hello"},
            USER,
        ],
    },
    "responses": {"model": MODEL, "input": "Hi"},
    "messages": {
        "model": MODEL,
        "max_tokens": 99,
        "system": [{"type": "text", "text": "rules"}],
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": ARGUMENTS}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]},
        ],
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "look", "args": ARGUMENTS}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"id": "c1", "name": "look", "response": {"output": "1"}}}],
            },
        ],
    },
    "ollama": {"model": MODEL, "messages": [USER], "stream": False},
}
CHAT_HEAD: Final = {"id": "c1", "created": 1, "model": "server-model"}
CHAT_USAGE: Final = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
RESPONSE: Final[dict[str, Any]] = {
    **{"id": "resp_1", "object": "response", "created_at": 1, "completed_at": 2, "status": "completed", "error": None},
    **{"incomplete_details": None, "instructions": None, "max_output_tokens": None, "max_tool_calls": None},
    **{"model": MODEL, "parallel_tool_calls": True, "previous_response_id": None, "store": False, "background": False},
    **{"reasoning": {"effort": None, "summary": None}, "temperature": 0.7, "top_p": 0.9, "top_logprobs": 0},
    **{"text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "truncation": "auto", "metadata": {}},
    **{"presence_penalty": 0.5, "frequency_penalty": 0.25, "service_tier": "flex", "safety_identifier": None},
    **{"prompt_cache_key": None, "user": None},
    "output": [
        {
            **{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"},
            "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
        }
    ],
    "usage": {
        **{"input_tokens": 9, "output_tokens": 2, "total_tokens": 11},
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
}
MESSAGE: Final[dict[str, Any]] = {
    **{"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL},
    **{"content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn", "stop_sequence": None},
    "usage": {"input_tokens": 9, "output_tokens": 2},
}
CANDIDATE: Final = {"content": {"role": "model", "parts": [{"text": "Hello"}]}, "finishReason": "STOP", "index": 0}
GEMINI_USAGE: Final = {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}
OLLAMA_LINE: Final = {"model": MODEL, "created_at": "2026-01-01T00:00:00Z"}


def plain_answer(dialect: ServerDialectName) -> list[dict[str, Any]]:
    match dialect:
        case "chat":
            message = {"role": "assistant", "content": "Hello"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return [{**CHAT_HEAD, "object": "chat.completion", "choices": [choice], "usage": CHAT_USAGE}]
        case "responses":
            return [RESPONSE]
        case "messages":
            return [MESSAGE]
        case "gemini":
            return [{"candidates": [CANDIDATE], "usageMetadata": GEMINI_USAGE, "modelVersion": MODEL}]
        case "ollama":
            message = {"role": "assistant", "content": "Hello"}
            return [{**OLLAMA_LINE, "message": message, "done": True, "done_reason": "stop", "eval_count": 2}]


def plain_stream(dialect: ServerDialectName) -> list[dict[str, Any]]:
    """Text, then the end of the answer; usage is in the last event that has content, or in the one for the end."""
    [answer] = copy.deepcopy(plain_answer(dialect))
    match dialect:
        case "chat":
            deltas: list[tuple[dict[str, Any], str | None]] = [
                ({"role": "assistant", "content": "Hello"}, None),
                ({}, "stop"),
            ]
            choices = [[{"index": 0, "delta": delta, "finish_reason": finish}] for delta, finish in deltas]
            chunks = [{**CHAT_HEAD, "object": "chat.completion.chunk", "choices": each} for each in choices]
            return [*chunks, {**CHAT_HEAD, "object": "chat.completion.chunk", "choices": [], "usage": CHAT_USAGE}]
        case "responses":
            return list(_response_events(answer))
        case "messages":
            start = {**answer, "content": [], "stop_reason": None}
            delta = {"stop_reason": "end_turn", "stop_sequence": None}
            return [
                {"type": "message_start", "message": start},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2}},
                {"type": "message_stop"},
            ]
        case "gemini":
            first = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hel"}]}, "index": 0}]}
            answer["candidates"][0]["content"]["parts"] = [{"text": "lo"}]
            return [first, answer]
        case "ollama":
            message = {"role": "assistant", "content": "Hello"}
            end = {**answer, "message": {"role": "assistant", "content": ""}}
            return [{**OLLAMA_LINE, "message": message, "done": False}, end]


def _response_events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    [item] = response["output"]
    [part] = item["content"]
    start = {**response, "output": [], "status": "in_progress", "usage": None, "completed_at": None}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": start},
        {"type": "response.in_progress", "response": copy.deepcopy(start)},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **place, "delta": "Hello", "logprobs": []},
        {"type": "response.output_text.done", **place, "text": "Hello", "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    for number, event in enumerate(events):
        yield {**event, "sequence_number": number}


# The members


def answers(dialect: ServerDialectName, stream_event: int, members: dict[Path, Any]) -> list[Member]:
    """Members at the same place of a whole answer and of one event."""
    return [
        each
        for path, value in members.items()
        for each in (
            Member(dialect, "answer", {path: value}),
            Member(dialect, "stream", {(stream_event, *path): value}),
        )
    ]


def _chat_members() -> Iterator[Member]:
    """B3."""
    members: dict[Path, Any] = {
        ("system_fingerprint",): "fp_1",
        ("service_tier",): "flex",
        ("citations",): ["https://example.com"],
        ("search_results",): [{"title": "a", "url": "https://example.com"}],
        ("provider",): "Fireworks",
        ("x_groq",): {"id": "req_1", "usage": {"queue_time": 0.1}},
        ("prompt_filter_results",): [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}],
        ("prompt_logprobs",): [None, {"1": {"logprob": -0.1, "rank": 1, "decoded_token": "Hi"}}],
        ("prompt_token_ids",): [1, 2, 3],
        ("kv_transfer_params",): {"remote_engine_id": "e1", "remote_block_ids": [1]},
        ("choices", 0, "content_filter_results"): {"hate": {"filtered": False, "severity": "safe"}},
        ("choices", 0, "token_ids"): [4, 5],
        ("choices", 0, "native_finish_reason"): "STOP",
    }
    yield from answers("chat", 1, members)
    usage: dict[Path, Any] = {
        ("usage", "cost"): 0.0125,
        ("usage", "is_byok"): False,
        ("usage", "completion_tokens_details"): {
            "audio_tokens": 1,
            "accepted_prediction_tokens": 2,
            "reasoning_tokens": 0,
        },
        ("usage", "prompt_tokens_details"): {"cached_tokens": 3, "audio_tokens": 1, "cache_write_tokens": 2},
    }
    for path, value in usage.items():
        yield Member("chat", "answer", {path: value})
        yield Member("chat", "stream", {(2, *path): value})
    url = {"type": "url_citation", "url_citation": {"url": "https://a", "title": "a", "start_index": 0, "end_index": 1}}
    yield Member("chat", "answer", {("choices", 0, "message", "annotations"): [url]})
    yield Member("chat", "stream", {(0, "choices", 0, "delta", "annotations"): [{**url, "index": 0}]})
    audio = {"id": "audio_1", "data": "AAAA", "transcript": "Hello", "expires_at": 9}
    yield Member("chat", "answer", {("choices", 0, "message", "audio"): audio})
    yield Member("chat", "stream", {(0, "choices", 0, "delta", "audio"): audio})
    requests: dict[Path, Any] = {
        ("messages", 3, "name"): "ann",
        ("messages", 0, "name"): "rules",
        ("messages", 2, "audio"): {"id": "audio_1"},
        ("messages", 1, "content", 1): {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}},
        ("messages", 1, "content", 0): {"type": "audio_url", "audio_url": {"url": "https://example.com/a.mp3"}},
        ("prompt_logprobs",): 1,
        ("kv_transfer_params",): {"do_remote_decode": True},
        ("return_token_ids",): True,
    }
    for path, value in requests.items():
        yield Member("chat", "request", {path: value})


def _responses_members() -> Iterator[Member]:
    """B4: settings are those that the server named, and no service tier is invented."""
    members: dict[Path, Any] = {
        ("billing",): {"payer": "developer"},
        ("content_filters",): [{"blocked": False, "source_type": "prompt"}],
        ("text", "verbosity"): "low",
        ("tool_usage",): {"web_search": {"num_requests": 1}},
        ("moderation",): {"flagged": False},
        ("service_tier",): None,
        ("truncation",): "disabled",
        ("parallel_tool_calls",): False,
        ("prompt_cache_retention",): "24h",
        ("usage", "cost"): 0.1,
        ("usage", "input_tokens_details", "cache_write_tokens"): 7,
    }
    for path, value in members.items():
        yield Member("responses", "answer", {path: value})
        events = (8,) if path[0] == "usage" else (0, 1, 8)
        yield Member("responses", "stream", {(event, "response", *path): value for event in events})


def _messages_members() -> Iterator[Member]:
    """B1."""
    members: dict[Path, Any] = {
        ("container",): {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z", "skills": None},
        ("usage", "cache_creation"): {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
        ("usage", "cache_creation_input_tokens"): 7,
        ("usage", "server_tool_use"): {"web_search_requests": 1, "web_fetch_requests": 0},
        ("usage", "service_tier"): "priority",
        ("usage", "inference_geo"): "eu",
        ("usage", "iterations"): [{"type": "message", "input_tokens": 9, "output_tokens": 2}],
    }
    for path, value in members.items():
        yield Member("messages", "answer", {path: value})
        yield Member("messages", "stream", {(0, "message", *path): value})
    edits = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 1, "cleared_input_tokens": 5}]}
    yield Member("messages", "answer", {("context_management",): edits})
    yield Member("messages", "stream", {(4, "context_management"): edits})
    yield Member("messages", "stream", {(4, "delta", "container"): {"id": "container_1"}})
    yield Member("messages", "stream", {(4, "usage", "iterations"): [{"type": "compaction", "input_tokens": 1}]})
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    call = {"type": "tool_use", "id": "t2", "name": "look", "input": ARGUMENTS, "caller": caller}
    yield Member("messages", "answer", {("content", 0): call, ("stop_reason",): "tool_use"})
    start = {"type": "content_block_start", "index": 0, "content_block": call}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(ARGUMENTS)}
    yield Member(
        "messages",
        "stream",
        {
            (1,): {**start, "content_block": {**call, "input": {}}},
            (2,): {"type": "content_block_delta", "index": 0, "delta": delta},
            (4, "delta", "stop_reason"): "tool_use",
        },
    )
    requests: dict[Path, Any] = {
        ("container",): "container_1",
        ("context_management",): {"edits": [{"type": "clear_tool_uses_20250919"}]},
        ("service_tier",): "standard_only",
        ("inference_geo",): "eu",
        ("messages", 1, "content", 0, "caller"): caller,
        ("messages", 3): {"role": "system", "content": "be brief"},
    }
    for path, value in requests.items():
        yield Member("messages", "request", {path: value}, "anthropic")


def _gemini_members() -> Iterator[Member]:
    """B2."""
    chunk = {"web": {"uri": "https://example.com", "title": "a"}}
    members: dict[Path, Any] = {
        ("candidates", 0, "groundingMetadata"): {"webSearchQueries": ["q"], "groundingChunks": [chunk]},
        ("candidates", 0, "urlContextMetadata"): {"urlMetadata": [{"retrievedUrl": "https://example.com"}]},
        ("candidates", 0, "safetyRatings"): [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"}],
        ("candidates", 0, "avgLogprobs"): -0.25,
        ("candidates", 0, "citationMetadata"): {"citations": [{"startIndex": 0, "endIndex": 2}]},
        ("usageMetadata", "promptTokensDetails"): [{"modality": "TEXT", "tokenCount": 9}],
        ("usageMetadata", "candidatesTokensDetails"): [{"modality": "IMAGE", "tokenCount": 2}],
        ("usageMetadata", "cacheTokensDetails"): [{"modality": "TEXT", "tokenCount": 1}],
        ("usageMetadata", "serviceTier"): "standard",
        ("createTime",): "2026-01-01T00:00:00Z",
        ("promptFeedback",): {"safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"}]},
        ("responseId",): "r1",
        ("modelStatus",): {"modelStage": "STABLE"},
    }
    yield from answers("gemini", 1, members)
    for reason in FINISH_REASONS:
        yield from answers("gemini", 1, {("candidates", 0, "finishReason"): reason})
    signed = [{"text": "Hel", "thoughtSignature": SIGNATURE}, {"text": "lo"}]
    truncated: dict[Path, Any] = {
        ("candidates", 0, "content", "parts"): signed,
        ("candidates", 0, "finishReason"): "MAX_TOKENS",
    }
    yield Member("gemini", "answer", truncated)
    yield Member("gemini", "stream", {(1, *path): value for path, value in truncated.items()})
    first = {"functionCall": {"name": "look", "id": "c2", "willContinue": True}}
    part = {"partialArgs": [{"jsonPath": "$.q", "stringValue": "x", "willContinue": True}], "willContinue": True}
    yield Member(
        "gemini",
        "stream",
        {
            (0, "candidates", 0, "content", "parts"): [first, {"functionCall": part}],
            (1, "candidates", 0, "content", "parts"): [{"functionCall": {}}],
        },
        "google",
    )
    yield Member("gemini", "request", {("modelArmorConfig",): {"promptTemplateName": "t", "responseTemplateName": "t"}})
    yield Member("gemini", "request", {("labels",): {"team": "a"}})
    yield Member("gemini", "request", {("cachedContent",): "cachedContents/1"})
    image = {"inlineData": {"mimeType": "image/png", "data": PIXEL, "displayName": "a.png"}}
    result: Path = ("contents", 2, "parts", 0, "functionResponse", "parts")
    signature: Path = ("contents", 1, "parts", 0, "thoughtSignature")
    yield Member("gemini", "request", {result: [image], signature: SIGNATURE}, "google", "gemini-3-pro")


FINISH_REASONS: Final = (
    *("MAX_TOKENS", "SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
    *("MALFORMED_FUNCTION_CALL", "IMAGE_SAFETY", "UNEXPECTED_TOOL_CALL", "IMAGE_PROHIBITED_CONTENT", "NO_IMAGE"),
    *("IMAGE_RECITATION", "IMAGE_OTHER", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE", "MALFORMED_RESPONSE"),
)
MEMBERS: Final = [*_chat_members(), *_responses_members(), *_messages_members(), *_gemini_members()]


# The law


@cache
def outcomes() -> list[tuple[dict[str, Any], list[dict[str, Any]], Outcome]]:
    """The request and the answer of each case, and what both sides received."""
    return asyncio.run(_play())


async def _play() -> list[tuple[dict[str, Any], list[dict[str, Any]], Outcome]]:
    player = Player()
    played = []
    try:
        for member in MEMBERS:
            is_stream = member.where == "stream"
            request, events = _case(member)
            profile = member.profile or (MAKERS if member.dialect == "messages" else DEFAULTS)[member.dialect]
            sent = ClientRequest(dialect=member.dialect, model=member.model, body=request, is_stream=is_stream)
            answer = upstream_answer(member.dialect, events, is_stream)
            played.append((request, events, await player.play(sent, member.dialect, profile, answer)))
    finally:
        await player.close()
    return played


def _case(member: Member) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    is_stream = member.where == "stream"
    request = copy.deepcopy(REQUESTS[member.dialect])
    events = copy.deepcopy((plain_stream if is_stream else plain_answer)(member.dialect))
    if is_stream and member.dialect != "gemini":
        request["stream"] = True
    if is_stream and member.dialect == "chat":
        request["stream_options"] = {"include_usage": True}
    changed: Any = {"request": request, "answer": events[0], "stream": events}[member.where]
    for path, value in member.members.items():
        _set(changed, path, value)
    return request, events


def _set(value: Any, path: Path, member: Any) -> None:
    *steps, last = path
    for step in steps:
        value = value[step]
    if isinstance(value, list) and last == len(value):
        value.append(member)
    else:
        value[last] = member


@pytest.mark.parametrize("number", range(len(MEMBERS)), ids=[f"{i}-{each.name}" for i, each in enumerate(MEMBERS)])
def test_member_arrives_as_it_was_sent(number: int) -> None:
    member = MEMBERS[number]
    request, events, outcome = outcomes()[number]
    assert outcome.status == 200, outcome.body
    received = received_in(member.where, outcome)
    deltas: list[tuple[Where, Delta]] = [("request", delta) for delta in compare_json(request, outcome.upstream_json)]
    if member.where == "stream":
        deltas += [("stream", delta) for delta in compare_json(events, received, "events")]
    else:
        deltas += [("answer", delta) for delta in compare_json(events[0], json.loads(outcome.body))]
    assert [each for each in deltas if find_allowed(member.dialect, *each) is None] == []


def received_in(where: Where, outcome: Outcome) -> Any:
    """What the other side received."""
    match where:
        case "request":
            return outcome.upstream_json
        case "answer":
            return json.loads(outcome.body)
        case "stream":
            return answer_events(outcome.body)


@pytest.mark.parametrize("number", range(len(MEMBERS)), ids=[f"{i}-{each.name}" for i, each in enumerate(MEMBERS)])
def test_member_itself_is_never_among_the_allowed_differences(number: int) -> None:
    """The table of allowed differences hides no member of this list."""
    member = MEMBERS[number]
    _, _, outcome = outcomes()[number]
    for path, value in member.members.items():
        found = received_in(member.where, outcome)
        for step in path:
            found = found[step]
        assert found == value
