"""The shapes of gemini requests as one table, and a reader that parses JSON as protocol buffers do.

`read_message` returns the body with camelCase names and reports all violations. As on real servers, null means absent,
a single value is a list of one, and fields may be in camelCase or snake_case.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.rules.report import Report, Rule, as_json
from antiphon.rules.tool_forms import describe_form, form_of


class ListOf(Struct, frozen=True):
    """A list of these."""

    member_kind: str


class MapOf(Struct, frozen=True):
    """An object whose names are the user's own, with these as values."""

    member_kind: str


class OneOf(Struct, frozen=True):
    """One of these words, in capitals or not."""

    allowed: tuple[str, ...]


Kind = str | ListOf | MapOf | OneOf
Shapes = Mapping[str, Mapping[str, Kind]]


class Message(Struct, frozen=True):
    """A value with camelCase names, and whether all of its values have the right type."""

    value: Any
    is_well_typed: bool


def read_message(value: Any, shape: str, shapes: Shapes, report: Report) -> Message:
    """Read a value. The `param` of a violation is the field that servers name."""
    reader = _Reader(shapes, report)
    return Message(reader.read_value(value, shape, ""), reader.is_well_typed)


def from_base64(text: str) -> bytes | None:
    """Decode base64 in either alphabet, with or without padding; None if the text is not base64."""
    if not BASE64.fullmatch(text) or len(text.rstrip("=")) % 4 == 1:
        return None
    plain = text.rstrip("=")
    return base64.urlsafe_b64decode(plain.translate(URLSAFE) + "=" * (-len(plain) % 4))


