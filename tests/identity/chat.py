"""Cases of Chat Completions, from the types of the SDK `openai`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from openai.types.chat import (
    ChatCompletion,
    ChatCompletionAllowedToolChoiceParam,
    ChatCompletionAllowedToolsParam,
    ChatCompletionAssistantMessageParam,
    ChatCompletionChunk,
    ChatCompletionCustomToolParam,
    ChatCompletionDeveloperMessageParam,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessage,
    ChatCompletionMessageCustomToolCall,
    ChatCompletionMessageCustomToolCallParam,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageFunctionToolCallParam,
    ChatCompletionSystemMessageParam,
    ChatCompletionToolMessageParam,
    ChatCompletionUserMessageParam,
)
from openai.types.chat import chat_completion_message_custom_tool_call as custom_call
from openai.types.chat import chat_completion_message_custom_tool_call_param as custom_call_param
from openai.types.chat import chat_completion_message_function_tool_call as function_call
from openai.types.chat import chat_completion_message_function_tool_call_param as function_call_param
from openai.types.chat import chat_completion_named_tool_choice_custom_param as named_custom
from openai.types.chat import chat_completion_named_tool_choice_param as named_function
from openai.types.chat.chat_completion import Choice
from openai.types.chat.chat_completion_chunk import Choice as ChunkChoice
from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall, ChoiceDeltaToolCallFunction
from openai.types.chat.chat_completion_content_part_param import FileFile
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from tests.identity.generator import Generator
from tests.identity.source import MODEL, Case, Source, make_arguments, make_image_url, make_schema, make_url


def make_case(generator: Generator, is_stream: bool) -> Case:
    answer = ChatCompletionChunk if is_stream else ChatCompletion
    generator.start_case(CompletionCreateParamsBase)
    request = _make_request(generator, is_stream)
    generator.start_case(answer)
    return Case(request, _make_chunks(generator, request) if is_stream else [_make_completion(generator, request)])


# Requests


def _make_request(generator: Generator, is_stream: bool) -> dict[str, Any]:
    tools = [_make_tool(generator) for _ in range(generator.random.randint(0, 3))]
    other_tools = [_make_unknown(generator)] if generator.chance(0.2) else []
    given: dict[str, Any] = {
        "messages": _make_messages(generator, tools),
        "tools": [*tools, *other_tools] or ...,
        "tool_choice": _make_tool_choice(generator, tools),
        "stream": True if is_stream else generator.random.choice((False, ...)),
        "n": generator.random.choice((..., ..., None, 1, 2)),
    }
    if not tools:
        given["parallel_tool_calls"] = ...
    if not is_stream:
        given["stream_options"] = ...
    if not generator.chance(0.2):
        given |= {"logprobs": generator.random.choice((False, None, ..., ...)), "top_logprobs": ...}
    else:
        given["logprobs"] = True
    given[generator.random.choice(("max_tokens", "max_completion_tokens"))] = ...  # one excludes the other
    return generator.object(CompletionCreateParamsBase, **given)


def _make_unknown(generator: Generator) -> dict[str, Any]:
    """A tool or a part that only some servers know."""
    return {"type": generator.new_name("server"), "option": generator.json()}


def _make_tool(generator: Generator) -> dict[str, Any]:
    kinds = (ChatCompletionFunctionToolParam, ChatCompletionFunctionToolParam, ChatCompletionCustomToolParam)
    return generator.object(generator.random.choice(kinds))


def _make_tool_choice(generator: Generator, tools: list[dict[str, Any]]) -> Any:
    if not tools:
        return ...
    tool = generator.random.choice(tools)
    named = _make_named_choice(generator, tool)
    allowed_tools = generator.object(ChatCompletionAllowedToolsParam, tools=[named])
    allowed = generator.object(ChatCompletionAllowedToolChoiceParam, allowed_tools=allowed_tools)
    return generator.random.choice((..., ..., "none", "auto", "required", named, allowed))


def _make_named_choice(generator: Generator, tool: dict[str, Any]) -> dict[str, Any]:
    if tool["type"] == "custom":
        custom = generator.object(named_custom.Custom, name=_tool_name(tool))
        return generator.object(named_custom.ChatCompletionNamedToolChoiceCustomParam, custom=custom)
    function = generator.object(named_function.Function, name=_tool_name(tool))
    return generator.object(named_function.ChatCompletionNamedToolChoiceParam, function=function)


def _tool_name(tool: dict[str, Any]) -> str:
    return str(tool[tool["type"]]["name"])


def _make_messages(generator: Generator, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if generator.chance():
        kinds = (ChatCompletionSystemMessageParam, ChatCompletionDeveloperMessageParam)
        messages.append(generator.object(generator.random.choice(kinds)))
    messages.append(generator.object(ChatCompletionUserMessageParam))
    if generator.chance(0.2):
        messages.append(generator.object(ChatCompletionUserMessageParam, content=[_make_unknown(generator)]))
    for _ in range(generator.random.randint(0, 2)):
        messages += _make_answered_turn(generator, tools)
    return messages


def _make_answered_turn(generator: Generator, tools: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A message of the assistant; the results of its calls, or a question."""
    calls = [_make_call(generator, tools) for _ in range(generator.random.randint(0, 2))] if tools else []
    given: dict[str, Any] = {"tool_calls": calls} if calls else {"tool_calls": ..., "content": generator.text()}
    if generator.chance(0.2):
        given["content"] = [_make_unknown(generator), {"type": "text", "text": generator.text()}]
    message = generator.object(ChatCompletionAssistantMessageParam, **given)
    if isinstance(message.get("content"), list):  # a refusal is either a part or a member
        message.pop("refusal", None)
    yield message
    for call in calls:
        yield generator.object(ChatCompletionToolMessageParam, tool_call_id=call["id"])
    if not calls or generator.chance(0.3):
        yield generator.object(ChatCompletionUserMessageParam)


