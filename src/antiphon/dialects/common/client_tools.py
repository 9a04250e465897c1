"""Tools that the client itself runs, for servers that support only functions: `apply_patch`, `shell`, `local_shell` and
`tool_search`.

Each is offered as a function. Calls and outputs in the history become those of the function, and `client_calls`
converts calls in an answer back. Without a client that searches, deferred tools are offered at once, and
`client_calls` writes the search before the first call of each. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common.tool_errors import ERROR_MARK
from antiphon.protocol import codec
from antiphon.protocol.items import (
    AdditionalTools,
    ApplyPatchCall,
    ApplyPatchCallOutput,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    LocalShellCall,
    LocalShellCallOutput,
    ShellCall,
    ShellCallOutput,
    ToolSearchCall,
    ToolSearchOutput,
)
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.tools import (
    AllowedToolsParam,
    ApplyPatchTool,
    CustomTool,
    FunctionToolParam,
    JsonSchema,
    LocalShellTool,
    NamespaceTool,
    ShellTool,
    SpecificFunction,
    SpecificToolChoice,
    ToolChoiceParam,
    ToolParam,
    ToolSearchTool,
    UnknownToolChoice,
)

#: A tool that can be deferred: its kind, its namespace, its name.
DeferredKey = tuple[str, str | None, str]


class ClientTools(Struct, frozen=True, kw_only=True):
    """The tools of one request that the client itself runs, and its deferred tools."""

    #: The kind of the tool by the name of its function.
    kind_of_function: dict[str, str]
    #: Deferred tools that no search has loaded yet, in the form of a search result.
    deferred_tools: dict[DeferredKey, ToolParam]

    @classmethod
    def of_request(cls, request: Request) -> ClientTools | None:
        """None if the request has nothing to convert."""
        items = input_items(request)
        if CONVERTED_TOOLS.isdisjoint(map(type, request.tools or ())) and TOOL_ITEMS.isdisjoint(map(type, items)):
            return None
        tools = list(_all_tools(request))
        if CONVERTED_TOOLS.isdisjoint(map(type, tools)) and CONVERTED_ITEMS.isdisjoint(map(type, items)):
            return None
        taken = {tool.name for tool in tools if isinstance(tool, FunctionToolParam | CustomTool)}
        kinds: dict[str, str] = {}
        for kind in dict.fromkeys(kind for tool in tools if (kind := _client_kind(tool))):
            name = kind
            while name in taken:
                name = f"{name}_tool"
            kinds[name] = kind
        return cls(kind_of_function=kinds, deferred_tools=_deferred_tools(tools, items))

    def function_name(self, kind: str) -> str:
        """The name of the function that stands for a kind of tool."""
        return next((name for name, other in self.kind_of_function.items() if other == kind), kind)

    def as_functions(self, request: Request) -> Request:
        """The request with functions in place of these tools, their calls and their outputs."""
        tools = [converted for tool in request.tools or () for converted in self._tool_as_functions(tool)]
        offered = {key for tool in tools for key, _ in _searchable_tools(tool)}
        choice = self._choice(request.tool_choice)
        request = replace(request, tools=tools or UNSET, tool_choice=choice)
        if not isinstance(request.input, list):
            return request
        return replace(request, input=self._items_as_functions(request.input, offered))

    def _tool_as_functions(self, tool: ToolParam) -> Iterator[ToolParam]:
        match tool:
            case FunctionToolParam() | CustomTool():
                yield replace(tool, defer_loading=UNSET) if self._is_searched(tool.defer_loading) else tool
            case NamespaceTool():
                members = [
                    replace(member, defer_loading=UNSET)
                    if isinstance(member, FunctionToolParam | CustomTool) and self._is_searched(member.defer_loading)
                    else member
                    for member in tool.tools
                ]
                yield replace(tool, tools=members)
            case ToolSearchTool() if tool.execution != "client":
                pass  # the gateway searches: all tools are offered
            case _ if kind := _client_kind(tool):
                yield self._function_tool(kind, tool)
            case _:
                yield tool

    def _is_searched(self, is_deferred: bool | None | UnsetType) -> bool:
        return bool(is_deferred) and bool(self.deferred_tools)

    def _function_tool(self, kind: str, tool: ToolParam) -> FunctionToolParam:
        description, parameters = FUNCTIONS[kind]
        if isinstance(tool, ToolSearchTool):
            description, parameters = tool.description or description, tool.parameters or parameters
        return FunctionToolParam(name=self.function_name(kind), description=description, parameters=parameters)

    def _choice(self, choice: ToolChoiceParam | None | UnsetType) -> ToolChoiceParam | None | UnsetType:
        match choice:
            case UnknownToolChoice():
                return self._named_choice(choice)
            case AllowedToolsParam():
                return replace(choice, tools=[self._named_choice(tool) for tool in choice.tools])
            case _:
                return choice

    def _named_choice(self, choice: SpecificToolChoice) -> SpecificToolChoice:
        if isinstance(choice, UnknownToolChoice) and choice.kind in self.kind_of_function.values():
            return SpecificFunction(name=self.function_name(choice.kind))
        return choice

    def _items_as_functions(self, items: Sequence[ItemParam], offered: set[DeferredKey]) -> list[ItemParam]:
        local_call_ids = {item.id: item.call_id for item in items if isinstance(item, LocalShellCall)}
        converted: list[ItemParam] = []
        for item in items:
            match item:
                case ToolSearchOutput():
                    if item.call_id and item.execution == "client":
                        converted.append(_search_result(item))
                    new_tools = [tool for tool in item.tools if not offered.issuperset(dict(_searchable_tools(tool)))]
                    loaded = [tool for new_tool in new_tools for tool in self._tool_as_functions(new_tool)]
                    if loaded:
                        converted.append(AdditionalTools(tools=loaded))
                case ToolSearchCall() if not item.call_id or item.execution != "client":
                    pass  # its result is offered
                case AdditionalTools():
                    tools = [tool for offer in item.tools for tool in self._tool_as_functions(offer)]
                    converted.append(replace(item, tools=tools))
                case LocalShellCallOutput():
                    call_id = item.call_id or local_call_ids.get(item.id) or item.id or ""
                    converted.append(FunctionCallOutputParam(call_id=call_id, output=item.output))
                case _:
                    converted.append(self._item_as_function(item))
        return converted

    def _item_as_function(self, item: ItemParam) -> ItemParam:
        match item:
            case ApplyPatchCall():
                return self._function_call("apply_patch", item.call_id, item.operation)
            case ShellCall() if is_local(item):
                return self._function_call("shell", item.call_id, item.action)
            case LocalShellCall():
                action = {name: value for name, value in item.action.items() if name != "type"}
                return self._function_call("local_shell", item.call_id or item.id or "", action)
            case ToolSearchCall():
                return self._function_call("tool_search", item.call_id or "", item.arguments)
            case ApplyPatchCallOutput():
                return FunctionCallOutputParam(
                    call_id=item.call_id,
                    output=item.output or item.status or "completed",
                    extra=ERROR_MARK if item.status == "failed" else UNSET,
                )
            case ShellCallOutput():
                return FunctionCallOutputParam(call_id=item.call_id, output=codec.encode(item.output).decode())
            case _:
                return item

    def _function_call(self, kind: str, call_id: str, arguments: Any) -> FunctionCallParam:
        if isinstance(arguments, dict):
            arguments = {name: value for name, value in arguments.items() if value is not None and value != {}}
        text = arguments if isinstance(arguments, str) else codec.encode(arguments).decode()
        return FunctionCallParam(call_id=call_id, name=self.function_name(kind), arguments=text)


def is_local(call: ShellCall) -> bool:
    """Whether the client runs a shell call. A call in a container of the server was already run."""
    return not call.environment or call.environment.get("type") == "local"


def arguments_of_tool(kind: str, text: str) -> dict[str, Any] | None:
    """The arguments of a call of a client's tool, in the form of its item; None if the model wrote something else."""
    try:
        arguments = codec.decode_json(text.encode(errors="surrogatepass"))
    except msgspec.DecodeError:
        return None
    if not isinstance(arguments, dict):
        return None
    match kind:
        case "apply_patch":
            return _patch_operation(arguments)
        case "shell":
            commands = _texts(arguments.get("commands", arguments.get("command")))
            limits = {name: arguments.get(name) for name in ("timeout_ms", "max_output_length")}
            return None if commands is None else {"commands": commands, **_integers(limits)}
        case "local_shell":
            command = arguments.get("command")
            words = ["bash", "-lc", command] if isinstance(command, str) and command else _texts(command)
            if words is None:
                return None
            names = {name: value for name in LOCAL_SHELL_TEXTS if isinstance(value := arguments.get(name), str)}
            timeout = _integers({"timeout_ms": arguments.get("timeout_ms")})
            return {"type": "exec", "command": words, "env": {}, **timeout, **names}
        case _:
            return arguments


