"""Random ids and the system clock, for all code outside of a gateway, which has its own ids."""

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