def _make_call(generator: Generator, tools: list[dict[str, Any]]) -> dict[str, Any]:
    tool = generator.random.choice(tools)
    if tool["type"] == "custom":
        custom = generator.object(custom_call_param.Custom, name=_tool_name(tool))
        return generator.object(ChatCompletionMessageCustomToolCallParam, custom=custom)
    function = generator.object(function_call_param.Function, name=_tool_name(tool))
    return generator.object(ChatCompletionMessageFunctionToolCallParam, function=function)


def _make_file(generator: Generator) -> dict[str, Any]:
    """A file is named by its id, or is in the request."""
    if generator.chance():
        return generator.object(FileFile, file_id=generator.new_name("file"), file_data=..., filename=...)
    data = f"data:application/pdf;base64,{generator.base64()}"
    return generator.object(FileFile, file_id=..., file_data=data, filename="a.pdf")


# Answers


def _make_completion(generator: Generator, request: dict[str, Any]) -> dict[str, Any]:
    choices = [_make_choice(generator, index, request) for index in range(request.get("n") or 1)]
    return generator.object(ChatCompletion, choices=choices)


def _make_choice(generator: Generator, index: int, request: dict[str, Any]) -> dict[str, Any]:
    calls = _answer_calls(generator, request)
    given: dict[str, Any] = {"tool_calls": calls} if calls else {"content": generator.text(), "tool_calls": ...}
    message = generator.object(ChatCompletionMessage, **given)
    return generator.object(Choice, index=index, message=message, finish_reason=_finish(generator, calls))


def _answer_calls(generator: Generator, request: dict[str, Any]) -> list[dict[str, Any]]:
    choice = request.get("tool_choice")
    tools = [tool for tool in request.get("tools") or [] if tool["type"] in ("function", "custom")]
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools", {}).get("tools") or [choice]
        tools = [tool for tool in tools if _tool_name(tool) in map(_tool_name, allowed)]
    if not tools or choice == "none":
        return []
    count = 1 if request.get("parallel_tool_calls") is False else generator.random.randint(0, 2)
    calls = []
    for tool in generator.random.choices(tools, k=count):
        if tool["type"] == "custom":
            custom = generator.object(custom_call.Custom, name=_tool_name(tool))
            calls.append(generator.object(ChatCompletionMessageCustomToolCall, custom=custom))
        else:
            function = generator.object(function_call.Function, name=_tool_name(tool))
            calls.append(generator.object(ChatCompletionMessageFunctionToolCall, function=function))
    return calls


def _finish(generator: Generator, calls: list[dict[str, Any]]) -> str:
    return "tool_calls" if calls else generator.random.choice(("stop", "stop", "length", "content_filter"))


