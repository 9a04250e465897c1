"""Access control before every route, for HTTP and WebSocket scopes alike.

The `Host` check protects loopback servers against DNS rebinding. The `Origin` check refuses browsers unless their page
is configured. The key identifies the owner. All key errors give the same response. On a public address short keys are
refused: those whose hash is configured only when a client presents them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import parse_qs

from msgspec import Struct

from antiphon.config import Config, is_loopback, min_key_length
from antiphon.dialects.responses.stream_out import SelectableEventStyle
from antiphon.errors import ClientFault
from antiphon.http.asgi import LOG, Headers, Scope, headers_of
from antiphon.profiles.client_headers import KEY_HEADERS

ANONYMOUS_OWNER: Final = "anybody"  # the owner if no keys are configured


class Caller(NamedTuple):
    """The owner of a request's key."""

    owner: str
    style: SelectableEventStyle | None  # API-6: the style configured for the key


class AccessPolicy(Struct, frozen=True, kw_only=True):
    """The access rules, fixed at the start."""

    hosts: frozenset[str] | None  # None: any, since a public address requires keys
    origins: frozenset[bytes]
    callers: dict[bytes, Caller]  # by key hash
    metrics_key: bytes | None = None  # the hash of the key of `/metrics`
    min_key_length: int = 1

    @classmethod
    def from_config(cls, config: Config, environ: Mapping[str, str]) -> AccessPolicy:
        server = config.server
        own_names = {_bare_host_name(server.host), *map(_bare_host_name, server.allowed_hosts)}
        is_restricted = bool(server.allowed_hosts) or is_loopback(server.host)
        return cls(
            hosts=None if "*" in own_names or not is_restricted else frozenset(own_names | LOOPBACK_NAMES),
            origins=frozenset(origin.lower().encode() for origin in server.allowed_origins),
            callers={hash: Caller(key.name, key.style) for hash, key in config.key_hashes(environ).items()},
            metrics_key=sha256(key.encode()).digest() if (key := server.metrics_key(environ)) else None,
            min_key_length=min_key_length(server.host),
        )

    def check_host_and_origin(self, scope: Scope) -> None:
        """Refuses a scope whose `Host` or `Origin` is not allowed."""
        headers = headers_of(scope)
        hosts = headers.get(b"host", ())
        if len(hosts) != 1 or not self._allows_host(hosts[0]):
            raise ClientFault(
                "the Host header names a host that this gateway does not serve; see allowed_hosts in the configuration",
                code="forbidden_host",
                status=403,
            )
        origins = headers.get(b"origin")
        if origins and not (len(origins) == 1 and origins[0].lower() in self.origins):
            raise ClientFault(
                "requests from this origin are not allowed; see allowed_origins in the configuration",
                code="forbidden_origin",
                status=403,
            )

    def authenticate(self, scope: Scope, *, in_query: bool = False) -> Caller:
        """HTTP-6: the owner of the key. Wrong and malformed keys give the same error. With `in_query` the key may be in
        the query, for clients that can send it nowhere else."""
        if not self.callers:
            return Caller(ANONYMOUS_OWNER, None)
        keys = _keys_in(scope)
        if in_query:
            keys += _key_in_query(scope)
        for key in keys:
            # Looking up the hash, not the key, leaks no timing information about existing keys.
            caller = self.callers.get(sha256(key).digest())
            if caller is not None and self._is_long_enough(key, caller.owner):
                return caller
        message = (
            "invalid key: this gateway does not know it; check the key that the client sends"
            if keys
            else "no key: send a key of this gateway as `Authorization: Bearer …` or as `x-api-key`"
        )
        raise ClientFault(message, code="invalid_api_key", status=401)

    def guess_owner(self, data: bytes) -> str | None:
        """The owner of a request by the bytes of its head, which are not parsed yet. Without a known key it is the
        method, so that health checks do not wait for the requests of others. None if the bytes are not a head."""
        request_line = REQUEST_LINE_PATTERN.match(data, 0, HEAD_PREFIX)
        if request_line is None:
            return None
        end = data.find(b"\r\n\r\n", 0, HEAD_PREFIX)
        keys = KEY_HEADER_PATTERN.findall(data, 0, HEAD_PREFIX if end < 0 else end)
        for key in (*keys, request_line[2] or b""):
            caller = self.callers.get(sha256(key).digest())
            if caller is not None:
                return caller.owner
        return request_line[1].decode()

    def has_metrics_key(self, scope: Scope) -> bool:
        """Whether the request has the key of `/metrics`."""
        return self.metrics_key is not None and any(sha256(key).digest() == self.metrics_key for key in _keys_in(scope))

    def _is_long_enough(self, key: bytes, owner: str) -> bool:
        if len(key) >= self.min_key_length:
            return True
        LOG.warning(
            "a key was refused: it has fewer than %d characters, and other machines can reach this gateway",
            self.min_key_length,
            extra={"fields": {"owner": owner}},
        )
        return False

    def cors_headers(self, scope: Scope) -> Headers:
        """The CORS headers for allowed origins."""
        origins = headers_of(scope).get(b"origin")
        if origins is None or len(origins) != 1 or origins[0].lower() not in self.origins:
            return []
        exposed_headers = (
            b"x-request-id, antiphon-losses, antiphon-estimated, retry-after, retry-after-ms, x-should-retry"
        )
        return [
            (b"access-control-allow-origin", origins[0]),
            (b"vary", b"origin"),
            (b"access-control-expose-headers", exposed_headers),
        ]

    def _allows_host(self, host: bytes) -> bool:
        name = _cached_host_name(host) if len(host) < MAX_CACHED_HOST else _host_name(host)
        return name is not None and (self.hosts is None or name in self.hosts)


