"""Translates a hub request to the body for a server of this API.

The hub uses this dialect, so most fields and items pass unchanged, unknown ones included (REQ-7, ITEM-5). Changed are
the parts that the server's `ResponsesWire` asks for, and content types that do not fit their role (C-2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.dialects.common.cache_marks import CACHE_CONTROL, CACHE_MARK, breakpoint_options, without_mark
from antiphon.dialects.common.effort import supported_effort
from antiphon.dialects.common.model_names import matches_any
from antiphon.dialects.common.output_limit import refuse_empty_output
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.request_fields import refuse_several_answers
from antiphon.dialects.common.tool_names import has_additional_tools
from antiphon.dialects.common.unknown_fields import is_handled_by_gateway
from antiphon.dialects.common.web_search import (
    HUB_KINDS,
    SEARCH_NAME,
    ServerSearch,
    WebSearch,
    is_search_choice,
    use_server_search,
)
from antiphon.dialects.responses.history_out import (
    FOREIGN_PREFIXES,
    FOREIGN_REASON,
    InputRewriter,
    without_foreign_members,
)
from antiphon.dialects.responses.tools_out import FlatTools, NativeTools
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import UnsupportedParameter
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    PromptCacheOptions,
    Request,
)
from antiphon.protocol.tools import NamespaceTool, ToolParam, UnknownTool, UnknownToolChoice, WebSearchTool

T = TypeVar("T", bound=Struct)


def request_from_hub(request: Request, wire: ResponsesWire = ResponsesWire()) -> tuple[bytes, Losses]:  # noqa: B008
    """Return the body for a server, and the losses."""
    refuse_empty_output(request)
    refuse_several_answers(request)
    losses = Losses()
    if not wire.stateful:
        request = replace(
            request, store=False, previous_response_id=UNSET, conversation=UNSET, background=UNSET, generate=UNSET
        )
    if request.instructions == "":
        request = replace(request, instructions=UNSET)
    request = _with_supported_include(request, wire, losses)
    request = _with_supported_effort(request, wire, losses)
    accepts_marks = matches_any(request.model or "", wire.breakpoint_models)
    request = _with_cache_options(_without_tool_marks(request, losses), accepts_marks, losses)
    if wire.extension_tools == "keep":
        request = use_server_search(request, SEARCH, wire.web_search_models, losses)
        request = _with_search_choice(request, losses)
    has_tools = bool(request.tools)
    tools = FlatTools(request, wire, losses) if wire.extension_tools == "flatten" else NativeTools(request, wire)
    if isinstance(request.input, list):
        request = InputRewriter(wire, losses, tools, accepts_marks).rewrite(request, request.input)
    request = tools.rewrite_request(request)
    request = _without_foreign_tools(_without_foreign_fields(request, wire, losses), wire, losses)
    if has_tools:
        request = _without_impossible_choice(request, losses)
    if "text.format" in wire.lacks:
        _check_format(request)
    for name in wire.lacks:
        request = _without_field(request, name, losses)
    return codec.encode(request), losses


def _check_format(request: Request) -> None:
    """REQ-1: refuse a request for JSON output if the server writes text only."""
    format = request.text.format if request.text else UNSET
    if isinstance(format, JsonObjectFormat | JsonSchemaFormatParam):
        raise UnsupportedParameter("text.format: the server supports only text output", param="text.format")


def _with_supported_include(request: Request, wire: ResponsesWire, losses: Losses) -> Request:
    """RSN-2: request encrypted reasoning where the server needs it back, and never of a model that does not reason."""
    requested = request.include or ()
    if matches_any(request.model or "", wire.no_reasoning_models):
        if ENCRYPTED_REASONING in requested:
            losses.add(
                f"include[{requested.index(ENCRYPTED_REASONING)}]",
                f"the included data {ENCRYPTED_REASONING!r}",
                "the model does not support reasoning",
            )
        remaining = [name for name in requested if name not in (ENCRYPTED_REASONING, ENCRYPTED_IF_ANY)]
        return replace(request, include=remaining or UNSET) if len(remaining) < len(requested) else request
    include = [name for name in requested if name != ENCRYPTED_IF_ANY]
    if ENCRYPTED_REASONING not in include and (wire.sealed_reasoning or len(include) < len(requested)):
        include.append(ENCRYPTED_REASONING)
    return replace(request, include=include) if include != [*requested] else request


def _with_supported_effort(request: Request, wire: ResponsesWire, losses: Losses) -> Request:
    """RSN-4: replace a reasoning effort that the server does not support by the nearest one."""
    effort = request.reasoning.effort if request.reasoning else None
    if not request.reasoning or not effort or not wire.efforts or effort in wire.efforts:
        return request
    supported = supported_effort(effort, wire.efforts, losses)
    return replace(request, reasoning=replace(request.reasoning, effort=supported))


def _without_tool_marks(request: Request, losses: Losses) -> Request:
    """E-4: tools have no place for cache marks."""
    if not any(CACHE_MARK in (getattr(tool, "extra", None) or ()) for tool in request.tools or ()):
        return request
    tools = [without_mark(tool, f"tools[{index}]", losses) for index, tool in enumerate(request.tools or ())]
    return replace(request, tools=tools)


def _with_cache_options(request: Request, accepts_marks: bool, losses: Losses) -> Request:
    """E-4: the cache options in the form of this API."""
    options = request.prompt_cache_options
    if not options:
        return request
    if not accepts_marks:
        losses.add("prompt_cache_options", "the field 'prompt_cache_options'", "the model does not support it")
        return replace(request, prompt_cache_options=UNSET)
    if not options.extra or CACHE_CONTROL not in options.extra:
        return request
    return replace(request, prompt_cache_options=PromptCacheOptions(**breakpoint_options(options, losses)))


def _without_foreign_fields(request: Request, wire: ResponsesWire, losses: Losses) -> Request:
    """Remove fields of other dialects, and report those that the profile does not list. Other unknown fields are kept
    (REQ-7)."""
    extra = request.extra or {}
    foreign = {name: raw for name, raw in extra.items() if name.startswith(FOREIGN_PREFIXES)}
    if not foreign:
        return request
    remaining_fields = {name: raw for name, raw in extra.items() if name not in foreign}
    for name, raw in foreign.items():
        wire_name = EQUIVALENT_FIELDS.get(name) or name.partition(":")[2]
        if wire_name in wire.extra_fields and wire_name not in remaining_fields:
            remaining_fields[wire_name] = raw
        elif not is_handled_by_gateway(name, raw, request):
            losses.add(name, f"the field {name!r}", "the API has no equivalent")
    return replace(request, extra=remaining_fields or UNSET)


def _without_foreign_tools(request: Request, wire: ResponsesWire, losses: Losses) -> Request:
    """Remove hosted tools and members of other APIs, because servers refuse tools of unknown type."""
    if not request.tools:
        return request
    own_tools = _own_tools(request.tools, wire, losses)
    if len(own_tools) < len(request.tools) and _is_choice_of_messages(request):
        losses.add("tool_choice", "a forced tool call", "the tool could not be offered")
        request = replace(request, tool_choice=UNSET)
    return request if own_tools == request.tools else replace(request, tools=own_tools or UNSET)


def _is_choice_of_messages(request: Request) -> bool:
    """Whether the choice is that of a hosted tool in the form of the Messages API."""
    return isinstance(request.tool_choice, UnknownToolChoice) and request.tool_choice.kind == "tool"


def _write_search(search: WebSearch, losses: Losses) -> WebSearchTool:
    settings = search.take(SEARCH_SETTINGS, losses)
    domains: dict[str, Any] = {name: settings.pop(name) for name in DOMAINS if name in settings}
    return WebSearchTool(filters=domains or UNSET, **settings)


def _with_search_choice(request: Request, losses: Losses) -> Request:
    """A choice of the search in the form of Messages: a required call, if there is no other tool."""
    tools = request.tools or []
    if not (
        _is_choice_of_messages(request) and is_search_choice(request.tool_choice) and SEARCH_NAME in map(type_of, tools)
    ):
        return request
    if len(tools) == 1:
        return replace(request, tool_choice="required")
    losses.add("tool_choice", "a forced web search", "the server can force it only if there is no other tool")
    return replace(request, tool_choice=UNSET)


def _own_tools(tools: Sequence[ToolParam], wire: ResponsesWire, losses: Losses) -> list[ToolParam]:
    keeps_deferred = wire.deferred_tools == "keep" or any(type_of(tool) == "tool_search" for tool in tools)
    own_tools: list[ToolParam] = []
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        if type(tool) is UnknownTool and FOREIGN_TOOL.match(tool.kind):
            losses.add(path, f"a tool of type {type_of(tool)!r}", FOREIGN_REASON)
        elif isinstance(tool, NamespaceTool):
            members = [
                _own_tool(member, f"{path}.tools[{position}]", keeps_deferred, losses)
                for position, member in enumerate(tool.tools)
            ]
            own_tools.append(tool if members == tool.tools else replace(tool, tools=members))
        else:
            own_tools.append(_own_tool(tool, path, keeps_deferred, losses))
    return own_tools


def _own_tool(tool: T, path: str, keeps_deferred: bool, losses: Losses) -> T:
    tool = without_foreign_members(tool, path, losses)
    if not keeps_deferred and getattr(tool, "defer_loading", None):
        losses.add(f"{path}.defer_loading", "deferred loading of the tool", "every tool is offered at once")
        tool = replace(tool, defer_loading=UNSET)
    return tool


def _without_impossible_choice(request: Request, losses: Losses) -> Request:
    """Remove a choice among tools of which none could be offered."""
    if not request.tool_choice or request.tools or has_additional_tools(request):
        return request
    if request.tool_choice not in ("auto", "none"):
        losses.add("tool_choice", "a forced tool call", "no tool could be offered")
    return replace(request, tool_choice=UNSET)


def _without_field(request: Request, name: str, losses: Losses) -> Request:
    """REQ-6: remove a field that the server does not accept. `text.verbosity` names a nested field."""
    outer, _, inner = name.partition(".")
    if request.extra and outer in request.extra:
        losses.add(name, f"the field {name!r}", "the server does not support it")
        return replace(request, extra={key: raw for key, raw in request.extra.items() if key != outer} or UNSET)
    outer_value = getattr(request, outer, UNSET)
    if inner and outer_value:
        if getattr(outer_value, inner) not in (UNSET, None):
            losses.add(name, f"the field {name!r}", "the server does not support it")
        return replace(request, **{outer: replace(outer_value, **{inner: UNSET})})
    if outer_value not in (UNSET, None):
        losses.add(name, f"the field {name!r}", "the server does not support it")
        return replace(request, **{outer: UNSET})
    return request


DOMAINS: Final = ("allowed_domains", "blocked_domains")
SEARCH_SETTINGS: Final = ("search_context_size", "user_location", *DOMAINS)
SEARCH: Final = ServerSearch(HUB_KINDS, _write_search)
ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
#: Fields of other dialects, with the name that servers of this API use for them.
EQUIVALENT_FIELDS: Final = {"gemini:topK": "top_k"}
#: Hosted tools of the Messages API end in a date.
FOREIGN_TOOL: Final = re.compile(
    r"(chat|gemini|messages):|[a-z0-9_]+_20\d{6}$|mcp_toolset$|tool_search_tool_(regex|bm25)$"
)
