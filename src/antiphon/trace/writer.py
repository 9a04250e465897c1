"""Records requests. A `Trace` only appends to a list; a thread redacts keys, writes files and removes old ones.

Tracing never fails a request: data beyond the limits is omitted and counted, and write errors are logged once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from antiphon.config import TraceConfig
from antiphon.errors import ConfigError
from antiphon.protocol.losses import Losses
from antiphon.trace.finished_trace import FinishedTrace, TraceEntry, redacted_records
from antiphon.trace.folder import remove_old_traces, trace_file_name, write_file
from antiphon.trace.records import (
    ClientHead,
    ClientPiece,
    ClientRequest,
    HubRequest,
    LossList,
    OmittedData,
    RawData,
    Route,
    TraceNote,
    UpstreamHead,
    UpstreamPiece,
    UpstreamRequest,
    encode_record,
)
from antiphon.trace.redactor import Redactor, keys_in_headers

MAX_TRACE: Final = 32 * 1024 * 1024  # bytes of one trace, in memory and about the same on disk
MAX_WAITING: Final = 64 * 1024 * 1024  # bytes of traces in the write queue
SWEEP_EVERY: Final = 60.0  # seconds
CLOSE_TIMEOUT: Final = 5.0  # seconds that `close` waits

logger = logging.getLogger("antiphon.trace")


class TraceWriter:
    """The traces of a server. Its writer thread runs until `close`. Only tests set `sweep_every`."""

    def __init__(
        self,
        config: TraceConfig,
        secrets: Iterable[str] = (),
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        *,
        sweep_every: float = SWEEP_EVERY,
    ) -> None:
        self.dropped_traces = 0  # traces that were not written
        self._now = now
        self._clock = clock
        self._waiting: deque[FinishedTrace] = deque()
        self._waiting_size = 0
        self._closing = False
        self._change = threading.Condition()
        self._sweep_every = sweep_every
        self._writer = _FileWriter(config, tuple(secrets), now)
        self._thread = threading.Thread(target=self._write_all, name="antiphon-trace", daemon=True)
        self._thread.start()

    def start_trace(self, id: str) -> Trace:
        return Trace(id, self._now(), self._clock, self._take)

    def close(self) -> None:
        """Waits until queued traces are written, at most `CLOSE_TIMEOUT` seconds."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join(CLOSE_TIMEOUT)

    def _take(self, finished: FinishedTrace) -> None:
        with self._change:
            if self._closing or self._waiting_size + finished.size > MAX_WAITING:
                self.dropped_traces += 1
                if self.dropped_traces == 1:
                    logger.warning(
                        "a trace was dropped because the write queue is full; further dropped traces are only counted"
                    )
                return
            self._waiting.append(finished)
            self._waiting_size += finished.size
            self._change.notify()

    def _write_all(self) -> None:
        self._writer.remove_old_traces()
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._closing, timeout=self._sweep_every)
                finished = self._waiting[0] if self._waiting else None
                if finished is None and self._closing:
                    return
            if finished is None:
                self._writer.remove_old_traces()
                continue
            written = self._writer.write(finished)
            with self._change:
                self._waiting.popleft()
                self._waiting_size -= finished.size
                self.dropped_traces += not written


