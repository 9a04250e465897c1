"""Creates request bodies for the benchmarks: a conversation of up to ten turns with six tools (20 KB), a question.

The load generator sets a number in the first message of a conversation, so that every conversation is different.
"""

from __future__ import annotations

import json
import random
from typing import Any

PROSE = (
    "The deployment failed because the connection pool was exhausted while the migration held a lock on the orders "
    "table. I checked the dashboards: p99 latency rose from 120 ms to 4.3 s at 14:02 UTC, and the error budget for the "
    'month is nearly spent. "Please roll back first", said the on-call engineer — then investigate. '
)
TOOLS = ("search_logs", "query_metrics", "get_deployment", "rollback", "open_ticket", "page_oncall")
STAMP = "############"  # where the load generator writes a number
TURNS = 10
FUNCTION_FIELDS = ("name", "description", "parameters", "strict")


def responses_body(model: str = "mock", *, stream: bool = True, store: bool = False, turns: int = TURNS) -> bytes:
    """Returns the body of `POST /v1/responses` for the first turns of the conversation."""
    return encode_json({**_responses_request(model, stream, turns), "store": store})


def plain_body(model: str = "mock", *, stream: bool = True, store: bool = False) -> bytes:
    """Returns the body of `POST /v1/responses` for a short question."""
    return encode_json({"model": model, "input": question(7), "store": store, "stream": stream})


def question(number: int) -> str:
    """Returns a short text that depends only on the number."""
    return _prose(random.Random(number), 20)


def encode_json(body: dict[str, Any]) -> bytes:
    """Encodes JSON without spaces and without escaped characters."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def chat_body(model: str = "mock", *, stream: bool = True, turns: int = TURNS) -> bytes:
    """Returns the same conversation as a chat request, for servers that forward it without translation."""
    request = _responses_request(model, stream, turns)
    body = {
        "model": model,
        "messages": [{"role": "system", "content": request["instructions"]}, *map(_chat_message, request["input"])],
        "tools": [
            {"type": "function", "function": {name: tool[name] for name in FUNCTION_FIELDS}}
            for tool in request["tools"]
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "temperature": 0.7,
        "top_p": 0.95,
        "max_tokens": 2048,
        "metadata": request["metadata"],
        "stream": stream,
    }
    return encode_json({**body, "stream_options": {"include_usage": True}} if stream else body)


def chat_chunk(delta: dict[str, Any]) -> bytes:
    """Returns one chunk of a chat stream with all members that a large provider sends."""
    chunk = {
        "id": "chatcmpl-Bk3f0JmVfPq1mock",
        "object": "chat.completion.chunk",
        "created": 1760000000,
        "model": "mock",
        "service_tier": "default",
        "system_fingerprint": "fp_07871e2ad8",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}],
        "obfuscation": "q8Zt3L",
    }
    return json.dumps(chunk, separators=(",", ":")).encode()


def _responses_request(model: str, stream: bool, turns: int) -> dict[str, Any]:
    rng = random.Random(7)
    items: list[dict[str, Any]] = []
    item_count = 0  # items up to the question of the last requested turn
    for turn in range(TURNS):
        stamp = f"{STAMP} " if turn == 0 else ""
        items.append(
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": stamp + _prose(rng, 70)}]}
        )
        if turn == turns - 1:
            item_count = len(items)
        if turn == TURNS - 1:
            break
        if turn % 3 == 1:
            items += _tool_turn(rng, turn)
        answer = {"type": "output_text", "text": _prose(rng, 90), "annotations": []}
        items.append(
            {
                "type": "message",
                "id": f"msg_{turn:040x}",
                "role": "assistant",
                "status": "completed",
                "content": [answer],
            }
        )
    return {
        "model": model,
        "instructions": _prose(rng, 120),
        "input": items[:item_count],
        "tools": [_tool(rng, name) for name in TOOLS],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "temperature": 0.7,
        "top_p": 0.95,
        "max_output_tokens": 2048,
        "metadata": {"session": "a1b2c3", "tenant": "acme"},
        "stream": stream,
    }


def _chat_message(item: dict[str, Any]) -> dict[str, Any]:
    match item["type"]:
        case "message":
            return {"role": item["role"], "content": item["content"][0]["text"]}
        case "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case _:
            return {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}


def _tool_turn(rng: random.Random, turn: int) -> list[dict[str, Any]]:
    call_id = f"call_{turn:024d}"
    arguments = json.dumps({"field_1": _prose(rng, 8), "filter": {"service": "api", "since": "1h"}})
    call = {"type": "function_call", "id": f"fc_{turn:040x}", "call_id": call_id, "name": "search_logs"}
    output = json.dumps({"lines": [_prose(rng, 15) for _ in range(4)]})
    return [
        {**call, "arguments": arguments, "status": "completed"},
        {"type": "function_call_output", "call_id": call_id, "output": output},
    ]


def _tool(rng: random.Random, name: str) -> dict[str, Any]:
    types = ("string", "integer", "boolean")
    fields: dict[str, Any] = {
        f"field_{number}": {"type": rng.choice(types), "description": _prose(rng, 12)} for number in range(5)
    }
    fields["filter"] = {
        "type": "object",
        "properties": {"service": {"type": "string", "enum": ["api", "web", "worker"]}, "since": {"type": "string"}},
        "required": ["service", "since"],
        "additionalProperties": False,
    }
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {"type": "function", "name": name, "description": _prose(rng, 25), "parameters": schema, "strict": True}


def _prose(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(PROSE.split()) for _ in range(words))
