"""Cache marks between dialects: carried where the server has a place for them, else taken out and reported (E-4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.dialects import chat, gemini, messages, ollama, responses
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.dialects.responses.wire import ResponsesWire

SHORT = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}
OPENROUTER = ChatWire(cache_marks="cache_control")
BREAKPOINTS = ChatWire(cache_marks="prompt_cache_breakpoint", fields=("prompt_cache_options", "prompt_cache_retention"))
AGENT: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "s", "cache_control": LONG}],
    "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}, "cache_control": LONG}],
    "messages": [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "t"},
                {"type": "tool_use", "id": "a", "name": "f", "input": {}, "cache_control": SHORT},
                {"type": "tool_use", "id": "b", "name": "f", "input": {}},
                {"type": "tool_use", "id": "c", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "one", "cache_control": SHORT},
                {"type": "tool_result", "tool_use_id": "b", "content": "two"},
                {"type": "tool_result", "tool_use_id": "c", "content": "", "cache_control": SHORT},
            ],
        },
    ],
}


def translated(client: Any, server: Any, body: dict[str, Any], *wire: Any) -> tuple[dict[str, Any], list[str]]:
    """The server's body, and the paths of all losses."""
    request, losses = client.request_to_hub(json.dumps(body).encode())
    sent, more = server.request_from_hub(request, *wire)
    return json.loads(sent), sorted(loss.path for loss in (*losses, *more))


def chat_body(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": list(parts)}], **fields}


def test_marks_of_a_messages_client_reach_a_responses_server() -> None:
    body, losses = translated(messages, responses, AGENT)
    assert body["input"][0]["content"] == [
        {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}, "type": "input_text", "text": "s"}
    ]
    assert [item["output"] for item in body["input"] if item["type"] == "function_call_output"] == [
        [{"prompt_cache_breakpoint": {"mode": "explicit"}, "type": "input_text", "text": "one"}],
        [{"type": "input_text", "text": "two"}],
        "",
    ]
    assert losses == [
        "input[3].prompt_cache_breakpoint",
        "input[8].prompt_cache_breakpoint",
        "tools[0].prompt_cache_breakpoint",
    ]
    assert "cache_control" not in json.dumps(body)


def test_responses_server_whose_model_has_no_marks_gets_none() -> None:
    wire = ResponsesWire(breakpoint_models=("gpt-5.6*",))
    body, losses = translated(messages, responses, {**AGENT, "cache_control": SHORT}, wire)
    assert "prompt_cache" not in json.dumps(body)
    assert [item["output"] for item in body["input"] if item["type"] == "function_call_output"] == ["one", "two", ""]
    assert losses == [
        "input[0].content[0].prompt_cache_breakpoint",
        "input[3].prompt_cache_breakpoint",
        "input[6].prompt_cache_breakpoint",
        "input[8].prompt_cache_breakpoint",
        "prompt_cache_options",
        "tools[0].prompt_cache_breakpoint",
    ]


def test_marks_of_a_messages_client_reach_a_chat_server_with_a_place() -> None:
    body, losses = translated(messages, chat, AGENT, OPENROUTER)
    assert body["messages"][0] == {
        "role": "system",
        "content": [{"type": "text", "text": "s", "cache_control": LONG}],
    }
    assert body["messages"][1] == {"role": "user", "content": [{"type": "text", "text": "q"}]}
    assert [message["content"] for message in body["messages"][3:]] == [
        [{"type": "text", "text": "one", "cache_control": SHORT}],
        [{"type": "text", "text": "two"}],
        "",
    ]
    assert losses == [
        "input[3].prompt_cache_breakpoint",
        "input[8].prompt_cache_breakpoint",
        "tools[0].prompt_cache_breakpoint",
    ]


@pytest.mark.parametrize(("server", "wire"), [(chat, ()), (gemini, ()), (ollama, ())], ids=["chat", "gemini", "ollama"])
def test_servers_without_a_place_get_no_marks(server: Any, wire: tuple[Any, ...]) -> None:
    body, losses = translated(messages, server, {**AGENT, "cache_control": LONG}, *wire)
    assert "cache_control" not in json.dumps(body)
    assert "prompt_cache" not in json.dumps(body)
    assert [path for path in losses if path.endswith("prompt_cache_breakpoint")] == [
        "input[0].content[0].prompt_cache_breakpoint",
        "input[3].prompt_cache_breakpoint",
        "input[6].prompt_cache_breakpoint",
        "input[8].prompt_cache_breakpoint",
        "tools[0].prompt_cache_breakpoint",
    ]
    assert "prompt_cache_options" in losses


