"""Writes a hub request as the body for a Messages server.

This module writes the settings; the history, the tools and thinking have modules of their own. Fields that only this
dialect has travel as `extra["messages:name"]` and are sent under their own name (REQ-7).
"""

from __future__ import annotations

from typing import Any, Final, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.cache_marks import NO_CACHE_MARKS, cache_control_from_options
from antiphon.dialects.common.offered_tools import translate_tools_once
from antiphon.dialects.common.request_fields import (
    SupportedFields,
    append_members,
    refuse_several_answers,
    report_unsupported_fields,
    requested_format,
    schema_rule,
)
from antiphon.dialects.common.tool_names import MESSAGES_NAMES, ToolNames
from antiphon.dialects.common.unknown_fields import is_handled_by_gateway
from antiphon.dialects.common.web_search import use_server_search
from antiphon.dialects.messages.cache_marks_out import limit_cache_marks
from antiphon.dialects.messages.history_out import history_from_hub
from antiphon.dialects.messages.schemas import enforceable_schema
from antiphon.dialects.messages.thinking_out import THINKING_FIELD, ThinkingFromHub
from antiphon.dialects.messages.tools_out import SEARCH, tool_choice_from_hub, tools_from_hub
from antiphon.dialects.messages.wire import PREFIX, MessagesWire, RequestOut
from antiphon.protocol.content import Number
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    Include,
    JsonSchemaFormatParam,
    Request,
    ServiceTier,
)

T = TypeVar("T")


def request_from_hub(request: Request, wire: MessagesWire = MessagesWire()) -> tuple[bytes, Losses]:  # noqa: B008
    """The body for a server, with the losses."""
    refuse_several_answers(request)
    losses = Losses()
    names = ToolNames.for_request(request, MESSAGES_NAMES.limited(wire.max_name_length))
    request = use_server_search(request, SEARCH, wire.web_search_models, losses)
    offered = translate_tools_once(tools_from_hub, request, names, wire)
    losses.extend(offered.losses)
    choice = tool_choice_from_hub(request, offered.by_name, names, losses)
    tools = list(offered.by_name.values())
    system_texts = [request.instructions] if request.instructions else []
    format = _output_format(request, wire, losses, system_texts)
    history = history_from_hub(request, names, wire, losses, system_texts)
    max_tokens = request.max_output_tokens if isinstance(request.max_output_tokens, int) else wire.max_tokens
    thinking = ThinkingFromHub(request, wire, max_tokens, losses)
    choice = thinking.permitted_choice(choice)
    thinking.disable_if_refused(history, choice)
    settings = _Settings(request, wire, losses, thinking)
    config = settings.output_config(format)
    temperature = settings.temperature()
    body = RequestOut(
        model=request.model or UNSET,
        max_tokens=max_tokens,
        messages=[message.with_members() for message in history.messages],
        system=history.system or UNSET,
        tools=Raw(ENCODER.encode(tools)) if tools else UNSET,
        tool_choice=choice,
        thinking=thinking.thinking,
        output_config=config or UNSET,
        output_format=format if format and wire.json_output == "output_format" else UNSET,
        temperature=temperature,
        top_p=settings.top_p(temperature),
        top_k=settings.top_k(),
        stop_sequences=settings.stop_sequences(),
        metadata=settings.metadata(),
        service_tier=settings.service_tier(),
        cache_control=settings.cache_control(),
        stream=UNSET if request.stream is None else request.stream,
    )
    if history.has_breakpoints:
        limit_cache_marks(history, body.cache_control, losses)
    report_unsupported_fields(request, UNSUPPORTED_FIELDS, KNOWN_INCLUDES, losses)
    if request.text and request.text.verbosity:
        losses.add("text.verbosity", f"the verbosity {request.text.verbosity!r}", "the API has no equivalent")
    return append_members(ENCODER.encode(body), settings.extra()), losses


