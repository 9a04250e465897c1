"""The address of the gateway that a command calls, and the key for it: from options and environment."""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from antiphon.cli.exits import InvalidUsage
from antiphon.cli.terminal import one_line
from antiphon.config.loading import find_config

DEFAULT_URL: Final = "http://127.0.0.1:8080"


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add the option of every command that calls a gateway."""
    parser.add_argument(
        "--url",
        metavar="U",
        help=f"the URL of the gateway (default: $ANTIPHON_URL, else the port in antiphon.toml, else {DEFAULT_URL})",
    )


def gateway_url(explicit_url: str | None, environ: Mapping[str, str], folder: Path = Path()) -> str:
    """Return the gateway's URL without `/v1`: the given one, `$ANTIPHON_URL`, the address in the configuration that
    `antiphon serve` would use in this folder, or the default one."""
    text = (explicit_url or environ.get("ANTIPHON_URL") or _configured_url(environ, folder) or DEFAULT_URL).strip()
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_usable = False
    if "@" in text:
        # The address is not shown: it may contain a password.
        raise InvalidUsage(
            "the URL of a gateway must not contain a user name or a password; set the key in $ANTIPHON_API_KEY"
        )
    if not is_usable or parts.query or parts.fragment or not VISIBLE_ASCII.fullmatch(url):
        raise InvalidUsage(f"invalid gateway URL {one_line(text)!r}: expected a URL such as {DEFAULT_URL}")
    return url.rstrip("/").removesuffix("/v1")


def gateway_key(environ: Mapping[str, str]) -> str | None:
    """Return the key in `$ANTIPHON_API_KEY`; None if it is not set."""
    key = environ.get("ANTIPHON_API_KEY", "").strip()
    if not key.isascii() or not key.isprintable():
        raise InvalidUsage("$ANTIPHON_API_KEY contains characters that a header cannot carry; expected printable ASCII")
    return key or None


def _configured_url(environ: Mapping[str, str], folder: Path) -> str | None:
    """The address in the configuration, if it is on this machine: a file in a folder from elsewhere must not send a
    prompt and a key to another. An invalid file is the business of `antiphon serve`."""
    file = find_config(None, environ, folder)
    try:
        server = tomllib.loads(file.read_text(encoding="utf-8-sig")).get("server") if file else None
    except (OSError, ValueError):
        return None
    match server:
        case {"host": str() as host, "port": int() as port}:
            pass
        case {"port": int() as port}:
            host = LOOPBACK
        case _:
            return None
    local_host = LOCAL_HOSTS.get(host)
    return f"http://{local_host}:{port}" if local_host and 0 < port < 65536 else None


LOOPBACK: Final = "127.0.0.1"
# The address to listen on → the address to call.
LOCAL_HOSTS: Final = {
    LOOPBACK: LOOPBACK,
    "0.0.0.0": LOOPBACK,
    "": LOOPBACK,
    "localhost": "localhost",
    "::1": "[::1]",
    "::": "[::1]",
}
VISIBLE_ASCII: Final = re.compile(r"[!-~]+")
