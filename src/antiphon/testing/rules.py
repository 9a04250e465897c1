"""Rules that strict servers of several dialects share: types, ranges, names, metadata, schemas, keys, models.

A rule raises `RequestRefused` with the message of a real server. The comment of each rule names what it copies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from antiphon.protocol.nesting import decode_json
from antiphon.rules import Report, Violation, settings
from antiphon.testing.script import PlainReply, ReceivedRequest, error, whole


class RequestRefused(Exception):
    """A real server would refuse the request."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.reply: PlainReply = error(status, message, code=code, param=param)


class StrictReport(Report):
    """Refuses a request at the first violation, in the form of chat and responses servers."""

    def receive(self, violation: Violation) -> None:
        raise RequestRefused(violation.message, param=violation.param, code=violation.code)


class ServerLimits(Struct, frozen=True, kw_only=True):
    """The limits of one server: its key, its models, the length of prompts, and whether unknown fields are errors."""

    key: str | None = None
    models: tuple[str, ...] | None = None
    max_chars: int | None = None
    strict: bool = True
    strict_fields: bool = False
    #: Whether requests in a tool loop must include the server's own reasoning.
    wants_reasoning: bool = False
    #: Types of hosted tools that the server accepts besides functions and custom tools.
    own_tools: tuple[str, ...] = ()
    #: The maker that seals the server's reasoning; reasoning sealed by another maker is refused.
    maker: str = "fake"
    #: Names of models that do not reason, besides those with well-known names.
    plain_models: tuple[str, ...] = ()


class Range(Struct, frozen=True):
    """An inclusive range of numbers; only integers unless `fraction`."""

    least: float
    most: float
    fraction: bool = False


def answer_other_path(received: ReceivedRequest, turns: str, models: list[str]) -> PlainReply | None:
    """Answer requests to paths other than `turns`: the list of models, or an error for an unknown path."""
    path = received.path.partition("?")[0]
    if (received.method, path) == ("POST", turns):
        return None
    if (received.method, path) == ("GET", "/v1/models"):
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "fake"} for name in models]
        return whole({"object": "list", "data": listed})
    if path in (turns, "/v1/models"):
        return error(405, f"{received.method} is not allowed on {path}", code="method_not_allowed")
    return error(404, f"there is no {received.method} {path} here", code="unknown_url")


def json_object(received: ReceivedRequest) -> dict[str, Any]:
    """Return the body, which must have a JSON content type and be an object."""
    # Framework-made servers answer 415 or 400 to a body that is not announced as JSON, form data above all.
    kind = received.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestRefused(
            f"the content type is {kind or 'missing'}, not application/json", code="unsupported_media_type", status=415
        )
    body = received.json
    # Every provider: a body that cannot be parsed is a 400 before anything in it is looked at.
    if not isinstance(body, dict):
        raise RequestRefused("the body is no JSON object", code="invalid_json")
    return body


def check_key(received: ReceivedRequest, limits: ServerLimits) -> None:
    # Every provider: 401 for a key that is missing or wrong, the same code for both.
    if limits.key is not None and received.headers.get("authorization") != f"Bearer {limits.key}":
        raise RequestRefused("incorrect API key provided", code="invalid_api_key", status=401)


def check_model(body: dict[str, Any], limits: ServerLimits) -> None:
    settings.check_model(body, StrictReport())
    # Every provider: a model that is not served is a 404 of its own code.
    model = body["model"]
    if limits.models is not None and model not in limits.models:
        raise RequestRefused(f"the model {model!r} does not exist", param="model", code="model_not_found", status=404)


def check_length(chars: int, limits: ServerLimits, param: str) -> None:
    # Every provider: a prompt beyond the context window is a 400, never cut in silence.
    if limits.max_chars is not None and chars > limits.max_chars:
        raise RequestRefused(
            f"this model's maximum context length is {limits.max_chars} characters, the request has {chars}",
            param=param,
            code="context_length_exceeded",
        )


def check_fields(body: dict[str, Any], allowed: set[str]) -> None:
    # The stricter providers: "unrecognized request argument", or a validation error of forbidden extra fields.
    for name in body:
        if name not in allowed:
            raise RequestRefused(f"unrecognized request argument: {name}", param=name, code="unknown_parameter")


def check_settings(body: dict[str, Any], settings: Mapping[str, Range | type | tuple[str, ...]]) -> None:
    """Check the type and the range of every setting that is present and not null."""
    # Providers validate settings before use: a number as a string, or one out of its range, is a 400 that names it.
    for name, wanted in settings.items():
        value = body.get(name)
        if value is None:
            continue
        if isinstance(wanted, Range):
            _check_range(name, value, wanted)
        elif isinstance(wanted, tuple):
            if value not in wanted:
                raise RequestRefused(
                    f"{name} is {value!r}, not one of {', '.join(wanted)}", param=name, code="invalid_value"
                )
        elif not isinstance(value, wanted):
            raise RequestRefused(f"{name} is {value!r}, not of type {wanted.__name__}", param=name, code="invalid_type")


