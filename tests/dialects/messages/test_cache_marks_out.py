"""Limits of the Messages API for cache marks of other clients (E-4)."""

from __future__ import annotations

import json
from typing import Any

from antiphon.dialects import messages, responses
from antiphon.dialects.messages.wire import MessagesWire


def written(
    *parts: dict[str, Any], input: list[dict[str, Any]] | None = None, **fields: Any
) -> tuple[dict[str, Any], list[str]]:
    """The body for a Messages server, and the losses, of a Responses client whose user message has these parts."""
    items = input or [{"type": "message", "role": "user", "content": list(parts)}]
    request, _ = responses.request_to_hub(json.dumps({"model": "m", "input": items, **fields}).encode())
    body, losses = messages.request_from_hub(request, MessagesWire())
    return json.loads(body), [loss.what for loss in losses]


def marked(text: str, **mark: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text, "prompt_cache_breakpoint": {"mode": "explicit", **mark}}


def marks(body: dict[str, Any]) -> list[dict[str, Any] | None]:
    return [block.get("cache_control") for message in body["messages"] for block in message["content"]]


def test_last_four_marks_are_kept() -> None:
    body, losses = written(*[marked(f"{number}") for number in range(6)])
    assert marks(body) == [None, None, *[{"type": "ephemeral"}] * 4]
    assert losses == ["a cache mark"]


def test_mark_of_the_request_counts_as_the_last() -> None:
    body, losses = written(*[marked(f"{number}") for number in range(4)], prompt_cache_options={"mode": "implicit"})
    assert marks(body) == [None, *[{"type": "ephemeral"}] * 3]
    assert body["cache_control"] == {"type": "ephemeral"}
    assert losses == ["a cache mark"]


def test_no_long_mark_follows_a_short_one() -> None:
    long = {"type": "ephemeral", "ttl": "1h"}
    body, losses = written(marked("a", ttl="30m"), marked("b"))
    assert (marks(body), losses) == ([long, {"type": "ephemeral"}], [])
    body, losses = written(marked("a"), marked("b", ttl="30m"))
    assert marks(body) == [{"type": "ephemeral"}] * 2
    assert losses == ["the lifetime of a cache mark"]


def test_marks_without_a_lifetime_have_that_of_the_request() -> None:
    body, losses = written(marked("a"), prompt_cache_options={"mode": "explicit", "ttl": "30m"})
    assert (marks(body), losses) == ([{"type": "ephemeral", "ttl": "1h"}], [])
    assert "cache_control" not in body


def test_marks_in_system_text_and_tool_outputs_are_counted() -> None:
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": [marked("1"), marked("2"), marked("3")]}
    user = {"type": "message", "role": "user", "content": "go"}
    system = {"type": "message", "role": "system", "content": [marked("s"), marked("t")]}
    body, losses = written(input=[system, user, call, output])
    assert [block.get("cache_control") for block in body["system"]] == [None, {"type": "ephemeral"}]
    (result,) = body["messages"][2]["content"]
    assert [block["cache_control"] for block in result["content"]] == [{"type": "ephemeral"}] * 3
    assert losses == ["a cache mark"]
