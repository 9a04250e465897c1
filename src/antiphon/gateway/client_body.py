"""A client's request as it came: the dialect of its path, how its body becomes a hub request, and what is refused
before a model is asked.

Pure, so that a large body can be read in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.dialects.dialect import ClientDialect, ClientDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, HUB_DIALECT, SERVER_DIALECTS
from antiphon.errors import ApiError, ClientFault, InvalidJson, InvalidValue, MissingField
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_json
from antiphon.protocol.content import UnknownContent
from antiphon.protocol.error_messages import fault_from_decode_error
from antiphon.protocol.items import (
    CompactionTrigger,
    CustomToolCallOutputParam,
    FunctionCallOutputParam,
    MessageParam,
)
from antiphon.protocol.losses import Loss, Losses
from antiphon.protocol.request import Request

#: `turn`: the body of a turn; `count`: one whose tokens are counted; `message`: a message of a WebSocket; `stored`: a
#: request that was accepted earlier, and runs in the background.
BodyForm = Literal["turn", "count", "message", "stored"]


class ClientBody(Struct, frozen=True, kw_only=True):
    """The body of a request as it came, and where it was sent."""

    content: bytes
    form: BodyForm = "turn"
    dialect: ClientDialectName = "responses"
    path: str = ""


class InputLimits(Struct, frozen=True, kw_only=True):
    """Limits of one request itself; stored history does not count."""

    max_items: int
    max_tools: int


class InvalidMessage(Exception):
    """The fault of a message that names the response which it continues (WS-7)."""

    def __init__(self, error: ApiError, previous_id: str | None) -> None:
        super().__init__(error, previous_id)
        self.error = error
        self.previous_id = previous_id


def dialect_at_path(path: str) -> ClientDialect:
    """The dialect of a path. Unknown paths have one too: it sets the form of the error."""
    for prefix, dialect in PREFIXES:
        if path.startswith(prefix):
            return dialect
    action = path.rpartition(":")[2] if path.startswith("/v1/models/") else ""
    return ACTIONS.get(action, HUB_DIALECT)


def is_turn_path(path: str) -> bool:
    """Whether requests to a path are turns."""
    return path in TURN_PATHS or path.endswith(TURN_SUFFIXES)


def request_at_path(path: str, dialect: ClientDialect, body: bytes) -> tuple[Request, Losses]:
    """The hub request for a body sent to a path. Only Responses requests are stored by default."""
    if dialect is HUB_DIALECT:
        return codec.decode_request(body), Losses()
    read = dialect.request_at_path
    request, losses = dialect.request_to_hub(body) if read is None else read(path, body)
    if request.store in (UNSET, None):
        request = replace(request, store=False)
    return request, losses


def read_client_body(body: ClientBody) -> tuple[Request, Losses, bool]:
    """The hub request of a body, the losses of its translation, and whether it may have parts of unknown type; or the
    error for the client."""
    return READERS[body.form](body)


def turn_of_body(body: ClientBody) -> bytes:
    """The turn as the client sent it, without what surrounds it in a request to count tokens."""
    turn_to_count = CLIENT_DIALECTS[body.dialect].turn_to_count if body.form == "count" else None
    return body.content if turn_to_count is None else turn_to_count(body.content)


def check_input(request: Request, limits: InputLimits, field: str) -> None:
    """Refuses a request with too many items or tools; `field` is the client's name of the list of items."""
    if type(request.input) is list:
        check_item_count(len(request.input), limits, field)
    if request.tools and len(request.tools) > limits.max_tools:
        message = f"tools: expected at most {limits.max_tools} tools in one request, got {len(request.tools)}"
        raise InvalidValue(message, param="tools")


def check_item_count(count: int, limits: InputLimits, field: str) -> None:
    """Refuses a request with too many items; `field` is the client's name of the list."""
    if count > limits.max_items:
        message = f"{field}: expected at most {limits.max_items} items in one request, got {count}"
        raise InvalidValue(message, param=field)


