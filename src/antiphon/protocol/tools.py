"""Types of tools and tool choice: the flat functions of the specification, and what real clients also send.

`custom` (free text, optionally with a grammar), `namespace` (a named group), `tool_search` and the hosted tools of
providers are beyond the specification. They are typed so that a translation can name them when it cannot carry them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypeVar

from msgspec import UNSET, Meta, Raw, UnsetType

from antiphon.protocol.base import UNKNOWN_TAG, Shape, Unknown

# REQ-8: the schema has further limits, which are for servers. The dialects replace what a server refuses.
ToolName = Annotated[str, Meta(min_length=1)]
JsonSchema = dict[str, Any]

ToolChoiceValue = Literal["none", "auto", "required"]

T = TypeVar("T")
D = TypeVar("D")


class UnknownTool(Unknown, frozen=True, kw_only=True, tag=UNKNOWN_TAG):
    """A tool of a type we do not know."""


class FunctionToolParam(Shape, frozen=True, kw_only=True, tag="function"):
    """A function that the model may call: its name, its description and the JSON schema of its arguments."""

    name: ToolName
    description: str | None | UnsetType = UNSET
    parameters: JsonSchema | None | UnsetType = UNSET
    strict: bool | None | UnsetType = UNSET
    defer_loading: bool | None | UnsetType = UNSET


class FunctionTool(FunctionToolParam, frozen=True, kw_only=True, tag="function"):
    """A function that the model may call, in a response."""

    name: str
    description: str | None
    parameters: JsonSchema | None
    strict: bool | None


class TextFormatOfTool(Shape, frozen=True, kw_only=True, tag="text"):
    """A custom tool's input is any text."""


class GrammarFormat(Shape, frozen=True, kw_only=True, tag="grammar"):
    """A custom tool's input obeys a grammar."""

    syntax: Literal["lark", "regex"]
    definition: str


class CustomTool(Shape, frozen=True, kw_only=True, tag="custom"):
    """A tool with free text as its input."""

    name: str
    description: str | None | UnsetType = UNSET
    format: TextFormatOfTool | GrammarFormat | None | UnsetType = UNSET
    defer_loading: bool | None | UnsetType = UNSET


class NamespaceTool(Shape, frozen=True, kw_only=True, tag="namespace"):
    """Tools under a common name; a call names both."""

    name: str
    tools: list[FunctionToolParam | CustomTool | UnknownTool]
    description: str | None | UnsetType = UNSET


class ToolSearchTool(Shape, frozen=True, kw_only=True, tag="tool_search"):
    """A tool that finds tools; with `execution: client` the client runs it."""

    execution: str | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    parameters: JsonSchema | None | UnsetType = UNSET


class WebSearchTool(Shape, frozen=True, kw_only=True, tag="web_search"):
    """Web search, which the server runs."""

    external_web_access: bool | None | UnsetType = UNSET
    indexed_web_access: bool | None | UnsetType = UNSET
    filters: dict[str, Any] | None | UnsetType = UNSET
    user_location: dict[str, Any] | None | UnsetType = UNSET
    search_context_size: str | None | UnsetType = UNSET
    search_content_types: list[str] | None | UnsetType = UNSET


class WebSearchPreviewTool(Shape, frozen=True, kw_only=True, tag="web_search_preview"):
    """Web search under its older name."""

    user_location: dict[str, Any] | None | UnsetType = UNSET
    search_context_size: str | None | UnsetType = UNSET


class FileSearchTool(Shape, frozen=True, kw_only=True, tag="file_search"):
    """Search in files, which the server runs."""

    vector_store_ids: list[str]
    max_num_results: int | None | UnsetType = UNSET
    ranking_options: dict[str, Any] | None | UnsetType = UNSET
    filters: dict[str, Any] | None | UnsetType = UNSET


class CodeInterpreterTool(Shape, frozen=True, kw_only=True, tag="code_interpreter"):
    """The code interpreter, which the server runs."""

    container: str | dict[str, Any] | UnsetType = UNSET