def check_user(body: dict[str, Any]) -> None:
    # "Invalid 'user': string too long. Expected a string with maximum length 64".
    if len(body.get("user") or "") > 64:
        raise RequestRefused(
            "the user's name is longer than 64 characters", param="user", code="string_above_max_length"
        )


def check_metadata(body: dict[str, Any]) -> None:
    # Chat and responses alike: at most 16 pairs, keys of at most 64 characters, string values of at most 512.
    metadata = body.get("metadata")
    if metadata is None:
        return
    if not isinstance(metadata, dict) or len(metadata) > 16:
        raise RequestRefused("metadata is an object of at most 16 pairs", param="metadata", code="invalid_value")
    for key, value in metadata.items():
        if len(key) > 64 or not isinstance(value, str) or len(value) > 512:
            raise RequestRefused(
                "metadata keys have at most 64 characters, values are strings of at most 512",
                param=f"metadata.{key}",
                code="invalid_value",
            )


def check_name(name: Any, param: str) -> str:
    # Names of tools and formats: 1 to 64 letters, digits, underscores and dashes; anything else is a 400 with the
    # pattern.
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RequestRefused(f"{name!r} does not match {NAME.pattern}", param=param, code="invalid_value")
    return name


def check_parameters(schema: Any, param: str, *, strict: Any) -> None:
    """Check the schema of a function's parameters."""
    # "schema must be of type object": a function takes named arguments, and nothing else.
    if schema is not None and (not isinstance(schema, dict) or schema.get("type") != "object"):
        raise RequestRefused(
            "the schema of a function's parameters is of type object", param=param, code="invalid_function_parameters"
        )
    check_strict(schema, param, strict=strict)


def check_strict(schema: Any, param: str, *, strict: Any) -> None:
    # "Invalid schema for function 'f': 'float' is not valid under any of the given schemas": types in capitals are as
    # unknown.
    wrong = unknown_type_in(schema)
    if wrong is not None:
        raise RequestRefused(
            f"Invalid schema: {wrong!r} is not valid under any of the given schemas", param=param, code="invalid_schema"
        )
    # Strict schemas close every object and require every property: the constrained decoder knows no others.
    if strict is not None and not isinstance(strict, bool):
        raise RequestRefused(f"strict is {strict!r}, not a boolean", param=param, code="invalid_type")
    if strict and isinstance(schema, dict):
        _check_closed(schema, param)


def unknown_type_in(schema: Any) -> Any:
    """Return the first `type`, at any depth, that JSON schema does not define; None if all are valid."""
    waiting = [schema] if isinstance(schema, dict) else []
    while waiting:
        part = waiting.pop()
        given = part.get("type")
        for kind in given if isinstance(given, list) else [given]:
            if kind is not None and kind not in TYPES:
                return kind
        waiting += _children(part)
    return None


def check_mentions_json(texts: list[str], param: str) -> None:
    # JSON mode: the word "json" must stand somewhere in the messages, or the model may write blanks for ever.
    if not any("json" in text.lower() for text in texts):
        raise RequestRefused(
            "the messages must contain the word 'json' in some form", param=param, code="invalid_value"
        )


def _check_range(name: str, value: Any, wanted: Range) -> None:
    kinds = (int, float) if wanted.fraction else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise RequestRefused(f"{name} is {value!r}, not a number", param=name, code="invalid_type")
    if not wanted.least <= value <= wanted.most:
        raise RequestRefused(
            f"{name} is {value}, not within {wanted.least} and {wanted.most}", param=name, code="invalid_value"
        )


def _check_closed(schema: dict[str, Any], param: str) -> None:
    if schema.get("type") == "object" or "properties" in schema:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if (
            not isinstance(properties, dict)
            or not isinstance(required, list)
            or not all(isinstance(name, str) for name in required)
        ):
            raise RequestRefused(
                "properties and required must be an object and an array of names", param=param, code="invalid_schema"
            )
        if schema.get("additionalProperties") is not False:
            raise RequestRefused(
                "additionalProperties must be false in a strict schema", param=param, code="invalid_schema"
            )
        if set(required) != set(properties):
            raise RequestRefused(
                "every property must be required in a strict schema", param=param, code="invalid_schema"
            )
    for child in _children(schema):
        _check_closed(child, param)


def _children(schema: dict[str, Any]) -> list[dict[str, Any]]:
    named = [schema.get(name) for name in ("properties", "$defs", "definitions")]
    groups = [list(group.values()) for group in named if isinstance(group, dict)]
    any_of = schema.get("anyOf")
    groups += [any_of if isinstance(any_of, list) else [], [schema.get("items")]]
    return [child for group in groups for child in group if isinstance(child, dict)]


def parse_json(arguments: str) -> Any:
    try:
        return decode_json(arguments)
    except msgspec.DecodeError:
        return None


NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
