"""Translates a Chat client's request into a hub request.

This module translates the settings; `history_in` and `tools_in` translate messages and tools. Fields that only Chat has
are kept in the hub as `extra["chat:name"]` (REQ-7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.chat.history_in import history_to_hub
from antiphon.dialects.chat.reasoning import effort_of_settings
from antiphon.dialects.chat.tools_in import tool_choice_to_hub, tools_to_hub
from antiphon.dialects.chat.wire import (
    DEFAULT_SCHEMA_NAME,
    JSON_OBJECT_SCHEMA,
    PREFIX,
    REASONING_SETTINGS,
    STREAM_OPTIONS,
    JsonSchemaFormatIn,
    RequestIn,
    UnknownFormat,
)
from antiphon.dialects.common.cache_marks import options_from_cache_control
from antiphon.dialects.common.effort import EFFORT_OF_WORD
from antiphon.dialects.common.output_limit import CHAT_UNLIMITED, output_limit_to_hub
from antiphon.dialects.common.request_fields import LOGPROBS
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.errors import InvalidValue
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    PromptCacheOptions,
    ReasoningConfigParam,
    Request,
    ServiceTier,
    StreamOptions,
    TextFormatParam,
    TextParam,
    Verbosity,
)

T = TypeVar("T")


def request_to_hub(body: bytes) -> tuple[Request, Losses]:
    """Return a client's body as a hub request, and the losses."""
    chat: RequestIn = codec.decode_as(body, RequestIn)
    losses = Losses()
    conversation = history_to_hub(chat.messages, losses)
    extra = {PREFIX + name: raw for name, raw in (chat.extra or {}).items()}
    if chat.n and chat.n > 1:
        extra[PREFIX + "n"] = Raw(codec.encode(chat.n))
    effort = _hub_value(chat.reasoning_effort, EFFORT_OF_WORD, "reasoning_effort", extra)
    effort = effort or effort_of_settings(extra.get(REASONING_SETTINGS))
    verbosity = _hub_value(chat.verbosity, VERBOSITY_OF_WORD, "verbosity", extra)
    format = _format_to_hub(chat, losses, extra)
    request = Request(
        model=chat.model,
        instructions=conversation.instructions,
        input=conversation.items,
        tools=tools_to_hub(chat, losses),
        tool_choice=tool_choice_to_hub(chat, losses),
        parallel_tool_calls=chat.parallel_tool_calls,
        text=TextParam(format=format, verbosity=verbosity) if format or verbosity else UNSET,
        max_output_tokens=_output_limit(chat, losses),
        temperature=chat.temperature,
        top_p=chat.top_p,
        presence_penalty=chat.presence_penalty,
        frequency_penalty=chat.frequency_penalty,
        # RSN-2: a chat client always gets encrypted reasoning, so that it can send it back.
        include=[LOGPROBS, ENCRYPTED_IF_ANY] if chat.logprobs else [ENCRYPTED_IF_ANY],
        top_logprobs=chat.top_logprobs,
        reasoning=ReasoningConfigParam(effort=effort) if effort else UNSET,
        metadata=chat.metadata,
        service_tier=_hub_value(chat.service_tier, TIER_OF_WORD, "service_tier", extra),
        safety_identifier=chat.safety_identifier,
        prompt_cache_key=chat.prompt_cache_key,
        prompt_cache_retention=chat.prompt_cache_retention,
        prompt_cache_options=_cache_options_to_hub(chat, losses),
        user=chat.user,
        store=chat.store,
        stream=chat.stream,
        stream_options=_stream_options_to_hub(chat, extra),
        extra=extra or UNSET,
    )
    return request, losses


def _output_limit(chat: RequestIn, losses: Losses) -> int | None | UnsetType:
    older = output_limit_to_hub(chat.max_tokens, "max_tokens", CHAT_UNLIMITED)
    newer = output_limit_to_hub(chat.max_completion_tokens, "max_completion_tokens", CHAT_UNLIMITED)
    if older and newer and older != newer:
        losses.add("max_tokens", "the field 'max_tokens'", "'max_completion_tokens' is used instead")
    return newer or older


def _format_to_hub(chat: RequestIn, losses: Losses, extra: dict[str, Raw]) -> TextFormatParam | UnsetType:
    match chat.response_format:
        case JsonSchemaFormatIn(json_schema=json_schema):
            report_unknown_fields(chat.response_format, "response_format", losses)
            report_unknown_fields(json_schema, "response_format.json_schema", losses)
            return JsonSchemaFormatParam(
                name=json_schema.name,
                description=json_schema.description,
                schema=json_schema.schema,
                strict=json_schema.strict,
            )
        case JsonObjectFormat(extra=dict() as members) if isinstance(schema := _decode_schema(members), dict):
            # Some servers have schemas in this form; chat servers get it back.
            others = {name: raw for name, raw in members.items() if name != SCHEMA}
            extra[JSON_OBJECT_SCHEMA] = TRUE
            return JsonSchemaFormatParam(name=DEFAULT_SCHEMA_NAME, schema=schema, extra=others or UNSET)
        case UnknownFormat(raw=raw):
            extra[PREFIX + "response_format"] = raw
            return UNSET
        case None | UnsetType():
            return UNSET
        case format:
            return format


def _decode_schema(members: dict[str, Raw]) -> Any:
    return msgspec.json.decode(members.get(SCHEMA, NULL))


def _cache_options_to_hub(chat: RequestIn, losses: Losses) -> PromptCacheOptions | None | UnsetType:
    """E-4: the `prompt_cache_options`, or the `cache_control` that other servers have for the whole request."""
    if not chat.cache_control:
        return chat.prompt_cache_options
    if chat.prompt_cache_options:
        losses.add("cache_control", "the field 'cache_control'", "'prompt_cache_options' is used instead")
        return chat.prompt_cache_options
    return options_from_cache_control(chat.cache_control)


def _stream_options_to_hub(chat: RequestIn, extra: dict[str, Raw]) -> StreamOptions | UnsetType:
    if chat.stream_options is not None and chat.stream_options is not UNSET and not chat.stream:
        raise InvalidValue("stream_options: allowed only with `stream: true`", param="stream_options")
    options = dict(chat.stream_options or {})
    obfuscation = options.pop("include_obfuscation", UNSET)
    if options:  # `EventsFromHub` reads `include_usage`
        extra[STREAM_OPTIONS] = Raw(codec.encode(options))
    return StreamOptions(include_obfuscation=obfuscation) if isinstance(obfuscation, bool) else UNSET


def _hub_value(
    value: str | None | UnsetType, words: Mapping[str, T], name: str, extra: dict[str, Raw]
) -> T | UnsetType:
    """Return the hub's value for a word. An unknown word is kept in `extra` for chat servers."""
    if not value:
        return UNSET
    if value not in words:
        extra[PREFIX + name] = Raw(codec.encode(value))
    return words.get(value, UNSET)


SCHEMA: Final = "schema"
NULL: Final = Raw(b"null")
TRUE: Final = Raw(b"true")
VERBOSITY_OF_WORD: Final[dict[str, Verbosity]] = {word: word for word in get_args(Verbosity)}
TIER_OF_WORD: Final[dict[str, ServiceTier]] = {word: word for word in get_args(ServiceTier)}
