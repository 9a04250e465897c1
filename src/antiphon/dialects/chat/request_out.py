"""Translates a hub request into the body for a Chat server.

This module translates the settings; `history_out` and `tools_out` translate messages and tools. Fields that only Chat
has are in the hub as `extra["chat:name"]` and are sent to Chat servers under their own name (REQ-7).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.dialects.chat.forced_tools import ForcedTools
from antiphon.dialects.chat.history_out import history_from_hub
from antiphon.dialects.chat.reasoning import effort_of_settings
from antiphon.dialects.chat.tools_out import (
    SEARCH,
    SEARCH_OPTIONS,
    report_tool_loss,
    search_options,
    tool_choice_from_hub,
    tools_from_hub,
)
from antiphon.dialects.chat.wire import (
    DEFAULT_SCHEMA_NAME,
    JSON_OBJECT_SCHEMA,
    PREFIX,
    REASONING_SETTINGS,
    STREAM_OPTIONS,
    ChatWire,
    JsonSchemaOut,
    RequestOut,
    ResponseFormatOut,
)
from antiphon.dialects.common.cache_marks import breakpoint_options, cache_control_from_options
from antiphon.dialects.common.effort import supported_effort, token_budget
from antiphon.dialects.common.offered_tools import translate_tools_once
from antiphon.dialects.common.output_limit import refuse_empty_output
from antiphon.dialects.common.request_fields import (
    KNOWN_INCLUDES,
    LOGPROBS,
    SupportedFields,
    append_members,
    refuse_several_answers,
    report_unsupported_fields,
    requested_format,
    schema_rule,
)
from antiphon.dialects.common.tool_names import PLAIN_NAMES, ToolNames, has_additional_tools
from antiphon.dialects.common.unknown_fields import is_handled_by_gateway, report_unknown_fields
from antiphon.dialects.common.web_search import use_server_search
from antiphon.errors import InvalidValue, UnsupportedParameter
from antiphon.protocol.base import Shape
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    JsonObjectFormat,
    ReasoningEffort,
    Request,
    TextFormat,
)

T = TypeVar("T")


def request_from_hub(request: Request, wire: ChatWire = ChatWire()) -> tuple[bytes, Losses]:  # noqa: B008
    """Return the body for a server, and the losses."""
    if request.max_output_tokens == 0:
        refuse_empty_output(request)
    refuse_several_answers(request, SEVERAL_ANSWERS)
    losses = Losses()
    if (request.tools or request.extra) and not wire.native_types:
        request = use_server_search(request, SEARCH, wire.web_search_models, losses)
    names = ToolNames.for_request(request, PLAIN_NAMES.limited(wire.max_name_length))
    forced = ForcedTools.from_request(request, names, wire, losses) if wire.forced_tools == "schema" else None
    tools = NO_TOOLS
    if not forced and (request.tools or has_additional_tools(request)):
        tools = translate_tools_once(_offer_tools, request, names, wire)
        losses.extend(tools.losses)
    system_texts = [request.instructions] if request.instructions else []
    response_format = (
        _forced_call_format(forced, request, losses, system_texts)
        if forced
        else _format_from_hub(request, wire, losses, system_texts)
    )
    messages = history_from_hub(request, names, wire, losses, system_texts)
    if not messages:
        raise InvalidValue("input: no content to send: expected at least one message with content", param="input")
    report_unsupported_fields(request, UNSUPPORTED_FIELDS, KNOWN_INCLUDES, losses)
    if_supported = SupportedFields(wire.fields, losses)
    wants_logprobs = True if request.top_logprobs or LOGPROBS in (request.include or ()) else UNSET
    logprobs = if_supported("logprobs", wants_logprobs, "top_logprobs" if request.top_logprobs else "include")
    limit = request.max_output_tokens or UNSET
    body = RequestOut(
        model=request.model or UNSET,
        messages=messages,
        tools=tools.encoded_tools,
        tool_choice=tool_choice_from_hub(request.tool_choice, tools.names, names, wire, losses)
        if request.tool_choice and not forced
        else UNSET,
        parallel_tool_calls=if_supported("parallel_tool_calls", request.parallel_tool_calls) if tools.names else UNSET,
        response_format=response_format,
        max_tokens=limit if wire.max_tokens == "max_tokens" else UNSET,
        max_completion_tokens=limit if wire.max_tokens == "max_completion_tokens" else UNSET,
        logprobs=logprobs,
        top_logprobs=if_supported("top_logprobs", request.top_logprobs or UNSET) if logprobs else UNSET,
        reasoning_effort=if_supported("reasoning_effort", _effort(request, wire, losses), "reasoning.effort"),
        verbosity=if_supported("verbosity", request.text.verbosity if request.text else UNSET, "text.verbosity"),
        metadata=if_supported("metadata", request.metadata or UNSET),
        prompt_cache_options=_cache_options(request, wire, if_supported, losses),
        cache_control=cache_control_from_options(request.prompt_cache_options, losses)
        if request.prompt_cache_options and wire.cache_marks == "cache_control"
        else UNSET,
        stream=UNSET if request.stream is None else request.stream,
        stream_options=_stream_options(request, wire, losses),
        **{
            name: if_supported(name, value)
            for name, value in zip(PLAIN_FIELDS, _read_plain_fields(request), strict=True)
            if value is not UNSET
        },
    )
    extra = _extra_from_hub(request, body, wire, search_options(request) if forced else tools.search_options, losses)
    return append_members(ENCODER.encode(body), extra), losses


def _format_from_hub(
    request: Request, wire: ChatWire, losses: Losses, system_texts: list[str]
) -> ResponseFormatOut | UnsetType:
    """REQ-1: translate the output format. A schema that the server cannot enforce goes into the system text."""
    format = requested_format(request, losses)
    if format is None:
        return UNSET
    if wire.json_output == "none":
        raise UnsupportedParameter("text.format: the server supports only text output", param="text.format")
    if isinstance(format, JsonObjectFormat):
        return ResponseFormatOut(type="json_object")
    if JSON_OBJECT_SCHEMA in (request.extra or ()):
        return ResponseFormatOut(type="json_object", schema=format.schema or UNSET)
    if wire.json_output == "json_object":
        losses.add(
            "text.format",
            "the enforcement of the schema",
            "the schema is only described in the system text; the server enforces JSON",
        )
        system_texts.append(f"{schema_rule(format.schema or {})}\n{format.description or ''}".rstrip())
        return ResponseFormatOut(type="json_object")
    return ResponseFormatOut(
        type="json_schema",
        json_schema=JsonSchemaOut(
            name=format.name or DEFAULT_SCHEMA_NAME,
            description=format.description or UNSET,
            schema=format.schema or UNSET,
            strict=UNSET if format.strict is None else format.strict,
        ),
    )


def _forced_call_format(
    forced: ForcedTools, request: Request, losses: Losses, system_texts: list[str]
) -> ResponseFormatOut:
    """Return the output format that makes the model write the forced call as text."""
    if isinstance(request.tool_choice, Shape):
        report_unknown_fields(request.tool_choice, "tool_choice", losses)
    requested_format = request.text.format if request.text else UNSET
    if requested_format and not isinstance(requested_format, TextFormat):
        losses.add("text.format", "the output format", "a tool call is forced, so the answer has no text")
    system_texts.append(forced.system_text())
    return forced.response_format()


class _OfferedTools(Struct, frozen=True):
    """Encoded tools, their wire names, their losses, and the options of a web search among them."""

    names: Collection[str]
    encoded_tools: Raw | UnsetType
    losses: Losses
    search_options: Raw | None = None


def _offer_tools(request: Request, names: ToolNames, wire: ChatWire) -> _OfferedTools:
    """Translate the tools that the model may call without being forced to."""
    losses = Losses()
    tools = tools_from_hub(request, names, wire, losses)
    if tools and not wire.free_tools:
        why = "the template of the model drops tools; it can only be forced to call one"
        report_tool_loss(request, losses, "the tools", why)
        tools = {}
    encoded_tools = Raw(ENCODER.encode(list(tools.values()))) if tools else UNSET
    return _OfferedTools(frozenset(tools), encoded_tools, losses, search_options(request))


def _stream_options(request: Request, wire: ChatWire, losses: Losses) -> dict[str, Any] | UnsetType:
    """Request usage in any case, because the hub's response contains it (REQ-4)."""
    requested_options = _requested_stream_options(request)
    if not request.stream:
        return UNSET
    if wire.stream_usage:
        return {**requested_options, "include_usage": True}
    for name in requested_options:
        losses.add(f"stream_options.{name}", f"the field {name!r}", "the server does not support stream options")
    return UNSET