def _patch_operation(arguments: dict[str, Any]) -> dict[str, Any] | None:
    operation = arguments.get("operation", arguments)
    match operation:
        case {"type": "delete_file", "path": str() as path} if path:
            return {"type": "delete_file", "path": path}
        case {"type": "create_file" | "update_file" as kind, "path": str() as path, "diff": str() as diff} if path:
            return {"type": kind, "path": path, "diff": diff}
        case _:
            return None


def _texts(value: Any) -> list[str] | None:
    if isinstance(value, str) and value:
        return [value]
    return value if isinstance(value, list) and value and all(isinstance(text, str) for text in value) else None


def _integers(values: dict[str, Any]) -> dict[str, int]:
    return {name: value for name, value in values.items() if type(value) is int}


def _search_result(item: ToolSearchOutput) -> FunctionCallOutputParam:
    names = [key[2] for tool in item.tools for key, _ in _searchable_tools(tool)]
    text = f"{SEARCH_RESULTS} {', '.join(names)}" if names else NO_SEARCH_RESULTS
    return FunctionCallOutputParam(call_id=item.call_id or "", output=text)


class _SearchableTool(NamedTuple):
    key: DeferredKey
    tool: ToolParam


def _searchable_tools(tool: ToolParam) -> Iterator[_SearchableTool]:
    """The tools in `tool` that can be called by name, each alone as a search returns it."""
    match tool:
        case FunctionToolParam():
            yield _SearchableTool(("function", None, tool.name), tool)
        case CustomTool():
            yield _SearchableTool(("custom", None, tool.name), tool)
        case NamespaceTool():
            for member in tool.tools:
                for (kind, _, name), _ in _searchable_tools(member):
                    yield _SearchableTool((kind, tool.name, name), replace(tool, tools=[member]))


