"""A client's request as it came: the dialect of its path, and how its body is read, from bytes to a hub request,
within the limits of one request.

Pure, so that a large body can be read in another process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.dialects.dialect import ClientDialect, ClientDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, HUB_DIALECT
from antiphon.errors import InvalidValue
from antiphon.gateway.create_message import decode_create_message
from antiphon.protocol import codec
from antiphon.protocol.items import CompactionTrigger
from antiphon.protocol.losses import Losses
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
    read = dialect.request_at_path
    request, losses = dialect.request_to_hub(body) if read is None else read(path, body)
    if dialect is not HUB_DIALECT and request.store in (UNSET, None):
        request = replace(request, store=False)
    return request, losses


def read_client_body(body: ClientBody) -> tuple[Request, Losses]:
    """The hub request of a body, and the losses of its translation; or the error for the client."""
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


def _read_turn(body: ClientBody) -> tuple[Request, Losses]:
    return request_at_path(body.path, CLIENT_DIALECTS[body.dialect], body.content)


def _read_count(body: ClientBody) -> tuple[Request, Losses]:
    request, losses = request_at_path(body.path, CLIENT_DIALECTS[body.dialect], turn_of_body(body))
    return _without_side_effects(request), losses


def _read_message(body: ClientBody) -> tuple[Request, Losses]:
    return replace(decode_create_message(body.content), stream=True), Losses()


def _read_stored(body: ClientBody) -> tuple[Request, Losses]:
    return replace(codec.decode_stored_request(body.content), stream=True), Losses()


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


READERS: Final[dict[BodyForm, Callable[[ClientBody], tuple[Request, Losses]]]] = {
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