def _requested_stream_options(request: Request) -> dict[str, Any]:
    raw = (request.extra or {}).get(STREAM_OPTIONS)
    options = msgspec.json.decode(raw) if raw is not None else {}
    return (
        {name: value for name, value in options.items() if name != "include_usage"} if isinstance(options, dict) else {}
    )


def _cache_options(
    request: Request, wire: ChatWire, if_supported: SupportedFields, losses: Losses
) -> dict[str, Any] | UnsetType:
    """E-4: the cache options. Servers of the other form have a `cache_control` for the whole request."""
    options = request.prompt_cache_options
    if not options or wire.cache_marks == "cache_control":
        return UNSET
    return if_supported("prompt_cache_options", breakpoint_options(options, losses))


def _effort(request: Request, wire: ChatWire, losses: Losses) -> ReasoningEffort | None | UnsetType:
    """RSN-4: replace a reasoning effort that the server does not support by the nearest one."""
    effort = request.reasoning.effort if request.reasoning else UNSET
    if effort and effort == effort_of_settings((request.extra or {}).get(REASONING_SETTINGS)):
        return UNSET  # the client's own settings are sent
    if _budget(request, wire) is not None:
        return UNSET
    if not effort or not wire.efforts:
        return effort
    return supported_effort(effort, wire.efforts, losses)


