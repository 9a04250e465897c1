"""Cases of the Responses API, from the types of the SDK `openai`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from openai.types import responses
from openai.types.responses import response as response_module
from openai.types.responses import response_input_param
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from tests.identity.generator import Generator
from tests.identity.sdk_types import fields_of, is_object, item_hint, members_of, words_of
from tests.identity.source import MODEL, Case, Source, make_arguments, make_image_url, make_schema, make_url
from tests.identity.summaries import with_summaries


def make_case(generator: Generator, is_stream: bool) -> Case:
    generator.start_case(ResponseCreateParamsBase)
    request = _make_request(generator, is_stream)
    generator.start_case(responses.ResponseStreamEvent if is_stream else responses.Response)
    response = _make_response(generator, request)
    return Case(request, _number(_make_events(generator, response)) if is_stream else [response])


def make_summary_case(generator: Generator, is_stream: bool) -> Case:
    """A case of a client that asks for summaries, with open reasoning in the history and in the answer."""
    generator.start_case(ResponseCreateParamsBase)
    request = _make_request(generator, is_stream)
    request["reasoning"] = {**(request.get("reasoning") or {}), "summary": generator.pick(("auto", "detailed"))}
    shown = generator.object(responses.ResponseReasoningItemParam, content=..., encrypted_content=...)
    if isinstance(request["input"], list):
        request["input"] += [shown, generator.object(response_input_param.Message, role="user")]
    generator.start_case(responses.ResponseStreamEvent if is_stream else responses.Response)
    response = _make_response(generator, request)
    content = generator.value(_hint(responses.ResponseReasoningItem, "content"))
    members: dict[str, Any] = {"summary": [], "content": content, "status": "completed"}
    thought = generator.object(responses.ResponseReasoningItem, id=generator.new_name("item"), **members)
    response["output"].insert(0, thought)
    return Case(request, _number(_make_events(generator, response)) if is_stream else [response])


# Requests


def _make_request(generator: Generator, is_stream: bool) -> dict[str, Any]:
    tools = _make_tools(generator)
    given: dict[str, Any] = {
        "model": MODEL,
        "input": generator.text() if generator.chance(0.2) else _make_input(generator, tools),
        "tool_choice": _make_tool_choice(generator, tools),
        "tools": tools or ...,
        "stream": True if is_stream else generator.random.choice((False, ...)),
        "include": INCLUDES,  # the gateway removes what a client did not ask for
    }
    if not is_stream:
        given["stream_options"] = ...
    return generator.object(ResponseCreateParamsBase, **given)


def _make_tools(generator: Generator) -> list[dict[str, Any]]:
    tools = [generator.object(responses.FunctionToolParam) for _ in range(generator.random.randint(0, 2))]
    if generator.chance(0.3):
        tools.append(generator.object(responses.CustomToolParam))
    if generator.chance():
        tools += generator.value(_hint(ResponseCreateParamsBase, "tools"))
    return tools


def _make_tool_choice(generator: Generator, tools: list[dict[str, Any]]) -> Any:
    functions = [tool["name"] for tool in tools if tool["type"] == "function"]
    if generator.chance(0.3):
        kind = generator.pick(
            [kind for kind in members_of(_hint(ResponseCreateParamsBase, "tool_choice")) if is_object(kind)]
        )
        if kind is responses.ToolChoiceCustomParam:
            customs = [tool["name"] for tool in tools if tool["type"] == "custom"]
            return generator.object(kind, name=generator.random.choice(customs)) if customs else ...
        if kind not in (responses.ToolChoiceFunctionParam, responses.ToolChoiceAllowedParam):
            choice = generator.object(kind)
            tools.append(_make_hosted_tool(generator, choice["type"]))
            return choice
    if not functions or generator.chance():
        return ...
    name = generator.random.choice(functions)
    allowed = generator.object(responses.ToolChoiceAllowedParam, tools=[{"type": "function", "name": name}])
    named = generator.object(responses.ToolChoiceFunctionParam, name=name)
    return generator.random.choice(("none", "auto", "required", named, allowed))


def _make_hosted_tool(generator: Generator, choice: str) -> dict[str, Any]:
    """The tool of a choice, which must be offered. Its type may be another version of the choice."""
    kinds = [kind for kind in members_of(item_hint(_hint(ResponseCreateParamsBase, "tools"))) if is_object(kind)]
    words = {str(word): kind for kind in kinds for word in words_of(members_of(_hint(kind, "type"))[0])}
    family = [word for word in words if word == choice] or [word for word in words if word[:8] == choice[:8]]
    return generator.object(words[family[0]], type=family[0])


def _make_input(generator: Generator, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    items = [generator.object(generator.pick(USER_ITEMS))]
    for _ in range(generator.random.randint(0, 3)):
        items += _input_items(generator, tools)
    return items


def _input_items(generator: Generator, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An item, or a call with its result."""
    kind = generator.pick(INPUT_ITEMS)
    item = generator.object(kind)
    match item.get("type"):
        case "function_call":
            _name_call(generator, item, tools, "function")
            return [item, generator.object(response_input_param.FunctionCallOutput, call_id=item["call_id"])]
        case "custom_tool_call":
            _name_call(generator, item, tools, "custom")
            return [item, generator.object(responses.ResponseCustomToolCallOutputParam, call_id=item["call_id"])]
        case _ if kind in RESULT_OF:
            return [item, generator.object(RESULT_OF[kind], call_id=item.get("call_id", ...))]
        case "local_shell_call":
            return [item, generator.object(response_input_param.LocalShellCallOutput, id=item["call_id"])]
        case "mcp_approval_request":
            result = response_input_param.McpApprovalResponse
            return [item, generator.object(result, approval_request_id=item["id"])]
        case _:
            return [item]


