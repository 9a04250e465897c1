"""A model that calls Python functions until it has its answer: asked, its calls made side by side, asked again with what they gave.

The whole conversation is sent each time, so any server will do, whether it keeps responses or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from antiphon.client.functions import Function, PythonTool, call_function, tool_from_function
from antiphon.client.response_content import as_input, function_calls
from antiphon.errors import ClientFault
from antiphon.protocol import codec
from antiphon.protocol.items import FunctionCall, FunctionCallOutputParam, ItemParam
from antiphon.protocol.request import ENCRYPTED_IF_ANY, input_items
from antiphon.protocol.response import Response
from antiphon.protocol.status import ItemStatus, ResponseStatus

Ask = Callable[[dict[str, Any]], Awaitable[Response]]


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call that was made."""

    name: str
    arguments: str
    output: str
    failed: bool


class ToolRun(Struct, frozen=True, kw_only=True):
    """What came of it: the last response, every call, and the whole conversation, which can be gone on with as `input`."""

    response: Response
    calls: list[ToolCall]
    history: list[ItemParam]


async def run_tools(ask: Ask, functions: Sequence[Function], settings: Mapping[str, Any], max_tool_calls: int) -> ToolRun:
    """Asks until the model calls nothing more. After `max_tool_calls` calls it has to answer with what it knows."""
    if max_tool_calls < 1:
        raise ClientFault(f"max_tool_calls: got {max_tool_calls}, wanted at least 1", param="max_tool_calls")
    return await _Loop(ask, functions, settings, max_tool_calls).run()


class _Loop:
    def __init__(self, ask: Ask, functions: Sequence[Function], settings: Mapping[str, Any], most: int) -> None:
        self._ask = ask
        self._tools: dict[str, PythonTool] = {tool.name: tool for tool in map(tool_from_function, functions)}
        if len(self._tools) < len(functions):
            raise ClientFault("tools: two functions have the same name", param="tools")
        others = list(settings.get("tools") or [])
        # Nothing need be kept of a conversation that is sent whole each time; then reasoning comes along sealed.
        self._settings = {"store": False, "include": [ENCRYPTED_IF_ANY], **settings}
        self._settings["tools"] = [*(tool.param for tool in self._tools.values()), *others]
        self._others = {_name_of(tool) for tool in others}
        self._most = most
        self._calls: list[ToolCall] = []

    async def run(self) -> ToolRun:
        asked = codec.decode_request(codec.encode({"input": self._settings.get("input")}))
        history = list(input_items(asked))
        while True:
            response = await self._ask({**self._settings, "input": history})
            history += as_input(response.output)
            calls = function_calls(response)
            ours = [each for each in calls if each.name not in self._others]
            may_go_on = len(self._calls) < self._most and response.status == ResponseStatus.COMPLETED
            if ours and may_go_on:
                history += await self._make(ours)
            if not may_go_on or not ours or len(ours) < len(calls):  # the rest is for whoever offered those tools
                return ToolRun(response=response, calls=self._calls, history=history)
            if len(self._calls) >= self._most:
                self._settings["tool_choice"] = "none"

    async def _make(self, calls: list[FunctionCall]) -> list[ItemParam]:
        """All at once. Those beyond the limit are not made, and the model is told."""
        room = self._most - len(self._calls)
        made = await asyncio.gather(*map(self._made, calls[:room]))
        self._calls += made
        outputs = [done.output for done in made]
        outputs += [f"not called: the limit of {self._most} calls is reached"] * (len(calls) - len(made))
        return [
            FunctionCallOutputParam(call_id=each.call_id, output=output, status=ItemStatus.COMPLETED)
            for each, output in zip(calls, outputs, strict=True)
        ]

    async def _made(self, each: FunctionCall) -> ToolCall:
        tool = self._tools.get(each.name)
        if tool is None:
            output, failed = f"there is no tool named {each.name!r}; there is {', '.join(self._tools)}", True
        else:
            outcome = await call_function(tool, each.arguments)
            output, failed = outcome.output, outcome.failed
        return ToolCall(name=each.name, arguments=each.arguments, output=output, failed=failed)


def _name_of(tool: Any) -> Any:
    return tool.get("name") if isinstance(tool, Mapping) else getattr(tool, "name", None)
