"""The dialects that clients speak: which paths are whose, and the half of each that faces a client.

Some clients name the model, and whether they want a stream, in the path: `request_at_path` puts both where the hub has them.
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
    """One dialect as a client speaks it."""

    name: ClientDialectName
    request_to_hub: Callable[[bytes], tuple[Request, Losses]]
    events_from_hub: Callable[..., EventsFromHub]
    response_from_hub: Callable[[Response, Request], tuple[bytes, Losses]]
    error_from_hub: Callable[[ApiError], tuple[int, bytes]]
    #: Where its clients look for the id of a request, besides where everybody may.
    id_header: bytes = b""
    #: Whether its clients may put their key into the address.
    has_key_in_query: bool = False


def dialect_at_path(path: str) -> ClientDialect:
    """The dialect of a path, also of one where nothing is: whoever asks there reads errors in it."""
    for prefix, dialect in PREFIXES:
        if path.startswith(prefix):
            return CLIENT_DIALECTS[dialect]
    is_action = path.startswith("/v1/models/") and path.rpartition(":")[2] in ACTIONS
    return CLIENT_DIALECTS["gemini"] if is_action else HUB_DIALECT


def is_turn_path(path: str) -> bool:
    """Whether a model is asked for an answer at a path."""
    return path in TURNS or path.endswith(ASKING)


def request_at_path(path: str, dialect: ClientDialect, body: bytes) -> tuple[Request, Losses]:
    """What a client asks for at a path. Only clients of the hub's own API expect to be remembered without a word about it."""
    request, losses = dialect.request_to_hub(body)
    if dialect.name == "gemini":
        model, _, action = path.partition("/models/")[2].rpartition(":")
        request = replace(request, model=model, stream=action == STREAMING)
    if dialect is not HUB_DIALECT and request.store in (UNSET, None):
        request = replace(request, store=False)
    return request, losses


def _client_dialect(name: ClientDialectName, half: Any, *, id_header: bytes = b"", has_key_in_query: bool = False) -> ClientDialect:
    """The half of a dialect's package that faces a client: its names are the same in every one, which a law checks."""
    return ClientDialect(
        name=name,
        request_to_hub=half.request_to_hub,
        events_from_hub=half.EventsFromHub,
        response_from_hub=half.response_from_hub,
        error_from_hub=half.error_from_hub,
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
ASKING: Final = (":generateContent", f":{STREAMING}")
TURNS: Final = frozenset({"/v1/responses", "/v1/chat/completions", "/v1/messages", "/v1/vscode/chat"})
PREFIXES: Final[tuple[tuple[str, ClientDialectName], ...]] = (
    ("/v1/chat/", "chat"),
    ("/v1/messages", "messages"),
    ("/v1/vscode/", "vscode"),
    ("/v1beta/", "gemini"),
)
