"""Items of a conversation, as accepted (`…Param`) and as sent.

A sent item is a subclass of the accepted one with required id and status, so output can be sent back unchanged
(ITEM-6). The four message params of the specification share one tag, so they are one struct with a role. Items of tools
beyond the specification (custom tools, tool search, hosted tools of providers) are typed too, because real clients send
them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from antiphon.protocol.base import UNKNOWN_TAG, Shape, Unknown
from antiphon.protocol.content import (
    Content,
    ContentParam,
    Text10M,
    ToolOutputContent,
    ToolOutputContentParam,
)
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.tools import ToolName, ToolParam

# REQ-8: the schema has a maximum, which is for servers. The dialects replace an id that a server refuses.
CallId = Annotated[str, Meta(min_length=1)]

MessageRole = Literal["user", "assistant", "system", "developer"]
Phase = Literal["commentary", "final_answer"]  # ITEM-7


class UnknownItem(Unknown, frozen=True, kw_only=True, tag=UNKNOWN_TAG):
    """An item of a type we do not know: an extension, or a provider's newest invention (ITEM-5)."""


class ItemReference(Shape, frozen=True, kw_only=True, tag="item_reference"):
    """A stored item by its id."""

    id: str


class MessageParam(Shape, frozen=True, kw_only=True, tag="message"):
    """A message, in a request. Its content is a text or a list of parts."""

    role: MessageRole
    content: Text10M | list[ContentParam]
    id: str | None | UnsetType = UNSET
    status: str | None | UnsetType = UNSET
    phase: Phase | None | UnsetType = UNSET


class Message(MessageParam, frozen=True, kw_only=True, tag="message"):
    """A message, in a response."""

    id: str
    status: ItemStatus
    role: MessageRole
    content: list[Content]  # type: ignore[assignment]  # a narrower list; frozen, so never appended to
    phase: Phase | None | UnsetType = UNSET


class FunctionCallParam(Shape, frozen=True, kw_only=True, tag="function_call"):
    """A call of a function, in a request."""

    call_id: CallId
    name: ToolName
    arguments: str
    id: str | None | UnsetType = UNSET
    status: ItemStatus | None | UnsetType = UNSET
    namespace: str | None | UnsetType = UNSET


