"""One server as a client speaks to it: where it is, what it takes, and how its refusals read.

It may speak any of the dialects: a profile says which, and what is particular about it. Requests go out as that server takes them,
and what could not be told to it is in the losses.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon import __version__
from antiphon.config import Timeouts
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import ApiError, ClientFault, UnsupportedParameter, UpstreamFault
from antiphon.profiles import Dialect, Profile, Wire, load_profile
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.request import Request
from antiphon.protocol.stamps import Stamps
from antiphon.upstream.server_dialects import SERVER_DIALECTS, ServerDialect

DEFAULT_URL: Final = "http://127.0.0.1:8080"
# A gateway has limits of its own, and says that it lives: these end what would hang for ever.
PATIENCE: Final = Timeouts(connect=10.0, first_byte=300.0, idle=300.0, total=3600.0)


class Server(Struct, frozen=True, kw_only=True):
    """A server, ready to be asked."""

    base_url: str
    profile: Profile
    wire: Wire
    dialect: ServerDialect
    headers: dict[str, str]
    timeouts: Timeouts

    @property
    def stores_responses(self) -> bool:
        """Whether what it answered can be asked for again."""
        return isinstance(self.wire, ResponsesWire) and self.wire.stateful

    def response_url(self, id: str, rest: str = "") -> str:
        """Where a response is kept; `rest` follows its id."""
        if not self.stores_responses:
            said = f"this server ({self.profile.name}) keeps no responses: only those of the responses dialect can"
            raise UnsupportedParameter(said, param="id")
        if not id or not id.isascii() or not id.replace("_", "").replace("-", "").isalnum():
            raise ClientFault(f"id: got {id[:100]!r}, wanted the id of a response, such as 'resp_0123'", param="id")
        return f"{self.base_url}/responses/{id}{rest}"


class PreparedCall(Struct, frozen=True, kw_only=True):
    """A turn before it is sent."""

    request: Request  # as it was asked
    sent: Request  # as the server takes it
    body: bytes
    url: str
    losses: Losses


def server_at(
    url: str,
    key: str | None,
    *,
    dialect: Dialect | None = None,
    profile: str | Profile | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
) -> Server:
    """The server at an address; its version (`/v1`) may be left out."""
    chosen = profile if isinstance(profile, Profile) else load_profile(profile or DEFAULT_PROFILES[dialect or "responses"])
    if dialect is not None and chosen.dialect != dialect:
        raise ClientFault(
            f"dialect: got {dialect!r}, but the profile {chosen.name!r} is one of {chosen.dialect!r}", param="dialect"
        )
    wire = chosen.wire
    if isinstance(wire, ResponsesWire) and chosen.name == DEFAULT_PROFILES["responses"]:
        wire = replace(wire, stateful=True)  # a server that has no state says so itself
    sent = {"content-type": "application/json", "user-agent": f"antiphon/{__version__}", **chosen.headers, **(headers or {})}
    if key:
        sent[chosen.key_header] = f"Bearer {key}" if chosen.key_header == "authorization" else key
    return Server(
        base_url=_base(url, chosen.dialect),
        profile=chosen,
        wire=wire,
        dialect=SERVER_DIALECTS[chosen.dialect],
        headers=sent,
        timeouts=timeouts or PATIENCE,
    )


def prepare_call(server: Server, settings: Mapping[str, Any]) -> PreparedCall:
    """A turn with these fields of a request. What no server could take is refused here, with its place (ERR-3)."""
    request = codec.decode_request(codec.encode({name: value for name, value in settings.items() if value is not UNSET}))
    if not server.stores_responses:
        for name in ("previous_response_id", "conversation", "background"):
            if getattr(request, name):
                said = f"{name}: this server ({server.profile.name}) keeps no responses, so nothing can be continued there"
                raise UnsupportedParameter(said, param=name)
    sent, losses = server.profile.apply_quirks(request)
    body, found = server.dialect.request_from_hub(sent, server.wire)
    losses.extend(found)
    url = server.dialect.url(server.base_url, request.model or "", streams=bool(request.stream))
    return PreparedCall(request=request, sent=sent, body=body, url=url, losses=losses)


def error_from_answer(server: Server, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """What an answer that is not 200 says, with the status it came with."""
    if status < 400:
        said = f"the server answered with status {status}; a redirect is not followed: give the address it leads to"
        return UpstreamFault(said, code="upstream_invalid_response", status=status)
    if status in KEY_ERROR_CODES:
        words = _words_in(body)
        said = "the server refused the key" + (f": {words}" if words else "")
        return ClientFault(said, code=KEY_ERROR_CODES[status], status=status)
    error = server.dialect.error_to_hub(status, headers, body)
    error.status = status
    return error


def as_server_fault(fault: UpstreamFault) -> UpstreamFault:
    """A fault of the network: to that every server is an upstream, to the caller it is the server."""
    said = fault.message.replace("the upstream", "the server")
    return UpstreamFault(said, code=fault.code, status=fault.status, retry_after=fault.retry_after)


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


STAMPS: Final = Stamps(new_id, lambda: int(time.time()))


class _Told(Struct, frozen=True):
    message: str = ""


class _Body(Struct, frozen=True):
    error: _Told = _Told()


def _words_in(body: bytes) -> str:
    """All dialects put them in the same place."""
    try:
        return decode_json(body, type=_Body).error.message[:1000]
    except msgspec.DecodeError:
        return ""


def _base(url: str, dialect: Dialect) -> str:
    base = url.strip().rstrip("/")
    if "://" not in base:
        base = f"http://{base}"
    return base if urlsplit(base).path else f"{base}{VERSIONS[dialect]}"


DEFAULT_PROFILES: Final[dict[Dialect, str]] = {
    "responses": "open-responses",
    "chat": "chat",
    "messages": "messages",
    "gemini": "gemini",
}
VERSIONS: Final[dict[Dialect, str]] = {"responses": "/v1", "chat": "/v1", "messages": "/v1", "gemini": "/v1beta"}
KEY_ERROR_CODES: Final = {401: "invalid_api_key", 402: "payment_required", 403: "access_denied"}
