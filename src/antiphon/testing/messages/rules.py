"""The rules of real servers of the Messages API. `check` returns the body or raises `MessagesRequestRefused`.

This module has the rules for headers, settings and their combinations; `history_rules`, `block_rules` and `tool_rules`
have the rest. A request that passes is accepted by all such servers. The comment of each rule names what it copies.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.rules.content import texts_in
from antiphon.testing.messages.block_rules import (
    IN_SYSTEM,
    Members,
    check_block,
    check_cache_control,
    check_members,
    kind_of,
)
from antiphon.testing.messages.errors import MessagesRequestRefused
from antiphon.testing.messages.history_rules import THINKING, blocks_of, check_history
from antiphon.testing.messages.issued_thoughts import IssuedThoughts
from antiphon.testing.messages.models import ModelRules, check_effort, check_type, find_model_rules
from antiphon.testing.messages.tool_rules import check_choice, check_output_format, check_tools
from antiphon.testing.rules import Range
from antiphon.testing.script import ReceivedRequest


class MessagesLimits(Struct, frozen=True, kw_only=True):
    """What one server allows."""

    key: str | None = None
    models: tuple[str, ...] | None = None
    max_chars: int | None = None
    max_bytes: int = 32 * 1024 * 1024
    strict: bool = True
    #: Whether two turns of one role in a row are refused.
    alternating: bool = True
    #: Whether its models know the role `system` in the middle of a conversation.
    system_messages: bool = False
    #: The types of `thinking` that all its models take; None: what follows from their names.
    thinking: tuple[str, ...] | None = None


def check(received: ReceivedRequest, limits: MessagesLimits, thoughts: IssuedThoughts) -> dict[str, Any]:
    """A request for a message."""
    return _check(received, limits, thoughts, FIELDS, ("model", "max_tokens", "messages"))


def check_count(received: ReceivedRequest, limits: MessagesLimits, thoughts: IssuedThoughts) -> dict[str, Any]:
    """A request to count tokens: the same conversation, without what makes a message of it."""
    return _check(received, limits, thoughts, COUNTED_FIELDS, ("model", "messages"))


def check_key(received: ReceivedRequest, limits: MessagesLimits) -> None:
    # The key comes in a header of its own; a bearer token does as well. 401 for one that is missing or wrong.
    given = received.headers.get("x-api-key") or received.headers.get("authorization", "").removeprefix("Bearer ")
    if limits.key is not None and given != limits.key:
        raise MessagesRequestRefused("invalid x-api-key" if given else "x-api-key header is required", status=401)


def prompt_chars(body: dict[str, Any]) -> int:
    """How long the conversation is, in characters of text."""
    contents = [body.get("system")]
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str | list):
            continue
        contents.append(message["content"])
        contents += [block.get("content") for block in blocks_of(message) if kind_of(block) == "tool_result"]
    return sum(len(text) for content in contents for text in texts_in(content))


def _check(
    received: ReceivedRequest,
    limits: MessagesLimits,
    thoughts: IssuedThoughts,
    fields: frozenset[str],
    required: tuple[str, ...],
) -> dict[str, Any]:
    # "Request exceeds the maximum size": 32 MB, before anything else is looked at.
    if len(received.body) > limits.max_bytes:
        raise MessagesRequestRefused(f"Request exceeds the maximum size of {limits.max_bytes} bytes", status=413)
    check_key(received, limits)
    version = _version(received) if limits.strict else ""
    body = _json_object(received)
    if limits.strict:
        # The newest version has no such settings: even their usual values are "Extra inputs".
        _check_fields(body, received, fields - SAMPLING if version == NEWEST else fields, required)
        _check_settings(body)
        model = _model(body, limits)
        _check_thinking(body, model)
        names = [] if body.get("tools") is None else check_tools(body["tools"])
        if body.get("tool_choice") is not None:
            check_choice(body["tool_choice"], names, thinks=_thinks(body))
        _check_output(body, model)
        _check_system(body.get("system"))
        alternating, system_messages = limits.alternating, limits.system_messages
        kind = kind_of(body.get("thinking"))
        check_history(body["messages"], kind, thoughts, alternating=alternating, system_messages=system_messages)
        _check_cache(body)
        if version == NEWEST:
            _check_citations(body["messages"])
    _check_model(body, limits)
    _check_length(body, limits)
    return body


def _version(received: ReceivedRequest) -> str:
    # "…-version: header is required", and its value one of the versions that there are; one sent twice is none.
    given = [value for name, value in received.headers.items() if VERSION_HEADER.fullmatch(name)]
    if not given:
        raise MessagesRequestRefused("the header with the version of the API is required")
    if given[0] not in VERSIONS:
        raise MessagesRequestRefused(f"{given[0]!r} is not a valid version of the API")
    return given[0]


def _json_object(received: ReceivedRequest) -> dict[str, Any]:
    kind = received.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise MessagesRequestRefused(f"the content type is {kind or 'missing'}, not application/json", status=415)
    body = received.json
    # "The request body is not valid JSON".
    if not isinstance(body, dict):
        raise MessagesRequestRefused("The request body is not valid JSON, or no object")
    return body


def _check_fields(
    body: dict[str, Any], received: ReceivedRequest, fields: frozenset[str], required: tuple[str, ...]
) -> None:
    for name in required:
        # "max_tokens: Field required": there is no default for it.
        if name not in body:
            raise MessagesRequestRefused(f"{name}: Field required")
    betas = [name for header, name in received.headers.items() if BETA_HEADER.fullmatch(header)]
    for name in body:
        # "context_management: Extra inputs are not permitted": unknown fields, and those of a beta that the header does
        # not name.
        if name not in fields and not (name in BETA_FIELDS and BETA_FIELDS[name] in ",".join(betas)):
            raise MessagesRequestRefused(f"{name}: Extra inputs are not permitted")


def _check_model(body: dict[str, Any], limits: MessagesLimits) -> None:
    # A model that is not served is a 404 of type not_found_error.
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise MessagesRequestRefused("model: String should have at least 1 character")
    if limits.models is not None and model not in limits.models:
        raise MessagesRequestRefused(f"model: {model}", status=404)


def _check_length(body: dict[str, Any], limits: MessagesLimits) -> None:
    # "prompt is too long: 200251 tokens > 200000 maximum".
    if limits.max_chars is not None and (chars := prompt_chars(body)) > limits.max_chars:
        raise MessagesRequestRefused(f"prompt is too long: {chars} tokens > {limits.max_chars} maximum")


def _model(body: dict[str, Any], limits: MessagesLimits) -> ModelRules:
    model = find_model_rules(body["model"])
    return model if limits.thinking is None else replace(model, types=limits.thinking)


# Settings.


def _check_settings(body: dict[str, Any]) -> None:
    for name, wanted in SETTINGS.items():
        if name not in body:
            continue
        value = body[name]
        # Null is no number and no string: only what the reference calls optional may be null.
        if isinstance(wanted, Range):
            _check_number(name, value, wanted)
        elif isinstance(wanted, tuple):
            if value not in wanted:
                raise MessagesRequestRefused(f"{name}: Input should be one of {', '.join(map(repr, wanted))}")
        elif not isinstance(value, wanted):
            raise MessagesRequestRefused(f"{name}: Input should be a valid {wanted.__name__}")
    # "`temperature` and `top_p` cannot both be specified for this model."
    if "temperature" in body and "top_p" in body:
        raise MessagesRequestRefused(
            "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        )
    _check_stops(body.get("stop_sequences", []))
    if "metadata" in body:
        _check_metadata(body["metadata"])


def _check_number(name: str, value: Any, wanted: Range) -> None:
    kinds = (int, float) if wanted.fraction else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise MessagesRequestRefused(f"{name}: Input should be a valid {'number' if wanted.fraction else 'integer'}")
    # "temperature: range: 0..1", "max_tokens: must be greater than or equal to 1".
    if not wanted.least <= value <= wanted.most:
        raise MessagesRequestRefused(f"{name}: Input should be within {wanted.least} and {wanted.most}, not {value}")


def _check_stops(stops: list[Any]) -> None:
    # "stop_sequences: each stop sequence must contain non-whitespace".
    for at, stop in enumerate(stops):
        if not isinstance(stop, str) or not stop.strip():
            raise MessagesRequestRefused(
                f"stop_sequences.{at}: each stop sequence must be a string with non-whitespace in it"
            )


def _check_metadata(metadata: Any) -> None:
    # One member is known; the free pairs of other APIs are "metadata.key: Extra inputs are not permitted".
    check_members(metadata, "metadata", Members({}, ("user_id",)))
    user = metadata.get("user_id")
    if user is not None and (not isinstance(user, str) or len(user) > 512):
        raise MessagesRequestRefused("metadata.user_id: Input should be a string of at most 512 characters")


def _check_system(system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        raise MessagesRequestRefused("system: Input should be a valid string or list")
    for at, block in enumerate(system):
        check_block(block, f"system.{at}", IN_SYSTEM)


def _check_citations(messages: list[dict[str, Any]]) -> None:
    # Since the newest version only the assistant cites: citations on the user's own text are refused.
    for at, message in enumerate(messages):
        for number, block in enumerate(blocks_of(message)):
            texts = block["content"] if block["type"] == "search_result" else [block]
            if message["role"] == "user" and any(kind_of(text) == "text" and text.get("citations") for text in texts):
                raise MessagesRequestRefused(
                    f"messages.{at}.content.{number}: citations are not permitted in user messages"
                )


# Thinking.


def _thinks(body: dict[str, Any]) -> bool:
    return kind_of(body.get("thinking")) in THINKING


def _check_thinking(body: dict[str, Any], model: ModelRules) -> None:
    if "thinking" not in body:
        return
    thinking = body["thinking"]
    kind = kind_of(thinking)
    if kind not in THINKING_MEMBERS:
        raise MessagesRequestRefused(
            f"thinking: Input tag {kind!r} does not match any of the expected tags: {', '.join(THINKING_MEMBERS)}"
        )
    check_members(thinking, f"thinking.{kind}", THINKING_MEMBERS[kind])
    check_type(model, kind)
    if thinking.get("display") not in (None, "summarized", "omitted"):
        raise MessagesRequestRefused(f"thinking.{kind}.display: Input should be 'summarized' or 'omitted'")
    if kind == "enabled":
        # "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024".
        if thinking["budget_tokens"] < 1024:
            raise MessagesRequestRefused(
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
            )
        # "`max_tokens` must be greater than `thinking.budget_tokens`": the budget is part of the limit.
        if thinking["budget_tokens"] >= body.get("max_tokens", float("inf")):
            raise MessagesRequestRefused("`max_tokens` must be greater than `thinking.budget_tokens`")
    if _thinks(body):
        _check_sampling(body)


def _check_sampling(body: dict[str, Any]) -> None:
    # "`temperature` may only be set to 1 when thinking is enabled".
    if body.get("temperature", 1) != 1:
        raise MessagesRequestRefused("`temperature` may only be set to 1 when thinking is enabled")
    # "`top_k` must be unset when thinking is enabled".
    if "top_k" in body:
        raise MessagesRequestRefused("`top_k` must be unset when thinking is enabled")
    # "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled".
    if body.get("top_p", 1) < 0.95:
        raise MessagesRequestRefused("`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled")


# The form of the output, and hints about caching.


def _check_output(body: dict[str, Any], model: ModelRules) -> None:
    config = body.get("output_config", {})
    check_members(config, "output_config", Members({}, ("effort", "format", "task_budget")))
    # Five words of effort; those of other APIs (`minimal`, `none`) are refused.
    if config.get("effort") not in (None, *EFFORTS):
        raise MessagesRequestRefused(f"output_config.effort: Input should be one of {', '.join(EFFORTS)}")
    if config.get("effort") is not None:
        check_effort(model, config["effort"], kind_of(body.get("thinking")))
    if config.get("format") is not None:
        check_output_format(config["format"], "output_config.format")
    if body.get("output_format") is not None:
        # The older name and the newer one, both at once: which is meant?
        if config.get("format") is not None:
            raise MessagesRequestRefused("output_format: cannot be given together with output_config.format")
        check_output_format(body["output_format"], "output_format")


def _check_cache(body: dict[str, Any]) -> None:
    check_cache_control(body.get("cache_control"), "body")
    marks = [holder["cache_control"] for holder in _cacheable(body) if holder.get("cache_control") is not None]
    # "A maximum of 4 blocks with cache_control may be provided. Found 5."
    if len(marks) > 4:
        raise MessagesRequestRefused(f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    lives = [mark.get("ttl", "5m") for mark in marks]
    # "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block", in the order tools, system,
    # messages.
    if lives != sorted(lives):
        raise MessagesRequestRefused(
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
        )


def _cacheable(body: dict[str, Any]) -> list[dict[str, Any]]:
    """All that may have a mark, in the order of the prompt."""
    system = body.get("system")
    blocks = [block for message in body["messages"] for block in blocks_of(message)]
    inner = [part for block in blocks for part in _parts(block)]
    return [*(body.get("tools") or ()), *(system if isinstance(system, list) else ()), *blocks, *inner, body]


def _parts(block: dict[str, Any]) -> list[dict[str, Any]]:
    content = block.get("content")
    return content if isinstance(content, list) and block["type"] == "tool_result" else []


VERSION_HEADER: Final = re.compile(r"[a-z]+-version")
NEWEST: Final = "2026-10-21"
VERSIONS: Final = ("2023-01-01", "2023-06-01", NEWEST)
SAMPLING: Final = frozenset({"temperature", "top_p", "top_k"})
BETA_HEADER: Final = re.compile(r"[a-z]+-beta")
SETTINGS: Final[dict[str, Range | type | tuple[Any, ...]]] = {
    "max_tokens": Range(1, 2**31),
    "temperature": Range(0, 1, fraction=True),
    "top_p": Range(0, 1, fraction=True),
    "top_k": Range(0, 2**31),
    "stream": bool,
    "stop_sequences": list,
    "service_tier": ("auto", "standard_only"),
    "speed": (None, "standard", "fast"),
}
FIELDS: Final = frozenset(
    {
        *("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control"),
        *("metadata", "container", "diagnostics", "inference_geo", *SETTINGS),
    }
)
COUNTED_FIELDS: Final = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "speed"}
)
# Each is known where the header of betas has a name that begins so.
BETA_FIELDS: Final = {
    "context_management": "context-management-",
    "mcp_servers": "mcp-client-",
    "output_format": "structured-outputs-",
    "compaction": "compact-",
}
THINKING_MEMBERS: Final = {
    "enabled": Members({"type": str, "budget_tokens": int}, ("display",)),
    "adaptive": Members({"type": str}, ("display",)),
    "between_tools": Members({"type": str}),
    "disabled": Members({"type": str}),
}
EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
