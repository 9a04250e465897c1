"""The client half of each dialect, and the paths that belong to it.

Some clients name the model and the choice of a stream in the path; `request_at_path` copies both into the hub request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.dialects import chat, gemini, messages, responses, vscode
from antiphon.errors import ApiError
from antiphon.gateway.pipe import EventsFromHub
from antiphon.profiles import Dialect
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response

ClientDialectName = Dialect | Literal["vscode"]  # which no server speaks


class ClientDialect(Struct, frozen=True, kw_only=True):
    """The client half of one dialect."""

    name: ClientDialectName
    request_to_hub: Callable[[bytes], tuple[Request, Losses]]
    events_from_hub: Callable[..., EventsFromHub]
    response_from_hub: Callable[[Response, Request], tuple[bytes, Losses]]
    error_from_hub: Callable[[ApiError], tuple[int, bytes]]
    #: An additional response header for the request id.
    id_header: bytes = b""
    #: Whether clients may send their key in the query.
    has_key_in_query: bool = False


def dialect_at_path(path: str) -> ClientDialect:
    """The dialect of a path. Unknown paths have one too: it sets the form of the error."""
    for prefix, dialect in PREFIXES:
        if path.startswith(prefix):
            return CLIENT_DIALECTS[dialect]
    is_action = path.startswith("/v1/models/") and path.rpartition(":")[2] in ACTIONS
    return CLIENT_DIALECTS["gemini"] if is_action else HUB_DIALECT


def is_turn_path(path: str) -> bool:
    """Whether requests to a path are turns."""
    return path in TURNS or path.endswith(TURN_SUFFIXES)


def request_at_path(path: str, dialect: ClientDialect, body: bytes) -> tuple[Request, Losses]:
    """The hub request for a body sent to a path. Only Responses requests are stored by default."""
    request, losses = dialect.request_to_hub(body)
    if dialect.name == "gemini":
        model, _, action = path.partition("/models/")[2].rpartition(":")
        request = replace(request, model=model, stream=action == STREAMING)
    if dialect is not HUB_DIALECT and request.store in (UNSET, None):
        request = replace(request, store=False)
    return request, losses


def _client_dialect(
    name: ClientDialectName, package: Any, *, id_header: bytes = b"", has_key_in_query: bool = False
) -> ClientDialect:
    """The client half of a dialect package. The names are the same in every package; a test checks this."""
    return ClientDialect(
        name=name,
        request_to_hub=package.request_to_hub,
        events_from_hub=package.EventsFromHub,
        response_from_hub=package.response_from_hub,
        error_from_hub=package.error_from_hub,
        id_header=id_header,
        has_key_in_query=has_key_in_query,
    )


CLIENT_DIALECTS: Final[dict[ClientDialectName, ClientDialect]] = {
    "chat": _client_dialect("chat", chat),
    "responses": _client_dialect("responses", responses),
    "messages": _client_dialect("messages", messages, id_header=b"request-id"),
    "gemini": _client_dialect("gemini", gemini, has_key_in_query=True),
    "vscode": _client_dialect("vscode", vscode),
}
HUB_DIALECT: Final = CLIENT_DIALECTS["responses"]
STREAMING: Final = "streamGenerateContent"
ACTIONS: Final = frozenset({"generateContent", STREAMING, "countTokens"})
TURN_SUFFIXES: Final = (":generateContent", f":{STREAMING}")
TURNS: Final = frozenset({"/v1/responses", "/v1/chat/completions", "/v1/messages", "/v1/vscode/chat"})
PREFIXES: Final[tuple[tuple[str, ClientDialectName], ...]] = (
    ("/v1/chat/", "chat"),
    ("/v1/messages", "messages"),
    ("/v1/vscode/", "vscode"),
    ("/v1beta/", "gemini"),
)
