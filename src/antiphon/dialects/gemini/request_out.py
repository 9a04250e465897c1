"""Writes a hub request as the body of `:generateContent` or `:streamGenerateContent`, with the losses.

This module writes the settings; the conversation and the tools have modules of their own. The model and streaming are
in the URL, not in the body.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.effort import EFFORT_BUDGETS, supported_effort, token_budget
from antiphon.dialects.common.empty_conversation import ends_with_user_message, text_for_empty_conversation
from antiphon.dialects.common.model_names import matches_any
from antiphon.dialects.common.narrowing import narrow_schema
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
from antiphon.dialects.common.tool_names import GEMINI_NAMES, ToolNames
from antiphon.dialects.common.unknown_fields import is_handled_by_gateway
from antiphon.dialects.common.web_search import use_server_search
from antiphon.dialects.gemini.history_out import history_from_hub
from antiphon.dialects.gemini.tools_out import OPENAPI_SUBSET, OUTPUT_SUBSET, SEARCH, WIDE_OUTPUT_SUBSET, ToolsFromHub
from antiphon.dialects.gemini.wire import (
    PREFIX,
    TOP_LEVEL_FIELDS,
    TOP_LEVEL_PREFIX,
    ContentOut,
    GeminiWire,
    GenerationConfigOut,
    PartOut,
    RequestOut,
    ThinkingConfigOut,
)
from antiphon.errors import UnsupportedParameter
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    Request,
    input_items,
)
from antiphon.protocol.tools import JsonSchema

T = TypeVar("T")


def request_from_hub(request: Request, wire: GeminiWire = GeminiWire()) -> tuple[bytes, Losses]:  # noqa: B008
    """The body for a server, with the losses."""
    refuse_empty_output(request)
    refuse_several_answers(request, PREFIX + "candidateCount")
    losses = Losses()
    names = ToolNames.for_request(request, GEMINI_NAMES.limited(wire.max_name_length))
    history = history_from_hub(request, names, wire, losses)
    items = input_items(request)
    if not history.contents or (history.contents[-1].role == "model" and ends_with_user_message(items)):
        text = text_for_empty_conversation(items, losses)
        history = history._replace(contents=[*history.contents, ContentOut(role="user", parts=[PartOut(text=text)])])
    request = use_server_search(request, SEARCH, wire.web_search_models, losses)
    tools = translate_tools_once(ToolsFromHub, request, names, wire)
    losses.extend(tools.losses)
    leading_system_texts = [request.instructions] if request.instructions else []
    native = _native_fields(request, wire, losses)
    generation = _generation_config(request, wire, losses, has_own_thinking="thinkingConfig" in native.settings)
    generation = _add_format(generation, request, wire, losses, leading_system_texts, beside_tools=tools.has_functions)
    report_unsupported_fields(request, UNSUPPORTED_FIELDS, KNOWN_INCLUDES, losses)
    if request.text and request.text.verbosity:
        losses.add("text.verbosity", f"the verbosity {request.text.verbosity!r}", "the API has no equivalent")
    body = RequestOut(
        contents=history.contents,
        system_instruction=_system_content([*leading_system_texts, *history.system]),
        tools=tools.encoded,
        tool_config=tools.tool_config(request, losses),
        generation_config=_merge_members(generation, native.settings, losses) or UNSET,
    )
    return _encode_body(body, native.top_level), losses


def _system_content(texts: list[str]) -> ContentOut | UnsetType:
    return ContentOut(parts=[PartOut(text="\n\n".join(texts))]) if texts else UNSET


def _generation_config(
    request: Request, wire: GeminiWire, losses: Losses, *, has_own_thinking: bool
) -> GenerationConfigOut:
    if_supported = SupportedFields(wire.fields, losses)
    wants_logprobs = True if request.top_logprobs or LOGPROBS in (request.include or ()) else UNSET
    logprobs = if_supported("responseLogprobs", wants_logprobs, "top_logprobs" if request.top_logprobs else "include")
    return GenerationConfigOut(
        temperature=if_supported("temperature", request.temperature, "temperature"),
        top_p=if_supported("topP", request.top_p, "top_p"),
        max_output_tokens=if_supported("maxOutputTokens", request.max_output_tokens, "max_output_tokens"),
        presence_penalty=if_supported("presencePenalty", request.presence_penalty, "presence_penalty"),
        frequency_penalty=if_supported("frequencyPenalty", request.frequency_penalty, "frequency_penalty"),
        response_logprobs=logprobs,
        logprobs=if_supported("logprobs", request.top_logprobs or UNSET, "top_logprobs") if logprobs else UNSET,
        thinking_config=_thinking_config(request, wire, losses)
        if request.reasoning and not has_own_thinking
        else UNSET,
    )


def _thinking_config(request: Request, wire: GeminiWire, losses: Losses) -> ThinkingConfigOut | UnsetType:
    """RSN-4: effort as a budget or a level, depending on the model. Thoughts are requested together with reasoning."""
    reasoning = request.reasoning or ReasoningConfigParam()
    effort, model = reasoning.effort or None, _model(request)
    if not wire.can_think(model):
        if effort and effort != "none":
            losses.add("reasoning.effort", f"the effort {effort!r}", "the model does not support reasoning")
        return UNSET
    shows_thoughts = effort != "none" and bool(effort or reasoning.summary)
    if effort is None:
        return ThinkingConfigOut(include_thoughts=True) if shows_thoughts else UNSET
    if wire.thinking == "level" or model.startswith(wire.level_models):
        levels = next((row.levels for row in wire.models if matches_any(model, row.names)), wire.levels)
        level = supported_effort(effort, levels, losses)
        return ThinkingConfigOut(thinking_level=level, include_thoughts=shows_thoughts or UNSET)
    client_budget = token_budget(request)
    wanted, what = EFFORT_BUDGETS[effort], f"the effort {effort!r}"
    if client_budget is not None:
        wanted, what = client_budget, f"a budget of {client_budget} tokens"
    budget = min(wanted, wire.most_budget)
    if client_budget is not None and request.max_output_tokens and budget >= request.max_output_tokens:
        budget = request.max_output_tokens * 3 // 4  # thoughts count towards the limit
    if budget < wire.least_budget and model.startswith(wire.thinking_models):
        why = f"the model requires a budget of at least {wire.least_budget} tokens"
        losses.add("reasoning.effort", what, why)
        budget = wire.least_budget
    elif budget < wanted:
        losses.add("reasoning.effort", what, f"the maximum budget is {budget} tokens")
    return ThinkingConfigOut(thinking_budget=budget, include_thoughts=shows_thoughts or UNSET)


def _add_format(
    settings: GenerationConfigOut,
    request: Request,
    wire: GeminiWire,
    losses: Losses,
    leading_system_texts: list[str],
    *,
    beside_tools: bool,
) -> GenerationConfigOut:
    """REQ-1: the output format in the server's form. A schema that it cannot enforce goes into the system text."""
    format = requested_format(request, losses)
    if format is None:
        return settings
    if wire.json_output == "none":
        raise UnsupportedParameter("text.format: the server supports only text output", param="text.format")
    schema = _schema(format, losses) if isinstance(format, JsonSchemaFormatParam) else None
    if beside_tools and not _model(request).startswith(wire.json_with_tools):
        losses.add(
            "text.format",
            "the enforcement of JSON output",
            "with tools, the format is only described in the system text",
        )
        leading_system_texts.append(_format_rule(schema))
        return settings
    json_settings = msgspec.structs.replace(settings, response_mime_type="application/json")
    if schema is None:
        return json_settings
    if wire.json_output == "json_object":
        losses.add(
            "text.format",
            "the enforcement of the schema",
            "the schema is only described in the system text; the server enforces JSON",
        )
        leading_system_texts.append(_format_rule(schema))
        return json_settings
    if wire.schemas == "openapi":
        return msgspec.structs.replace(
            json_settings, response_schema=narrow_schema(schema, OPENAPI_SUBSET, "text.format.schema", losses)
        )
    is_basic = _model(request).startswith(wire.basic_schema_models)
    subset = OUTPUT_SUBSET if is_basic else WIDE_OUTPUT_SUBSET
    return msgspec.structs.replace(
        json_settings, response_json_schema=narrow_schema(schema, subset, "text.format.schema", losses)
    )