def _budget(request: Request, wire: ChatWire) -> int | None:
    """RSN-4: the budget of a client that counts reasoning in tokens, for a server that does."""
    return token_budget(request) if wire.reasoning_budget else None


def _extra_from_hub(
    request: Request, body: RequestOut, wire: ChatWire, options: Raw | None, losses: Losses
) -> dict[str, Raw]:
    """Return the unknown fields to send: those of chat clients, those that the profile lists, and the options of a web
    search."""
    extra_fields: dict[str, Raw] = {}
    budget = _budget(request, wire)
    if budget is not None and REASONING_SETTINGS not in (request.extra or {}):
        extra_fields["reasoning"] = Raw(b'{"max_tokens":%d}' % budget)
    if options is not None:
        extra_fields[SEARCH_OPTIONS] = options
    if wire.token_bias:
        extra_fields["logit_bias"] = Raw(msgspec.json.encode(wire.token_bias))
    for name, raw in (request.extra or {}).items():
        equivalent_name = EQUIVALENT_FIELDS.get(name, "")
        wire_name = (
            equivalent_name
            if equivalent_name in wire.fields or equivalent_name in wire.extra_fields
            else name.removeprefix(PREFIX)
        )
        if name == STREAM_OPTIONS or (name != REASONING_SETTINGS and is_handled_by_gateway(name, raw, request)):
            continue
        if (wire_name in RESERVED_FIELDS and name != SEVERAL_ANSWERS) or (
            wire_name in RequestOut.__struct_fields__ and getattr(body, wire_name) is not UNSET
        ):
            losses.add(name, f"the field {name!r}", f"another field sets {wire_name!r}")
        elif wire_name != name or wire_name in wire.extra_fields:
            extra_fields[wire_name] = raw
        else:
            losses.add(name, f"the unknown field {name!r}", "it is unknown whether the server accepts it")
    return extra_fields


ENCODER: Final = msgspec.json.Encoder()
NO_TOOLS: Final = _OfferedTools((), UNSET, Losses())
#: Optional fields that have the same name and meaning in the hub.
PLAIN_FIELDS: Final = (
    *("temperature", "top_p", "presence_penalty", "frequency_penalty"),
    *("service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "user"),
)
_read_plain_fields: Final[Callable[[Request], tuple[Any, ...]]] = attrgetter(*PLAIN_FIELDS)
#: Fields of the hub that Chat does not have.
UNSUPPORTED_FIELDS: Final = ("client_metadata",)
#: Never set from unknown fields, because the reader of the response depends on them.
RESERVED_FIELDS: Final = ("model", "messages", "stream", "stream_options", "n")
#: Set by chat clients only.
SEVERAL_ANSWERS: Final = "chat:n"
#: Fields of other dialects, with the Chat field of the same meaning.
EQUIVALENT_FIELDS: Final[dict[str, str]] = {
    "messages:stop_sequences": "stop",
    "gemini:stopSequences": "stop",
    "gemini:seed": "seed",
    "ollama:stop": "stop",
    "ollama:seed": "seed",
    "ollama:top_k": "top_k",
    "ollama:min_p": "min_p",
    "messages:top_k": "top_k",
    "gemini:topK": "top_k",
}
