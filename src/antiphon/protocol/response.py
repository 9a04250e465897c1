"""The response object: the settings of the request with their effective values, and the output (HTTP-2).

`make_initial_response` builds the object at the start of a turn. The writer makes all later changes.
"""

from __future__ import annotations

from typing import Any, Final, Literal, cast

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from antiphon.protocol.base import Shape
from antiphon.protocol.content import Number, OutputText
from antiphon.protocol.errors import Error
from antiphon.protocol.items import FunctionCall, Item, Message
from antiphon.protocol.request import (
    JsonObjectFormat,
    JsonSchemaFormatParam,
    ReasoningEffort,
    ReasoningSummary,
    Request,
    TextFormat,
    TextFormatParam,
    Truncation,
    Verbosity,
)
from antiphon.protocol.status import RESPONSE_TRANSITIONS, ResponseStatus, refused_transition
from antiphon.protocol.tools import (
    AllowedTools,
    AllowedToolsParam,
    FunctionTool,
    FunctionToolParam,
    JsonSchema,
    Tool,
    ToolChoice,
    ToolChoiceParam,
    ToolList,
    ToolParam,
)


class IncompleteDetails(Shape, frozen=True, kw_only=True):
    """Why a response is incomplete."""

    reason: str


class InputTokensDetails(Shape, frozen=True, kw_only=True):
    """How many input tokens came from a cache, and how many were written to it."""

    cached_tokens: int
    # Beyond the specification; None if the server's API does not report it:
    cache_write_tokens: int | None | UnsetType = UNSET


class OutputTokensDetails(Shape, frozen=True, kw_only=True):
    """How many output tokens are reasoning."""

    reasoning_tokens: int