def _schema(format: JsonSchemaFormatParam, losses: Losses) -> JsonSchema | None:
    """The requested schema, with its description."""
    schema = format.schema or None
    if format.description and schema is not None and "description" not in schema:
        return {**schema, "description": format.description}
    if format.description:
        losses.add("text.format.description", "the description of the output format", "the API has no equivalent")
    return schema


def _format_rule(schema: JsonSchema | None) -> str:
    return JSON_RULE if schema is None else schema_rule(schema)


def _model(request: Request) -> str:
    """The model name that profiles match."""
    return (request.model or "").rpartition("/")[2]


class _NativeFields(NamedTuple):
    """The fields that only this dialect has: members of the body, and of `generationConfig`."""

    top_level: dict[str, Raw]
    settings: dict[str, Raw]


def _native_fields(request: Request, wire: GeminiWire, losses: Losses) -> _NativeFields:
    """Fields of clients of this dialect under their own names, and equivalent fields of other dialects (REQ-7)."""
    native = _NativeFields({}, {})
    for name, raw in (request.extra or {}).items():
        wire_name = (
            name.removeprefix(TOP_LEVEL_PREFIX).removeprefix(PREFIX)
            if name.startswith(PREFIX)
            else EQUIVALENT_FIELDS.get(name)
        )
        if not name.startswith(PREFIX) and is_handled_by_gateway(name, raw, request):
            continue
        if wire_name is None:
            losses.add(name, f"the unknown field {name!r}", "it is unknown whether the server accepts it")
        elif wire_name in RESERVED_FIELDS or (name in EQUIVALENT_FIELDS and wire_name not in wire.fields):
            losses.add(name, f"the field {name!r}", "the server does not support it")
        elif wire_name in TOP_LEVEL_FIELDS or name.startswith(TOP_LEVEL_PREFIX):
            native.top_level[wire_name] = raw
        else:
            native.settings[wire_name] = _as_list(raw) if wire_name == "stopSequences" else raw
    return native


