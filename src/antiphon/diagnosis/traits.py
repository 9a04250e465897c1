"""Find parts of a body that the dialect allows and some of its servers refuse, each with the settings that remove it.

They are the likely reasons when a server's error explains little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct

from antiphon.diagnosis.finding import MAX_VALUES, Finding
from antiphon.dialects.dialect import ServerDialectName
from antiphon.rules import Rule


class TraitKind(Struct, frozen=True, kw_only=True):
    """A kind of value that some servers refuse. `error_pattern` matches the errors of those servers."""

    rule: Rule
    problem: str
    settings: tuple[str, ...]
    error_pattern: re.Pattern[str]
    #: Whether words that match are too common to name this kind of value alone.
    is_vague: bool = False

    def names_refusal(self, text: str) -> bool:
        """Whether the text of a refusal names this kind of value."""
        return not self.is_vague and self.error_pattern.search(text) is not None


class Trait(Struct, frozen=True, kw_only=True):
    """The first value of a kind in a body."""

    kind: TraitKind
    finding: Finding


class ObjectIterator:
    """Iterates over the objects in lists, up to a total number of values: the gateway does so on its event loop."""

    def __init__(self, max_values: int) -> None:
        self._remaining_values = max_values

    def __call__(self, values: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the members of a list that are objects, each with its path; nothing for any other value."""
        for index, value in enumerate(values if isinstance(values, list) else ()):
            self._remaining_values -= 1
            if self._remaining_values < 0:
                return
            if isinstance(value, dict):
                yield f"{path}[{index}]", value


def find_traits(body: dict[str, Any], dialect: ServerDialectName) -> list[Trait]:
    """Return the first value of each kind in a body."""
    traits: dict[str, Trait] = {}
    for name, path in TRAIT_FINDERS[dialect](body, ObjectIterator(MAX_VALUES)):
        kind = TRAIT_KINDS[name]
        if name not in traits:
            finding = Finding(rule=kind.rule, path=path, problem=kind.problem, settings=kind.settings, certain=False)
            traits[name] = Trait(kind=kind, finding=finding)
    return list(traits.values())


def _find_responses_traits(body: dict[str, Any], iter_objects: ObjectIterator) -> Iterator[tuple[str, str]]:
    for path, item in iter_objects(body.get("input"), "input"):
        kind = item.get("type", "message")
        if kind == "message":
            yield from _find_message_traits(item, path, iter_objects)
            if item.get("role") == "assistant" and isinstance(item.get("content"), list):
                yield "assistant_parts", f"{path}.content"
        elif kind in CALL_TYPES:
            yield "call_items", path
        elif kind == "reasoning":
            yield "reasoning", path
        if "id" in item:
            yield "item_ids", f"{path}.id"
        for name in ("status", "phase"):
            if name in item:
                yield name, f"{path}.{name}"
    for name in ("instructions", "user"):
        if isinstance(body.get(name), str):
            yield name, name


def _find_chat_traits(body: dict[str, Any], iter_objects: ObjectIterator) -> Iterator[tuple[str, str]]:
    for path, message in iter_objects(body.get("messages"), "messages"):
        yield from _find_message_traits(message, path, iter_objects)
        if isinstance(message.get("content"), list):
            yield "parts", f"{path}.content"
        if message.get("role") == "system" and path != "messages[0]":
            yield "late_system", path
        for name in ("reasoning_content", "reasoning"):
            if name in message:
                yield "reasoning", f"{path}.{name}"
        for member_path, call in iter_objects(message.get("tool_calls"), f"{path}.tool_calls"):
            if call.get("type") == "custom":
                yield "custom_tools", member_path
        if message.get("tool_calls") and message.get("content", "") is None:
            yield "null_content", f"{path}.content"
        if message.get("tool_calls") and not message.get("reasoning_content"):
            yield "absent_reasoning", f"{path}.reasoning_content"
    for path, tool in iter_objects(body.get("tools"), "tools"):
        if isinstance(tool.get("function"), dict) and "strict" in tool["function"]:
            yield "strict", f"{path}.function.strict"
    for name in (
        "max_tokens",
        "max_completion_tokens",
        "user",
        "stream_options",
        "reasoning_effort",
        "response_format",
    ):
        if body.get(name) is not None:
            yield name, name


def _find_messages_traits(body: dict[str, Any], iter_objects: ObjectIterator) -> Iterator[tuple[str, str]]:
    for path, message in iter_objects(body.get("messages"), "messages"):
        yield from _find_message_traits(message, path, iter_objects)
        for member_path, block in iter_objects(message.get("content"), f"{path}.content"):
            if block.get("type") in ("thinking", "redacted_thinking"):
                yield "reasoning", member_path
    for path, tool in iter_objects(body.get("tools"), "tools"):
        if "strict" in tool:
            yield "strict", f"{path}.strict"
    for name in ("thinking", "output_config", "output_format"):
        if name in body:
            yield name, name


