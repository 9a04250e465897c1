"""`HTTPS_PROXY` and `NO_PROXY`: which upstreams are reached through a proxy, and how a tunnel is opened.

Only TLS upstreams use the proxy, so that it never sees a key. Lower-case variable names take precedence, as in other
programs.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from antiphon.errors import ConfigError, UpstreamFault
from antiphon.upstream.connection import Connection


class Proxy(Struct, frozen=True):
    """The address and the credentials of a proxy."""

    host: str
    port: int
    authorization: str = ""


class Proxies:
    """The proxy of the environment, and its exceptions."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        url = environ.get("https_proxy") or environ.get("HTTPS_PROXY") or ""
        exceptions = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
        self._proxy = _parse_proxy_url(url) if url else None
        self._exceptions = [entry for entry in SEPARATOR.split(exceptions.lower()) if entry]

    def proxy_for(self, host: str, port: int) -> Proxy | None:
        """The proxy for a TLS upstream, None for a direct connection. Loopback addresses are always direct."""
        if (
            self._proxy is None
            or _is_loopback(host)
            or any(_matches_exception(entry, host, port) for entry in self._exceptions)
        ):
            return None
        return self._proxy


async def open_tunnel(connection: Connection, proxy: Proxy, host: str, port: int) -> None:
    """Asks the proxy to open a tunnel to `host`, and waits for it."""
    answer = _ProxyAnswer()
    connection.listen(answer)
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    credentials = f"proxy-authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    connection.write(f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{credentials}\r\n".encode())
    await answer.tunnel_opened


class _ProxyAnswer:
    """Reads the head of the proxy's response."""

    def __init__(self) -> None:
        self.tunnel_opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = bytearray()

    def on_data(self, data: memoryview) -> None:
        self._head += data
        if b"\r\n\r\n" in self._head or len(self._head) > MAX_PROXY_HEAD_BYTES:
            self._check_response()

    def on_disconnect(self, is_clean: bool) -> None:  # noqa: ARG002
        self._refuse("the proxy closed the connection without a response")

    def _check_response(self) -> None:
        status = STATUS_LINE.match(self._head)
        if status is None:
            self._refuse("the proxy's response is not valid HTTP")
        elif status[1] == b"407":
            self._refuse("the proxy refused the credentials in HTTPS_PROXY (status 407)")
        elif not status[1].startswith(b"2"):
            self._refuse(f"the proxy refused to connect to the upstream (status {status[1].decode()})")
        elif not self._head.endswith(b"\r\n\r\n"):  # the TLS client speaks first, so this is not from the upstream
            self._refuse("the proxy sent data after its response")
        elif not self.tunnel_opened.done():
            self.tunnel_opened.set_result(None)

    def _refuse(self, reason: str) -> None:
        if not self.tunnel_opened.done():
            self.tunnel_opened.set_exception(UpstreamFault(reason, code="upstream_unavailable"))


def _parse_proxy_url(url: str) -> Proxy:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    # The value may hold a password, so the message does not show it.
    if parts.scheme != "http" or not host:
        raise ConfigError(
            "HTTPS_PROXY: expected an address such as http://proxy.example:3128; other kinds of proxies "
            "are not supported"
        )
    authorization = ""
    if parts.username:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(credentials.encode()).decode()
    return Proxy(host, port or 80, authorization)


def _matches_exception(entry: str, host: str, port: int) -> bool:
    """Whether an entry of `NO_PROXY` matches a host: `*`, an address, a network, or a name with all names below it."""
    if entry == "*":
        return True
    name, colon, entry_port = entry.rpartition(":")
    if colon and entry_port.isdigit() and ("]" in name or ":" not in name):
        return int(entry_port) == port and _matches_exception(name, host, port)
    entry = entry.strip("[]").removeprefix("*").lstrip(".")
    address = _parse_address(host)
    if address is not None:
        return address in _parse_network(entry)
    return host == entry or host.endswith(f".{entry}")


def _is_loopback(host: str) -> bool:
    address = _parse_address(host)
    return address.is_loopback if address is not None else host == "localhost" or host.endswith(".localhost")


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _parse_network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | tuple[()]:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return ()


MAX_PROXY_HEAD_BYTES: Final = 16 * 1024
SEPARATOR: Final = re.compile(r"[\s,]+")
STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
