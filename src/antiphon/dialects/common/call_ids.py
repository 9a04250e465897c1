"""Replaces ids of calls that are too long for servers (REQ-8).

The replacement is a pure function of the id, so a call and its result have the same one, in every turn.
"""

from __future__ import annotations

import hashlib
from typing import Final

MAX_CALL_ID_LENGTH: Final = 64


def shorten_call_id(call_id: str) -> str:
    """The id as it is, or a short one if it is too long."""
    return call_id if len(call_id) <= MAX_CALL_ID_LENGTH else mark_call_id(call_id, call_id)


def mark_call_id(call_id: str, marked: str) -> str:
    """The start of the id, with a hash of `marked` at its end."""
    mark = hashlib.sha256(marked.encode()).hexdigest()[:16]
    return f"{call_id[: MAX_CALL_ID_LENGTH - len(mark) - 1]}_{mark}"