class _Settings:
    """Optional fields: those that the server accepts are sent, others are losses (REQ-5, REQ-6)."""

    def __init__(self, request: Request, wire: MessagesWire, losses: Losses, thinking: ThinkingFromHub) -> None:
        self._request = request
        self._wire = wire
        self._losses = losses
        self._thinking = thinking
        self._if_supported = SupportedFields(wire.fields, losses)
        self._extra: dict[str, Raw] = dict(request.extra or {})
        self._extra.pop(THINKING_FIELD, None)

    def output_config(self, format: dict[str, Any] | UnsetType) -> dict[str, Any]:
        """`output_config`. The client's own members override ours."""
        config: dict[str, Any] = {}
        if self._thinking.effort:
            config["effort"] = self._thinking.effort
        if format and self._wire.json_output == "output_config":
            config["format"] = format
        raw = self._extra.pop(OUTPUT_CONFIG, None)
        client_config = msgspec.json.decode(raw, type=dict[str, Raw]) if raw is not None else {}
        if "effort" in client_config:
            effort = self._thinking.client_effort(msgspec.json.decode(client_config.pop("effort")))
            if effort is not UNSET:
                config["effort"] = effort
        return {**config, **client_config}

    def temperature(self) -> Number | UnsetType:
        temperature = self._if_supported("temperature", self._request.temperature)
        temperature = self._thinking.drop_beside_thinking("temperature", temperature, allowed=temperature == 1)
        if temperature and temperature > 1:
            self._losses.add("temperature", f"a temperature of {temperature}", "the maximum is 1")
            return 1
        return temperature

    def top_p(self, temperature: Number | UnsetType) -> Number | UnsetType:
        top_p = self._if_supported("top_p", self._request.top_p)
        top_p = self._thinking.drop_beside_thinking("top_p", top_p, allowed=top_p is not UNSET and top_p >= MIN_TOP_P)
        if top_p is not UNSET and temperature is not UNSET and not self._wire.both_samplings:
            self._losses.add("top_p", "the field 'top_p'", "the server does not accept it together with a temperature")
            return UNSET
        return top_p

    def top_k(self) -> int | UnsetType:
        name, top_k = self._take_extra("top_k")
        if top_k is not None and not isinstance(top_k, int):
            self._losses.add(name, f"the field {name!r}", "it is not an integer")
            return UNSET
        return self._thinking.drop_beside_thinking(name, self._if_supported("top_k", top_k, name))

    def stop_sequences(self) -> list[str] | UnsetType:
        name, value = self._take_extra("stop_sequences")
        accepted = self._if_supported("stop_sequences", value, name)
        texts = [] if accepted is UNSET else accepted if isinstance(accepted, list) else [accepted]
        stops = [text for text in texts if isinstance(text, str) and text.strip()]
        if len(stops) < len(texts):
            self._losses.add(name, "a stop sequence that is blank or not a string", "the server refuses it")
        return stops or UNSET

    def metadata(self) -> dict[str, str] | UnsetType:
        request = self._request
        user = request.safety_identifier or request.user or UNSET
        if request.user and request.user != user:
            self._losses.add("user", "the field 'user'", "'safety_identifier' is used instead")
        if request.metadata:
            self._losses.add("metadata", "the field 'metadata'", "the API has no equivalent")
        accepted = self._if_supported("metadata", user, "safety_identifier" if request.safety_identifier else "user")
        return {"user_id": accepted} if accepted else UNSET

    def service_tier(self) -> Any:
        own_tier = self._extra.pop(PREFIX + "service_tier", None)
        if own_tier is not None:
            return msgspec.json.decode(own_tier)
        requested = self._request.service_tier
        if not requested:
            return UNSET
        tier = TIER_OF_WORD.get(requested)
        if tier is None or requested == "priority":
            self._losses.add("service_tier", f"the service tier {requested!r}", "the server does not support it")
        return UNSET if tier is None else self._if_supported("service_tier", tier)

    def cache_control(self) -> dict[str, Any] | UnsetType:
        """E-4: the cache options of the client, or a hint that the prompt will be repeated. The server has no cache
        key.
        """
        request = self._request
        if request.prompt_cache_key:
            self._losses.add("prompt_cache_key", "the field 'prompt_cache_key'", NO_CACHE_MARKS)
        if request.prompt_cache_options:
            return cache_control_from_options(request.prompt_cache_options, self._losses)
        if not self._wire.auto_cache or not (request.prompt_cache_key or request.prompt_cache_retention):
            return UNSET
        return {"type": "ephemeral", "ttl": "1h"} if request.prompt_cache_retention == "24h" else {"type": "ephemeral"}

    def extra(self) -> dict[str, Raw]:
        """Unknown fields that are sent: those of clients of this dialect, and those that the profile passes on."""
        extra_fields: dict[str, Raw] = {}
        for name, raw in self._extra.items():
            wire_name = name.removeprefix(PREFIX)
            if is_handled_by_gateway(name, raw, self._request):
                continue
            if wire_name in RESERVED_FIELDS:
                self._losses.add(name, f"the field {name!r}", f"another field sets {wire_name!r}")
            elif wire_name != name or wire_name in self._wire.extra_fields:
                extra_fields[wire_name] = raw
            else:
                self._losses.add(name, f"the unknown field {name!r}", "it is unknown whether the server accepts it")
        return extra_fields

    def _take_extra(self, name: str) -> tuple[str, Any]:
        """A field that several dialects have and the hub does not: its name in `extra`, and its value."""
        spelling = next((spelling for spelling in SPELLINGS[name] if spelling in self._extra), name)
        return spelling, msgspec.json.decode(self._extra.pop(spelling, NULL))