def check_part_types(request: Request, body: ClientBody, losses: Iterable[Loss] = ()) -> None:
    """Refuses a part of a type that the client's API does not have and that would have to be translated (ERR-3). The
    error names the part in `body`; `losses` are those of reading it.

    A part of a type that the client's API has, and other APIs lack, is a loss of the translation. Parts of the model's
    own messages are losses too: the client did not choose them."""
    client = CLIENT_DIALECTS[body.dialect]
    if not client.part_types:
        return
    for loss in losses:
        if loss.path.startswith(SYSTEM_INSTRUCTION):
            _check_system_instruction(client, turn_of_body(body))
    for part in _unknown_parts(request):
        if not _is_allowed(part.kind, client):
            raise _refusal(part.kind.removeprefix(f"{client.name}:"), client, turn_of_body(body))


def _check_system_instruction(client: ClientDialect, body: bytes) -> None:
    """The hub has only the text of Gemini's system instruction, so its other parts are read in the body."""
    for path, part in _system_parts(decode_json(body)):
        names = [name for name, value in part.items() if value is not None and _fold(name) not in METADATA]
        if names and client.part_types.isdisjoint(map(_camel_case, names)):
            raise _refusal_at(f"{path}.{names[0]}", names[0], client)


def _system_parts(body: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    value = body.get(SYSTEM_INSTRUCTION) or body.get("system_instruction")
    if isinstance(value, dict):
        yield from _parts_in_list(value.get("parts"), f"{SYSTEM_INSTRUCTION}.parts")
    else:
        yield from _parts_in_list(value, SYSTEM_INSTRUCTION)


def _fold(name: str) -> str:
    return name.replace("_", "").lower()


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _unknown_parts(request: Request) -> list[UnknownContent]:
    """The parts of unknown type in the messages that the model did not write, and in the outputs of tools."""
    if type(request.input) is not list:
        return []
    unknown_parts: list[UnknownContent] = []
    for item in request.input:
        parts: Any
        if type(item) is MessageParam:
            if item.role == "assistant":
                continue
            parts = item.content
        elif type(item) in OUTPUT_KINDS:
            parts = item.output  # type: ignore[union-attr]
        else:
            continue
        if type(parts) is list:
            for part in parts:
                if type(part) is UnknownContent:
                    unknown_parts.append(part)
    return unknown_parts


def _is_allowed(kind: str, client: ClientDialect) -> bool:
    own_kind = kind.removeprefix(f"{client.name}:")
    if own_kind == kind and kind.startswith(CARRIED_PREFIXES):
        return True  # the gateway itself gave the part to a client of the hub
    return own_kind in client.part_types


def _refusal(kind: str, client: ClientDialect, body: bytes) -> InvalidValue:
    paths = (_path_of_kind(path, part, kind) for path, part in _parts_of_body(decode_json(body), client.input_field))
    return _refusal_at(next((path for path in paths if path is not None), client.input_field), kind, client)


def _refusal_at(param: str, kind: str, client: ClientDialect) -> InvalidValue:
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


def _read_turn(body: ClientBody) -> tuple[Request, Losses, bool]:
    dialect = CLIENT_DIALECTS[body.dialect]
    if dialect is HUB_DIALECT:
        request, is_typed = codec.decode_client_request(body.content)
        return request, Losses(), not is_typed
    return *request_at_path(body.path, dialect, body.content), True


def _read_count(body: ClientBody) -> tuple[Request, Losses, bool]:
    request, losses = request_at_path(body.path, CLIENT_DIALECTS[body.dialect], turn_of_body(body))
    return _without_side_effects(request), losses, True


def _read_message(body: ClientBody) -> tuple[Request, Losses, bool]:
    return replace(decode_create_message(body.content), stream=True), Losses(), True


def _read_stored(body: ClientBody) -> tuple[Request, Losses, bool]:
    return replace(codec.decode_stored_request(body.content), stream=True), Losses(), True


def _without_side_effects(request: Request) -> Request:
    """The request without side effects: nothing is stored, compacted or run in the background."""
    items = request.input
    if isinstance(items, list):
        items = [item for item in items if not isinstance(item, CompactionTrigger)]
    return replace(
        request,
        input=items,
        store=False,
        stream=UNSET,
        stream_options=UNSET,
        background=UNSET,
        context_management=UNSET,
    )


# Messages of a WebSocket (WS-1, WS-2)


def decode_create_message(message: bytes) -> Request:
    """Decodes the request. `stream` is ignored, because many clients send it with every message."""
    request = codec.decode_create_message(message)
    previous_id: str | None = None
    try:
        if request is None:  # it has unknown fields or a fault
            members = _decode_object(message)
            previous_id = _text_in(members, "previous_response_id")
            request = _decode_members(members)
        previous_id = request.previous_response_id or None
        if request.stream_options is not UNSET:
            raise ClientFault(STREAM_OPTIONS_REFUSED, param="stream_options")
        if request.background:
            raise ClientFault(BACKGROUND_REFUSED, param="background")
    except ApiError as error:
        if previous_id is None:
            raise
        raise InvalidMessage(error.without_traceback(), previous_id) from None
    return request


def _decode_members(members: dict[str, Any]) -> Request:
    """Decodes a message that has unknown fields, or raises its fault. The fault of the type comes first."""
    if "type" not in members:
        raise MissingField("type is missing: expected 'response.create'", param="type")
    message_type = _text_in(members, "type")
    if message_type != "response.create":
        description = repr(message_type[:50]) if message_type is not None else "a value that is not a string"
        raise ClientFault(f"type: expected 'response.create', got {description}", param="type")
    if "stream_options" in members:
        raise ClientFault(STREAM_OPTIONS_REFUSED, param="stream_options")
    return codec.decode_request(codec.encode({name: raw for name, raw in members.items() if name != "type"}))


def _decode_object(message: bytes) -> dict[str, Any]:
    try:
        return decode_json(message, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise InvalidJson("expected a JSON object of type 'response.create', got another JSON value") from None
    except msgspec.DecodeError as error:
        raise fault_from_decode_error(error, message) from None


def _text_in(members: dict[str, Any], name: str) -> str | None:
    """A member that is a string; None if it is missing or not a string."""
    try:
        return decode_json(members.get(name, b"null"), type=str)
    except msgspec.DecodeError:
        return None


READERS: Final[dict[BodyForm, Callable[[ClientBody], tuple[Request, Losses, bool]]]] = {
    "turn": _read_turn,
    "count": _read_count,
    "message": _read_message,
    "stored": _read_stored,
}
PREFIXES: Final = tuple((prefix, dialect) for dialect in CLIENT_DIALECTS.values() for prefix in dialect.path_prefixes)
TURN_PATHS: Final = frozenset(path for dialect in CLIENT_DIALECTS.values() for path in dialect.turn_paths)
TURN_SUFFIXES: Final = tuple(f":{action}" for dialect in CLIENT_DIALECTS.values() for action in dialect.turn_actions)
ACTIONS: Final = {
    action: dialect
    for dialect in CLIENT_DIALECTS.values()
    for action in (*dialect.turn_actions, *dialect.other_actions)
}
OUTPUT_KINDS: Final[frozenset[type]] = frozenset({FunctionCallOutputParam, CustomToolCallOutputParam})
CARRIED_PREFIXES: Final = tuple(f"{name}:" for name in SERVER_DIALECTS)
SYSTEM_INSTRUCTION: Final = "systemInstruction"
#: Members of Gemini's parts that are no content, in one spelling.
METADATA: Final = frozenset(
    {
        *("thought", "thoughtsignature", "partmetadata", "videometadata", "mediaresolution"),
        *("mediaprocessing", "speechmetadata"),
    }
)
PART_LISTS: Final = ("content", "output", "parts")
MODEL_ROLES: Final = ("assistant", "model")
MAX_KIND_LENGTH: Final = 100  # characters
STREAM_OPTIONS_REFUSED: Final = "stream_options: not supported on a WebSocket, where every turn is streamed: remove it"
BACKGROUND_REFUSED: Final = (
    "background: expected false, got true: a WebSocket runs no background turns; use POST /v1/responses"
)