def _name_call(generator: Generator, item: dict[str, Any], tools: list[dict[str, Any]], kind: str) -> None:
    names = [tool["name"] for tool in tools if tool["type"] == kind]
    item["name"] = generator.random.choice(names) if names else generator.new_name("tool")
    item.pop("namespace", None)


# Answers


def _make_response(generator: Generator, request: dict[str, Any]) -> dict[str, Any]:
    output = [_output_item(generator, request) for _ in range(generator.random.randint(1, 3))]
    if isinstance(request.get("tool_choice"), dict) or request.get("tool_choice") == "none":
        # The policy withholds calls that the choice of tools does not allow.
        output = [item for item in output if item["type"] not in CLIENT_CALLS] or [_make_message(generator)]
    calls = [item for item in output if item["type"] in ("function_call", "custom_tool_call", *CLIENT_CALLS)]
    if request.get("parallel_tool_calls") is False:
        output = [item for item in output if item not in calls[1:]]
    end: dict[str, Any]
    if generator.chance(0.3):
        reason = generator.random.choice(("max_output_tokens", "content_filter"))
        details = generator.object(response_module.IncompleteDetails, reason=reason)
        end = {"status": "incomplete", "incomplete_details": details}
    else:
        end = {"status": "completed", "incomplete_details": generator.random.choice((None, ...))}
    return generator.object(responses.Response, output=output, error=generator.random.choice((None, ...)), **end)


def _make_message(generator: Generator) -> dict[str, Any]:
    return generator.object(responses.ResponseOutputMessage, id=generator.new_name("item"), status="completed")


def _output_item(generator: Generator, request: dict[str, Any]) -> dict[str, Any]:
    callable_tools = _callable_tools(request)
    if callable_tools and generator.chance(0.4):
        tool = generator.random.choice(callable_tools)
        kinds = {"function": responses.ResponseFunctionToolCall, "custom": responses.ResponseCustomToolCall}
        call: dict[str, Any] = {"name": tool["name"], "namespace": ..., "status": "completed"}
        return generator.object(kinds[tool["type"]], id=generator.new_name("call"), **call)
    common = (responses.ResponseOutputMessage, responses.ResponseReasoningItem)
    kind = generator.random.choice(common) if generator.chance() else generator.pick(OUTPUT_ITEMS)
    given = {"status": "completed"} if "status" in {field.name for field in fields_of(kind)} else {}
    return generator.object(kind, id=generator.new_name("item"), **given)


