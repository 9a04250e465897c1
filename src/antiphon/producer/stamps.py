"""Random ids and the system clock, for producing responses outside of a server."""

from __future__ import annotations

import secrets
import time
from typing import Final

from antiphon.protocol.stamps import Stamps


def _new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def _now() -> int:
    return int(time.time())


SYSTEM_STAMPS: Final = Stamps(_new_id, _now)