class FunctionCall(FunctionCallParam, frozen=True, kw_only=True, tag="function_call"):
    """A call of a function, in a response."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class FunctionCallOutputParam(Shape, frozen=True, kw_only=True, tag="function_call_output"):
    """The output of a function call, in a request."""

    call_id: CallId
    output: Text10M | list[ToolOutputContentParam]
    id: str | None | UnsetType = UNSET
    status: ItemStatus | None | UnsetType = UNSET


class FunctionCallOutput(FunctionCallOutputParam, frozen=True, kw_only=True, tag="function_call_output"):
    """The output of a function call, in a response."""

    id: str
    call_id: str
    output: str | list[ToolOutputContent]  # type: ignore[assignment]  # a narrower list; frozen
    status: ItemStatus


class ReasoningParam(Shape, frozen=True, kw_only=True, tag="reasoning"):
    """Reasoning of the model, in a request."""

    # ITEM-6: the schema allows only null `content` and summary texts here. Output has any parts in both, and is
    # accepted.
    summary: list[Content]
    content: list[Content] | None | UnsetType = UNSET
    encrypted_content: str | None | UnsetType = UNSET
    id: str | None | UnsetType = UNSET
    status: ItemStatus | None | UnsetType = UNSET


class Reasoning(ReasoningParam, frozen=True, kw_only=True, tag="reasoning"):
    """Reasoning of the model, in a response."""

    id: str


class CompactionParam(Shape, frozen=True, kw_only=True, tag="compaction"):
    """A shortened form of earlier items, from an earlier response."""

    encrypted_content: Text10M
    id: str | None | UnsetType = UNSET
    created_by: str | None | UnsetType = UNSET  # null: the SDKs of this API send it for an absent field


class Compaction(CompactionParam, frozen=True, kw_only=True, tag="compaction"):
    """A shortened form of earlier items, in a response."""

    id: str
    encrypted_content: str
    created_by: str | UnsetType = UNSET


class CompactionTrigger(Shape, frozen=True, kw_only=True, tag="compaction_trigger"):
    """At the end of the input: asks to compact the items before it into one compaction item."""

    id: str | None | UnsetType = UNSET


class AdditionalTools(Shape, frozen=True, kw_only=True, tag="additional_tools"):
    """Tools given as an input item instead of in `tools`."""

    tools: list[ToolParam]
    id: str | None | UnsetType = UNSET
    role: MessageRole | UnsetType = UNSET


class CustomToolCallParam(Shape, frozen=True, kw_only=True, tag="custom_tool_call"):
    """A call of a custom tool, in a request."""

    call_id: CallId
    name: str
    input: str
    id: str | None | UnsetType = UNSET
    status: ItemStatus | None | UnsetType = UNSET
    namespace: str | None | UnsetType = UNSET


class CustomToolCall(CustomToolCallParam, frozen=True, kw_only=True, tag="custom_tool_call"):
    """A call of a custom tool, in a response."""

    id: str
    call_id: str
    status: ItemStatus


class CustomToolCallOutputParam(Shape, frozen=True, kw_only=True, tag="custom_tool_call_output"):
    """The output of a custom tool call, in a request."""

    call_id: CallId
    output: Text10M | list[ToolOutputContentParam]
    id: str | None | UnsetType = UNSET
    status: ItemStatus | None | UnsetType = UNSET
    name: str | None | UnsetType = UNSET


class CustomToolCallOutput(CustomToolCallOutputParam, frozen=True, kw_only=True, tag="custom_tool_call_output"):
    """The output of a custom tool call, in a response."""

    id: str
    status: ItemStatus


class ToolSearchCall(Shape, frozen=True, kw_only=True, tag="tool_search_call"):
    """A search for tools."""

    arguments: Any
    execution: str | UnsetType = UNSET
    call_id: str | None | UnsetType = UNSET
    id: str | None | UnsetType = UNSET
    status: str | None | UnsetType = UNSET


class ToolSearchOutput(Shape, frozen=True, kw_only=True, tag="tool_search_output"):
    """The tools that a search returned."""

    tools: list[ToolParam]
    execution: str | UnsetType = UNSET
    call_id: str | None | UnsetType = UNSET
    id: str | None | UnsetType = UNSET
    status: str | None | UnsetType = UNSET


class _Hosted(Shape, frozen=True, kw_only=True):
    """Base class of the items of hosted tools, which report a call and its status."""

    id: str | None | UnsetType = UNSET
    status: str | None | UnsetType = UNSET
    created_by: str | None | UnsetType = UNSET


class WebSearchCall(_Hosted, frozen=True, kw_only=True, tag="web_search_call"):
    """A web search, which the server runs."""

    action: dict[str, Any] | None | UnsetType = UNSET


class FileSearchCall(_Hosted, frozen=True, kw_only=True, tag="file_search_call"):
    """A search in files, which the server runs."""

    queries: list[str]
    results: list[dict[str, Any]] | None | UnsetType = UNSET


class CodeInterpreterCall(_Hosted, frozen=True, kw_only=True, tag="code_interpreter_call"):
    """A call of the code interpreter, which the server runs."""

    container_id: str | None | UnsetType = UNSET
    code: str | None | UnsetType = UNSET
    outputs: list[dict[str, Any]] | None | UnsetType = UNSET


class ImageGenerationCall(_Hosted, frozen=True, kw_only=True, tag="image_generation_call"):
    """A generated image."""

    result: str | None | UnsetType = UNSET
    revised_prompt: str | None | UnsetType = UNSET


class ComputerCall(_Hosted, frozen=True, kw_only=True, tag="computer_call"):
    """An action on a computer."""

    call_id: str
    action: dict[str, Any] | None | UnsetType = UNSET
    pending_safety_checks: list[dict[str, Any]] | None | UnsetType = UNSET


class ComputerCallOutput(_Hosted, frozen=True, kw_only=True, tag="computer_call_output"):
    """The result of an action on a computer, such as a screenshot."""

    call_id: str
    output: dict[str, Any]
    acknowledged_safety_checks: list[dict[str, Any]] | None | UnsetType = UNSET
    current_url: str | None | UnsetType = UNSET


class LocalShellCall(_Hosted, frozen=True, kw_only=True, tag="local_shell_call"):
    """A command for the client's shell."""

    action: dict[str, Any]
    call_id: str | None | UnsetType = UNSET