class _Reader:
    def __init__(self, shapes: Shapes, report: Report) -> None:
        self.is_well_typed = True
        self._shapes = shapes
        self._report = report

    def read_value(self, value: Any, kind: Kind, path: str) -> Any:
        if isinstance(kind, ListOf):
            members = self._report.walk(value if isinstance(value, list) else [value])
            return [
                self.read_value(member, kind.member_kind, f"{path}[{index}]") for index, member in enumerate(members)
            ]
        if isinstance(kind, MapOf):
            if not isinstance(value, dict):
                return self._report_wrong_type(value, path, "an object")
            return {
                name: self.read_value(member, kind.member_kind, f"{path}[{index}].value")
                for index, (name, member) in enumerate(self._report.walk(value.items()))
            }
        if isinstance(kind, OneOf):
            word = value.upper() if isinstance(value, str) else None
            return word if word in kind.allowed else self._report_wrong_type(value, path, "TYPE_ENUM", kind.allowed)
        if kind in self._shapes:
            return self._read_message(value, kind, path)
        return self._read_scalar(value, kind, path)

    def _read_message(self, value: Any, shape: str, path: str) -> Any:
        if shape == "schema" and not self._report.may_check_schema(path):
            return None  # not read, and so not checked
        if not isinstance(value, dict):
            return self._report_wrong_type(value, path, shape)
        fields = self._shapes[shape]
        read: dict[str, Any] = {}
        for name, member in value.items():
            field = to_camel_case(name)
            inner = f"{path}.{to_snake_case(field)}" if path else to_snake_case(field)
            if field not in fields:
                self._report_unknown_field(name, path, value, shape)
            elif isinstance(member, list) and not isinstance(fields[field], ListOf) and fields[field] != "any":
                self._report_unexpected_list(name, path, inner, shape)
            elif member is not None:
                read[field] = self.read_value(member, fields[field], inner)
        return read

    def _read_scalar(self, value: Any, kind: str, path: str) -> Any:
        match kind:
            case "any":
                return value
            case "object" if isinstance(value, dict):
                return value
            case "string" if isinstance(value, str):
                return value
            case "boolean" if isinstance(value, bool):
                return value
            # Whole numbers may be written in a string, as 64 bits of them must be.
            case "integer" if isinstance(value, str) and WHOLE.fullmatch(value):
                return int(value)
            case "integer" if isinstance(value, int) and not isinstance(value, bool):
                return value
            case "number" if isinstance(value, int | float) and not isinstance(value, bool):
                return value
            # It says "Base64 decoding failed for …"
            case "bytes" if isinstance(value, str) and from_base64(value) is not None:
                return value
            case _:
                return self._report_wrong_type(value, path, f"TYPE_{kind.upper()}")

    def _report_unknown_field(self, name: str, path: str, value: dict[str, Any], shape: str) -> None:
        # It says "Invalid JSON payload received. Unknown name "x" at 'y': Cannot find field."
        exact_path = f"{path}.{name}" if path else name
        rule: Rule = "unknown_field"
        problem = "the dialect has no such field here"
        settings: tuple[str, ...] = ()
        if shape == "schema":
            rule, settings = "schema", OPENAPI
            problem = f"`{name}` is no word of this kind of schema; `parametersJsonSchema` takes JSON schema"
        elif shape == "part" and name == "type":
            rule, problem = (
                "discriminator",
                "a part has no type here: its one field (`text`, `inlineData` …) is its type",
            )
        elif shape == "content" and name == "content":
            problem = "content is a list under `parts`, each text as `text`"
        elif shape == "tool" and form_of(value) not in (None, "declarations"):
            rule, exact_path, problem = "tool_form", path, describe_form(form_of(value), "declarations")
        message = f'Invalid JSON payload received. Unknown name "{name}"{_location_phrase(path)}: Cannot find field.'
        self._report.add(rule, exact_path, message, problem, param=path, settings=settings)

    def _report_unexpected_list(self, name: str, path: str, exact_path: str, shape: str) -> None:
        # It says "… Proto field is not repeating, cannot start list.", above all where a type is a list of types.
        self.is_well_typed = False
        reason = "Proto field is not repeating, cannot start list."
        message = f'Invalid JSON payload received. Unknown name "{name}"{_location_phrase(path)}: {reason}'
        rule: Rule = "schema" if shape == "schema" else "value"
        settings = OPENAPI if shape == "schema" else ()
        self._report.add(rule, exact_path, message, f"`{name}` is one value, not a list", param=path, settings=settings)

    def _report_wrong_type(self, value: Any, path: str, expected_type: str, words: tuple[str, ...] = ()) -> Any:
        """Report a value of the wrong type; return it, because a lenient server may still use it."""
        # It says "Invalid value at 'x' (TYPE_STRING), 3"
        self.is_well_typed = False
        shown = msgspec.json.encode(value).decode()[:200]
        description = f"one of {', '.join(words)}" if words else TYPE_WORDS.get(expected_type, "an object")
        problem = f"{as_json(value)} is not {description}"
        self._report.add("value", path, f"Invalid value at '{path}' ({expected_type}), {shown}", problem)
        return value


def to_camel_case(name: str) -> str:
    """Return `inline_data` as `inlineData`."""
    return UNDERSCORE.sub(lambda match: match[1].upper(), name)


def to_snake_case(name: str) -> str:
    """Return `inlineData` as `inline_data`."""
    return CAPITAL.sub(lambda match: f"_{match[0].lower()}", name)


def _location_phrase(path: str) -> str:
    return f" at '{path}'" if path else ""


OPENAPI: Final = ('wire.schemas = "openapi"',)
TYPE_WORDS: Final = {
    "TYPE_STRING": "a string",
    "TYPE_BOOLEAN": "a boolean",
    "TYPE_INTEGER": "an integer",
    "TYPE_NUMBER": "a number",
    "TYPE_BYTES": "base64",
}
UNDERSCORE: Final = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")
CAPITAL: Final = re.compile(r"[A-Z]")
WHOLE: Final = re.compile(r"-?[0-9]{1,19}")
BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
URLSAFE: Final = str.maketrans("+/", "-_")

TYPES: Final = OneOf(("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"))
LEVELS: Final = OneOf(("THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH"))
MODES: Final = OneOf(("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"))

