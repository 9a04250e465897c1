"""HTTP/1.1 client for upstreams, with a keep-alive pool per origin.

One connection carries one exchange at a time. Redirects are returned, not followed; uncompressed responses are
requested. If a pooled connection ended before the first byte of a response, within `STALE_SECONDS`, the request is
sent once more on a new connection. There are no other retries.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.config import Timeouts
from antiphon.errors import NoAnswer, UpstreamFault
from antiphon.upstream.connection import READ_SIZE, Connection
from antiphon.upstream.http_response import HttpResponse, StaleConnection
from antiphon.upstream.proxies import Proxies, Proxy, open_tunnel
from antiphon.upstream.tls import trusted_context

MAX_IDLE_CONNECTIONS: Final = 256  # idle connections per origin
IDLE_SECONDS: Final = 60.0
STALE_SECONDS: Final = 0.3  # a round trip to a distant server, which may have closed an idle connection


class HttpTransport:
    """The transport over real sockets, for one event loop. `environ` may name a proxy (`HTTPS_PROXY`, `NO_PROXY`)."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._proxies = Proxies(environ)
        self._pools: dict[_Origin, _Pool] = {}
        self._read_buffer = memoryview(bytearray(READ_SIZE))
        self._tls_context: ssl.SSLContext | None = None
        self._is_closed = False

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> HttpResponse:
        """Sends a request and waits for the response head. Cancelling closes the connection."""
        origin, path = _split_url(url)
        fields = _request_head(method, path, origin, tuple(headers.items()))
        length = b"content-length: %d\r\n" % len(body) if body or method != "GET" else b""
        head = b"%b%b\r\n" % (fields, length)
        pool = self._pool(origin)
        started_at = pool.loop.time()
        pooled_connection = pool.take_idle()
        if pooled_connection is not None:
            try:
                return await _send_on_connection(pool, pooled_connection, head, body, timeouts, started_at)
            except StaleConnection:
                # It ended while it was idle, unless the server had time to work on the request.
                if pool.loop.time() - started_at > STALE_SECONDS:
                    raise NoAnswer("the upstream closed the connection without an answer") from None
        if self._is_closed:
            raise UpstreamFault(
                "the gateway is shutting down and sends no more requests to upstreams", code="upstream_unavailable"
            )
        new_connection = await pool.connect(min(timeouts.connect, timeouts.total))
        try:
            return await _send_on_connection(pool, new_connection, head, body, timeouts, started_at)
        except StaleConnection:
            raise NoAnswer("the upstream closed the connection without an answer") from None

    async def open_connection(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts
    ) -> tuple[Connection, bytes]:
        """A connection outside the pool, and a GET head that is not sent yet, for protocol upgrades. The caller closes
        the connection."""
        if self._is_closed:
            raise UpstreamFault("the transport is closed", code="upstream_unavailable")
        origin, path = _split_url(url)
        head = _request_head("GET", path, origin, tuple(headers.items()))
        return await self._pool(origin).connect(min(timeouts.connect, timeouts.total)), head + b"\r\n"

    async def close(self) -> None:
        """Closes all connections; open exchanges end with a fault."""
        self._is_closed = True
        for pool in self._pools.values():
            pool.close()
        for _ in range(CLOSING_LOOP_STEPS):
            await asyncio.sleep(0)

    @property
    def open_connections(self) -> int:
        """All open sockets, in use or idle. Tests use it to find leaks."""
        return sum(len(pool.connections) for pool in self._pools.values())

    @property
    def connections_in_use(self) -> int:
        """The sockets with an open exchange."""
        return sum(pool.use_count for pool in self._pools.values())

    def _pool(self, origin: _Origin) -> _Pool:
        pool = self._pools.get(origin)
        if pool is None:
            if origin.uses_tls and self._tls_context is None:
                self._tls_context = trusted_context()
            tls_context = self._tls_context if origin.uses_tls else None
            proxy = self._proxies.proxy_for(origin.host, origin.port) if origin.uses_tls else None
            pool = self._pools[origin] = _Pool(origin, tls_context, proxy, self._read_buffer)
        return pool


class _Origin(Struct, frozen=True, cache_hash=True):
    uses_tls: bool
    host: str
    port: int

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.uses_tls else 80) else f"{host}:{self.port}"