class Usage(Shape, frozen=True, kw_only=True):
    """The tokens of a response."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails


class JsonSchemaFormat(JsonSchemaFormatParam, frozen=True, kw_only=True, tag="json_schema"):
    """An answer that follows a JSON schema, in a response."""

    name: str
    description: str | None
    # The published schema allows only null here. The requested schema is echoed anyway (HTTP-2).
    schema: JsonSchema | None
    strict: bool


class TextConfig(Shape, frozen=True, kw_only=True):
    """The settings of the text output, in a response."""

    format: TextFormat | JsonObjectFormat | JsonSchemaFormat
    verbosity: Verbosity | None | UnsetType = UNSET


class ReasoningConfig(Shape, frozen=True, kw_only=True):
    """The settings of reasoning, in a response."""

    effort: ReasoningEffort | None
    summary: ReasoningSummary | None


class Response(Shape, frozen=True, kw_only=True):
    """A response with all 31 required fields; a field without a value is null.

    The specification requires values of some settings that servers send as null. The types here accept null; `check`
    does not.
    """

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None
    status: str
    incomplete_details: IncompleteDetails | None
    model: str
    previous_response_id: str | None
    instructions: str | list[Any] | None
    output: list[Item]
    error: Error | None
    tools: list[Tool]
    tool_choice: ToolChoice
    truncation: Truncation | None
    parallel_tool_calls: bool
    text: TextConfig | None
    top_p: Number | None
    presence_penalty: Number | None
    frequency_penalty: Number | None
    top_logprobs: int | None
    temperature: Number | None
    reasoning: ReasoningConfig | None
    usage: Usage | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    store: bool
    background: bool
    service_tier: str | None
    metadata: Any
    safety_identifier: str | None
    prompt_cache_key: str | None
    # Beyond the specification:
    conversation: dict[str, Any] | None | UnsetType = UNSET

    def complete(self, *, usage: Usage | None = None, completed_at: int | None = None) -> Response:
        """The response as completed (B-4). `completed_at` is in seconds since 1970; default: `created_at`."""
        time = self.created_at if completed_at is None else completed_at
        return self._end(ResponseStatus.COMPLETED, usage, completed_at=time)

    def fail(self, code: str, message: str, *, usage: Usage | None = None) -> Response:
        """The response as failed (B-4)."""
        return self._end(ResponseStatus.FAILED, usage, error=Error(code=code, message=message))

    def incomplete(self, reason: str, *, usage: Usage | None = None) -> Response:
        """The response as incomplete (B-4), such as for `max_output_tokens`."""
        return self._end(ResponseStatus.INCOMPLETE, usage, incomplete_details=IncompleteDetails(reason=reason))

    def _end(self, status: ResponseStatus, usage: Usage | None, **changes: Any) -> Response:
        current = ResponseStatus(self.status)
        if status not in RESPONSE_TRANSITIONS[current]:
            raise refused_transition(current, status)
        return replace(self, status=status, usage=usage or self.usage, **changes)

    @property
    def output_text(self) -> str:
        """The text of all messages, without reasoning and refusals."""
        messages = [item for item in self.output if isinstance(item, Message)]
        return "".join(part.text for message in messages for part in message.content if isinstance(part, OutputText))

    @property
    def function_calls(self) -> list[FunctionCall]:
        """The function calls in the output."""
        return [item for item in self.output if isinstance(item, FunctionCall)]


class CompactResource(Shape, frozen=True, kw_only=True):
    id: str
    object: Literal["response.compaction"] = "response.compaction"
    output: list[Item]
    created_at: int
    usage: Usage


def make_initial_response(request: Request, *, id: str, created_at: int, model: str | None = None) -> Response:
    """The response at the start of a turn: the effective settings of the request, and no output."""
    return Response(
        id=id,
        created_at=created_at,
        completed_at=None,
        status=ResponseStatus.IN_PROGRESS,
        incomplete_details=None,
        model=model if model is not None else (request.model or ""),
        previous_response_id=request.previous_response_id or None,
        instructions=None if request.instructions is UNSET else request.instructions,
        output=[],
        error=None,
        tools=echo_tools(request.tools or []),
        tool_choice=_echo_tool_choice(request.tool_choice or "auto"),
        truncation=request.truncation or "disabled",
        parallel_tool_calls=request.parallel_tool_calls is not False,
        text=_echo_text(request),
        top_p=_value_or(request.top_p, 1.0),
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        top_logprobs=request.top_logprobs or 0,
        temperature=_value_or(request.temperature, 1.0),
        reasoning=_echo_reasoning(request),
        usage=None,
        max_output_tokens=None if request.max_output_tokens is UNSET else request.max_output_tokens,
        max_tool_calls=None if request.max_tool_calls is UNSET else request.max_tool_calls,
        store=request.store is not False,
        background=request.background or False,
        service_tier=request.service_tier or "auto",  # which tier serves a request is known only from its server
        metadata=request.metadata or {},
        safety_identifier=None if request.safety_identifier is UNSET else request.safety_identifier,
        prompt_cache_key=None if request.prompt_cache_key is UNSET else request.prompt_cache_key,
        conversation=_echo_conversation(request),
    )


def echo_tools(tools: list[ToolParam]) -> list[Tool]:
    """The tools as a response repeats them."""
    if type(tools) is not ToolList:
        return [_echo_tool(tool) for tool in tools]
    if tools.echo is not None:
        return cast(list[Tool], tools.echo)  # a response is only encoded
    return tools.derive_once(echo_tools, lambda: ToolList(map(_echo_tool, tools)))


def _value_or(value: Any, default: Any) -> Any:
    return default if value is UNSET or value is None else value


def _echo_conversation(request: Request) -> dict[str, Any] | UnsetType:
    """API-4: the conversation as an object. Absent if the request names none."""
    match request.conversation:
        case str() as id:
            return {"id": id}
        case {"id": str() as id}:
            return {"id": id}
        case _:
            return UNSET


def _echo_tool(tool: ToolParam) -> Tool:
    if not isinstance(tool, FunctionToolParam):
        return tool
    return FunctionTool(
        name=tool.name,
        description=_value_or(tool.description, None),
        parameters=_value_or(tool.parameters, None),
        strict=_value_or(tool.strict, None),  # null if not sent: the default differs between servers
        defer_loading=tool.defer_loading,
        extra=tool.extra,
    )


def _echo_tool_choice(choice: ToolChoiceParam) -> ToolChoice:
    if isinstance(choice, AllowedToolsParam):
        return AllowedTools(tools=list(choice.tools), mode=choice.mode or "auto", extra=choice.extra)
    return choice


def _echo_text(request: Request) -> TextConfig:
    if not request.text:
        return DEFAULT_TEXT
    return TextConfig(
        format=_echo_format(request.text.format), verbosity=request.text.verbosity or UNSET, extra=request.text.extra
    )


def _echo_format(format: TextFormatParam | None | UnsetType) -> TextFormat | JsonObjectFormat | JsonSchemaFormat:
    if isinstance(format, JsonSchemaFormatParam):
        return JsonSchemaFormat(
            name=format.name or "response",
            description=_value_or(format.description, None),
            schema=_value_or(format.schema, None),
            strict=_value_or(format.strict, False),
            extra=format.extra,
        )
    return format or TextFormat()


def _echo_reasoning(request: Request) -> ReasoningConfig | None:
    reasoning = request.reasoning
    if not reasoning:
        return None
    return ReasoningConfig(effort=reasoning.effort or None, summary=reasoning.summary or None, extra=reasoning.extra)


DEFAULT_TEXT: Final = TextConfig(format=TextFormat())