class LocalShellCallOutput(_Hosted, frozen=True, kw_only=True, tag="local_shell_call_output"):
    """The output of a command of the client's shell."""

    output: str
    call_id: str | UnsetType = UNSET


class ShellCall(_Hosted, frozen=True, kw_only=True, tag="shell_call"):
    """Commands for a shell."""

    call_id: str
    action: dict[str, Any]
    environment: dict[str, Any] | None | UnsetType = UNSET


class ShellCallOutput(_Hosted, frozen=True, kw_only=True, tag="shell_call_output"):
    """The output of commands of a shell."""

    call_id: str
    output: list[dict[str, Any]]
    max_output_length: int | None | UnsetType = UNSET


class ApplyPatchCall(_Hosted, frozen=True, kw_only=True, tag="apply_patch_call"):
    """A call of the patch tool."""

    call_id: str
    operation: dict[str, Any]


class ApplyPatchCallOutput(_Hosted, frozen=True, kw_only=True, tag="apply_patch_call_output"):
    """The output of a call of the patch tool."""

    call_id: str
    output: str | None | UnsetType = UNSET


class McpCall(_Hosted, frozen=True, kw_only=True, tag="mcp_call"):
    """A call of an MCP tool, which the server runs."""

    server_label: str
    name: str
    arguments: str
    output: str | None | UnsetType = UNSET
    error: Any = UNSET
    approval_request_id: str | None | UnsetType = UNSET


class McpListTools(_Hosted, frozen=True, kw_only=True, tag="mcp_list_tools"):
    """The tools of an MCP server."""

    server_label: str
    tools: list[dict[str, Any]]
    error: Any = UNSET


class McpApprovalRequest(_Hosted, frozen=True, kw_only=True, tag="mcp_approval_request"):
    """A request of the server to approve a call of an MCP tool."""

    server_label: str
    name: str
    arguments: str


class McpApprovalResponse(_Hosted, frozen=True, kw_only=True, tag="mcp_approval_response"):
    """The approval or the refusal of a call of an MCP tool."""

    approval_request_id: str
    approve: bool
    reason: str | None | UnsetType = UNSET


HostedItem = (
    WebSearchCall
    | FileSearchCall
    | CodeInterpreterCall
    | ImageGenerationCall
    | ComputerCall
    | ComputerCallOutput
    | LocalShellCall
    | LocalShellCallOutput
    | ShellCall
    | ShellCallOutput
    | ApplyPatchCall
    | ApplyPatchCallOutput
    | McpCall
    | McpListTools
    | McpApprovalRequest
    | McpApprovalResponse
)
ItemParam = (
    MessageParam
    | FunctionCallParam
    | FunctionCallOutputParam
    | ReasoningParam
    | ItemReference
    | CompactionParam
    | CompactionTrigger
    | AdditionalTools
    | CustomToolCallParam
    | CustomToolCallOutputParam
    | ToolSearchCall
    | ToolSearchOutput
    | HostedItem
    | UnknownItem
)
Item = (
    Message
    | FunctionCall
    | FunctionCallOutput
    | Reasoning
    | Compaction
    | CustomToolCall
    | CustomToolCallOutput
    | ToolSearchCall
    | ToolSearchOutput
    | HostedItem
    | UnknownItem
)
