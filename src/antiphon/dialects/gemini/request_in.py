"""Wire shapes of `generateContent` requests from clients, strict enough to locate an error.

The API accepts two spellings of a field (`topP`, `top_p`) and a single object in place of a list. `normalize_spelling`
converts both before decoding. It does not change the user's own JSON (arguments, results, schemas, labels).
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.protocol.base import Shape
from antiphon.protocol.content import Number, Text10M
from antiphon.protocol.nesting import decode_json


class BlobIn(Shape, frozen=True, kw_only=True, rename="camel"):
    mime_type: str
    data: str
    display_name: str | None | UnsetType = UNSET


class FileDataIn(Shape, frozen=True, kw_only=True, rename="camel"):
    file_uri: str
    mime_type: str | None | UnsetType = UNSET
    display_name: str | None | UnsetType = UNSET


class FunctionCallIn(Shape, frozen=True, kw_only=True, rename="camel"):
    name: str
    args: dict[str, Any] | None | UnsetType = UNSET
    id: str | None | UnsetType = UNSET


class ResultMediaIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """Media in a tool result, beside its object."""

    inline_data: BlobIn | None | UnsetType = UNSET
    file_data: FileDataIn | None | UnsetType = UNSET


class FunctionResponseIn(Shape, frozen=True, kw_only=True, rename="camel"):
    name: str
    response: dict[str, Any] | None | UnsetType = UNSET
    id: str | None | UnsetType = UNSET
    parts: list[ResultMediaIn] | None | UnsetType = UNSET


class PartIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """One of text, media, call or result. A kind that only servers of this dialect know is in `extra`."""

    text: Text10M | None | UnsetType = UNSET
    thought: bool | None | UnsetType = UNSET
    thought_signature: str | None | UnsetType = UNSET
    inline_data: BlobIn | None | UnsetType = UNSET
    file_data: FileDataIn | None | UnsetType = UNSET
    function_call: FunctionCallIn | None | UnsetType = UNSET
    function_response: FunctionResponseIn | None | UnsetType = UNSET


class ContentIn(Shape, frozen=True, kw_only=True, rename="camel"):
    parts: list[PartIn] | None | UnsetType = UNSET
    role: Literal["user", "model", "function", "system"] | None | UnsetType = UNSET


class FunctionDeclarationIn(Shape, frozen=True, kw_only=True, rename="camel"):
    name: str
    description: str | None | UnsetType = UNSET
    parameters: dict[str, Any] | None | UnsetType = UNSET
    parameters_json_schema: dict[str, Any] | None | UnsetType = UNSET


class ToolIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """Function declarations. The API's own tools stand beside them, under their names, in `extra`."""

    function_declarations: list[FunctionDeclarationIn] | None | UnsetType = UNSET


class FunctionCallingConfigIn(Shape, frozen=True, kw_only=True, rename="camel"):
    mode: str | None | UnsetType = UNSET
    allowed_function_names: list[str] | None | UnsetType = UNSET


class ToolConfigIn(Shape, frozen=True, kw_only=True, rename="camel"):
    function_calling_config: FunctionCallingConfigIn | None | UnsetType = UNSET


class ThinkingConfigIn(Shape, frozen=True, kw_only=True, rename="camel"):
    include_thoughts: bool | None | UnsetType = UNSET
    thinking_budget: int | None | UnsetType = UNSET
    thinking_level: str | None | UnsetType = UNSET


class GenerationConfigIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """The settings that the hub has fields for. All others are in `extra`."""

    temperature: Number | None | UnsetType = UNSET
    top_p: Number | None | UnsetType = UNSET
    candidate_count: int | None | UnsetType = UNSET
    max_output_tokens: int | None | UnsetType = UNSET
    presence_penalty: Number | None | UnsetType = UNSET
    frequency_penalty: Number | None | UnsetType = UNSET
    response_logprobs: bool | None | UnsetType = UNSET
    logprobs: int | None | UnsetType = UNSET
    response_mime_type: str | None | UnsetType = UNSET
    response_schema: dict[str, Any] | None | UnsetType = UNSET
    response_json_schema: dict[str, Any] | None | UnsetType = UNSET
    thinking_config: ThinkingConfigIn | None | UnsetType = UNSET


class RequestIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """The body of `:generateContent` and `:streamGenerateContent`."""

    contents: list[ContentIn]
    system_instruction: ContentIn | list[PartIn] | str | None | UnsetType = UNSET
    tools: list[ToolIn] | None | UnsetType = UNSET
    tool_config: ToolConfigIn | None | UnsetType = UNSET
    generation_config: GenerationConfigIn | None | UnsetType = UNSET
    model: str | None | UnsetType = UNSET  # the URL decides; some clients repeat the model here
    store: bool | None | UnsetType = UNSET


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


def unknown_fields_of(shape: Shape) -> dict[str, Raw]:
    """The unknown fields of a shape, without nulls."""
    return {name: raw for name, raw in (shape.extra or {}).items() if bytes(raw) != b"null"}


def _normalize(value: Any) -> Any:
    match value:
        case dict():
            named = {to_camel_case(name): member for name, member in value.items()}
            named |= {name: [named[name]] for name in LIST_MEMBERS if isinstance(named.get(name), dict)}
            return {name: member if name in USER_JSON_MEMBERS else _normalize(member) for name, member in named.items()}
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
