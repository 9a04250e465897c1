"""Cases of Ollama's own API, from the types of the SDK `ollama`."""

from __future__ import annotations

from typing import Any, Final

from ollama._types import ChatRequest, ChatResponse, Message, Options, Tool
from tests.identity.generator import Generator
from tests.identity.source import MODEL, PIXEL, Case, Source, make_argument_object, make_schema


def make_case(generator: Generator, is_stream: bool) -> Case:
    generator.start_case(ChatRequest)
    request = _make_request(generator, is_stream)
    generator.start_case(ChatResponse)
    return Case(request, _make_lines(generator, request) if is_stream else [_make_response(generator, request)])


def _make_request(generator: Generator, is_stream: bool) -> dict[str, Any]:
    tools = [generator.object(Tool) for _ in range(generator.random.randint(0, 2))]
    messages = []
    if generator.chance(0.4):
        messages.append(generator.object(Message, **{**_no_calls("system"), "content": generator.text()}))
    question = {**_no_calls("user"), "content": generator.text(), "images": _images(generator)}
    messages.append(generator.object(Message, **question))
    for _ in range(generator.random.randint(0, 2)):
        messages += _make_answered_turn(generator, tools)
    stream: Any = generator.random.choice((True, ...)) if is_stream else False
    return generator.object(ChatRequest, messages=messages, tools=tools or ..., stream=stream)


def _make_answered_turn(generator: Generator, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    calls = _make_calls(generator, tools)
    content = ... if calls and generator.chance(0.3) else generator.text()
    given: dict[str, Any] = {**_no_calls("assistant"), "content": content, "tool_calls": calls or ...}
    if generator.chance(0.3):
        given["thinking"] = generator.text()
    messages = [generator.object(Message, **given)]
    for call in calls:
        name = call["function"]["name"]
        messages.append(
            generator.object(Message, **{**_no_calls("tool"), "tool_name": name, "content": generator.text()})
        )
    if not calls:
        messages.append(generator.object(Message, **{**_no_calls("user"), "content": generator.text()}))
    return messages


def _make_calls(generator: Generator, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = [tool["function"]["name"] for tool in tools]
    chosen = generator.random.choices(names, k=generator.random.randint(0, 2)) if names else []
    return [generator.object(Message.ToolCall, function=_function(generator, name)) for name in chosen]


def _function(generator: Generator, name: str) -> dict[str, Any]:
    return generator.object(Message.ToolCall.Function, name=name, arguments=make_argument_object(generator))


def _no_calls(role: str) -> dict[str, Any]:
    """A message of a role without what only other roles have."""
    return {"role": role, "tool_calls": ..., "tool_name": ..., "images": ..., "thinking": ...}


def _images(generator: Generator) -> Any:
    return [PIXEL] if generator.chance(0.3) else ...


def _make_response(generator: Generator, request: dict[str, Any]) -> dict[str, Any]:
    calls = _make_calls(generator, request.get("tools") or [])
    given = {"role": "assistant", "content": generator.text(), "tool_calls": calls or ...}
    message = generator.object(Message, **{**_no_calls("assistant"), **given, "thinking": _thinking(generator)})
    return generator.object(ChatResponse, message=message, **_end(generator))


def _thinking(generator: Generator) -> Any:
    return generator.text() if generator.chance(0.3) else ...


def _end(generator: Generator) -> dict[str, Any]:
    counts = {"prompt_eval_count": generator.random.randint(1, 99), "eval_count": generator.random.randint(1, 99)}
    return {"done": True, "done_reason": generator.random.choice(("stop", "length")), **counts}


def _make_lines(generator: Generator, request: dict[str, Any]) -> list[dict[str, Any]]:
    empty = _no_calls("assistant")
    messages: list[dict[str, Any]] = []
    for piece in generator.split(generator.text()) if generator.chance(0.3) else ():
        messages.append(generator.object(Message, **{**empty, "content": "", "thinking": piece}))
    for piece in generator.split(generator.text()):
        messages.append(generator.object(Message, **{**empty, "content": piece}))
    for call in _make_calls(generator, request.get("tools") or []):
        messages.append(generator.object(Message, **{**empty, "content": "", "tool_calls": [call]}))
    no_end = dict.fromkeys(ENDS, ...)
    lines = [generator.object(ChatResponse, message=message, done=False, **no_end) for message in messages]
    last = generator.object(Message, **{**empty, "content": ""})
    return [*lines, generator.object(ChatResponse, message=last, **_end(generator))]


#: What only the last line of a stream has.
ENDS: Final = (
    *("done_reason", "total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration"),
    *("eval_count", "eval_duration"),
)
SOURCE: Final = Source(
    dialect="ollama",
    roots=(ChatRequest, ChatResponse),
    make_case=make_case,
    rules={
        "ChatRequest.model": lambda _: MODEL,
        "ChatRequest.format": lambda generator: generator.random.choice(("json", make_schema(generator))),
        "ChatRequest.options": lambda generator: generator.object(Options),
        "ChatRequest.top_logprobs": lambda generator: generator.random.randint(0, 20),
        "ChatRequest.think": lambda generator: generator.random.choice((True, False, "low", "medium", "high")),
        "ChatRequest.keep_alive": lambda generator: generator.random.choice(("5m", -1, 0, 300)),
        "ChatResponse.model": lambda _: "server-model",
        "ChatResponse.created_at": lambda _: "2026-01-02T03:04:05.678901Z",
        "Tool.type": lambda _: "function",
        "Tool.Function.name": lambda generator: generator.new_name("tool"),
        "Tool.Function.Parameters.Property.type": lambda generator: generator.random.choice(("string", "integer")),
        "Tool.Function.Parameters.type": lambda _: "object",
    },
    left_out={
        "the SDK's own name for the text of an image; images are strings in JSON": ("Image.value",),
    },
    required=frozenset(
        {"Tool.function", "Tool.type", "Tool.Function.name", "ChatResponse.model", "ChatResponse.created_at"}
    ),
    has_null=False,
)
