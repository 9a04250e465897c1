"""The shapes of gemini requests as one table, and a reader that parses JSON as protocol buffers do.

`read_message` returns the body with camelCase names, and all violations. As on real servers, null means absent, a
single value is a list of one, and fields may be in camelCase or snake_case.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct


class Many(Struct, frozen=True):
    """A list of these."""

    of: str


class Named(Struct, frozen=True):
    """An object whose names are the user's own, with these as values."""

    of: str


class Words(Struct, frozen=True):
    """One of these words, in capitals or not."""

    allowed: tuple[str, ...]


Kind = str | Many | Named | Words
Shapes = Mapping[str, Mapping[str, Kind]]
#: The path and the message.
Violation = tuple[str, str]


def read_message(value: Any, shape: str, shapes: Shapes) -> tuple[Any, list[Violation]]:
    reader = _Reader(shapes)
    return reader.value(value, shape, ""), reader.violations


def from_base64(text: str) -> bytes | None:
    """Decode base64 in either alphabet, with or without padding; None if the text is not base64."""
    if not BASE64.fullmatch(text) or len(text.rstrip("=")) % 4 == 1:
        return None
    plain = text.rstrip("=")
    return base64.urlsafe_b64decode(plain.translate(URLSAFE) + "=" * (-len(plain) % 4))


class _Reader:
    def __init__(self, shapes: Shapes) -> None:
        self.violations: list[Violation] = []
        self._shapes = shapes

    def value(self, value: Any, kind: Kind, path: str) -> Any:
        if isinstance(kind, Many):
            members = value if isinstance(value, list) else [value]
            return [self.value(member, kind.of, f"{path}[{at}]") for at, member in enumerate(members)]
        if isinstance(kind, Named):
            if not isinstance(value, dict):
                return self._wrong(value, path, "an object")
            return {
                name: self.value(member, kind.of, f"{path}[{at}].value")
                for at, (name, member) in enumerate(value.items())
            }
        if isinstance(kind, Words):
            word = value.upper() if isinstance(value, str) else None
            return word if word in kind.allowed else self._wrong(value, path, "TYPE_ENUM")
        if kind in self._shapes:
            return self._message(value, kind, path)
        return self._scalar(value, kind, path)

    def _message(self, value: Any, shape: str, path: str) -> Any:
        if not isinstance(value, dict):
            return self._wrong(value, path, shape)
        fields = self._shapes[shape]
        read: dict[str, Any] = {}
        for name, member in value.items():
            field = _camel(name)
            inner = f"{path}.{_snake(field)}" if path else _snake(field)
            # It says "Invalid JSON payload received. Unknown name "x" at 'y': Cannot find field."
            if field not in fields:
                self._unknown(name, path, "Cannot find field.")
            # It says "… Proto field is not repeating, cannot start list.", above all where a type is a list of types.
            elif isinstance(member, list) and not isinstance(fields[field], Many) and fields[field] != "any":
                self._unknown(name, path, "Proto field is not repeating, cannot start list.")
            elif member is not None:
                read[field] = self.value(member, fields[field], inner)
        return read

    def _scalar(self, value: Any, kind: str, path: str) -> Any:
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
                return self._wrong(value, path, f"TYPE_{kind.upper()}")

    def _unknown(self, name: str, path: str, why: str) -> None:
        place = f" at '{path}'" if path else ""
        self.violations.append((path, f'Invalid JSON payload received. Unknown name "{name}"{place}: {why}'))

    def _wrong(self, value: Any, path: str, wanted: str) -> Any:
        """The value all the same: who is lenient may still make something of it."""
        # It says "Invalid value at 'x' (TYPE_STRING), 3"
        shown = msgspec.json.encode(value).decode()[:200]
        self.violations.append((path, f"Invalid value at '{path}' ({wanted}), {shown}"))
        return value


def _camel(name: str) -> str:
    return UNDERSCORE.sub(lambda match: match[1].upper(), name)


def _snake(name: str) -> str:
    return CAPITAL.sub(lambda match: f"_{match[0].lower()}", name)


UNDERSCORE: Final = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")
CAPITAL: Final = re.compile(r"[A-Z]")
WHOLE: Final = re.compile(r"-?[0-9]{1,19}")
BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
URLSAFE: Final = str.maketrans("+/", "-_")

TYPES: Final = Words(("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"))
LEVELS: Final = Words(("THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH"))
MODES: Final = Words(("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"))

SHAPES: Final[Shapes] = {
    "request": {
        "model": "string",
        "contents": Many("content"),
        "systemInstruction": "content",
        "tools": Many("tool"),
        "toolConfig": "toolConfig",
        "safetySettings": Many("safetySetting"),
        "generationConfig": "generationConfig",
        "cachedContent": "string",
        "labels": "object",
        "serviceTier": "string",
        "store": "boolean",
    },
    "countTokens": {"contents": Many("content"), "generateContentRequest": "request"},
    "content": {"role": "string", "parts": Many("part")},
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
        "parts": Many("functionResponsePart"),
        "willContinue": "boolean",
        "scheduling": "string",
    },
    "functionResponsePart": {"inlineData": "blob"},
    "tool": {
        "functionDeclarations": Many("functionDeclaration"),
        "googleSearch": "object",
        "googleSearchRetrieval": "object",
        "googleMaps": "object",
        "codeExecution": "object",
        "urlContext": "object",
        "fileSearch": "object",
        "computerUse": "object",
        "mcpServers": Many("any"),
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
        "enum": Many("string"),
        "items": "schema",
        "maxItems": "integer",
        "minItems": "integer",
        "properties": Named("schema"),
        "required": Many("string"),
        "propertyOrdering": Many("string"),
        "minProperties": "integer",
        "maxProperties": "integer",
        "minimum": "number",
        "maximum": "number",
        "minLength": "integer",
        "maxLength": "integer",
        "pattern": "string",
        "example": "any",
        "default": "any",
        "anyOf": Many("schema"),
    },
    "toolConfig": {
        "functionCallingConfig": "functionCallingConfig",
        "retrievalConfig": "object",
        "includeServerSideToolInvocations": "boolean",
    },
    "functionCallingConfig": {"mode": MODES, "allowedFunctionNames": Many("string")},
    "safetySetting": {"category": "string", "threshold": "string"},
    "generationConfig": {
        "temperature": "number",
        "topP": "number",
        "topK": "integer",
        "candidateCount": "integer",
        "maxOutputTokens": "integer",
        "stopSequences": Many("string"),
        "seed": "integer",
        "presencePenalty": "number",
        "frequencyPenalty": "number",
        "responseLogprobs": "boolean",
        "logprobs": "integer",
        "responseMimeType": "string",
        "responseSchema": "schema",
        "responseJsonSchema": "any",
        "responseModalities": Many("string"),
        "thinkingConfig": "thinkingConfig",
        "speechConfig": "object",
        "imageConfig": "object",
        "audioTranscriptionConfig": "object",
        "mediaResolution": "string",
        "enableEnhancedCivicAnswers": "boolean",
    },
    "thinkingConfig": {"includeThoughts": "boolean", "thinkingBudget": "integer", "thinkingLevel": LEVELS},
}