def _as_list(raw: Raw) -> Raw:
    """Wrap a single stop sequence, which one dialect allows, in a list."""
    return Raw(b"[%b]" % bytes(raw)) if bytes(raw).lstrip().startswith(b'"') else raw


def _merge_members(settings: GenerationConfigOut, native_fields: dict[str, Raw], losses: Losses) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.json.decode(codec.encode(settings), type=dict[str, Raw])
    for name, raw in native_fields.items():
        if name in members:
            losses.add(PREFIX + name, f"the field {name!r}", "another field sets it")
        else:
            members[name] = raw
    return members


def _encode_body(body: RequestOut, extra: dict[str, Raw]) -> bytes:
    if "toolConfig" in extra:  # the client's own `toolConfig`, which may hold more than the hub can express
        body = msgspec.structs.replace(body, tool_config=UNSET)
    return append_members(codec.encode(body), extra)


JSON_RULE: Final = "Answer with one JSON object and with nothing else when you call no more tools."
#: Never taken from unknown fields: the answer reader relies on them, or a hub field sets them.
RESERVED_FIELDS: Final = ("contents", "systemInstruction", "tools", "generationConfig")
UNSUPPORTED_FIELDS: Final = (
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "client_metadata",
    "user",
)
#: Fields of other dialects with the same meaning.
EQUIVALENT_FIELDS: Final[dict[str, str]] = {
    "chat:stop": "stopSequences",
    "messages:stop_sequences": "stopSequences",
    "seed": "seed",
    "top_k": "topK",
    "chat:seed": "seed",
    "chat:top_k": "topK",
    "messages:top_k": "topK",
    "ollama:stop": "stopSequences",
    "ollama:seed": "seed",
    "ollama:top_k": "topK",
}