SHAPES: Final[Shapes] = {
    "request": {
        "model": "string",
        "contents": ListOf("content"),
        "systemInstruction": "content",
        "tools": ListOf("tool"),
        "toolConfig": "toolConfig",
        "safetySettings": ListOf("safetySetting"),
        "generationConfig": "generationConfig",
        "cachedContent": "string",
        "labels": "object",
        "serviceTier": "string",
        "store": "boolean",
    },
    "countTokens": {"contents": ListOf("content"), "generateContentRequest": "request"},
    "content": {"role": "string", "parts": ListOf("part")},
    "part": {
        "text": "string",
        "inlineData": "blob",
        "fileData": "fileData",
        "functionCall": "functionCall",
        "functionResponse": "functionResponse",
        "executableCode": "object",
        "codeExecutionResult": "object",
        "toolCall": "object",
        "toolResponse": "object",
        "thought": "boolean",
        "thoughtSignature": "bytes",
        "videoMetadata": "object",
        "mediaResolution": "object",
        "partMetadata": "object",
    },
    "blob": {"mimeType": "string", "data": "bytes", "displayName": "string"},
    "fileData": {"mimeType": "string", "fileUri": "string"},
    "functionCall": {"id": "string", "name": "string", "args": "object"},
    "functionResponse": {
        "id": "string",
        "name": "string",
        "response": "object",
        "parts": ListOf("functionResponsePart"),
        "willContinue": "boolean",
        "scheduling": "string",
    },
    "functionResponsePart": {"inlineData": "blob"},
    "tool": {
        "functionDeclarations": ListOf("functionDeclaration"),
        "googleSearch": "object",
        "googleSearchRetrieval": "object",
        "googleMaps": "object",
        "codeExecution": "object",
        "urlContext": "object",
        "fileSearch": "object",
        "computerUse": "object",
        "mcpServers": ListOf("any"),
    },
    "functionDeclaration": {
        "name": "string",
        "description": "string",
        "parameters": "schema",
        "parametersJsonSchema": "any",
        "response": "schema",
        "responseJsonSchema": "any",
        "behavior": "string",
    },
    "schema": {
        "type": TYPES,
        "format": "string",
        "title": "string",
        "description": "string",
        "nullable": "boolean",
        "enum": ListOf("string"),
        "items": "schema",
        "maxItems": "integer",
        "minItems": "integer",
        "properties": MapOf("schema"),
        "required": ListOf("string"),
        "propertyOrdering": ListOf("string"),
        "minProperties": "integer",
        "maxProperties": "integer",
        "minimum": "number",
        "maximum": "number",
        "minLength": "integer",
        "maxLength": "integer",
        "pattern": "string",
        "example": "any",
        "default": "any",
        "anyOf": ListOf("schema"),
    },
    "toolConfig": {
        "functionCallingConfig": "functionCallingConfig",
        "retrievalConfig": "object",
        "includeServerSideToolInvocations": "boolean",
    },
    "functionCallingConfig": {"mode": MODES, "allowedFunctionNames": ListOf("string")},
    "safetySetting": {"category": "string", "threshold": "string"},
    "generationConfig": {
        "temperature": "number",
        "topP": "number",
        "topK": "integer",
        "candidateCount": "integer",
        "maxOutputTokens": "integer",
        "stopSequences": ListOf("string"),
        "seed": "integer",
        "presencePenalty": "number",
        "frequencyPenalty": "number",
        "responseLogprobs": "boolean",
        "logprobs": "integer",
        "responseMimeType": "string",
        "responseSchema": "schema",
        "responseJsonSchema": "any",
        "responseModalities": ListOf("string"),
        "thinkingConfig": "thinkingConfig",
        "speechConfig": "object",
        "imageConfig": "object",
        "audioTranscriptionConfig": "object",
        "mediaResolution": "string",
        "enableEnhancedCivicAnswers": "boolean",
    },
    "thinkingConfig": {"includeThoughts": "boolean", "thinkingBudget": "integer", "thinkingLevel": LEVELS},
}
