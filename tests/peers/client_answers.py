"""Reads the streams of each client dialect as programs do: by the deltas, not by a final event that repeats them.

A stream that such a reader would misread fails here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from antiphon import sse
from antiphon.protocol.codec import decode_event
from antiphon.protocol.grammar import find_violations

AnswerPart = tuple[str, ...]  # ("text", …), ("thought", …) or ("call", id, name, arguments)


class ClientAnswer(NamedTuple):
    parts: list[AnswerPart]
    stop: str
    usage: dict[str, int]  # tokens: all input, cached input, all output

    @property
    def calls(self) -> list[AnswerPart]:
        return [part for part in self.parts if part[0] == "call"]


def read_answer(dialect: str, out: bytes) -> ClientAnswer:
    """Reads a whole stream."""
    frames = sse.Decoder().feed(out)
    if dialect in ("responses", "chat"):
        assert frames.pop().data == sse.DONE
    return READERS[dialect]([msgspec.json.decode(frame.data) for frame in frames])


def _responses(events: list[Any]) -> ClientAnswer:
    assert find_violations([decode_event(msgspec.json.encode(event)) for event in events]) == []
    parts_by_index: dict[int, list[str]] = {}
    ids: dict[int, set[str]] = {}
    responses: set[str] = set()
    for event in events:
        if "response" in event:
            responses.add(event["response"]["id"])
        match event["type"].removeprefix("response."):
            case "output_item.added":
                parts_by_index[event["output_index"]] = _new_part(event["item"])
                ids[event["output_index"]] = {event["item"]["id"]}
            case "output_item.done":
                ids[event["output_index"]].add(event["item"]["id"])
            case (
                "output_text.delta"
                | "reasoning.delta"
                | "reasoning_text.delta"
                | "reasoning_summary_text.delta"
                | "function_call_arguments.delta"
            ):
                parts_by_index[event["output_index"]][-1] += event["delta"]
                ids[event["output_index"]].add(event["item_id"])
    response = events[-1]["response"]
    assert len(responses) == 1, "the response changed its id"
    assert [{item["id"]} for item in response["output"]] == [ids[index] for index in sorted(ids)], (
        "an item changed its id"
    )
    reason = (response["incomplete_details"] or {}).get("reason")
    usage = response["usage"]
    reported_usage = usage and _usage(
        usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"]
    )
    return ClientAnswer(_visible_parts(parts_by_index), reason or response["status"], reported_usage or {})


def _new_part(item: Any) -> list[str]:
    match item["type"]:
        case "function_call":
            return ["call", item["call_id"], item["name"], ""]
        case "reasoning":
            return ["thought", ""]
        case _:
            return ["text", ""]


def _chat(chunks: list[Any]) -> ClientAnswer:
    answer_parts: list[list[str]] = []
    calls: dict[int, list[str]] = {}
    stop, usage = "", {}
    for chunk in chunks:
        if reported_usage := chunk.get("usage"):
            usage = _usage(
                reported_usage["prompt_tokens"],
                reported_usage["prompt_tokens_details"]["cached_tokens"],
                reported_usage["completion_tokens"],
            )
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for kind, name in (("thought", "reasoning_content"), ("text", "content")):
                if delta.get(name):
                    _add(answer_parts, kind, delta[name])
            for call in delta.get("tool_calls") or ():
                if call.get("id"):
                    assert call["index"] not in calls, "two calls share an index, or one changed its id"
                    calls[call["index"]] = ["call", call["id"], call["function"]["name"], ""]
                calls[call["index"]][-1] += call["function"].get("arguments") or ""
            stop = choice["finish_reason"] or stop
    assert list(calls) == list(range(len(calls)))
    return ClientAnswer([*map(tuple, answer_parts), *map(tuple, calls.values())], stop, usage)


def _messages(events: list[Any]) -> ClientAnswer:
    parts_by_index: dict[int, list[str]] = {}
    opened: int = -1  # none
    stop, usage = "", {}
    assert [event["type"] for event in events].count("message_start") == 1, "the message began twice"
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert opened == -1, "two blocks overlap"
                opened = event["index"]
                assert opened == len(parts_by_index)
                parts_by_index[opened] = _new_block(event["content_block"])
            case "content_block_delta":
                assert event["index"] == opened, "a delta for a block that is not open"
                delta = event["delta"]
                parts_by_index[opened][-1] += (
                    delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
                )
            case "content_block_stop":
                assert event["index"] == opened
                opened = -1
            case "message_delta":
                assert opened == -1, "a block never stopped"
                stop, reported_usage = event["delta"]["stop_reason"], event["usage"]
                cached = reported_usage.get("cache_read_input_tokens") or 0
                created = reported_usage.get("cache_creation_input_tokens") or 0
                usage = _usage(
                    reported_usage["input_tokens"] + cached + created, cached, reported_usage["output_tokens"]
                )
    return ClientAnswer(_visible_parts(parts_by_index), stop, usage)


def _new_block(block: Any) -> list[str]:
    match block["type"]:
        case "tool_use":
            assert block["input"] == {}
            return ["call", block["id"], block["name"], ""]
        case "thinking":
            return ["thought", block["thinking"]]
        case kind:
            return [kind, block.get("text", "")]


def _gemini(answers: list[Any]) -> ClientAnswer:
    answer_parts: list[list[str]] = []
    stop, usage = "", {}
    for answer in answers:
        for candidate in answer["candidates"]:
            for part in candidate.get("content", {}).get("parts", []):
                if "functionCall" in part:
                    call = part["functionCall"]
                    answer_parts.append(["call", call["id"], call["name"], msgspec.json.encode(call["args"]).decode()])
                elif part.get("text"):
                    _add(answer_parts, "thought" if part.get("thought") else "text", part["text"])
            stop = candidate.get("finishReason", stop)
        if reported_usage := answer.get("usageMetadata"):
            written = reported_usage.get("candidatesTokenCount", 0) + reported_usage.get("thoughtsTokenCount", 0)
            usage = _usage(
                reported_usage["promptTokenCount"], reported_usage.get("cachedContentTokenCount", 0), written
            )
    return ClientAnswer([tuple(piece) for piece in answer_parts], stop, usage)


def _add(answer_parts: list[list[str]], kind: str, text: str) -> None:
    if answer_parts and answer_parts[-1][0] == kind:
        answer_parts[-1][-1] += text
    else:
        answer_parts.append([kind, text])


def _visible_parts(parts_by_index: dict[int, list[str]]) -> list[AnswerPart]:
    """The parts in their order, without reasoning that only its maker can read."""
    return [
        tuple(parts_by_index[index])
        for index in sorted(parts_by_index)
        if parts_by_index[index] not in (["thought", ""], ["redacted_thinking", ""])
    ]


def _usage(input_tokens: int, cached_tokens: int, output_tokens: int) -> dict[str, int]:
    return {"read": input_tokens, "cached": cached_tokens, "written": output_tokens}


READERS = {"responses": _responses, "chat": _chat, "messages": _messages, "gemini": _gemini}