class _Pool:
    """Connections to one origin. The most recently used one is taken first, so that others become idle and expire."""

    def __init__(
        self, origin: _Origin, tls_context: ssl.SSLContext | None, proxy: Proxy | None, read_buffer: memoryview
    ) -> None:
        self.connections: set[Connection] = set()
        self._origin = origin
        self._tls_context = tls_context
        self._proxy = proxy
        self._read_buffer = read_buffer
        self.loop = asyncio.get_running_loop()  # stored, because looking it up costs a system call
        self._idle_since: dict[Connection, float] = {}  # oldest first
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def use_count(self) -> int:
        return len(self.connections) - len(self._idle_since)

    def take_idle(self) -> Connection | None:
        """Takes an idle connection; None if there is none."""
        self._drop_expired()
        return self._idle_since.popitem()[0] if self._idle_since else None

    def give_back(self, connection: Connection) -> None:
        if len(self._idle_since) >= MAX_IDLE_CONNECTIONS:
            connection.drop()
            return
        self._idle_since[connection] = self.loop.time()
        if self._sweeper is None:
            self._sweeper = self.loop.call_later(IDLE_SECONDS, self._sweep_idle)

    async def connect(self, timeout: float) -> Connection:
        """Opens a connection."""
        connection = Connection(self._read_buffer, self._forget_connection)
        self.connections.add(connection)
        try:
            async with asyncio.timeout(timeout):
                await self._open(connection)
        except BaseException as error:
            connection.drop()
            connection.connection_lost(None)  # the event loop may not report a connection that was never completed
            if isinstance(error, TimeoutError):
                message = f"no connection to the upstream within {timeout:g} s"
                raise UpstreamFault(message, code="upstream_timeout", status=504) from error
            raise
        return connection

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self.connections):
            connection.drop()

    async def _open(self, connection: Connection) -> None:
        host, port = self._origin.host, self._origin.port
        if self._proxy is None:
            await self._connect_socket(connection, host, port, "the upstream cannot be reached")
        else:
            await self._connect_socket(
                connection, self._proxy.host, self._proxy.port, "the proxy that HTTPS_PROXY names cannot be reached"
            )
            await open_tunnel(connection, self._proxy, host, port)
        if self._tls_context is not None:
            await connection.start_tls(self._tls_context, host)

    async def _connect_socket(self, connection: Connection, host: str, port: int, failure: str) -> None:
        try:
            await self.loop.create_connection(lambda: connection, host, port)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that cannot be encoded
            raise UpstreamFault(failure, code="upstream_unavailable") from error

    def _forget_connection(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._idle_since.pop(connection, None)

    def _sweep_idle(self) -> None:
        self._sweeper = None
        self._drop_expired()
        if self._idle_since:
            oldest = next(iter(self._idle_since.values()))
            self._sweeper = self.loop.call_at(oldest + IDLE_SECONDS, self._sweep_idle)

    def _drop_expired(self) -> None:
        latest_expired = self.loop.time() - IDLE_SECONDS
        while self._idle_since:
            oldest, idle_since = next(iter(self._idle_since.items()))
            if idle_since > latest_expired:
                return
            del self._idle_since[oldest]
            oldest.drop()


async def _send_on_connection(
    pool: _Pool, connection: Connection, head: bytes, body: bytes, timeouts: Timeouts, started_at: float
) -> HttpResponse:
    answer = HttpResponse(connection, pool.give_back, timeouts, started_at, pool.loop)
    connection.write_request(head, body)
    try:
        await answer.head
    except BaseException:
        answer.abort()
        del answer  # breaks a reference cycle: response, error, frame
        raise
    return answer


@lru_cache(maxsize=256)
def _split_url(url: str) -> tuple[_Origin, str]:
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme not in ("http", "https") or not host or not VISIBLE_ASCII.fullmatch(url):
        raise UpstreamFault(
            "the upstream's base_url is invalid: expected http:// or https:// and a host, without spaces "
            "or characters outside ASCII",
            code="upstream_unavailable",
        )
    uses_tls = parts.scheme == "https"
    path = parts.path or "/"
    return _Origin(uses_tls, host, port or (443 if uses_tls else 80)), f"{path}?{parts.query}" if parts.query else path


@lru_cache(maxsize=256)
def _request_head(method: str, path: str, origin: _Origin, headers: tuple[tuple[str, str], ...]) -> bytes:
    """All header lines except content-length. Cached, since an upstream gets the same headers in every request."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {origin.authority}", "accept-encoding: identity"]
    for name, value in headers:
        # A line break would allow header or request injection. The value may be a key, so it is not shown.
        if not TOKEN.fullmatch(name) or not FIELD_VALUE.fullmatch(value):
            raise UpstreamFault(
                f"the header {name!r} for the upstream contains a line break or another character that "
                "HTTP cannot carry; check the key or setting that it comes from",
                code="upstream_unavailable",
            )
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n").encode("latin-1")


CLOSING_LOOP_STEPS: Final = 4  # event loop steps; closing a socket takes one or two
VISIBLE_ASCII: Final = re.compile(r"[!-~]+")
TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
FIELD_VALUE: Final = re.compile(r"[\t -~\x80-\xff]*")
