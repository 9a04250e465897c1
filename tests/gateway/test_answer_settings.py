"""`gateway/answer_settings`: the settings of a large request as its answer needs them, without decoded schemas."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import UNSET, Raw

from antiphon.dialects.common.client_tools import ClientTools
from antiphon.dialects.common.tool_names import PLAIN_NAMES, ToolNames, tools_of_request
from antiphon.errors import InvalidValue
from antiphon.gateway.answer_settings import (
    MAX_VALUES,
    _read_large_response,
    read_queued_response,
    settings_for_answer,
)
from antiphon.gateway.recording import queued_response
from antiphon.gateway.worker_pool import WorkerPool
from antiphon.protocol import codec
from antiphon.protocol.request import JsonSchemaFormatParam, Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.tools import NamespaceTool, ToolList

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "é": {"enum": [1, 1.5, None]}}}
FUNCTION = {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True, "acme": 1}
CUSTOM = {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}
NAMESPACE = {"type": "namespace", "name": "n", "tools": [{**FUNCTION, "name": "g"}, CUSTOM]}
SEARCH = {"type": "tool_search", "execution": "client", "parameters": SCHEMA}
TOOLS = [FUNCTION, CUSTOM, NAMESPACE, SEARCH, {"type": "web_search"}, {"type": "acme:tool", "x": SCHEMA}]
TEXT = {"format": {"type": "json_schema", "name": "t", "schema": SCHEMA}, "verbosity": "low"}


def request_with(**members: Any) -> Request:
    return codec.decode_request(codec.encode({"model": "m", **members}))


def echo_of(request: Request) -> bytes:
    return codec.encode(make_initial_response(request, id="resp_1", created_at=1))


def has_schema(value: Any) -> bool:
    """Whether a schema is in a value as an object."""
    if isinstance(value, dict):
        return "properties" in value or any(map(has_schema, value.values()))
    if isinstance(value, list):
        return any(map(has_schema, value))
    return hasattr(value, "__struct_fields__") and any(
        has_schema(getattr(value, name)) for name in value.__struct_fields__
    )


def test_settings_have_no_decoded_schema_and_the_same_echo() -> None:
    request = request_with(tools=TOOLS, text=TEXT, client_metadata={"a": SCHEMA}, instructions="\x01é" * 100_000)
    assert has_schema(request)
    settings, upstream_settings = settings_for_answer(request, request)
    assert not has_schema(settings)
    assert echo_of(settings) == echo_of(request)
    assert upstream_settings.tools is settings.tools
    instructions: Any = settings.instructions
    assert type(instructions) is Raw
    assert upstream_settings.instructions is instructions


def test_echo_of_tools_is_on_one_line() -> None:
    """Tools of unknown types keep their bytes."""
    body = b'{"model":"m","tools":[{"type":"acme:tool",\n"x":\r\n1}]}'
    request = codec.decode_request(body)
    settings, _ = settings_for_answer(request, request)
    assert b'"tools":[{"type":"acme:tool","x":1}]' in echo_of(settings)


def test_settings_name_the_same_tools() -> None:
    items = [{"type": "additional_tools", "tools": [{**FUNCTION, "name": "h"}]}, {"role": "user", "content": "Hi"}]
    request = request_with(tools=TOOLS, input=items)
    settings, _ = settings_for_answer(request, request)
    assert not has_schema(settings)
    for name in ("f", "c", "n__g", "n__c", "h"):
        tool = ToolNames.for_request(request, PLAIN_NAMES).original_tool(name)
        assert ToolNames.for_request(settings, PLAIN_NAMES).original_tool(name) == tool
        assert ToolNames.for_request(settings, PLAIN_NAMES).is_offered(name)
    assert len(tools_of_request(settings)) == len(tools_of_request(request))


def test_settings_of_the_upstream_have_its_own_tools() -> None:
    request, upstream_request = request_with(tools=TOOLS), request_with(tools=[FUNCTION])
    settings, upstream_settings = settings_for_answer(request, upstream_request)
    assert echo_of(settings) == echo_of(request)
    assert echo_of(upstream_settings) == echo_of(upstream_request)


def test_deferred_tools_keep_their_schemas_as_json() -> None:
    """The answer repeats them, as the result of a search."""
    deferred = [{**FUNCTION, "defer_loading": True}, {**CUSTOM, "defer_loading": True}]
    without_parameters = {"type": "function", "name": "p", "defer_loading": True}
    tools = [{"type": "tool_search"}, *deferred, without_parameters, {**NAMESPACE, "tools": deferred}]
    request = request_with(tools=tools)
    settings, _ = settings_for_answer(request, request)
    assert not has_schema(settings)
    converted, expected = ClientTools.of_request(settings), ClientTools.of_request(request)
    assert converted is not None
    assert expected is not None
    assert codec.encode(list(converted.deferred_tools.values())) == codec.encode(list(expected.deferred_tools.values()))


def test_settings_without_tools_stay() -> None:
    for request in (Request(), request_with(tools=[], text={"format": {"type": "text"}}, input="Hi")):
        assert settings_for_answer(request, request) == (request, request)


def test_empty_schema_of_the_output_stays() -> None:
    request = request_with(text={"format": {"type": "json_schema", "name": "t"}})
    settings, _ = settings_for_answer(request, request)
    assert settings.text
    assert isinstance(settings.text.format, JsonSchemaFormatParam)
    assert settings.text.format.schema is UNSET


@pytest.mark.parametrize(
    "members",
    [
        {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}] * MAX_VALUES}]},
        {
            "tools": [
                {**FUNCTION, "acme": 1, **{f"x{number}": 1 for number in range(MAX_VALUES)}, "defer_loading": True}
            ]
        },
        {"tools": [{"type": "mcp", "server_label": "s", "allowed_tools": ["a"] * MAX_VALUES}]},
        {"include": ["x"] * MAX_VALUES},
        {f"unknown_{number}": 1 for number in range(MAX_VALUES)},
    ],
    ids=["namespace", "members of a tool", "hosted tool", "include", "unknown members"],
)
def test_too_many_values_beside_schemas_are_refused(members: dict[str, Any]) -> None:
    request = request_with(**members)
    with pytest.raises(InvalidValue, match=r"tools and settings .* expected at most 50000 values, .* got \d{5,6}"):
        settings_for_answer(request, request)


def test_many_tools_with_large_schemas_are_few_values() -> None:
    tools = [{**FUNCTION, "name": f"f{number}"} for number in range(512)]
    settings, _ = settings_for_answer(request_with(tools=tools), request_with(tools=tools))
    assert type(settings.tools) is ToolList
    assert type(settings.tools.echo) is Raw
    assert not any(isinstance(tool, NamespaceTool) for tool in settings.tools)


@pytest.mark.io
def test_large_queued_response_is_read_in_a_worker_process_without_decoded_schemas() -> None:
    request = request_with(tools=TOOLS, text=TEXT, instructions="x" * 2_000_000)
    head = echo_of(request)

    async def read() -> tuple[Response, Response]:
        workers = WorkerPool(1)
        try:
            return await read_queued_response(workers, head), await read_queued_response(workers, echo_of(Request()))
        finally:
            await workers.close()

    large, small = asyncio.run(read())
    assert not has_schema(large)
    assert codec.encode(large) == codec.encode(queued_response(head))
    assert small == queued_response(echo_of(Request()))


@pytest.mark.parametrize("members", [{}, {"tools": TOOLS, "text": TEXT, "instructions": "x" * 2_000_000}])
def test_worker_reads_a_queued_response_without_decoded_schemas(members: dict[str, Any]) -> None:
    head = echo_of(request_with(**members))
    response = asyncio.run(_read_large_response(lambda: None, head))
    assert not has_schema(response)
    assert codec.encode(response) == codec.encode(queued_response(head))