def _all_tools(request: Request) -> Iterator[ToolParam]:
    yield from request.tools or ()
    for item in input_items(request):
        if type(item) is AdditionalTools:
            yield from item.tools


def _client_kind(tool: ToolParam) -> str | None:
    """The kind of a tool that the client runs; None for any other tool."""
    match tool:
        case ApplyPatchTool():
            return "apply_patch"
        case LocalShellTool():
            return "local_shell"
        case ShellTool() if not tool.environment or tool.environment.get("type") == "local":
            return "shell"
        case ToolSearchTool() if tool.execution == "client":
            return "tool_search"
        case _:
            return None


def _deferred_tools(tools: Iterable[ToolParam], items: Iterable[ItemParam]) -> dict[DeferredKey, ToolParam]:
    tools = list(tools)
    if not any(isinstance(tool, ToolSearchTool) and tool.execution != "client" for tool in tools):
        return {}
    loaded = {
        key
        for item in items
        if isinstance(item, ToolSearchOutput)
        for tool in item.tools
        for key, _ in _searchable_tools(tool)
    }
    return {
        key: alone
        for tool in tools
        for key, alone in _searchable_tools(tool)
        if key not in loaded and _is_deferred(alone)
    }


def _is_deferred(alone: ToolParam) -> bool:
    member = alone.tools[0] if isinstance(alone, NamespaceTool) else alone
    return isinstance(member, FunctionToolParam | CustomTool) and bool(member.defer_loading)


def _object(required: list[str], **properties: JsonSchema) -> JsonSchema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _text(description: str) -> JsonSchema:
    return {"type": "string", "description": description}


CONVERTED_TOOLS: Final = frozenset({ApplyPatchTool, ShellTool, LocalShellTool, ToolSearchTool})
CONVERTED_ITEMS: Final = frozenset(
    {
        *(ApplyPatchCall, ApplyPatchCallOutput, ShellCall, ShellCallOutput, LocalShellCall, LocalShellCallOutput),
        *(ToolSearchCall, ToolSearchOutput),
    }
)
TOOL_ITEMS: Final = CONVERTED_ITEMS | {AdditionalTools}  # these and items that offer tools
LOCAL_SHELL_TEXTS: Final = ("working_directory", "user")
SEARCH_RESULTS: Final = "These tools are available now:"
NO_SEARCH_RESULTS: Final = "No tool was found."
_TIMEOUT: Final[JsonSchema] = {"type": "integer", "description": "The time limit in milliseconds."}
#: The description and the parameters of the function for each kind of tool.
FUNCTIONS: Final[dict[str, tuple[str, JsonSchema]]] = {
    "apply_patch": (
        "Creates, updates or deletes one file. For create_file, every line of the diff begins with '+'. For "
        "update_file, the diff has one or more sections: a line '@@', optionally followed by a line of the file that "
        "comes before the change, then context lines that begin with a space, removed lines with '-' and added lines "
        "with '+'. There are no line numbers and no file headers.",
        _object(
            ["type", "path"],
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=_text("The path of the file, relative to the workspace."),
            diff=_text("The diff; for create_file and update_file."),
        ),
    ),
    "shell": (
        "Runs shell commands in order and returns the standard output, the standard error and the exit code of each.",
        _object(
            ["commands"],
            commands={"type": "array", "items": {"type": "string"}, "description": "The commands."},
            timeout_ms=_TIMEOUT,
            max_output_length={"type": "integer", "description": "The maximum number of characters of output."},
        ),
    ),
    "local_shell": (
        "Runs one command on the user's computer and returns its output.",
        _object(
            ["command"],
            command={
                "type": "array",
                "items": {"type": "string"},
                "description": 'The program and its arguments, such as ["bash", "-lc", "ls"].',
            },
            working_directory=_text("The directory in which the command runs."),
            timeout_ms=_TIMEOUT,
        ),
    ),
    "tool_search": (
        "Searches for further tools. The found tools can be called afterwards.",
        _object(["query"], query=_text("What the tool should do.")),
    ),
}