class Trace:
    """Records one request. Calls are cheap and do no I/O; `finish` queues the trace, once.

    A request whose body was not read leaves no trace: health checks, unauthenticated clients.
    """

    def __init__(
        self, id: str, time: float, clock: Callable[[], float], hand_over: Callable[[FinishedTrace], None]
    ) -> None:
        self._id = id
        self._time = time
        self._clock = clock
        self._hand_over = hand_over
        self._size = 0
        self._start = clock()
        self._entries: list[TraceEntry] = []
        self._secrets: list[str] = []
        self._missing: dict[str, int] = {}
        self._has_request = False
        self._open = True

    def client_request(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        if self._open:
            named = _named(headers)
            self._secrets += keys_in_headers(named)
            raw = self._raw_data("client_request", body)
            self._entries.append(ClientRequest(at=self._at(), method=method, path=path, headers=named, body=raw))
            self._has_request = True

    def hub_request(self, encoded: bytes) -> None:
        if self._open:
            self._entries.append(HubRequest(at=self._at(), body=self._raw_data("hub_request", encoded)))

    def route(self, upstream: str, dialect: str, model: str, profile: str, stream: bool) -> None:
        if self._open:
            self._entries.append(
                Route(at=self._at(), upstream=upstream, dialect=dialect, model=model, profile=profile, stream=stream)
            )

    def upstream_request(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        if self._open:
            self._secrets += keys_in_headers(headers)
            raw = self._raw_data("upstream_request", body)
            self._entries.append(
                UpstreamRequest(at=self._at(), method=method, url=url, headers=dict(headers), body=raw)
            )

    def upstream_head(self, status: int, headers: Mapping[str, str]) -> None:
        if self._open:
            self._entries.append(UpstreamHead(at=self._at(), status=status, headers=dict(headers)))

    def upstream_piece(self, data: bytes) -> None:
        if self._open and self._fits("upstream_piece", len(data)):
            self._entries.append((self._clock(), UpstreamPiece, data))

    def client_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self._open:
            self._entries.append(ClientHead(at=self._at(), status=status, headers=_named(headers)))

    def client_piece(self, data: bytes) -> None:
        if self._open and self._fits("client_piece", len(data)):
            self._entries.append((self._clock(), ClientPiece, data))

    def losses(self, losses: Losses) -> None:
        """Records losses found so far; repeated losses count once."""
        if self._open:
            self._entries.append(LossList(at=self._at(), losses=list(losses)))

    def note(self, name: str, value: str | int | float | None) -> None:
        """Records a named value. Lists show the last note named `error`."""
        if self._open:
            self._entries.append(TraceNote(at=self._at(), name=name, value=value))

    def finish(self) -> None:
        if self._open and self._has_request:
            if self._missing:
                self._entries.append(OmittedData(at=self._at(), missing=self._missing))
            self._hand_over(
                FinishedTrace(
                    id=self._id,
                    time=self._time,
                    start=self._start,
                    duration=self._at(),
                    entries=self._entries,
                    secrets=tuple(self._secrets),
                    size=self._size + COST * len(self._entries),
                )
            )
        self._open = False

    def _at(self) -> float:
        return round(self._clock() - self._start, 6)

    def _raw_data(self, kind: str, data: bytes) -> RawData:
        return RawData(data if self._fits(kind, len(data)) else b"")

    def _fits(self, kind: str, length: int) -> bool:
        """Whether data fits. Once data of a kind was omitted, all later data of that kind is too, so that pieces have
        no gaps."""
        if kind in self._missing or self._size + length + COST > MAX_TRACE:
            self._missing[kind] = self._missing.get(kind, 0) + length
            return False
        self._size += length + COST
        return True


class _FileWriter:
    """Writes files in the writer thread. Catches all errors and logs each kind once."""

    def __init__(self, config: TraceConfig, secrets: tuple[str, ...], now: Callable[[], float]) -> None:
        if config.dir is None:
            raise ConfigError("trace.dir is missing: expected a folder for traces")
        self._folder = Path(config.dir).absolute()
        self._max_bytes = config.max_mib * 1024 * 1024
        self._max_seconds = config.max_days * 86400
        self._secrets = secrets
        self._now = now
        self._folder_bytes = 0  # bytes in the folder, as counted by this process
        self._swept = 0.0
        self._failing: set[str] = set()

    def write(self, finished: FinishedTrace) -> bool:
        def write() -> None:
            lines = map(encode_record, redacted_records(finished, Redactor((*self._secrets, *finished.secrets))))
            self._folder_bytes += write_file(self._folder, trace_file_name(finished.id, finished.time), lines)

        written = self._tried("written to", write)
        self._tried("removed from", self._sweep_if_due)
        return written

    def remove_old_traces(self) -> None:
        self._tried("removed from", self._sweep)

    def _sweep_if_due(self) -> None:
        if self._folder_bytes > self._max_bytes or abs(self._now() - self._swept) >= SWEEP_EVERY:
            self._sweep()

    def _sweep(self) -> None:
        self._swept = self._now()
        self._folder_bytes = remove_old_traces(
            self._folder, now=self._swept, max_bytes=self._max_bytes, max_seconds=self._max_seconds
        )

    def _tried(self, what: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except Exception as error:  # the next trace may succeed
            if what not in self._failing:
                self._failing.add(what)
                logger.warning(
                    "traces cannot be %s %s: %s; requests are not affected",
                    what,
                    self._folder,
                    _safe_message(error),
                )
            return False
        if what in self._failing:
            self._failing.remove(what)
            logger.info("traces are %s %s again", what, self._folder)
        return True


def _named(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers as a dict; repeated headers are joined with commas."""
    named: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        named[key] = f"{named[key]}, {text}" if key in named else text
    return named


def _safe_message(error: Exception) -> str:
    """The message of an error without data of the request: only system messages are known to hold no key."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__


COST: Final = 256  # bytes of overhead per record
