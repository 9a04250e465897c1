"""What the endpoints need, made once at the start: routes, the network, ids and time, traces, the log."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from antiphon.config import Config, StoreConfig
from antiphon.gateway.models import Models
from antiphon.gateway.routes import Place, Routes
from antiphon.protocol.stamps import Stamps
from antiphon.server.logs import Logger
from antiphon.server.stream import FIRST, SILENCE
from antiphon.server.sweeping import sweep
from antiphon.store.interface import Store
from antiphon.store.opening import open_store
from antiphon.trace.writing import Traces
from antiphon.upstream.transport import Transport

OpenStore = Callable[[StoreConfig, Mapping[str, str]], Awaitable[Store | None]]
MIB: Final = 1024 * 1024


class Services:
    """One for each process that serves. `patience` and `silence` are seconds; they, and `open_store`, differ only where nobody can
    wait for them."""

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        transport: Transport,
        logger: Logger,
        *,
        places: Mapping[str, Place] | None = None,
        debug: bool = False,
        patience: float = FIRST,
        silence: float = SILENCE,
        open_store: OpenStore = open_store,
    ) -> None:
        self.config = config
        self.transport = transport
        self.logger = logger
        self.debug = debug
        self.patience = patience
        self.silence = silence
        self.max_body = config.server.max_body_mib * MIB
        self.store: Store | None = None  # until `open`; where nothing is kept, for ever
        self.under_way = 0  # requests and turns that are not answered to their end
        self._open_store = open_store
        self._sweeper: asyncio.Task[None] | None = None
        self._environ = environ
        self.routes = Routes(config, environ, places or {})
        self.models = Models(self.routes, transport, time.monotonic)
        self.stamps = Stamps(new_id, now)
        self.pad = padding
        keys = [place.key for place in (places or {}).values() if place.key]
        self.traces = Traces(config.trace, [*config.secrets(environ), *keys]) if config.trace.dir else None

    async def open(self) -> None:
        """What can only be had on a running event loop."""
        self.store = await self._open_store(self.config.store, self._environ)
        if self.store is not None:
            self._sweeper = asyncio.get_running_loop().create_task(sweep(self.store, self.config.store, self.logger))

    async def close(self) -> None:
        """Everything that is still under way was told to end; what it keeps and says last has a moment."""
        end = time.monotonic() + LAST_WORDS
        while self.under_way and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self.store is not None:
            await self.store.close()
        await self.transport.close()
        self.logger.flush()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)


def new_id(prefix: str) -> str:
    """An id that nobody can guess: 128 random bits. The time stands before them, so that what is kept together lies together: with
    ids in no order at all, keeping a response costs two and a half times as much."""
    return f"{prefix}_{int(time.time()):08x}{_random_bits.take()}"


class _RandomBits:
    """The system's random bits, asked for many at a time: asking costs more than the bits do. None is given twice."""

    def __init__(self) -> None:
        self._left: list[str] = []
        os.register_at_fork(after_in_child=self._left.clear)

    def take(self) -> str:
        if not self._left:
            bits = secrets.token_hex(16 * POOLED)
            self._left += [bits[at : at + 32] for at in range(0, len(bits), 32)]
        return self._left.pop()


LAST_WORDS: Final = 5.0  # seconds
POOLED: Final = 128
_random_bits: Final = _RandomBits()


def now() -> int:
    return int(time.time())


def padding(length: int) -> str:
    """STR-13: so much that the length of a delta on the wire says little about its text."""
    return secrets.token_urlsafe(64)[: 16 - length % 16 + secrets.randbelow(16)]