def _make_chunks(generator: Generator, request: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of one answer, or of several whose chunks are mixed."""
    streams = [list(_make_deltas(generator, request)) for _ in range(request.get("n") or 1)]
    head = {"id": generator.new_name("chatcmpl"), "created": 1_760_000_000, "model": "server-model"}
    chunks = []
    while any(streams):
        index = generator.random.choice([index for index, stream in enumerate(streams) if stream])
        delta, finish = streams[index].pop(0)
        given = {"finish_reason": finish} if finish else {"finish_reason": generator.random.choice((None, ...))}
        choice = generator.object(ChunkChoice, delta=delta, index=index, **given)
        chunks.append(generator.object(ChatCompletionChunk, **head, choices=[choice], usage=_no_usage(generator)))
    if (request.get("stream_options") or {}).get("include_usage"):
        usage = generator.value(CHUNK_USAGE)
        chunks.append(generator.object(ChatCompletionChunk, **head, choices=[], usage=usage))
    return chunks


def _no_usage(generator: Generator) -> Any:
    return generator.random.choice((None, ..., ...))


def _make_deltas(generator: Generator, request: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    calls = [call for call in _answer_calls(generator, request) if call["type"] == "function"]
    empty: dict[str, Any] = {"content": ..., "tool_calls": ..., "refusal": ..., "role": ...}
    first = generator.random.choice(({"content": ""}, {"content": None}, {}))
    yield generator.object(ChoiceDelta, **{**empty, "role": "assistant", **first}), None
    member = "content" if calls or generator.chance(0.8) else "refusal"
    for piece in generator.split(generator.text()) if not calls or generator.chance() else ():
        yield generator.object(ChoiceDelta, **{**empty, member: piece}), None
    for index, call in enumerate(calls):
        pieces = generator.split(call["function"]["arguments"])
        function = generator.object(ChoiceDeltaToolCallFunction, name=call["function"]["name"], arguments="")
        start = generator.object(ChoiceDeltaToolCall, index=index, id=call["id"], type="function", function=function)
        yield generator.object(ChoiceDelta, **{**empty, "tool_calls": [start]}), None
        for piece in pieces:
            function = generator.object(ChoiceDeltaToolCallFunction, name=..., arguments=piece)
            rest = generator.object(ChoiceDeltaToolCall, index=index, id=..., type=..., function=function)
            yield generator.object(ChoiceDelta, **{**empty, "tool_calls": [rest]}), None
    yield generator.object(ChoiceDelta, **empty), _finish(generator, calls)


[CHUNK_USAGE] = [
    field.hint for field in Generator(0, rules={}, left_out=()).fields(ChatCompletionChunk) if field.name == "usage"
]
SOURCE: Final = Source(
    dialect="chat",
    roots=(CompletionCreateParamsBase, ChatCompletion, ChatCompletionChunk),
    make_case=make_case,
    rules={
        "*.model": lambda _: MODEL,
        "*.parameters": make_schema,
        "*.schema": make_schema,
        "*.arguments": make_arguments,
        "*.url": make_url,
        "ImageURL.url": make_image_url,
        "*.id": lambda generator: generator.new_name("id"),
        "Function.name": lambda generator: generator.new_name("tool"),
        "FunctionDefinition.name": lambda generator: generator.new_name("tool"),
        "Custom.name": lambda generator: generator.new_name("tool"),
        "JSONSchema.name": lambda generator: generator.new_name("format"),
        "*.prompt_cache_key": Generator.word,
        "*.safety_identifier": Generator.word,
        "InputAudio.data": Generator.base64,
        "File.file": _make_file,
        "CompletionCreateParamsBase.top_logprobs": lambda generator: generator.random.randint(0, 20),
        "CompletionCreateParamsBase.temperature": lambda generator: generator.random.randint(0, 20) / 10,
    },
    left_out={
        "deprecated in favour of `tools` and `tool_choice`": (
            "CompletionCreateParamsBase.functions",
            "CompletionCreateParamsBase.function_call",
            "ChatCompletionAssistantMessageParam.function_call",
            "ChatCompletionMessage.function_call",
            "ChoiceDelta.function_call",
            "ChatCompletionFunctionMessageParam",
        ),
    },
)
