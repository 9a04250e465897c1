"""Removes keys, traces and inner addresses from text that people outside may read: errors, logs, metrics, telemetry.

The patterns run on untrusted text before authentication, so each takes linear time and no text is longer than a bound.
"""

from __future__ import annotations

import re
from typing import Final

MAX_MESSAGE_LENGTH: Final = 1000  # characters of a message for a client
# Longer texts are cut before any pattern is searched.
MAX_SEARCHED_LENGTH: Final = 4_000
MAX_NAME_LENGTH: Final = 512  # of paths and names


def mask_keys(text: str, max_length: int = MAX_SEARCHED_LENGTH) -> str:
    """`text` without anything that looks like a key, cut after `max_length` characters."""
    return KEY.sub("[key]", NAMED_KEY.sub(r"\1[key]", truncate_text(text, max_length)))


def truncate_text(text: str, max_length: int = MAX_SEARCHED_LENGTH) -> str:
    """Cuts `text` after `max_length` characters. A word at the cut is masked, because it may be part of a key."""
    return text if len(text) <= max_length else text[:max_length].rstrip(KEY_CHARACTERS) + "[key]…"


def sanitize_text(text: str) -> str:
    """The upstream's text for a client (ERR-5): no traces, keys or addresses, and a limited length."""
    text = truncate_text(text)
    if not text.isascii():  # unpaired surrogates cannot be encoded in an answer
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = INNER_ADDRESS.sub("[address]", mask_keys(text.partition(TRACEBACK_START)[0]))
    return text if len(text) <= MAX_MESSAGE_LENGTH else text[:MAX_MESSAGE_LENGTH] + "…"


TRACEBACK_START: Final = "Traceback (most recent call last)"
INNER_ADDRESS: Final = re.compile(
    r"(?:https?://)?(?:\b(?:\d{1,3}\.){3}\d{1,3}\b|\blocalhost\b|\[[0-9a-f]*+(?::[0-9a-f]++)*+::[0-9a-f:]*+\])"
    r"(?::\d+)?(?:/[^\s\"')]*)?"
)
# Matches key prefixes of providers, tokens of JSON in base64, and values after "key:" or "Bearer". The patterns run on
# untrusted text, so each takes linear time.
KEY_CHARACTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_*.-"
KEY: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|nvapi|csk|pplx|fw|r8|vck|glpat|ghp|tgp)[-_][A-Za-z0-9_*.\-]{6,}"
    r"|\bAIza[A-Za-z0-9_\-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\beyJ[A-Za-z0-9_\-]{6}[A-Za-z0-9_.\-]*"
)
NAMED_KEY: Final = re.compile(
    r"(?i)(\bBearer\s++|authorization[\"']?+\s*+[:=]\s*+[\"']?+Basic\s++"
    r"|(?:key|secret|password|authorization|access[-_ ]token)(?: provided)?+[\"']?+\s*+[:=]\s*+[\"']?+)"
    r"(?!\[key\]|Bearer\b)[^\s\"',;)…]{6,}+"
)