def _output_format(
    request: Request, wire: MessagesWire, losses: Losses, system_texts: list[str]
) -> dict[str, Any] | UnsetType:
    """REQ-1: the output format in the server's form. A format that it cannot enforce goes into the system text."""
    format = requested_format(request, losses)
    if format is None:
        return UNSET
    if not isinstance(format, JsonSchemaFormatParam):
        losses.add("text.format", "the enforcement of JSON output", "the format is only described in the system text")
        system_texts.append(OBJECT_RULE)
        return UNSET
    schema = format.schema or {"type": "object"}
    if format.description and "description" not in schema:
        schema = {**schema, "description": format.description}
    enforced = None if wire.json_output == "none" else enforceable_schema(schema, "text.format.schema", losses)
    if enforced is None:
        losses.add("text.format", "the enforcement of the schema", "the schema is only described in the system text")
        system_texts.append(schema_rule(schema))
        return UNSET
    return {"type": "json_schema", "schema": enforced}


ENCODER: Final = msgspec.json.Encoder()
KNOWN_INCLUDES: Final = (get_args(Include)[0], ENCRYPTED_IF_ANY)
UNSUPPORTED_FIELDS: Final = ("presence_penalty", "frequency_penalty", "top_logprobs", "client_metadata")
MIN_TOP_P: Final = 0.95  # with thinking
NULL: Final = Raw(b"null")
OUTPUT_CONFIG: Final = "messages:output_config"
#: Never taken from unknown fields: hub fields set them.
RESERVED_FIELDS: Final = ("model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream")
#: The names of a field in `extra`, for clients of this dialect and of others.
SPELLINGS: Final = {
    "top_k": ("messages:top_k", "top_k", "chat:top_k", "gemini:topK", "ollama:top_k"),
    "stop_sequences": ("messages:stop_sequences", "chat:stop", "gemini:stopSequences", "ollama:stop"),
}
#: `auto` may use reserved capacity, as `priority` requests.
TIER_OF_WORD: Final[dict[ServiceTier, str]] = {"auto": "auto", "default": "standard_only", "priority": "auto"}
OBJECT_RULE: Final = "Answer with one JSON object and with nothing else."
