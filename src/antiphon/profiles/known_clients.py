"""How known clients are told from others, as data: which style of the responses API they read (API-6), what they put where."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec import Struct

Style = Literal["standard", "older"]


class KnownClient(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client by a piece of its User-Agent."""

    name: str
    agent: str
    style: Style


def known_clients() -> list[KnownClient]:
    """The table, in its order."""
    text = (files("antiphon.profiles") / "data" / "clients.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["clients"], list[KnownClient])


@lru_cache(maxsize=256)
def style_of(user_agent: str) -> Style:
    """The style for a client that did not choose one."""
    return next((client.style for client in _TABLE if client.agent in user_agent), "standard")


# WS-2: how clients of the older style announce themselves on a WebSocket: by a word in a header.
ANNOUNCEMENT = (b"openai-beta", b"responses_websockets")
# Where clients put their keys besides `authorization`.
KEY_HEADERS = (b"x-api-key", b"x-goog-api-key")
# Headers that only clients of one dialect send, where its paths are those of others too.
OF_MESSAGES = b"anthropic-version"
OF_GEMINI = (b"x-goog-api-client", b"x-goog-api-key")
# What pages of these clients have to be allowed to send.
HEADERS_OF_PAGES = (
    *KEY_HEADERS,
    OF_MESSAGES,
    b"anthropic-beta",
    b"anthropic-dangerous-direct-browser-access",
    b"x-goog-api-client",
)
_TABLE = known_clients()
