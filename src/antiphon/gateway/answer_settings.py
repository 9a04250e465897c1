"""The settings of a request as its answer needs them, for a request that another process prepared.

The answer needs the names of the tools, and the settings that the response repeats. The event loop never decodes
schemas, nor encodes long texts: it copies their JSON into the response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from antiphon.errors import InvalidValue
from antiphon.gateway.recording import queued_response
from antiphon.gateway.worker_pool import LARGE_INPUT, WorkerPool
from antiphon.protocol import codec
from antiphon.protocol.items import AdditionalTools, ItemParam, ToolSearchOutput
from antiphon.protocol.request import JsonSchemaFormatParam, Request
from antiphon.protocol.response import JsonSchemaFormat, Response, echo_tools
from antiphon.protocol.tools import (
    CustomTool,
    FunctionToolParam,
    NamespaceTool,
    Tool,
    ToolList,
    ToolParam,
    ToolSearchTool,
)

F = TypeVar("F")


def settings_for_answer(request: Request, upstream_request: Request) -> tuple[Request, Request]:
    """The client's request and the upstream's, both without history, without decoded schemas. Raises the client's error
    if they still have more values than the event loop can take at once."""
    settings = _outline_request(request)
    shared = {
        name: getattr(settings, name)
        for name in ("tools", "instructions")
        if getattr(upstream_request, name) is getattr(request, name)
    }
    rest = replace(upstream_request, **dict.fromkeys(shared, UNSET))
    upstream_settings = replace(_outline_request(rest), **shared)
    for each in (settings, upstream_settings):
        _check_size(each)
    return settings, upstream_settings


async def read_queued_response(workers: WorkerPool, head: bytes) -> Response:
    """The response as the client received it when it was queued. A large one has no decoded schemas."""
    return queued_response(head) if len(head) <= LARGE_INPUT else await read_large_response(workers, head)


async def read_large_response(workers: WorkerPool, head: bytes) -> Response:
    """The same for a large one, in a worker process."""
    response: Response = await workers.run(_read_large_response, head)
    return response


async def _read_large_response(ask: Callable[..., Any], head: bytes) -> Response:
    del ask
    response = queued_response(head)
    text = replace(response.text, format=_encode_schema(response.text.format)) if response.text else response.text
    return replace(
        response,
        tools=_encode_on_one_line(response.tools),
        instructions=_encode_long_text(response.instructions),
        text=text,
    )


def _outline_request(request: Request) -> Request:
    tools = request.tools
    if tools:
        tools = ToolList(_outline_tools(tools), _encode_on_one_line(echo_tools(tools)))
    return replace(
        request,
        tools=tools,
        instructions=_encode_long_text(request.instructions),
        input=[_outline_item(item) for item in request.input] if type(request.input) is list else request.input,
        text=replace(request.text, format=_encode_schema(request.text.format)) if request.text else request.text,
        client_metadata=UNSET,  # no answer repeats it
        context_management=UNSET,
    )


def _outline_tools(tools: Iterable[ToolParam]) -> list[ToolParam]:
    return [_outline_tool(tool) for tool in tools]


def _outline_tool(tool: ToolParam) -> ToolParam:
    """A tool without its schema. The answer may repeat a deferred tool, as the result of a search."""
    match tool:
        case FunctionToolParam() if tool.defer_loading:
            return replace(tool, parameters=Raw(codec.encode(tool.parameters)) if tool.parameters else tool.parameters)
        case FunctionToolParam():
            return FunctionToolParam(name=tool.name)
        case CustomTool() if not tool.defer_loading:
            return CustomTool(name=tool.name)
        case ToolSearchTool():
            return ToolSearchTool(execution=tool.execution)
        case NamespaceTool():
            return replace(tool, tools=_outline_tools(tool.tools))
        case _:
            return tool


def _outline_item(item: ItemParam) -> ItemParam:
    if isinstance(item, AdditionalTools | ToolSearchOutput):
        return replace(item, tools=_outline_tools(item.tools))
    return item


def _encode_on_one_line(tools: list[Tool]) -> Raw:
    """Tools of unknown types keep their bytes, which may have line breaks."""
    encoded = codec.encode(tools)
    has_breaks = b"\n" in encoded or b"\r" in encoded
    return Raw(msgspec.json.format(encoded, indent=-1) if has_breaks else encoded)


def _encode_long_text(text: Any) -> Any:
    """Characters that JSON escapes take long to encode."""
    return Raw(codec.encode(text)) if isinstance(text, str) and len(text) > LONG_TEXT else text


def _encode_schema(format: F) -> F:
    if not isinstance(format, JsonSchemaFormatParam | JsonSchemaFormat) or not format.schema:
        return format
    return replace(format, schema=Raw(codec.encode(format.schema)))


def _check_size(settings: Request) -> None:
    count = _count_values(settings)
    if count > MAX_VALUES:
        raise InvalidValue(
            f"the tools and settings of a large request: expected at most {MAX_VALUES} values, without the schemas of "
            f"functions, got {count}"
        )


def _count_values(value: Any) -> int:
    """The number of values in a value, without those that are not set."""
    count, pending = 0, [value]
    while pending:
        value = pending.pop()
        count += 1
        if isinstance(value, Struct):
            pending += [member for name in value.__struct_fields__ if (member := getattr(value, name)) is not UNSET]
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return count


MAX_VALUES: Final = 50_000
LONG_TEXT: Final = 64 * 1024  # characters