def test_marks_of_a_chat_client_reach_a_messages_server() -> None:
    parts = ({"type": "text", "text": "a", "cache_control": LONG}, {"type": "text", "text": "b"})
    system = {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": LONG}]}
    body = chat_body(*parts, cache_control=SHORT)
    body["messages"].insert(0, system)
    body["tools"] = [{"type": "function", "function": {"name": "f"}, "cache_control": LONG}]
    sent, losses = translated(chat, messages, body, MessagesWire())
    assert sent["system"] == [{"type": "text", "text": "s", "cache_control": LONG}]
    assert sent["messages"][0]["content"] == [
        {"type": "text", "text": "a", "cache_control": LONG},
        {"type": "text", "text": "b"},
    ]
    assert sent["tools"][0]["cache_control"] == LONG
    assert sent["cache_control"] == SHORT
    assert losses == []


def test_marks_of_a_chat_client_come_back_to_a_chat_server_with_a_place() -> None:
    marked = {"type": "text", "text": "a", "cache_control": {**LONG, "scope": "global"}}
    sent, losses = translated(chat, chat, chat_body(marked, cache_control=SHORT), OPENROUTER)
    assert sent["messages"][0]["content"] == [marked]
    assert (sent["cache_control"], losses) == (SHORT, [])
    sent, losses = translated(chat, chat, chat_body(marked, cache_control=LONG), BREAKPOINTS)
    assert sent["messages"][0]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit", "ttl": "12h"}
    assert sent["prompt_cache_options"] == {"mode": "implicit", "ttl": "12h"}
    assert losses == ["input[0].content[0].cache_control.scope"]


def test_breakpoints_stay_breakpoints() -> None:
    mark = {"mode": "explicit", "ttl": "30m"}
    options = {"mode": "explicit", "ttl": "12h"}
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}, "prompt_cache_breakpoint": mark}
    body = chat_body(image, prompt_cache_options=options, prompt_cache_retention="24h")
    sent, losses = translated(chat, chat, body, BREAKPOINTS)
    assert (sent["messages"], losses) == (body["messages"], [])
    assert (sent["prompt_cache_options"], sent["prompt_cache_retention"]) == (options, "24h")
    sent, losses = translated(chat, responses, body)
    assert sent["input"][0]["content"][0]["prompt_cache_breakpoint"] == mark
    assert (sent["prompt_cache_options"], losses) == (options, [])
    sent, losses = translated(chat, chat, body, OPENROUTER)
    assert "prompt_cache_breakpoint" not in json.dumps(sent)
    assert losses == ["input[0].content[0].prompt_cache_breakpoint", "prompt_cache_retention"]


def test_request_with_both_kinds_of_options_uses_the_hubs() -> None:
    body = chat_body({"type": "text", "text": "a"}, cache_control=SHORT, prompt_cache_options={"mode": "explicit"})
    sent, losses = translated(chat, responses, body)
    assert (sent["prompt_cache_options"], losses) == ({"mode": "explicit"}, ["cache_control"])


def test_mark_of_the_whole_request_becomes_options() -> None:
    sent, losses = translated(messages, responses, {**AGENT, "cache_control": {**LONG, "scope": "global"}})
    assert sent["prompt_cache_options"] == {"mode": "implicit", "ttl": "12h"}
    assert "prompt_cache_options.cache_control.scope" in losses
    sent, _ = translated(messages, messages, {**AGENT, "cache_control": LONG}, MessagesWire())
    assert sent["cache_control"] == LONG


def test_invalid_marks_are_not_read() -> None:
    part = {"type": "input_text", "text": "a", "prompt_cache_breakpoint": True}
    body = {"model": "m", "input": [{"type": "message", "role": "user", "content": [part]}]}
    sent, losses = translated(responses, responses, body)
    assert sent["input"][0]["content"][0] == part
    sent, losses = translated(responses, messages, body, MessagesWire())
    assert sent["messages"][0]["content"] == [{"type": "text", "text": "a"}]
    assert losses == ["input[0].content[0].prompt_cache_breakpoint"]


def test_assistant_texts_and_unknown_parts_of_outputs_take_no_mark() -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    unknown = {"type": "acme:part"}
    body = {
        "model": "m",
        "input": [
            {"type": "message", "role": "user", "content": "q"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t", **mark}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": [unknown], **mark},
        ],
    }
    sent, losses = translated(responses, responses, body)
    assert sent["input"][1]["content"] == [{"type": "output_text", "text": "t"}]
    assert sent["input"][3]["output"] == [unknown]
    assert losses == ["input[1].content[0].prompt_cache_breakpoint", "input[3].prompt_cache_breakpoint"]


def test_texts_beside_a_marked_result_are_parts() -> None:
    """A message has the same form in every turn, whichever of them has the mark."""
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": "one", "cache_control": SHORT}],
            },
            {"role": "system", "content": "be brief"},
        ],
    }
    sent, losses = translated(messages, chat, body, OPENROUTER)
    assert [message["content"] for message in sent["messages"]] == [
        [{"type": "text", "text": "q"}],
        None,
        [{"type": "text", "text": "one", "cache_control": SHORT}],
        [{"type": "text", "text": "be brief"}],
    ]
    assert losses == []


def test_outputs_beside_breakpoints_keep_their_form() -> None:
    """A breakpoint is on a part from the start, so no output changes its form because of it."""
    body = {
        "model": "m",
        "input": [
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "q", "prompt_cache_breakpoint": {"mode": "explicit"}}],
            },
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "one"},
        ],
    }
    sent, losses = translated(responses, responses, body)
    assert (sent["input"][2]["output"], losses) == ("one", [])


def test_system_string_beside_a_mark_becomes_a_part() -> None:
    part = {"type": "input_text", "text": "q", "prompt_cache_breakpoint": {"mode": "explicit"}}
    body = {"model": "m", "input": [{"role": "system", "content": "rules"}, {"role": "user", "content": [part]}]}
    sent, losses = translated(responses, chat, body, OPENROUTER)
    assert [message["content"] for message in sent["messages"]] == [
        [{"type": "text", "text": "rules"}],
        [{"type": "text", "text": "q", "cache_control": SHORT}],
    ]
    assert losses == []
