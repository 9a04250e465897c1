"""What a client of each dialect has in the end, read from the bytes of its stream as its users' programs do: by what each event
adds, not by what a last one repeats. A stream that such a reader would misread fails here."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from antiphon import sse
from antiphon.protocol.codec import decode_event
from antiphon.protocol.grammar import find_violations

Said = tuple[str, ...]  # ("text", …), ("thought", …) or ("call", id, name, arguments)


class Told(NamedTuple):
    said: list[Said]
    stop: str
    usage: dict[str, int]  # read in all, of that from a cache, written in all

    @property
    def calls(self) -> list[Said]:
        return [each for each in self.said if each[0] == "call"]


def read(dialect: str, out: bytes) -> Told:
    """A whole stream."""
    frames = sse.Decoder().feed(out)
    if dialect in ("responses", "chat"):
        assert frames.pop().data == sse.DONE
    return READERS[dialect]([msgspec.json.decode(frame.data) for frame in frames])


def _responses(events: list[Any]) -> Told:
    assert find_violations([decode_event(msgspec.json.encode(event)) for event in events]) == []
    found: dict[int, list[str]] = {}
    ids: dict[int, set[str]] = {}
    responses: set[str] = set()
    for event in events:
        if "response" in event:
            responses.add(event["response"]["id"])
        match event["type"].removeprefix("response."):
            case "output_item.added":
                found[event["output_index"]] = _begun(event["item"])
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
                found[event["output_index"]][-1] += event["delta"]
                ids[event["output_index"]].add(event["item_id"])
    response = events[-1]["response"]
    assert len(responses) == 1, "the response changed its id"
    assert [{item["id"]} for item in response["output"]] == [ids[index] for index in sorted(ids)], (
        "an item changed its id"
    )
    reason = (response["incomplete_details"] or {}).get("reason")
    usage = response["usage"]
    counted = usage and _usage(
        usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"]
    )
    return Told(_told(found), reason or response["status"], counted or {})


def _begun(item: Any) -> list[str]:
    match item["type"]:
        case "function_call":
            return ["call", item["call_id"], item["name"], ""]
        case "reasoning":
            return ["thought", ""]
        case _:
            return ["text", ""]


def _chat(chunks: list[Any]) -> Told:
    pieces: list[list[str]] = []
    calls: dict[int, list[str]] = {}
    stop, usage = "", {}
    for chunk in chunks:
        if counted := chunk.get("usage"):
            usage = _usage(
                counted["prompt_tokens"],
                counted["prompt_tokens_details"]["cached_tokens"],
                counted["completion_tokens"],
            )
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for kind, name in (("thought", "reasoning_content"), ("text", "content")):
                if delta.get(name):
                    _add(pieces, kind, delta[name])
            for call in delta.get("tool_calls") or ():
                if call.get("id"):
                    assert call["index"] not in calls, "two calls share an index, or one changed its id"
                    calls[call["index"]] = ["call", call["id"], call["function"]["name"], ""]
                calls[call["index"]][-1] += call["function"].get("arguments") or ""
            stop = choice["finish_reason"] or stop
    assert list(calls) == list(range(len(calls)))
    return Told([*map(tuple, pieces), *map(tuple, calls.values())], stop, usage)


def _messages(events: list[Any]) -> Told:
    found: dict[int, list[str]] = {}
    opened: int = -1  # none
    stop, usage = "", {}
    assert [event["type"] for event in events].count("message_start") == 1, "the message began twice"
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert opened == -1, "two blocks overlap"
                opened = event["index"]
                assert opened == len(found)
                found[opened] = _block(event["content_block"])
            case "content_block_delta":
                assert event["index"] == opened, "a delta for a block that is not open"
                delta = event["delta"]
                found[opened][-1] += delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
            case "content_block_stop":
                assert event["index"] == opened
                opened = -1
            case "message_delta":
                assert opened == -1, "a block never stopped"
                stop, counted = event["delta"]["stop_reason"], event["usage"]
                cached = counted.get("cache_read_input_tokens") or 0
                kept = counted.get("cache_creation_input_tokens") or 0
                usage = _usage(counted["input_tokens"] + cached + kept, cached, counted["output_tokens"])
    return Told(_told(found), stop, usage)


def _block(block: Any) -> list[str]:
    match block["type"]:
        case "tool_use":
            assert block["input"] == {}
            return ["call", block["id"], block["name"], ""]
        case "thinking":
            return ["thought", block["thinking"]]
        case kind:
            return [kind, block.get("text", "")]


def _gemini(answers: list[Any]) -> Told:
    pieces: list[list[str]] = []
    stop, usage = "", {}
    for answer in answers:
        for candidate in answer["candidates"]:
            for part in candidate.get("content", {}).get("parts", []):
                if "functionCall" in part:
                    call = part["functionCall"]
                    pieces.append(["call", call["id"], call["name"], msgspec.json.encode(call["args"]).decode()])
                elif part.get("text"):
                    _add(pieces, "thought" if part.get("thought") else "text", part["text"])
            stop = candidate.get("finishReason", stop)
        if counted := answer.get("usageMetadata"):
            written = counted.get("candidatesTokenCount", 0) + counted.get("thoughtsTokenCount", 0)
            usage = _usage(counted["promptTokenCount"], counted.get("cachedContentTokenCount", 0), written)
    return Told([tuple(piece) for piece in pieces], stop, usage)


def _add(pieces: list[list[str]], kind: str, text: str) -> None:
    if pieces and pieces[-1][0] == kind:
        pieces[-1][-1] += text
    else:
        pieces.append([kind, text])


def _told(found: dict[int, list[str]]) -> list[Said]:
    """In order; without what is sealed for its maker, and says nothing to anybody else."""
    return [
        tuple(found[index])
        for index in sorted(found)
        if found[index] not in (["thought", ""], ["redacted_thinking", ""])
    ]


def _usage(read: int, cached: int, written: int) -> dict[str, int]:
    return {"read": read, "cached": cached, "written": written}


READERS = {"responses": _responses, "chat": _chat, "messages": _messages, "gemini": _gemini}
