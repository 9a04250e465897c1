"""SIGTERM and SIGHUP as an exception, for commands that start processes and write temporary files."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
SIGNAL_EXIT: Final = 128  # the shells' code for a process that a signal ended: this and its number


class StopRequest(SystemExit):
    """A stop signal came. A `SystemExit`, because asyncio passes few other exceptions of signal handlers on."""

    def __init__(self, number: int) -> None:
        super().__init__(SIGNAL_EXIT + number)
        self.number = number


class StopSignals:
    """Raises `StopRequest` for the first stop signal and ignores further ones, which would interrupt the clean-up."""

    def __init__(self) -> None:
        self._is_deferred = False
        self._request: StopRequest | None = None
        self._previous_handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def __enter__(self) -> StopSignals:
        for number, handler in self._previous_handlers.items():
            if handler is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Raise at the end of the block only: a process that is being started must not be lost."""
        self._is_deferred = True
        yield
        self._is_deferred = False
        if self._request is not None:
            raise self._request

    def _on_signal(self, number: int, _: object) -> None:
        for other in STOP_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        self._request = StopRequest(number)
        if not self._is_deferred:
            raise self._request
