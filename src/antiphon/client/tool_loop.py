"""Runs a model with Python functions as tools: calls the functions it wants, concurrently, and sends the results back.

The whole conversation is sent each time, so the server need not store responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from antiphon.client.functions import Function, PythonTool, call_function, tool_from_function
from antiphon.errors import ClientFault
from antiphon.protocol import codec
from antiphon.protocol.items import FunctionCall, FunctionCallOutputParam, ItemParam
from antiphon.protocol.request import ENCRYPTED_IF_ANY, input_items
from antiphon.protocol.response import Response
from antiphon.protocol.status import ItemStatus, ResponseStatus

RunTurn = Callable[[dict[str, Any]], Awaitable[Response]]


class ToolCall(Struct, frozen=True, kw_only=True):
    """A finished tool call. `failed` is true if the output is the message of an error.

    Example:
        call = ToolCall(name="weather", arguments='{"city": "Lima"}', output="It is sunny.", failed=False)
    """

    name: str
    arguments: str
    output: str
    failed: bool


class ToolRun(Struct, frozen=True, kw_only=True):
    """The last response, all tool calls, and the whole conversation, which can be continued as `input`.

    Example:
        def weather(city: str) -> str:
            "Return the weather in a city."
            return f"It is sunny in {city}."

        run = client.run_tools("What is the weather in Lima?", [weather])
        client.create([*run.history, {"role": "user", "content": "And in Quito?"}])
    """

    response: Response
    calls: list[ToolCall]
    history: list[ItemParam]


async def run_tools(
    run_turn: RunTurn, functions: Sequence[Function], settings: Mapping[str, Any], max_tool_calls: int
) -> ToolRun:
    """Repeats until the model calls no more tools. After `max_tool_calls` calls it must answer without tools."""
    if max_tool_calls < 1:
        raise ClientFault(f"max_tool_calls: expected at least 1, got {max_tool_calls}", param="max_tool_calls")
    return await _ToolLoop(run_turn, functions, settings, max_tool_calls).run()


class _ToolLoop:
    def __init__(
        self, run_turn: RunTurn, functions: Sequence[Function], settings: Mapping[str, Any], max_calls: int
    ) -> None:
        self._run_turn = run_turn
        self._tools: dict[str, PythonTool] = {tool.name: tool for tool in map(tool_from_function, functions)}
        if len(self._tools) < len(functions):
            raise ClientFault("tools: two functions have the same name", param="tools")
        other_tools = list(settings.get("tools") or [])
        # The whole conversation is sent each time, so nothing is stored; reasoning then comes encrypted.
        self._settings = {"store": False, "include": [ENCRYPTED_IF_ANY], **settings}
        self._settings["tools"] = [*(tool.param for tool in self._tools.values()), *other_tools]
        self._other_tool_names = {_tool_name(tool) for tool in other_tools}
        self._max_calls = max_calls
        self._finished_calls: list[ToolCall] = []

    async def run(self) -> ToolRun:
        request = codec.decode_request(codec.encode({"input": self._settings.get("input")}))
        history = list(input_items(request))
        while True:
            response = await self._run_turn({**self._settings, "input": history})
            history += [codec.decode_item_param(codec.encode(item)) for item in response.output]  # ITEM-6
            calls = response.function_calls
            own_calls = [call for call in calls if call.name not in self._other_tool_names]
            may_continue = len(self._finished_calls) < self._max_calls and response.status == ResponseStatus.COMPLETED
            if own_calls and may_continue:
                history += await self._call_tools(own_calls)
            if not may_continue or not own_calls or len(own_calls) < len(calls):  # the other tools are the caller's
                return ToolRun(response=response, calls=self._finished_calls, history=history)
            if len(self._finished_calls) >= self._max_calls:
                self._settings["tool_choice"] = "none"

    async def _call_tools(self, calls: list[FunctionCall]) -> list[ItemParam]:
        """Calls the tools concurrently. Calls beyond the limit get an error as their output."""
        remaining_calls = self._max_calls - len(self._finished_calls)
        results = await asyncio.gather(*map(self._call_tool, calls[:remaining_calls]))
        self._finished_calls += results
        outputs = [result.output for result in results]
        outputs += [f"not called: the limit of {self._max_calls} calls is reached"] * (len(calls) - len(results))
        return [
            FunctionCallOutputParam(call_id=call.call_id, output=output, status=ItemStatus.COMPLETED)
            for call, output in zip(calls, outputs, strict=True)
        ]

    async def _call_tool(self, call: FunctionCall) -> ToolCall:
        tool = self._tools.get(call.name)
        if tool is None:
            output, failed = f"unknown tool {call.name!r}; expected one of {', '.join(self._tools)}", True
        else:
            outcome = await call_function(tool, call.arguments)
            output, failed = outcome.output, outcome.failed
        return ToolCall(name=call.name, arguments=call.arguments, output=output, failed=failed)


def _tool_name(tool: Any) -> Any:
    return tool.get("name") if isinstance(tool, Mapping) else getattr(tool, "name", None)
