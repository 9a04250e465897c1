"""Translates a Messages client's request to the hub.

This module translates the settings; `history_in` and `tools_in` translate the conversation and the tools. Fields that
only this dialect has travel as `extra["messages:name"]` and reach its servers under their own name (REQ-7).
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.cache_marks import options_from_cache_control
from antiphon.dialects.common.effort import EFFORT_OF_WORD, effort_of
from antiphon.dialects.common.history import InstructionsAndItems
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.messages.history_in import history_to_hub
from antiphon.dialects.messages.tools_in import parallel_tool_calls_to_hub, tool_choice_to_hub, tools_to_hub
from antiphon.dialects.messages.wire import (
    PREFIX,
    JsonSchemaFormatIn,
    RequestIn,
    ThinkingAdaptiveIn,
    ThinkingDisabledIn,
    ThinkingEnabledIn,
    UnknownFormat,
)
from antiphon.errors import InvalidValue, UnsupportedParameter
from antiphon.protocol import codec
from antiphon.protocol.content import InputText
from antiphon.protocol.items import AdditionalTools, MessageParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    ReasoningEffort,
    Request,
    ServiceTier,
    TextParam,
)
from antiphon.protocol.tools import ToolParam


def request_to_hub(body: bytes) -> tuple[Request, Losses]:
    """Translate a client's body to a hub request, with the losses."""
    client_request: RequestIn = codec.decode_as(body, RequestIn)
    losses = Losses()
    thread = None if client_request.thread is UNSET else client_request.thread
    continued_id = _continued_response_id(thread)
    _check_messages(client_request, is_continued=continued_id is not None)
    conversation = history_to_hub(client_request.system, client_request.messages, losses)
    tools = tools_to_hub(client_request.tools) if client_request.tools else UNSET
    if thread is not None:
        conversation, tools = _as_thread(conversation, tools), UNSET
    effort = _effort(client_request)
    format = _output_format(client_request, losses)
    if client_request.metadata:
        report_unknown_fields(client_request.metadata, "metadata", losses)
    request = Request(
        model=client_request.model,
        instructions=conversation.instructions,
        input=conversation.items,
        tools=tools,
        tool_choice=tool_choice_to_hub(client_request.tool_choice, client_request.tools or [], losses),
        parallel_tool_calls=parallel_tool_calls_to_hub(client_request.tool_choice),
        text=TextParam(format=format) if format else UNSET,
        max_output_tokens=client_request.max_tokens,
        temperature=client_request.temperature,
        top_p=client_request.top_p,
        # RSN-2: the client stores sealed reasoning in its history, whether it asked for thinking or not.
        include=[ENCRYPTED_IF_ANY],
        reasoning=ReasoningConfigParam(effort=effort) if effort else UNSET,
        user=client_request.metadata.user_id if client_request.metadata else UNSET,
        service_tier=TIER_OF_WORD.get(client_request.service_tier or "", UNSET),
        prompt_cache_options=options_from_cache_control(client_request.cache_control)
        if client_request.cache_control
        else UNSET,
        stream=client_request.stream,
        store=thread is not None,
        previous_response_id=UNSET if continued_id is None else continued_id,
        extra=_extra(client_request, effort),
    )
    return request, losses


def _as_thread(conversation: InstructionsAndItems, tools: list[ToolParam] | UnsetType) -> InstructionsAndItems:
    """The start of a thread, with its tools and system text as items: later requests do not have them, and get them
    with the conversation."""
    items = conversation.items
    if conversation.instructions:
        items = [MessageParam(role="system", content=[InputText(text=conversation.instructions)]), *items]
    if tools:
        items = [AdditionalTools(tools=tools), *items]
    return InstructionsAndItems(UNSET, items)


def _continued_response_id(thread: dict[str, Any] | None) -> str | None:
    """The id of the response that a thread continues; None if it begins. An answer has the id of its response with
    another prefix."""
    match thread:
        case None | {"type": "create"}:
            return None
        case {"type": "continue", "previous_message_id": str() as id}:
            return f"resp_{id.removeprefix('msg_')}"
        case _:
            message = "thread: expected the type 'create', or 'continue' with previous_message_id"
            raise UnsupportedParameter(message, param="thread")


def _check_messages(client_request: RequestIn, *, is_continued: bool) -> None:
    """A request that continues a thread may have no messages (after `pause_turn`), and cannot change what the thread
    was created with. Every other request has messages."""
    if is_continued:
        for name, value in (("system", client_request.system), ("tools", client_request.tools)):
            if value:
                message = f"{name}: expected none, because a thread keeps the {name} that it was created with"
                raise InvalidValue(message, param=name)
    elif not client_request.messages:
        raise InvalidValue("messages: expected an array of at least 1 objects, got 0 entries", param="messages")


def _effort(client_request: RequestIn) -> ReasoningEffort | UnsetType:
    """RSN-4: the effort as one word. A server of this dialect also gets the original `thinking`."""
    effort_name = client_request.output_config.effort if client_request.output_config else UNSET
    effort = EFFORT_OF_WORD.get(effort_name or "", UNSET)
    match client_request.thinking:
        case ThinkingDisabledIn():
            return "none"
        case ThinkingEnabledIn(budget_tokens=budget):
            return effort or effort_of(budget)
        case _:
            return effort


def _output_format(client_request: RequestIn, losses: Losses) -> JsonSchemaFormatParam | UnsetType:
    """REQ-1: the output format, which may be in two places. The server always enforces it."""
    format = (
        client_request.output_config.format if client_request.output_config else UNSET
    ) or client_request.output_format
    if not isinstance(format, JsonSchemaFormatIn):
        return UNSET
    report_unknown_fields(format, "output_config.format", losses)
    return JsonSchemaFormatParam(
        name="response", schema=format.schema, strict=True
    )  # servers of the hub's own API require a name


def _remaining_config(client_request: RequestIn, effort: ReasoningEffort | UnsetType) -> dict[str, Any]:
    """The members of `output_config` that no hub field expresses."""
    config = client_request.output_config
    if not config:
        return {}
    remaining: dict[str, Any] = {**(config.extra or {})}
    if config.effort and (config.effort != effort or not isinstance(client_request.thinking, ThinkingAdaptiveIn)):
        remaining["effort"] = config.effort
    if isinstance(config.format, UnknownFormat):
        remaining["format"] = config.format
    return remaining


def _extra(client_request: RequestIn, effort: ReasoningEffort | UnsetType) -> dict[str, Raw] | UnsetType:
    """Fields that only this dialect has, each under its own name."""
    native_fields: dict[str, Any] = {
        name: getattr(client_request, name) or UNSET for name in ("thinking", "stop_sequences", "context_management")
    }
    if effort and not client_request.thinking:  # in this API an effort alone does not request thinking
        native_fields["thinking"] = None
    native_fields["top_k"] = UNSET if client_request.top_k is None else client_request.top_k
    native_fields["output_config"] = _remaining_config(client_request, effort) or UNSET
    native_fields["output_format"] = (
        client_request.output_format if isinstance(client_request.output_format, UnknownFormat) else UNSET
    )
    native_fields["service_tier"] = client_request.service_tier or UNSET
    native_fields["thread"] = client_request.thread or UNSET
    encoded_fields = {
        PREFIX + name: Raw(codec.encode(value)) for name, value in native_fields.items() if value is not UNSET
    }
    return {**encoded_fields, **{PREFIX + name: raw for name, raw in (client_request.extra or {}).items()}} or UNSET


TIER_OF_WORD: Final[dict[str, ServiceTier]] = {"auto": "auto", "standard_only": "default"}
