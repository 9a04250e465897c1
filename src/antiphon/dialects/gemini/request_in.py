"""Translates the settings of a gemini client's request to the hub. `history_in` and `tools_in` translate the rest.

The model and streaming are in the URL, not in the body; the code that reads the URL sets both. Settings that only this
dialect has travel as `extra["gemini:name"]` and reach its servers under their own name (REQ-7). The API accepts two
spellings of a field (`topP`, `top_p`) and a single object in place of a list. `normalize_spelling` converts both before
decoding. It does not change the user's own JSON (arguments, results, schemas, labels).
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.effort import EFFORT_OF_WORD, effort_of
from antiphon.dialects.common.request_fields import LOGPROBS
from antiphon.dialects.gemini.history_in import history_to_hub, instructions_to_hub
from antiphon.dialects.gemini.schemas import schema_to_hub
from antiphon.dialects.gemini.tools_in import native_tool_config, tool_choice_to_hub, tools_to_hub
from antiphon.dialects.gemini.wire import (
    PREFIX,
    TOP_LEVEL_FIELDS,
    TOP_LEVEL_PREFIX,
    GenerationConfigIn,
    RequestIn,
    ThinkingConfigIn,
    unknown_fields_of,
)
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_json
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    ReasoningEffort,
    ReasoningSummary,
    Request,
    TextFormatParam,
    TextParam,
)


def request_to_hub(body: bytes) -> tuple[Request, Losses]:
    """Translate a client's body to a hub request, with the losses."""
    client_request: RequestIn = codec.decode_as(normalize_spelling(body), RequestIn)
    losses = Losses()
    settings = client_request.generation_config or GenerationConfigIn()
    extra = _native_fields(client_request) | {PREFIX + name: raw for name, raw in unknown_fields_of(settings).items()}
    if settings.candidate_count and settings.candidate_count > 1:
        extra[PREFIX + "candidateCount"] = Raw(codec.encode(settings.candidate_count))
    format = _output_format(settings, extra)
    include = [ENCRYPTED_IF_ANY, LOGPROBS] if settings.response_logprobs else [ENCRYPTED_IF_ANY]
    request = Request(
        model=client_request.model.removeprefix("models/") if client_request.model else UNSET,
        instructions=instructions_to_hub(client_request, losses),
        input=history_to_hub(client_request.contents, losses),
        tools=tools_to_hub(client_request.tools or []),
        tool_choice=tool_choice_to_hub(client_request),
        text=TextParam(format=format) if format else UNSET,
        max_output_tokens=settings.max_output_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        presence_penalty=settings.presence_penalty,
        frequency_penalty=settings.frequency_penalty,
        top_logprobs=settings.logprobs,
        reasoning=_reasoning(settings.thinking_config, extra),
        include=include,
        store=bool(client_request.store),
        extra=extra or UNSET,
    )
    return request, losses


def normalize_spelling(body: bytes) -> bytes:
    """`body` with API fields in camel case and lists as lists. It is unchanged if it needs no change or is not JSON."""
    if SNAKE_CASE_MEMBER.search(body) is None and LIST_WITHOUT_BRACKETS.search(body) is None:
        return body
    try:
        return msgspec.json.encode(_normalize(decode_json(body)))
    except ValueError:  # the decoder reports what is wrong
        return body


def to_camel_case(name: str) -> str:
    """Convert `top_p` to `topP`."""
    return UNDERSCORE.sub(lambda match: match[1].upper(), name)


def _native_fields(client_request: RequestIn) -> dict[str, Raw]:
    """The fields beside `generationConfig` that only this dialect has."""
    native_fields = {
        (PREFIX if name in TOP_LEVEL_FIELDS else TOP_LEVEL_PREFIX) + name: raw
        for name, raw in unknown_fields_of(client_request).items()
    }
    if (config := native_tool_config(client_request)) is not None:
        native_fields[PREFIX + "toolConfig"] = config
    return native_fields


def _output_format(settings: GenerationConfigIn, extra: dict[str, Raw]) -> TextFormatParam | UnsetType:
    """REQ-1. An output format that the hub cannot express (an enum, for example) is sent only to servers of this
    dialect.
    """
    schema = _schema(settings)
    kind = settings.response_mime_type or ("application/json" if schema else "text/plain")
    if kind == "text/plain":
        return UNSET
    if kind != "application/json":
        extra[PREFIX + "responseMimeType"] = Raw(codec.encode(kind))
        if schema:
            extra[PREFIX + "responseJsonSchema"] = Raw(codec.encode(schema))
        return UNSET
    return JsonSchemaFormatParam(name="response", schema=schema) if schema else JsonObjectFormat()


def _schema(settings: GenerationConfigIn) -> dict[str, object] | None:
    if settings.response_json_schema:
        return schema_to_hub(settings.response_json_schema, "generationConfig.responseJsonSchema")
    if settings.response_schema:
        return schema_to_hub(settings.response_schema, "generationConfig.responseSchema")
    return None


def _reasoning(
    thinking: ThinkingConfigIn | None | UnsetType, extra: dict[str, Raw]
) -> ReasoningConfigParam | UnsetType:
    """RSN-4. Thinking settings that the hub's effort does not express exactly also travel unchanged in `extra`."""
    if not thinking:
        return UNSET
    level = (thinking.thinking_level or "").lower()
    budget = thinking.thinking_budget
    effort: ReasoningEffort | UnsetType = EFFORT_OF_WORD.get(level, UNSET)
    if effort is UNSET and isinstance(budget, int) and budget >= 0:
        effort = effort_of(budget)
    is_exact = not budget  # 0 is the effort `none`
    if unknown_fields_of(thinking) or not is_exact or (level and effort is UNSET):
        extra[PREFIX + "thinkingConfig"] = Raw(codec.encode(thinking))
    summary: ReasoningSummary | UnsetType = "auto" if thinking.include_thoughts else UNSET
    return ReasoningConfigParam(effort=effort, summary=summary) if effort or summary else UNSET


def _normalize(value: Any) -> Any:
    match value:
        case dict():
            camel_case_members = {to_camel_case(name): member for name, member in value.items()}
            camel_case_members |= {
                name: [camel_case_members[name]]
                for name in LIST_MEMBERS
                if isinstance(camel_case_members.get(name), dict)
            }
            return {
                name: member if name in USER_JSON_MEMBERS else _normalize(member)
                for name, member in camel_case_members.items()
            }
        case list():
            return [_normalize(member) for member in value]
        case _:
            return value


UNDERSCORE: Final = re.compile(r"(?<=[A-Za-z0-9])_([a-z0-9])")
SNAKE_CASE_MEMBER: Final = re.compile(rb'"[a-z]+(?:_[a-z]+)+"\s*:')
LIST_MEMBERS: Final = ("contents", "parts", "tools", "functionDeclarations")
LIST_WITHOUT_BRACKETS: Final = re.compile(rb'"(?:contents|parts|tools|functionDeclarations)"\s*:\s*\{')
#: Members whose content is the user's own JSON. Property names are too; `schema_to_hub` reads both spellings of the
#: keywords.
USER_JSON_MEMBERS: Final = frozenset(
    {
        "args",
        "response",
        "parameters",
        "parametersJsonSchema",
        "responseSchema",
        "responseJsonSchema",
        "labels",
        "partMetadata",
    }
)
