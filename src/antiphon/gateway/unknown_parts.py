"""Refuses content parts of unknown types that would have to be translated, before a model is asked.

A part of a type that the client's API has, and other APIs lack, is a loss of the translation. Parts of the model's own
messages are losses too: the client did not choose them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from antiphon.dialects.dialect import ClientDialect
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.errors import InvalidValue
from antiphon.protocol.codec import decode_json
from antiphon.protocol.content import UnknownContent
from antiphon.protocol.items import ItemParam, MessageParam
from antiphon.protocol.request import Request


def check_part_types(request: Request, client: ClientDialect, body: bytes) -> None:
    """Refuses a part of a type that the client's API does not have (ERR-3). `body` is the turn as the client sent it,
    in which the error names the part."""
    if not client.part_types or type(request.input) is not list:
        return
    for item in request.input:
        for part in _input_parts(item):
            if type(part) is UnknownContent and not _is_allowed(part.kind, client):
                raise _refusal(part.kind.removeprefix(f"{client.name}:"), client, body)


def _input_parts(item: ItemParam) -> Sequence[Any]:
    if isinstance(item, MessageParam):
        content: Any = item.content if item.role != "assistant" else None
    else:
        content = getattr(item, "output", None)
    return content if type(content) is list else ()


def _is_allowed(kind: str, client: ClientDialect) -> bool:
    own_kind = kind.removeprefix(f"{client.name}:")
    if own_kind == kind and kind.startswith(CARRIED_PREFIXES):
        return True  # the gateway itself gave the part to a client of the hub
    return own_kind in client.part_types


def _refusal(kind: str, client: ClientDialect, body: bytes) -> InvalidValue:
    paths = (_path_of_kind(path, part, kind) for path, part in _parts_of_body(decode_json(body), client.input_field))
    param = next((path for path in paths if path is not None), client.input_field)
    allowed = ", ".join(map(repr, sorted(client.part_types)))
    message = (
        f"{param}: expected one of {allowed}, got {kind[:MAX_KIND_LENGTH]!r}; the model's server has another API, and "
        "a part of unknown type cannot be translated for it"
    )
    return InvalidValue(message, param=param)


def _path_of_kind(path: str, part: dict[str, Any], kind: str) -> str | None:
    """The path of what makes the part one of this kind: its type, or in Gemini's API a member of this name."""
    if part.get("type") == kind:
        return f"{path}.type"
    return f"{path}.{kind}" if "type" not in part and kind in part else None


def _parts_of_body(body: Any, input_field: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts that the client chose, each with its path."""
    yield from _parts_in_list(body.get("system"), "system")
    for index, message in enumerate(body.get(input_field) or ()):
        yield from _parts_in(message, f"{input_field}[{index}]")


def _parts_in(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict) and value.get("role") not in MODEL_ROLES:
        for name in PART_LISTS:
            yield from _parts_in_list(value.get(name), f"{path}.{name}")


def _parts_in_list(parts: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, part in enumerate(parts if isinstance(parts, list) else ()):
        if isinstance(part, dict):
            yield f"{path}[{index}]", part
            yield from _parts_in(part, f"{path}[{index}]")


CARRIED_PREFIXES: Final = tuple(f"{name}:" for name in SERVER_DIALECTS)
PART_LISTS: Final = ("content", "output", "parts")
MODEL_ROLES: Final = ("assistant", "model")
MAX_KIND_LENGTH: Final = 100  # characters
