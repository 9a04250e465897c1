"""The address of the gateway that a command calls, and the key for it: from options and environment."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from antiphon.cli.exits import InvalidUsage
from antiphon.cli.terminal import one_line

DEFAULT_URL: Final = "http://127.0.0.1:8080"


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add the option of every command that calls a gateway."""
    parser.add_argument(
        "--url", metavar="U", help=f"the URL of the gateway (default: $ANTIPHON_URL, else {DEFAULT_URL})"
    )


def gateway_url(explicit_url: str | None, environ: Mapping[str, str]) -> str:
    """Return the gateway's URL without `/v1`: the given one, `$ANTIPHON_URL`, or the default of `antiphon serve`."""
    text = (explicit_url or environ.get("ANTIPHON_URL") or DEFAULT_URL).strip()
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


VISIBLE_ASCII: Final = re.compile(r"[!-~]+")
