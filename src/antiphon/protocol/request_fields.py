"""The fields of a request as keyword arguments, for type checkers and editors. `antiphon.protocol.request` has the
types that decode and check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from antiphon.protocol.items import ItemParam
from antiphon.protocol.request import (
    PromptCacheOptions,
    ReasoningConfigParam,
    ServiceTier,
    StreamOptions,
    TextParam,
    Truncation,
)
from antiphon.protocol.tools import ToolChoiceParam, ToolParam

#: Text, or items: typed, or as JSON objects.
Input = str | Sequence[ItemParam | Mapping[str, Any]] | None


class ToolRunFields(TypedDict, total=False):
    """The fields of the requests of a tool run, which has its own limit of tool calls."""

    model: str | None
    previous_response_id: str | None
    include: Sequence[str] | None
    tools: Sequence[ToolParam | Mapping[str, Any]] | None
    tool_choice: ToolChoiceParam | Mapping[str, Any] | None
    metadata: Mapping[str, str] | None
    text: TextParam | Mapping[str, Any] | None
    temperature: float | None
    top_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    parallel_tool_calls: bool | None
    stream_options: StreamOptions | Mapping[str, Any] | None
    background: bool | None
    max_output_tokens: int | None
    reasoning: ReasoningConfigParam | Mapping[str, Any] | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    truncation: Truncation | None
    instructions: str | None
    store: bool | None
    service_tier: ServiceTier | None
    top_logprobs: int | None
    conversation: str | Mapping[str, Any] | None
    context_management: Sequence[Mapping[str, Any]] | None
    client_metadata: Mapping[str, Any] | None
    prompt_cache_retention: str | None
    prompt_cache_options: PromptCacheOptions | Mapping[str, Any] | None
    user: str | None
    generate: bool
    #: Fields that this list lacks. They are sent unchanged.
    extra_fields: Mapping[str, Any]


class RequestFields(ToolRunFields, total=False):
    """The fields of a request besides `input` and `stream`, under the names of the specification."""

    max_tool_calls: int | None