def _find_gemini_traits(body: dict[str, Any], iter_objects: ObjectIterator) -> Iterator[tuple[str, str]]:
    for path, content in iter_objects(body.get("contents"), "contents"):
        for member_path, part in iter_objects(content.get("parts"), f"{path}.parts"):
            if "inlineData" in part or "fileData" in part:
                yield "images", member_path
            for name in ("functionCall", "functionResponse"):
                if isinstance(part.get(name), dict) and "id" in part[name]:
                    yield "call_ids", f"{member_path}.{name}.id"
            if "thoughtSignature" in part:
                yield "reasoning", f"{member_path}.thoughtSignature"
    has_hosted = any(name != "functionDeclarations" for _, tool in iter_objects(body.get("tools"), "") for name in tool)
    for path, tool in iter_objects(body.get("tools"), "tools"):
        for member_path, function in iter_objects(tool.get("functionDeclarations"), f"{path}.functionDeclarations"):
            if has_hosted:
                yield "hosted_and_functions", path
            if "parametersJsonSchema" in function:
                yield "json_schema", f"{member_path}.parametersJsonSchema"
    config = body.get("generationConfig")
    if isinstance(config, dict):
        for name in ("thinkingConfig", "responseJsonSchema"):
            if name in config:
                yield name, f"generationConfig.{name}"
        if body.get("tools") and "json" in str(config.get("responseMimeType")):
            yield "json_and_functions", "generationConfig.responseMimeType"


def _find_ollama_traits(body: dict[str, Any], iter_objects: ObjectIterator) -> Iterator[tuple[str, str]]:
    for path, message in iter_objects(body.get("messages"), "messages"):
        if message.get("images"):
            yield "images", f"{path}.images"
    if body.get("think"):
        yield "think" if body["think"] is True else "think_levels", "think"


def _find_message_traits(message: dict[str, Any], path: str, iter_objects: ObjectIterator) -> Iterator[tuple[str, str]]:
    """Yield the traits that messages of several dialects share."""
    if message.get("role") == "developer":
        yield "developer", f"{path}.role"
    for member_path, part in iter_objects(message.get("content"), f"{path}.content"):
        if part.get("type") in ("image_url", "input_image", "image"):
            yield "images", member_path
        if part.get("type") in ("file", "input_file", "document"):
            yield "files", member_path
        for name in ("cache_control", "prompt_cache_breakpoint"):
            if name in part:
                yield name, f"{member_path}.{name}"


def _trait_kind(rule: Rule, problem: str, error_pattern: str, *settings: str, is_vague: bool = False) -> TraitKind:
    return TraitKind(
        rule=rule,
        problem=problem,
        settings=settings,
        error_pattern=re.compile(error_pattern, re.IGNORECASE),
        is_vague=is_vague,
    )


