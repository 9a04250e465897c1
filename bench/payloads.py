"""Request bodies for benchmarks: a conversation of ten turns with six tools, about 20 KB; the same conversation turn by turn; and a
short question.

The first message of a conversation contains a number that the load generator sets, so that no two conversations are the same.
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
    """The body of `POST /v1/responses` for the first turns of the conversation."""
    return encoded({**_responses(model, stream, turns), "store": store})


def plain_body(model: str = "mock", *, stream: bool = True, store: bool = False) -> bytes:
    """The smallest that anybody sends: a question."""
    return encoded({"model": model, "input": question(7), "store": store, "stream": stream})


def question(number: int) -> str:
    """A short one, the same for the same number."""
    return _prose(random.Random(number), 20)


def encoded(body: dict[str, Any]) -> bytes:
    """JSON as every client here writes it."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def chat_body(model: str = "mock", *, stream: bool = True, turns: int = TURNS) -> bytes:
    """The same conversation for servers that pass chat requests on."""
    asked = _responses(model, stream, turns)
    body = {
        "model": model,
        "messages": [{"role": "system", "content": asked["instructions"]}, *map(_chat_message, asked["input"])],
        "tools": [
            {"type": "function", "function": {name: tool[name] for name in FUNCTION_FIELDS}} for tool in asked["tools"]
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "temperature": 0.7,
        "top_p": 0.95,
        "max_tokens": 2048,
        "metadata": asked["metadata"],
        "stream": stream,
    }
    return encoded({**body, "stream_options": {"include_usage": True}} if stream else body)


def chat_chunk(delta: dict[str, Any]) -> bytes:
    """One chunk of a chat stream with everything around it that a large provider sends."""
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


def _responses(model: str, stream: bool, turns: int) -> dict[str, Any]:
    rng = random.Random(7)
    items: list[dict[str, Any]] = []
    sent = 0  # items up to the question of the last turn that is sent
    for turn in range(TURNS):
        number = f"{STAMP} " if turn == 0 else ""
        items.append(
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": number + _prose(rng, 70)}]}
        )
        if turn == turns - 1:
            sent = len(items)
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
        "input": items[:sent],
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
    kinds = ("string", "integer", "boolean")
    fields: dict[str, Any] = {
        f"field_{at}": {"type": rng.choice(kinds), "description": _prose(rng, 12)} for at in range(5)
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
