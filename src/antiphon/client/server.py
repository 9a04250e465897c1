"""One server from the client's side: its address, its request format and its errors.

The profile names the server's dialect and quirks. Requests are translated to it; whatever cannot be translated is a
loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon import __version__
from antiphon.config import Timeouts
from antiphon.dialects.common.server_turn import turn_url
from antiphon.dialects.dialect import ServerDialect, ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS, Wire
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import ApiError, ClientFault, UnsupportedParameter, UpstreamFault
from antiphon.profiles import Profile, load_profile
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_json
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request

DEFAULT_URL: Final = "http://127.0.0.1:8080"
# A gateway has its own timeouts and sends heartbeats. These only end requests that would hang for ever.
DEFAULT_TIMEOUTS: Final = Timeouts(connect=10.0, first_byte=300.0, idle=300.0, total=3600.0)


class Server(Struct, frozen=True, kw_only=True):
    """A server and how to send requests to it."""

    base_url: str
    profile: Profile
    wire: Wire
    dialect: ServerDialect
    headers: dict[str, str]
    timeouts: Timeouts

    @property
    def stores_responses(self) -> bool:
        """Whether its responses can be retrieved later."""
        return isinstance(self.wire, ResponsesWire) and self.wire.stateful

    def response_url(self, id: str, suffix: str = "") -> str:
        """The URL of a stored response; `suffix` is appended to the id."""
        if not self.stores_responses:
            message = f"this server ({self.profile.name}) stores no responses: only servers of the responses dialect do"
            raise UnsupportedParameter(message, param="id")
        if not id or not id.isascii() or not id.replace("_", "").replace("-", "").isalnum():
            raise ClientFault(f"id: expected the id of a response, such as 'resp_0123', got {id[:100]!r}", param="id")
        return f"{self.base_url}/responses/{id}{suffix}"


class PreparedCall(Struct, frozen=True, kw_only=True):
    """A request that is ready to be sent."""

    request: Request  # as the caller gave it
    server_request: Request  # after the quirks of the server's profile
    body: bytes
    url: str
    losses: Losses


def server_at(
    url: str,
    key: str | None,
    *,
    dialect: ServerDialectName | None = None,
    profile: str | Profile | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
) -> Server:
    """The server at an address. The version (`/v1`) may be omitted."""
    loaded_profile = (
        profile
        if isinstance(profile, Profile)
        else load_profile(profile or SERVER_DIALECTS[dialect or "responses"].default_profile)
    )
    if dialect is not None and loaded_profile.dialect != dialect:
        raise ClientFault(
            f"dialect: expected {loaded_profile.dialect!r}, the dialect of the profile {loaded_profile.name!r}, "
            f"got {dialect!r}",
            param="dialect",
        )
    wire = loaded_profile.wire
    if isinstance(wire, ResponsesWire) and loaded_profile.name == SERVER_DIALECTS["responses"].default_profile:
        wire = replace(wire, stateful=True)  # a stateless server answers with an error itself
    all_headers = {
        "content-type": "application/json",
        "user-agent": f"antiphon/{__version__}",
        **loaded_profile.headers,
        **(headers or {}),
    }
    if key:
        all_headers[loaded_profile.key_header] = (
            f"Bearer {key}" if loaded_profile.key_header == "authorization" else key
        )
    return Server(
        base_url=_base_url(url, loaded_profile.dialect),
        profile=loaded_profile,
        wire=wire,
        dialect=SERVER_DIALECTS[loaded_profile.dialect],
        headers=all_headers,
        timeouts=timeouts or DEFAULT_TIMEOUTS,
    )


def prepare_call(server: Server, settings: Mapping[str, Any]) -> PreparedCall:
    """Builds a request from these fields. An invalid request is refused here, with the path of the field (ERR-3)."""
    fields = {**settings, **settings.get("extra_fields", {})}
    fields.pop("extra_fields", None)
    request = codec.decode_request(codec.encode({name: value for name, value in fields.items() if value is not UNSET}))
    if not server.stores_responses:
        for name in ("previous_response_id", "conversation", "background"):
            if getattr(request, name):
                message = f"{name}: this server ({server.profile.name}) stores no responses, so none can be continued"
                raise UnsupportedParameter(message, param=name)
    server_request, losses = server.profile.apply_quirks(request)
    body, dialect_losses = server.dialect.request_from_hub(server_request, server.wire)
    losses.extend(dialect_losses)
    url = turn_url(server.dialect, server.base_url, request.model or "", streams=bool(request.stream))
    return PreparedCall(request=request, server_request=server_request, body=body, url=url, losses=losses)


def error_from_answer(server: Server, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error in an answer whose status is not 200. It has the status and the request id of the answer."""
    error = _error_of_status(server, status, headers, body)
    error.request_id = request_id_in(headers)
    error.upstream_name = headers.get("antiphon-upstream")
    return error


def request_id_in(headers: Mapping[str, str]) -> str | None:
    """The id that the server gave to the request."""
    return headers.get("x-request-id") or headers.get("request-id")


def _error_of_status(server: Server, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    if status < 400:
        message = (
            f"the server answered with status {status}; redirects are not followed: use the address of the redirect"
        )
        return UpstreamFault(message, code="upstream_invalid_response", status=status)
    if status in KEY_ERROR_CODES:
        detail = _error_message(body)
        has_key = any(name.lower() in KEY_HEADERS for name in server.headers)
        subject = "the server refused the key" if has_key or status != 401 else "the server requires a key"
        message = subject + (f": {detail.removeprefix('no key: ')}" if detail else "")
        return ClientFault(message, code=KEY_ERROR_CODES[status], status=status)
    error = server.dialect.error_to_hub(status, headers, body)
    error.status = status
    return error


class ConnectionFault(UpstreamFault):
    """The server cannot be reached, does not answer in time, or its answer is not valid HTTP."""


def as_server_fault(fault: UpstreamFault) -> ConnectionFault:
    """Replaces "the upstream" by "the server" in the message of a transport error."""
    message = fault.message.replace("the upstream", "the server")
    return ConnectionFault(message, code=fault.code, status=fault.status, retry_after=fault.retry_after)


class _ErrorDetail(Struct, frozen=True):
    message: str = ""


class _ErrorBody(Struct, frozen=True):
    error: _ErrorDetail = _ErrorDetail()


def _error_message(body: bytes) -> str:
    """The server's error message. It has the same path in all dialects."""
    try:
        return decode_json(body, type=_ErrorBody).error.message[:1000]
    except msgspec.DecodeError:
        return ""


def _base_url(url: str, dialect: ServerDialectName) -> str:
    base = url.strip().rstrip("/")
    if "://" not in base:
        base = f"http://{base}"
    return base if urlsplit(base).path else f"{base}{SERVER_DIALECTS[dialect].base_path}"


KEY_HEADERS: Final = ("authorization", "x-api-key", "x-goog-api-key")
KEY_ERROR_CODES: Final = {401: "invalid_api_key", 402: "payment_required", 403: "access_denied"}