CALL_TYPES: Final = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
TRAIT_FINDERS: Final[dict[ServerDialectName, Callable[[dict[str, Any], ObjectIterator], Iterator[tuple[str, str]]]]] = {
    "chat": _find_chat_traits,
    "responses": _find_responses_traits,
    "messages": _find_messages_traits,
    "gemini": _find_gemini_traits,
    "ollama": _find_ollama_traits,
}
TRAIT_KINDS: Final[dict[str, TraitKind]] = {
    "developer": _trait_kind(
        "role",
        "not every server knows the role `developer`",
        r"developer|(?:unknown|invalid|unsupported|unexpected) role",
        'wire.developer = "system"',
        "quirks: developer_as_system",
    ),
    "assistant_parts": _trait_kind(
        "content_type",
        "some servers take the assistant's earlier words as a string only, or call their type otherwise",
        r"output_text|input_text|content",
        "quirks: assistant_as_string",
        'wire.assistant_content = "input_text"',
        is_vague=True,
    ),
    "parts": _trait_kind(
        "content_type",
        "some servers take content as a string only",
        r"content|string",
        "quirks: parts_as_strings",
        is_vague=True,
    ),
    "call_items": _trait_kind(
        "discriminator",
        "some servers take no calls and results in the input",
        r"function_call|tool|invalid input|\btype\b|discriminator",
        "quirks: tool_history_as_text",
        "quirks: tool_results_in_user_messages",
        is_vague=True,
    ),
    "reasoning": _trait_kind(
        "reasoning",
        "some servers take no reasoning back, or their own alone",
        r"reasoning|thinking|thought|signature",
        "quirks: drop_reasoning",
    ),
    "absent_reasoning": _trait_kind(
        "reasoning",
        "some servers want the reasoning back that led to a call",
        r"reasoning_content",
        'wire.reasoning_field = "reasoning_content"',
        'wire.missing_reasoning = "blank"',
    ),
    "item_ids": _trait_kind(
        "unknown_field", "some servers take no ids of items", r"\bid\b|\bids\b", "quirks: drop_item_ids", is_vague=True
    ),
    "status": _trait_kind(
        "unknown_field", "some servers take no `status` in the input", r"\bstatus\b", 'wire.status_fields = "drop"'
    ),
    "phase": _trait_kind("unknown_field", "some servers do not know `phase`", r"\bphase\b", 'wire.phase = "drop"'),
    "instructions": _trait_kind(
        "unsupported", "some servers do not know `instructions`", r"instructions", "quirks: instructions_to_system"
    ),
    "late_system": _trait_kind(
        "order",
        "some servers take system text at the very beginning only",
        r"system",
        'wire.system = "first"',
        is_vague=True,
    ),
    "images": _trait_kind(
        "media",
        "not every server, and not every model, takes images",
        r"\bimages?\b|image_url|input_image|vision|multimodal",
        "quirks: images_as_notes",
        "wire.images = false",
    ),
    "files": _trait_kind(
        "media", "not every server takes files", r"\bfiles?\b|\bdocuments?\b|\bpdf", "quirks: files_as_notes"
    ),
    "cache_control": _trait_kind(
        "unknown_field", "some servers do not know `cache_control`", r"cache_control", "quirks: strip_cache_control"
    ),
    "prompt_cache_breakpoint": _trait_kind(
        "unknown_field",
        "few servers know `prompt_cache_breakpoint`, and not for every model",
        r"prompt_cache",
        "wire.breakpoint_models = []",
        'wire.cache_marks = "none"',
    ),
    "custom_tools": _trait_kind(
        "unsupported", "few servers know custom tools", r"custom", 'wire.custom_tools = "function"'
    ),
    "null_content": _trait_kind(
        "value",
        "some servers want a string, even an empty one, beside calls",
        r"content|null|none",
        'wire.empty_content = "empty"',
        'wire.empty_content = "absent"',
        is_vague=True,
    ),
    "strict": _trait_kind(
        "unknown_field", "some servers do not know `strict` tools", r"strict", "wire.strict_tools = false"
    ),
    "max_tokens": _trait_kind(
        "unsupported",
        "newer servers call it `max_completion_tokens`",
        r"max_tokens|max_completion_tokens",
        'wire.max_tokens = "max_completion_tokens"',
    ),
    "max_completion_tokens": _trait_kind(
        "unsupported",
        "many servers call it `max_tokens`",
        r"max_tokens|max_completion_tokens",
        'wire.max_tokens = "max_tokens"',
    ),
    "user": _trait_kind(
        "value",
        "some servers take short names of users only",
        r"\buser\b.{0,200}?(?:long|length|64)",
        "quirks: shorten_user",
    ),
    "stream_options": _trait_kind(
        "unsupported", "some servers do not know it", r"stream_options", "wire.stream_usage = false"
    ),
    "reasoning_effort": _trait_kind(
        "unsupported", "not every model thinks, and not every server knows every effort", r"effort"
    ),
    "response_format": _trait_kind(
        "unsupported",
        "not every server has output by schema",
        r"response_format|json_schema|structured",
        'wire.json_output = "json_object"',
        'wire.json_output = "none"',
    ),
    "thinking": _trait_kind(
        "reasoning",
        "not every model reasons, and not every server takes this setting",
        r"thinking",
        'wire.thinking = "adaptive"',
        'wire.thinking = "none"',
    ),
    "output_config": _trait_kind(
        "unsupported", "older servers do not know it", r"output_config", 'wire.json_output = "none"'
    ),
    "output_format": _trait_kind(
        "unsupported",
        "newer servers call it `output_config.format`",
        r"output_format",
        'wire.json_output = "output_config"',
    ),
    "call_ids": _trait_kind(
        "unknown_field", "some servers take no ids of calls", r"\bid\b", "wire.call_ids = false", is_vague=True
    ),
    "json_schema": _trait_kind(
        "schema",
        "older servers take their own kind of schema only",
        r"schema",
        'wire.schemas = "openapi"',
        is_vague=True,
    ),
    "thinkingConfig": _trait_kind(
        "reasoning",
        "models take this setting in different forms",
        r"thinking",
        'wire.thinking = "level"',
        'wire.thinking = "none"',
    ),
    "think": _trait_kind("reasoning", "not every model thinks", r"think", "wire.thinking = false"),
    "think_levels": _trait_kind(
        "reasoning",
        "not every model thinks, or takes a level of thinking",
        r"think",
        "wire.levels = []",
        "wire.thinking = false",
    ),
    "hosted_and_functions": _trait_kind(
        "combination",
        "older models take functions or tools of the server's own, not both",
        r"tool use with function calling",
    ),
    "json_and_functions": _trait_kind(
        "combination",
        "older models take functions or an answer in JSON, not both",
        r"response mime type",
        "wire.json_with_tools = []",
    ),
    "responseJsonSchema": _trait_kind(
        "schema",
        "older servers take their own kind of schema only",
        r"schema",
        'wire.schemas = "openapi"',
        is_vague=True,
    ),
}
