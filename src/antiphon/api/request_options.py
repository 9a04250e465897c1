"""Reads what a request selects by its path and headers: its dialect, the style of events, loss events, strict mode, and
the headers that are forwarded to servers of the same dialect.
"""

from __future__ import annotations

import re
from typing import Final

from antiphon.dialects.dialect import ClientDialect
from antiphon.dialects.registry import CLIENT_DIALECTS, HUB_DIALECT
from antiphon.dialects.responses.stream_out import EventStyle, SelectableEventStyle
from antiphon.errors import ClientFault
from antiphon.gateway.client_body import dialect_at_path
from antiphon.gateway.routing.wishes import RoutingWishes, take_wishes
from antiphon.gateway.upstreams import Upstream
from antiphon.http.asgi import Scope, first_header, header_values
from antiphon.ops.services import Services
from antiphon.profiles.client_headers import CLIENT_HEADERS


def requested_style(
    scope: Scope, key_style: SelectableEventStyle | None, server_style: SelectableEventStyle | None
) -> EventStyle:
    """API-6: the style that the request's header names, else the one set for its key, for the server, or the
    default."""
    match first_header(scope, b"antiphon-style"):
        case b"":
            return key_style or server_style or "default"
        case b"standard":
            return "standard"
        case b"older":
            return "older"
        case other:
            value = other[:50].decode("latin-1")
            raise ClientFault(
                f"the header Antiphon-Style: expected 'standard' or 'older', got {value!r}", param="antiphon-style"
            )


def wants_loss_events(scope: Scope) -> bool:
    """Whether the client requested the extension event that lists losses."""
    extensions = first_header(scope, b"antiphon-extensions").lower()
    return bool(extensions) and b"losses" in map(bytes.strip, extensions.split(b","))


def agent_session(scope: Scope) -> str | None:
    """The session that an agent names in its headers."""
    for name in SESSION_HEADERS:
        value = first_header(scope, name)
        if value:
            return value.decode("latin-1")
    return None


async def requested_routing(services: Services, body: bytes, owner: str) -> tuple[bytes, RoutingWishes | None]:
    """The body of a request that is no turn, without its words about routing, and what they say."""
    rest, wishes = await services.workers.call(len(body), take_wishes, body, owner=owner)
    if wishes is None or not services.router.accepts(wishes):
        return body, None
    return rest, wishes


def requested_strictness(scope: Scope) -> bool | None:
    """Whether a turn with losses is refused; None if the header is absent and the setting of the upstream applies."""
    match first_header(scope, b"antiphon-losses"):
        case b"":
            return None
        case b"strict":
            return True
        case b"warn":
            return False
        case other:
            value = other[:50].decode("latin-1")
            raise ClientFault(
                f"the header Antiphon-Losses: expected 'strict' or 'warn', got {value!r}", param="antiphon-losses"
            )


def dialect_for(scope: Scope) -> ClientDialect:
    """The dialect of the answer, errors included."""
    dialect = dialect_at_path(scope["path"])
    if dialect is not HUB_DIALECT or not scope["path"].startswith("/v1/models"):
        return dialect
    for name, headers in CLIENT_HEADERS.items():
        if any(header_values(scope, header) for header in headers):
            return CLIENT_DIALECTS[name]
    return dialect


def forwarded_headers(dialect: ClientDialect, scope: Scope, upstream: Upstream) -> dict[str, str]:
    """The client's headers that its profile forwards. Only a server of the client's own dialect gets them."""
    forwarded: dict[str, str] = {}
    if upstream.profile.dialect != dialect.name:
        return forwarded
    for name in upstream.profile.pass_headers:
        values = b",".join(header_values(scope, name.encode())).decode("latin-1")
        if not values:
            continue
        if not HEADER_VALUE.fullmatch(values):
            raise ClientFault(f"the header {name}: expected words separated by commas", param=name)
        own_value = upstream.headers.get(name)
        forwarded[name] = f"{own_value},{values}" if own_value else values
    return forwarded


#: Headers in which agents and editors name their session.
SESSION_HEADERS: Final = (
    b"x-claude-code-session-id",
    b"session_id",
    b"session-id",
    b"x-session-affinity",
    b"x-session-id",
)
HEADER_VALUE: Final = re.compile("[A-Za-z0-9._:=, -]{1,2000}")
