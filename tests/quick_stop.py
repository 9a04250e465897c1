"""Stops a gateway of a test without uvicorn's pauses, which took a fifth of a second for each of two thousand gateways.

uvicorn looks every 0.1 s whether it shall stop, and waits as long when it has closed its connections. In the process of
the tests it looks and waits a twentieth as long. Gateways in processes of their own keep the pauses.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Final

import uvicorn.server

SHARE: Final = 0.05


async def _sleep(seconds: float) -> None:
    await asyncio.sleep(seconds * SHARE)


assert vars(uvicorn.server)["asyncio"] is asyncio
vars(uvicorn.server)["asyncio"] = SimpleNamespace(**{**vars(asyncio), "sleep": _sleep})
