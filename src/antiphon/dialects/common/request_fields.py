"""The fields of a request that the writers of several dialects treat alike: optional fields, output format, losses."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.errors import UnsupportedParameter
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    Include,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    Request,
    TextFormat,
)
from antiphon.protocol.tools import JsonSchema

T = TypeVar("T")

#: The value of the hub's `include` that asks for log probabilities.
LOGPROBS: Final = "message.output_text.logprobs"
#: The values of the hub's `include` that most dialects can serve.
KNOWN_INCLUDES: Final[tuple[str, ...]] = (*get_args(Include), ENCRYPTED_IF_ANY)


class SupportedFields:
    """Filters optional fields. Fields that the server does not support are losses (REQ-5, REQ-6)."""

    def __init__(self, names: Collection[str], losses: Losses) -> None:
        self._names = names
        self._losses = losses

    def __call__(self, name: str, value: T | None | UnsetType, path: str = "") -> T | UnsetType:
        """The value of the field that the server calls `name`. `path` is its path in the hub, if it differs."""
        if value is None or value is UNSET:
            return UNSET
        if name not in self._names:
            self._losses.add(path or name, f"the field {path or name!r}", "the server does not support it")
            return UNSET
        return value


def requested_format(request: Request, losses: Losses) -> JsonObjectFormat | JsonSchemaFormatParam | None:
    """The JSON format that the request asks for; None for plain text."""
    format = request.text.format if request.text else UNSET
    if not format:
        return None
    report_unknown_fields(format, "text.format", losses)
    return None if isinstance(format, TextFormat) else format


def schema_rule(schema: JsonSchema) -> str:
    """The system text that describes an output schema to a model whose server cannot enforce it."""
    return f"{SCHEMA_RULE}\n{ENCODER.encode(schema).decode()}"


def report_unsupported_fields(
    request: Request, names: Collection[str], includes: Collection[str], losses: Losses
) -> None:
    """Report the fields `names`, which the API does not have, and all included data except `includes`.

    Fields that the gateway serves itself (`store`, `truncation` …) are no losses.
    """
    for name in (*names, "max_tool_calls"):
        if getattr(request, name):
            losses.add(name, f"the field {name!r}", "the API has no equivalent")
    if request.reasoning:
        report_unknown_fields(request.reasoning, "reasoning", losses)
    if request.text:
        report_unknown_fields(request.text, "text", losses)
    for index, name in enumerate(request.include or ()):
        if name not in includes:
            losses.add(f"include[{index}]", f"the included data {name[:50]!r}", "the API has no equivalent")


def refuse_several_answers(request: Request, own_field: str = "") -> None:
    """Refuse a request for several answers, which only servers of the client's dialect can send: `own_field` is the
    field of the server's dialect."""
    if not request.extra:
        return
    for field, path in FIELDS_FOR_SEVERAL_ANSWERS.items():
        if field != own_field and (raw := request.extra.get(field)) is not None:
            raise UnsupportedParameter(
                f"{path}: expected 1, got {bytes(raw).decode()}: a response has one answer", param=path
            )


def append_members(encoded: bytes, members: dict[str, Raw]) -> bytes:
    """Add members to an encoded object that is not empty."""
    return encoded[:-1] + b"," + ENCODER.encode(members)[1:] if members else encoded


ENCODER: Final = msgspec.json.Encoder()
#: The fields in the `extra` of a request that ask for more than one answer, with their path in the client's request.
FIELDS_FOR_SEVERAL_ANSWERS: Final = {"chat:n": "n", "gemini:candidateCount": "generationConfig.candidateCount"}
SCHEMA_RULE: Final = "Answer with one JSON object that follows this JSON schema, and with nothing else:"
