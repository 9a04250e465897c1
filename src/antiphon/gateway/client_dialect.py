"""Finds the client dialect of a path, and reads the requests that are sent to it."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.dialects.dialect import ClientDialect
from antiphon.dialects.registry import CLIENT_DIALECTS, HUB_DIALECT
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


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


PREFIXES: Final = tuple((prefix, dialect) for dialect in CLIENT_DIALECTS.values() for prefix in dialect.path_prefixes)
TURN_PATHS: Final = frozenset(path for dialect in CLIENT_DIALECTS.values() for path in dialect.turn_paths)
TURN_SUFFIXES: Final = tuple(f":{action}" for dialect in CLIENT_DIALECTS.values() for action in dialect.turn_actions)
ACTIONS: Final = {
    action: dialect
    for dialect in CLIENT_DIALECTS.values()
    for action in (*dialect.turn_actions, *dialect.other_actions)
}