def _callable_tools(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The functions and custom tools that the model may call."""
    tools = [tool for tool in request.get("tools") or () if tool["type"] in ("function", "custom")]
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        allowed = choice["tools"] if choice["type"] == "allowed_tools" else [choice]
        names = [tool.get("name") for tool in allowed]
        return [tool for tool in tools if tool["name"] in names]
    return [] if choice == "none" else tools


# Streams


def _number(events: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _make_events(generator: Generator, response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    start = {**response, "status": "in_progress", "output": [], "incomplete_details": None, "usage": None}
    start.pop("completed_at", None)
    yield _event(generator, responses.ResponseCreatedEvent, response=start)
    yield _event(generator, responses.ResponseInProgressEvent, response=start)
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        yield _event(generator, responses.ResponseOutputItemAddedEvent, output_index=index, item=_empty_item(item))
        yield from _item_events(generator, item, place)
        yield _event(generator, responses.ResponseOutputItemDoneEvent, output_index=index, item=item)
    ends = {"completed": responses.ResponseCompletedEvent, "incomplete": responses.ResponseIncompleteEvent}
    yield _event(generator, ends[response["status"]], response=response)


def _event(generator: Generator, kind: Any, **given: Any) -> dict[str, Any]:
    return generator.object(kind, sequence_number=0, **given)


def _empty_item(item: dict[str, Any]) -> dict[str, Any]:
    empty = {**item, **{name: value for name, value in EMPTY_MEMBERS.get(item["type"], {}).items() if name in item}}
    return {**empty, "status": "in_progress"} if "status" in item else empty


def _item_events(generator: Generator, item: dict[str, Any], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match item["type"]:
        case "message":
            for index, part in enumerate(item["content"]):
                yield from _part_events(generator, part, {**place, "content_index": index})
            if generator.chance(0.1):
                yield from (_event(generator, kind) for kind in AUDIO)
        case "reasoning":
            yield from _reasoning_events(generator, item, place)
        case "function_call":
            for piece in generator.split(item["arguments"]):
                yield _event(generator, responses.ResponseFunctionCallArgumentsDeltaEvent, delta=piece, **place)
            kind = responses.ResponseFunctionCallArgumentsDoneEvent
            yield _event(generator, kind, arguments=item["arguments"], **place)
        case "custom_tool_call":
            for piece in generator.split(item["input"]):
                yield _event(generator, responses.ResponseCustomToolCallInputDeltaEvent, delta=piece, **place)
            yield _event(generator, responses.ResponseCustomToolCallInputDoneEvent, input=item["input"], **place)
        case kind:
            chosen = [generator.pick(each) if isinstance(each, tuple) else each for each in PROGRESS.get(kind, ())]
            for progress in chosen:
                names = {field.name for field in fields_of(progress)}
                yield _event(generator, progress, **{name: place[name] for name in place if name in names})


def _part_events(generator: Generator, part: dict[str, Any], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if part["type"] == "refusal":
        yield _event(generator, responses.ResponseContentPartAddedEvent, part={**part, "refusal": ""}, **place)
        for piece in generator.split(part["refusal"]):
            yield _event(generator, responses.ResponseRefusalDeltaEvent, delta=piece, **place)
        yield _event(generator, responses.ResponseRefusalDoneEvent, refusal=part["refusal"], **place)
    else:
        empty = {**part, "text": "", "annotations": []} | ({"logprobs": []} if part.get("logprobs") else {})
        yield _event(generator, responses.ResponseContentPartAddedEvent, part=empty, **place)
        logprobs = part.get("logprobs") or []
        for number, piece in enumerate(generator.split(part["text"])):
            its_logprobs = [] if number else logprobs
            yield _event(generator, responses.ResponseTextDeltaEvent, delta=piece, logprobs=its_logprobs, **place)
        for index, annotation in enumerate(part["annotations"]):
            kind = responses.ResponseOutputTextAnnotationAddedEvent
            yield _event(generator, kind, annotation=annotation, annotation_index=index, **place)
        yield _event(generator, responses.ResponseTextDoneEvent, text=part["text"], logprobs=logprobs, **place)
    yield _event(generator, responses.ResponseContentPartDoneEvent, part=part, **place)


def _reasoning_events(generator: Generator, item: dict[str, Any], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for index, part in enumerate(item["summary"]):
        inner = {**place, "summary_index": index}
        yield _event(generator, responses.ResponseReasoningSummaryPartAddedEvent, part={**part, "text": ""}, **inner)
        for piece in generator.split(part["text"]):
            yield _event(generator, responses.ResponseReasoningSummaryTextDeltaEvent, delta=piece, **inner)
        yield _event(generator, responses.ResponseReasoningSummaryTextDoneEvent, text=part["text"], **inner)
        yield _event(generator, responses.ResponseReasoningSummaryPartDoneEvent, part=part, status=..., **inner)
    for index, part in enumerate(item.get("content") or ()):
        inner = {**place, "content_index": index}
        yield _event(generator, responses.ResponseContentPartAddedEvent, part={**part, "text": ""}, **inner)
        for piece in generator.split(part["text"]):
            yield _event(generator, responses.ResponseReasoningTextDeltaEvent, delta=piece, **inner)
        yield _event(generator, responses.ResponseReasoningTextDoneEvent, text=part["text"], **inner)
        yield _event(generator, responses.ResponseContentPartDoneEvent, part=part, **inner)


def _hint(kind: Any, name: str) -> Any:
    [hint] = [field.hint for field in fields_of(kind) if field.name == name]
    return hint


def _kinds(hint: Any, left_out: frozenset[str]) -> list[Any]:
    """The kinds of items in a union, without some types of items."""
    kinds = []
    for kind in members_of(hint):
        words = [word for field in fields_of(kind) if field.name == "type" for word in _words(field.hint)]
        if not left_out.intersection(words):
            kinds.append(kind)
    return kinds


def _words(hint: Any) -> list[Any]:
    return [word for member in members_of(hint) for word in words_of(member)]


RESULT_OF: Final = {
    response_input_param.ShellCall: response_input_param.ShellCallOutput,
    response_input_param.ApplyPatchCall: response_input_param.ApplyPatchCallOutput,
    responses.ResponseComputerToolCallParam: response_input_param.ComputerCallOutput,
    response_input_param.ToolSearchCall: responses.ResponseToolSearchOutputItemParamParam,
    response_input_param.Program: response_input_param.ProgramOutput,
}
#: Items that are made with the call or the request that they answer, or that refer to stored items.
ANSWERING: Final = frozenset(
    {
        *("function_call_output", "custom_tool_call_output", "shell_call_output", "apply_patch_call_output"),
        *("computer_call_output", "local_shell_call_output", "mcp_approval_response", "item_reference"),
        *("tool_search_output", "program_output", "compaction_trigger"),
    }
)
INCLUDES: Final = _words(item_hint(members_of(_hint(ResponseCreateParamsBase, "include"))[0]))
USER_ITEMS: Final = (responses.EasyInputMessageParam, response_input_param.Message)
INPUT_ITEMS: Final = _kinds(item_hint(response_input_param.ResponseInputParam), ANSWERING)
#: Calls of tools that the client runs, besides functions and custom tools.
CLIENT_CALLS: Final = ("apply_patch_call", "local_shell_call", "shell_call")
OUTPUT_ITEMS: Final = _kinds(
    item_hint(_hint(responses.Response, "output")), frozenset({"function_call", "custom_tool_call", "message"})
)
EMPTY_MEMBERS: Final[dict[str, dict[str, Any]]] = {
    "message": {"content": []},
    "reasoning": {"summary": [], "content": [], "encrypted_content": None},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}
AUDIO: Final = (
    responses.ResponseAudioDeltaEvent,
    responses.ResponseAudioDoneEvent,
    responses.ResponseAudioTranscriptDeltaEvent,
    responses.ResponseAudioTranscriptDoneEvent,
)
#: The events of an item between its start and its end; of several in a tuple there is one.
PROGRESS: Final[dict[str, tuple[Any, ...]]] = {
    "web_search_call": (
        responses.ResponseWebSearchCallInProgressEvent,
        responses.ResponseWebSearchCallSearchingEvent,
        responses.ResponseWebSearchCallCompletedEvent,
    ),
    "file_search_call": (
        responses.ResponseFileSearchCallInProgressEvent,
        responses.ResponseFileSearchCallSearchingEvent,
        responses.ResponseFileSearchCallCompletedEvent,
    ),
    "image_generation_call": (
        responses.ResponseImageGenCallInProgressEvent,
        responses.ResponseImageGenCallGeneratingEvent,
        responses.ResponseImageGenCallPartialImageEvent,
        responses.ResponseImageGenCallCompletedEvent,
    ),
    "code_interpreter_call": (
        responses.ResponseCodeInterpreterCallInProgressEvent,
        responses.ResponseCodeInterpreterCallCodeDeltaEvent,
        responses.ResponseCodeInterpreterCallCodeDoneEvent,
        responses.ResponseCodeInterpreterCallInterpretingEvent,
        responses.ResponseCodeInterpreterCallCompletedEvent,
    ),
    "mcp_call": (
        responses.ResponseMcpCallInProgressEvent,
        responses.ResponseMcpCallArgumentsDeltaEvent,
        responses.ResponseMcpCallArgumentsDoneEvent,
        (responses.ResponseMcpCallCompletedEvent, responses.ResponseMcpCallFailedEvent),
    ),
    "compaction": (responses.ResponseCompactionCompactingEvent,),
    "shell_call": (
        responses.ResponseShellCallCommandAddedEvent,
        responses.ResponseShellCallCommandDeltaEvent,
        responses.ResponseShellCallCommandDoneEvent,
    ),
    "shell_call_output": (
        responses.ResponseShellCallOutputContentDeltaEvent,
        responses.ResponseShellCallOutputContentDoneEvent,
    ),
    "mcp_list_tools": (
        responses.ResponseMcpListToolsInProgressEvent,
        (responses.ResponseMcpListToolsCompletedEvent, responses.ResponseMcpListToolsFailedEvent),
    ),
}
SOURCE: Final = Source(
    dialect="responses",
    roots=(ResponseCreateParamsBase, responses.Response, responses.ResponseStreamEvent),
    make_case=make_case,
    expect=with_summaries,
    rules={
        "Response.model": lambda _: "server-model",
        "Response.created_at": lambda _: 1_760_000_000,
        "Response.completed_at": lambda _: 1_760_000_009,
        "*.arguments": make_arguments,
        "*.parameters": make_schema,
        "*.schema": make_schema,
        "*.output_schema": make_schema,
        "*.url": make_url,
        "*.file_url": make_url,
        "*.image_url": make_image_url,
        "*.id": lambda generator: generator.new_name("id"),
        "*.call_id": lambda generator: generator.new_name("call"),
        "*.name": lambda generator: generator.new_name("name"),
        "EasyInputMessageParam.role": lambda generator: generator.random.choice(("user", "system", "developer")),
        "ToolChoiceAllowed.tools": lambda generator: [{"type": "function", "name": generator.new_name("tool")}],
        "ResponseFormatTextJSONSchemaConfig.strict": Generator.chance,
        "ToolSearchTool.execution": lambda generator: generator.random.choice(("server", "client")),
        "ResponseCreateParamsBase.max_output_tokens": lambda generator: generator.random.randint(16, 9999),
        "ResponseOutputText.logprobs": lambda generator: generator.value(
            _hint(responses.ResponseOutputText, "logprobs")
        ),
        "ResponseComputerToolCall.action": lambda generator: generator.value(
            _hint(responses.ResponseComputerToolCall, "action")
        ),
        "ResponseTextConfig.format": lambda generator: generator.value(_hint(responses.ResponseTextConfig, "format")),
        "*.prompt_cache_key": Generator.word,
        "*.safety_identifier": Generator.word,
        "*.encrypted_content": Generator.base64,
        "ResponseCreateParamsBase.top_logprobs": lambda generator: generator.random.randint(0, 20),
        "*.temperature": lambda generator: generator.random.randint(0, 20) / 10,
    },
    # Open Responses requires these.
    required=frozenset(
        {
            *("FunctionTool.description", "FunctionTool.parameters", "FunctionTool.strict"),
            *("Reasoning.effort", "Reasoning.summary", "ResponseTextConfig.format"),
            *("ResponseFormatTextJSONSchemaConfig.description", "ResponseFormatTextJSONSchemaConfig.strict"),
        }
    ),
    left_out={
        "the gateway stores responses itself; tested with its store": (
            "ResponseCreateParamsBase.previous_response_id",
            "ResponseCreateParamsBase.conversation",
            "ResponseCreateParamsBase.background",
            "ItemReference",
        ),
        "only background responses are queued, which the gateway runs itself": ("ResponseQueuedEvent",),
        "failures are translated; tested with the errors of every dialect": (
            "ResponseError",
            "ResponseErrorEvent",
            "ResponseFailedEvent",
        ),
        "a part of the whole answer, given again in an event": (
            "response_content_part_added_event.PartReasoningText",
            "response_content_part_done_event.PartReasoningText",
            "response_output_text_annotation_added_event.AnnotationFileCitation",
            "response_output_text_annotation_added_event.AnnotationURLCitation",
            "response_output_text_annotation_added_event.AnnotationContainerFileCitation",
            "response_output_text_annotation_added_event.AnnotationFilePath",
            "response_reasoning_summary_part_added_event.Part",
            "response_reasoning_summary_part_done_event.Part",
            "response_reasoning_summary_part_done_event.ResponseReasoningSummaryPartDoneEvent.status",
            "response_text_delta_event.Logprob",
            "response_text_done_event.Logprob",
        ),
        "the gateway compacts itself; tested with its compaction": (
            "ResponseCreateParamsBase.context_management",
            "CompactionTrigger",
        ),
    },
)