def _keys_in(scope: Scope) -> list[bytes]:
    """The keys in the headers of a request. Empty if a header is repeated, which looks like an attack."""
    headers = headers_of(scope)
    keys: list[bytes] = []
    if b"authorization" in headers:
        values = headers[b"authorization"]
        if len(values) > 1:
            return []
        scheme, _, key = values[0].partition(b" ")
        if scheme.lower() == b"bearer" and (key := key.strip()):
            keys.append(key)
    for name in KEY_HEADERS:
        if name in headers:
            values = headers[name]
            if len(values) > 1:
                return []
            keys += filter(None, values)
    return keys


def _key_in_query(scope: Scope) -> list[bytes]:
    """The value of `?key=…`, if it occurs once."""
    query: bytes = scope["query_string"]
    try:
        values = parse_qs(query.decode("latin-1"), max_num_fields=MAX_FIELDS, encoding="latin-1").get("key", [])
    except ValueError:
        return []
    return [values[0].encode("latin-1")] if len(values) == 1 else []


def _host_name(host: bytes) -> str | None:
    """The name or address in a `Host` header, without its port; None if it is invalid."""
    match = HOST_PATTERN.fullmatch(host)
    return None if match is None else _bare_host_name(match[1].decode())


_cached_host_name: Final = lru_cache(maxsize=256)(_host_name)


def _bare_host_name(host: str) -> str:
    return host.lower().strip("[]").rstrip(".")


HOST_PATTERN: Final = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")
REQUEST_LINE_PATTERN: Final = re.compile(rb"([A-Z]{3,7}) /[^ ?]*(?:\?(?:[^ ]*?&)?key=([^ &]+))?")
KEY_HEADER_PATTERN: Final = re.compile(
    rb"\r\n(?i:authorization: *bearer|%b) *([^\s]+)" % b"|".join(name + b":" for name in KEY_HEADERS)
)
HEAD_PREFIX: Final = 8192  # bytes of a head that are searched for a key
MAX_FIELDS: Final = 50  # fields of a query
MAX_CACHED_HOST: Final = 260  # bytes of a cached value: a name has at most 253 characters
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
