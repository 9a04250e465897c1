"""Translates web search between dialects: reads the form of each API, for servers that have a search of their own.

The tool of the client is replaced in its place by the tool of the server, so that paths of other tools stay. Settings
that the server does not have are losses. A search in the server's own form is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from antiphon.dialects.common.model_names import matches_any
from antiphon.dialects.common.placeholders import type_of
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.tools import CustomTool, FunctionToolParam, ToolList, ToolParam, UnknownToolChoice


class WebSearch(Struct, frozen=True):
    """A web search that a client offers: its settings by their common names, with the path of each."""

    settings: dict[str, Any]
    paths: dict[str, str]

    def take(self, names: Sequence[str], losses: Losses) -> dict[str, Any]:
        """The settings that the server has. The others are losses."""
        for name, path in self.paths.items():
            if name not in names:
                losses.add(
                    path, f"the setting {name!r} of the web search", "the search of the server has no equivalent"
                )
        return {name: self.settings[name] for name in names if name in self.settings}


class ServerSearch(Struct, frozen=True):
    """The web search of a dialect."""

    #: The types of tools that are this search already.
    own_kinds: re.Pattern[str]
    #: Writes the tool of the server.
    write: Callable[[WebSearch, Losses], ToolParam]
    #: Whether the server takes its search beside these tools.
    can_join: Callable[[Sequence[ToolParam]], bool] = lambda _: True


def use_server_search(request: Request, search: ServerSearch, models: Sequence[str], losses: Losses) -> Request:
    """Replace a web search of another API by that of the server, if the model has one."""
    if FUNCTION_TYPES.issuperset(map(type, request.tools or ())) and CHAT_OPTIONS not in (request.extra or ()):
        return request  # it offers no search
    if not matches_any(request.model or "", models) or not search.can_join(request.tools or ()):
        return request
    options = (request.extra or {}).get(CHAT_OPTIONS)
    if options is not None and not search.own_kinds.fullmatch(CHAT_OPTIONS):
        request = _with_options_as_tool(request, options, search, losses)
    tools = request.tools
    if not tools or not any(_is_foreign(tool, search) for tool in tools):
        return request
    if type(tools) is ToolList:  # requests share the list, so its copy is shared too
        copy, tool_losses = tools.derive_once((use_server_search, search), lambda: _replace_tools(tools, search))
    else:
        copy, tool_losses = _replace_tools(tools, search)
    losses.extend(tool_losses)
    return replace(request, tools=copy)


def is_search_choice(choice: object) -> bool:
    """Whether a tool choice names a hosted web search, in the form of Responses or of Messages."""
    if not isinstance(choice, UnknownToolChoice):
        return False
    return bool(HUB_KINDS.fullmatch(choice.kind)) or (
        choice.kind == "tool" and choice.string_member("name") == SEARCH_NAME
    )


def is_search(tool: ToolParam) -> bool:
    """Whether a tool is a hosted web search of any API."""
    return bool(ANY_KIND.fullmatch(type_of(tool)))


def _is_foreign(tool: ToolParam, search: ServerSearch) -> bool:
    return is_search(tool) and not search.own_kinds.fullmatch(type_of(tool))


def _replace_tools(tools: Sequence[ToolParam], search: ServerSearch) -> tuple[ToolList[ToolParam], Losses]:
    losses = Losses()
    return ToolList(
        search.write(_read_tool(tool, f"tools[{index}]"), losses) if _is_foreign(tool, search) else tool
        for index, tool in enumerate(tools)
    ), losses


def _with_options_as_tool(request: Request, options: Raw, search: ServerSearch, losses: Losses) -> Request:
    """Replace the field of chat by a tool after the others."""
    members = msgspec.json.decode(options)
    if not isinstance(members, dict):
        return request
    tool = search.write(_web_search(members, "web_search_options"), losses)
    extra = {name: raw for name, raw in (request.extra or {}).items() if name != CHAT_OPTIONS}
    return replace(request, tools=[*(request.tools or ()), tool], extra=extra or UNSET)


def _read_tool(tool: ToolParam, path: str) -> WebSearch:
    members: dict[str, Any] = msgspec.json.decode(codec.encode(tool))
    kind = members.pop("type")
    if kind in GEMINI_KINDS:
        name = kind.partition(":")[2]
        settings = members.get(name)
        return _web_search(settings if isinstance(settings, dict) else {}, f"{path}.{name}")
    return _web_search({name: value for name, value in members.items() if name != "name"}, path)


def _web_search(members: dict[str, Any], path: str) -> WebSearch:
    search = WebSearch({}, {})
    for setting_path, name, value in _settings(members, path):
        if value in (None, [], {}) or (name, value) in DEFAULTS:
            continue
        common_name = COMMON_NAMES.get(name, name)
        search.settings[common_name] = _flat_location(value) if common_name == "user_location" else value
        search.paths[common_name] = setting_path
    return search


def _settings(members: dict[str, Any], path: str) -> Iterator[tuple[str, str, Any]]:
    for name, value in members.items():
        if name == "filters" and isinstance(value, dict):
            yield from ((f"{path}.filters.{inner}", inner, setting) for inner, setting in value.items())
        else:
            yield f"{path}.{name}", name, value


def _flat_location(location: Any) -> Any:
    """A location without the object in which chat has its members."""
    match location:
        case {"approximate": dict() as members}:
            return {"type": "approximate", **members}
        case _:
            return location


FUNCTION_TYPES: Final = frozenset({FunctionToolParam, CustomTool})
#: The field of chat clients, as the hub keeps it. As a type of tool: the search of chat servers.
CHAT_OPTIONS: Final = "chat:web_search_options"
#: The name of the tool in the Messages API, which calls and choices use.
SEARCH_NAME: Final = "web_search"
#: The tool of Responses, with the older names and the versions that have a date.
HUB_KINDS: Final = re.compile(r"web_search(_preview)?(_20\d\d_\d\d_\d\d)?")
MESSAGES_KINDS: Final = re.compile(r"web_search_20\d{6}")
GEMINI_KINDS: Final = ("gemini:googleSearch", "gemini:googleSearchRetrieval")
ANY_KIND: Final = re.compile("|".join((HUB_KINDS.pattern, MESSAGES_KINDS.pattern, *GEMINI_KINDS)))
#: Settings with the same meaning under another name.
COMMON_NAMES: Final = {"excludeDomains": "blocked_domains"}
#: Settings that change nothing.
DEFAULTS: Final = (("external_web_access", True),)
