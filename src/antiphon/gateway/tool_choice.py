"""Checks that a request offers the tools that its `tool_choice` names, and that a tool is left where a client needs
one, before a model is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from antiphon.dialects.common.placeholders import type_of
from antiphon.errors import InvalidValue, UnsupportedParameter
from antiphon.protocol.items import AdditionalTools, ToolSearchOutput
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.tools import (
    AllowedToolsParam,
    CustomTool,
    FunctionToolParam,
    NamespaceTool,
    SpecificCustom,
    SpecificFunction,
    SpecificToolChoice,
    ToolParam,
    UnknownToolChoice,
)


def check_tool_choice(request: Request, field: str = "tool_choice") -> None:
    """Refuses a choice of a tool that the request does not offer, and a required call without any tool (TOOL-2).

    The input must be the whole conversation, because its items may offer tools. `field` is the client's name of the
    choice.
    """
    choice = request.tool_choice
    if not choice or choice in ("auto", "none"):
        return
    offer = _Offer.of_request(request)
    if isinstance(choice, AllowedToolsParam):
        for index, tool in enumerate(choice.tools):
            _check_is_offered(tool, offer, f"{field}.{ALLOWED_NAMES.get(field, 'tools')}[{index}]")
    elif isinstance(choice, SpecificToolChoice):
        _check_is_offered(choice, offer, field)
    elif not offer.kinds:
        message = f"{field}: a call is required, and the request offers no tools; expected at least one tool in `tools`"
        raise InvalidValue(message, param="tool_choice")


def check_a_tool_is_left(request: Request, losses: Losses, upstream: str) -> None:
    """Refuses a request if every tool that it offers was lost in the translation for the upstream (REQ-6)."""
    if not request.tools:
        return
    lost_paths = {loss.path for loss in losses}
    if all(f"tools[{index}]" in lost_paths for index in range(len(request.tools))):
        kinds = ", ".join(sorted({repr(type_of(tool)[:MAX_KIND_LENGTH]) for tool in request.tools})[:MAX_LISTED_TOOLS])
        raise UnsupportedParameter(
            f"tools: {kinds} is unavailable: the upstream {upstream!r} has no such tool, and the request offers "
            "no other; use a model whose server has it, or offer a tool that the client runs",
            param="tools",
        )


class _Offer(Struct, frozen=True):
    """The tools that a request offers."""

    names: set[tuple[str, str | None, str]]  # kind, namespace, name; the name of a namespace itself too
    kinds: set[str]

    @classmethod
    def of_request(cls, request: Request) -> _Offer:
        offer = cls(set(), set())
        offer.add(request.tools or ())
        for item in input_items(request):
            if isinstance(item, AdditionalTools | ToolSearchOutput):
                offer.add(item.tools)
        return offer

    def add(self, tools: Iterable[ToolParam], namespace: str | None = None) -> None:
        for tool in tools:
            kind = type_of(tool)
            self.kinds.add(kind)
            match tool:
                case FunctionToolParam(name=name) | CustomTool(name=name):
                    self.names.add((kind, namespace, name))
                case NamespaceTool(name=name, tools=members):
                    self.names.add((kind, None, name))
                    self.add(members, name)

    def includes(self, choice: SpecificToolChoice) -> bool:
        match choice:
            case SpecificFunction(name=name, namespace=namespace):
                return ("function", namespace or None, name) in self.names or self._has_unnamed_tools()
            case SpecificCustom(name=name, namespace=namespace):
                return ("custom", namespace or None, name) in self.names
            case _ if choice.kind == "namespace":
                return ("namespace", None, choice.string_member("name") or "") in self.names
            case _ if choice.kind.startswith(HOSTED_KINDS):
                return any(_family(kind) == _family(choice.kind) for kind in self.kinds)
            case _:
                return True  # an unknown choice, which need not name a tool

    def _has_unnamed_tools(self) -> bool:
        """Whether an MCP server is offered: only the upstream knows the names of its tools."""
        return any(kind.startswith("mcp") for kind in self.kinds)

    def described(self) -> str:
        names = sorted(name if namespace is None else f"{namespace}.{name}" for _, namespace, name in self.names)
        listed = ", ".join(map(repr, names[:MAX_LISTED_TOOLS])) + (", …" if len(names) > MAX_LISTED_TOOLS else "")
        return f"expected one of {listed}" if names else "the request offers no tool that has a name"


def _check_is_offered(choice: SpecificToolChoice, offer: _Offer, path: str) -> None:
    if offer.includes(choice):
        return
    name = choice.string_member("name") or choice.kind if isinstance(choice, UnknownToolChoice) else choice.name
    raise InvalidValue(f"{path}: the tool {name[:100]!r} is not offered; {offer.described()}", param="tool_choice")


def _family(kind: str) -> str:
    """One name for all versions of a hosted tool: `web_search_preview` is `web_search`."""
    return next((family for family in HOSTED_KINDS if kind.startswith(family)), kind)


#: The beginnings of the kinds of tools that the Responses API has besides functions.
HOSTED_KINDS: Final = (
    *("web_search", "file_search", "computer", "code_interpreter", "image_generation", "mcp"),
    *("local_shell", "shell", "apply_patch", "tool_search"),
)
ALLOWED_NAMES: Final = {"toolConfig.functionCallingConfig": "allowedFunctionNames"}
MAX_KIND_LENGTH: Final = 100  # characters
MAX_LISTED_TOOLS: Final = 10  # names in an error message