class ImageGenerationTool(Shape, frozen=True, kw_only=True, tag="image_generation"):
    """Generation of images, which the server runs."""

    model: str | None | UnsetType = UNSET
    quality: str | None | UnsetType = UNSET
    size: str | None | UnsetType = UNSET
    output_format: str | None | UnsetType = UNSET


class ComputerTool(Shape, frozen=True, kw_only=True, tag="computer_use_preview"):
    """A computer that the model controls."""

    environment: str
    display_width: int
    display_height: int


class McpTool(Shape, frozen=True, kw_only=True, tag="mcp"):
    """An MCP server, whose tools the server calls."""

    server_label: str
    server_url: str | None | UnsetType = UNSET
    server_description: str | None | UnsetType = UNSET
    connector_id: str | None | UnsetType = UNSET
    headers: dict[str, str] | None | UnsetType = UNSET
    authorization: str | None | UnsetType = UNSET
    allowed_tools: Any = UNSET
    require_approval: Any = UNSET


class LocalShellTool(Shape, frozen=True, kw_only=True, tag="local_shell"):
    """The client runs shell commands for the model."""


class ShellTool(Shape, frozen=True, kw_only=True, tag="shell"):
    """A shell."""

    environment: dict[str, Any] | None | UnsetType = UNSET


class ApplyPatchTool(Shape, frozen=True, kw_only=True, tag="apply_patch"):
    """The client applies patches for the model."""


HostedTool = (
    WebSearchTool
    | WebSearchPreviewTool
    | FileSearchTool
    | CodeInterpreterTool
    | ImageGenerationTool
    | ComputerTool
    | McpTool
    | LocalShellTool
    | ShellTool
    | ApplyPatchTool
)
ToolParam = FunctionToolParam | CustomTool | NamespaceTool | ToolSearchTool | HostedTool | UnknownTool
Tool = FunctionTool | CustomTool | NamespaceTool | ToolSearchTool | HostedTool | UnknownTool


class ToolList(list[T]):
    """A list of tools that requests share, with values derived from it, such as its JSON. It must not be changed.

    With `echo`, the tools have no schemas: it is the JSON of the complete tools, as the response repeats them.
    """

    __slots__ = ("_derived", "echo")

    def __init__(self, tools: Iterable[T], echo: Raw | None = None) -> None:
        super().__init__(tools)
        self.echo = echo
        self._derived: dict[object, Any] = {}

    def derive_once(self, key: object, derive: Callable[[], D]) -> D:
        """The value that `derive` returns. `derive` is called once for each key."""
        if key not in self._derived:
            self._derived[key] = derive()
        value: D = self._derived[key]
        return value


class UnknownToolChoice(Unknown, frozen=True, kw_only=True, tag=UNKNOWN_TAG):
    """A choice of a tool whose type we do not know (a provider's hosted tool, say)."""


class FunctionToolChoice(Shape, frozen=True, kw_only=True, tag="function"):
    """The function that the model must call, in a response."""

    name: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET


class SpecificFunction(FunctionToolChoice, frozen=True, kw_only=True, tag="function"):
    """The function that the model must call, in a request."""

    name: str


class SpecificCustom(Shape, frozen=True, kw_only=True, tag="custom"):
    """The custom tool that the model must call."""

    name: str
    namespace: str | UnsetType = UNSET


SpecificToolChoice = SpecificFunction | SpecificCustom | UnknownToolChoice


class AllowedToolsParam(Shape, frozen=True, kw_only=True, tag="allowed_tools"):
    """The tools that the model may call, out of those in `tools`."""

    tools: Annotated[list[SpecificToolChoice], Meta(min_length=1, max_length=128)]
    mode: ToolChoiceValue | UnsetType = UNSET


class AllowedTools(Shape, frozen=True, kw_only=True, tag="allowed_tools"):
    """The tools that the model may call, in a response."""

    tools: list[FunctionToolChoice | SpecificCustom | UnknownToolChoice]
    mode: ToolChoiceValue


ToolChoiceParam = ToolChoiceValue | SpecificFunction | SpecificCustom | AllowedToolsParam | UnknownToolChoice
ToolChoice = ToolChoiceValue | FunctionToolChoice | SpecificCustom | AllowedTools | UnknownToolChoice
