"""Records requests. A `Trace` only appends to a list; a thread redacts keys, writes files and removes old ones.

Tracing never fails a request: data beyond the limits is omitted and counted, and write errors are logged once. An
internal error ends the thread, which Python reports with its traceback; a new thread continues with the next trace.
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
from antiphon.trace.finished_trace import FinishedTrace, TraceEntry, redact_records
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

MAX_TRACE_BYTES: Final = 32 * 1024 * 1024  # bytes of one trace, in memory and about the same on disk
MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024  # bytes of traces in the write queue
SWEEP_INTERVAL: Final = 60.0  # seconds
CLOSE_TIMEOUT: Final = 5.0  # seconds that `close` waits

logger = logging.getLogger("antiphon.trace")


class TraceWriter:
    """The traces of a server. Its writer thread runs until `close`. Only tests set `sweep_interval`."""

    def __init__(
        self,
        config: TraceConfig,
        secrets: Iterable[str] = (),
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        *,
        sweep_interval: float = SWEEP_INTERVAL,
    ) -> None:
        self.dropped_traces = 0  # traces that were not written
        self._now = now
        self._clock = clock
        self._queue: deque[FinishedTrace] = deque()
        self._queued_bytes = 0
        self._is_closing = False
        self._condition = threading.Condition()
        self._sweep_interval = sweep_interval
        self._writer = _FileWriter(config, tuple(secrets), now)
        self._is_finished = threading.Event()
        self._start_thread(self._sweep_and_write_traces)

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Adds keys that must not appear in traces."""
        self._writer.secrets = tuple(dict.fromkeys((*self._writer.secrets, *secrets)))

    def start_trace(self, id: str) -> Trace:
        return Trace(id, self._now(), self._clock, self._enqueue_trace)

    def close(self) -> None:
        """Waits until queued traces are written, at most `CLOSE_TIMEOUT` seconds."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        self._is_finished.wait(CLOSE_TIMEOUT)

    def _enqueue_trace(self, trace: FinishedTrace) -> None:
        with self._condition:
            if self._is_closing or self._queued_bytes + trace.size > MAX_QUEUED_BYTES:
                self.dropped_traces += 1
                if self.dropped_traces == 1:
                    logger.warning(
                        "a trace was dropped because the write queue is full; further dropped traces are only counted"
                    )
                return
            self._queue.append(trace)
            self._queued_bytes += trace.size
            self._condition.notify()

    def _start_thread(self, task: Callable[[], None]) -> None:
        threading.Thread(target=self._run_thread, args=(task,), name="antiphon-trace", daemon=True).start()

    # In the thread

    def _run_thread(self, task: Callable[[], None]) -> None:
        has_failed = True
        try:
            task()
            has_failed = False
        finally:
            if has_failed:
                self._start_thread(self._write_traces)
        self._is_finished.set()

    def _sweep_and_write_traces(self) -> None:
        self._writer.remove_old_traces()
        self._write_traces()

    def _write_traces(self) -> None:
        """Writes traces until `close`."""
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._queue or self._is_closing, timeout=self._sweep_interval)
                trace = self._queue[0] if self._queue else None
                if trace is None and self._is_closing:
                    return
            if trace is None:
                self._writer.remove_old_traces()
            else:
                self._write_trace(trace)
                self._writer.sweep_if_due()

    def _write_trace(self, trace: FinishedTrace) -> None:
        is_written = False
        try:
            is_written = self._writer.write_trace(trace)
        finally:
            with self._condition:
                self._queue.popleft()
                self._queued_bytes -= trace.size
                self.dropped_traces += not is_written


class Trace:
    """Records one request. Calls are cheap and do no I/O; `finish` queues the trace, once.

    A request whose body was not read leaves no trace: health checks, unauthenticated clients.
    """

    def __init__(
        self, id: str, time: float, clock: Callable[[], float], on_finished: Callable[[FinishedTrace], None]
    ) -> None:
        self._id = id
        self._time = time
        self._clock = clock
        self._on_finished = on_finished
        self._size = 0
        self._start = clock()
        self._entries: list[TraceEntry] = []
        self._secrets: list[str] = []
        self._omitted_bytes: dict[str, int] = {}
        self._has_request = False
        self._is_open = True

    def record_client_request(
        self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> None:
        if self._is_open:
            merged_headers = _join_headers(headers)
            self._secrets += keys_in_headers(merged_headers)
            raw_body = self._make_raw_data("client_request", body)
            self._entries.append(
                ClientRequest(at=self._elapsed(), method=method, path=path, headers=merged_headers, body=raw_body)
            )
            self._has_request = True

    def record_hub_request(self, encoded: bytes) -> None:
        if self._is_open:
            self._entries.append(HubRequest(at=self._elapsed(), body=self._make_raw_data("hub_request", encoded)))

    def record_route(self, upstream: str, dialect: str, model: str, profile: str, stream: bool) -> None:
        if self._is_open:
            self._entries.append(
                Route(
                    at=self._elapsed(), upstream=upstream, dialect=dialect, model=model, profile=profile, stream=stream
                )
            )

    def record_upstream_request(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        if self._is_open:
            self._secrets += keys_in_headers(headers)
            raw_body = self._make_raw_data("upstream_request", body)
            self._entries.append(
                UpstreamRequest(at=self._elapsed(), method=method, url=url, headers=dict(headers), body=raw_body)
            )

    def record_upstream_head(self, status: int, headers: Mapping[str, str]) -> None:
        if self._is_open:
            self._entries.append(UpstreamHead(at=self._elapsed(), status=status, headers=dict(headers)))

    def record_upstream_piece(self, data: bytes) -> None:
        if self._is_open and self._reserve_bytes("upstream_piece", len(data)):
            self._entries.append((self._clock(), UpstreamPiece, data))

    def record_client_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self._is_open:
            self._entries.append(ClientHead(at=self._elapsed(), status=status, headers=_join_headers(headers)))

    def record_client_piece(self, data: bytes) -> None:
        if self._is_open and self._reserve_bytes("client_piece", len(data)):
            self._entries.append((self._clock(), ClientPiece, data))

    def record_losses(self, losses: Losses) -> None:
        """Records losses found so far; repeated losses count once."""
        if self._is_open:
            self._entries.append(LossList(at=self._elapsed(), losses=list(losses)))

    def record_note(self, name: str, value: str | int | float | None) -> None:
        """Records a named value. Lists show the last notes named `model` and `error`."""
        if self._is_open:
            self._entries.append(TraceNote(at=self._elapsed(), name=name, value=value))

    def finish(self) -> None:
        if self._is_open and self._has_request:
            if self._omitted_bytes:
                self._entries.append(OmittedData(at=self._elapsed(), missing=self._omitted_bytes))
            self._on_finished(
                FinishedTrace(
                    id=self._id,
                    time=self._time,
                    start=self._start,
                    duration=self._elapsed(),
                    entries=self._entries,
                    secrets=tuple(self._secrets),
                    size=self._size + RECORD_OVERHEAD_BYTES * len(self._entries),
                )
            )
        self._is_open = False

    def _elapsed(self) -> float:
        return round(self._clock() - self._start, 6)

    def _make_raw_data(self, kind: str, data: bytes) -> RawData:
        return RawData(data if self._reserve_bytes(kind, len(data)) else b"")

    def _reserve_bytes(self, kind: str, length: int) -> bool:
        """Counts the bytes of data, as stored or as omitted. Returns whether the data fits. Once data of a kind was
        omitted, all later data of that kind is omitted too, so that pieces have no gaps."""
        if kind in self._omitted_bytes or self._size + length + RECORD_OVERHEAD_BYTES > MAX_TRACE_BYTES:
            self._omitted_bytes[kind] = self._omitted_bytes.get(kind, 0) + length
            return False
        self._size += length + RECORD_OVERHEAD_BYTES
        return True


class _FileWriter:
    """Writes files in the writer thread. Logs the first error of the disk, and when the disk works again."""

    def __init__(self, config: TraceConfig, secrets: tuple[str, ...], now: Callable[[], float]) -> None:
        if config.dir is None:
            raise ConfigError("trace.dir is missing: expected a folder for traces")
        self._folder = Path(config.dir).absolute()
        self._max_bytes = config.max_mib * 1024 * 1024
        self._max_seconds = config.max_days * 86400
        self.secrets = secrets
        self._now = now
        self._folder_bytes = 0  # bytes in the folder, as counted by this process
        self._last_sweep_time = 0.0
        self._failing_actions: set[str] = set()

    def write_trace(self, trace: FinishedTrace) -> bool:
        def write_trace_file() -> None:
            lines = map(encode_record, redact_records(trace, Redactor((*self.secrets, *trace.secrets))))
            self._folder_bytes += write_file(self._folder, trace_file_name(trace.id, trace.time), lines)

        return self._try_action("written to", write_trace_file)

    def sweep_if_due(self) -> None:
        if self._folder_bytes > self._max_bytes or abs(self._now() - self._last_sweep_time) >= SWEEP_INTERVAL:
            self.remove_old_traces()

    def remove_old_traces(self) -> None:
        self._try_action("removed from", self._sweep)

    def _sweep(self) -> None:
        self._last_sweep_time = self._now()
        self._folder_bytes = remove_old_traces(
            self._folder, now=self._last_sweep_time, max_bytes=self._max_bytes, max_seconds=self._max_seconds
        )

    def _try_action(self, description: str, action: Callable[[], None]) -> bool:
        try:
            action()
        except OSError as error:  # the next trace may succeed
            if description not in self._failing_actions:
                self._failing_actions.add(description)
                logger.warning(
                    "traces cannot be %s %s: %s; requests are not affected",
                    description,
                    self._folder,
                    error.strerror or type(error).__name__,  # `str(error)` has the name of a file
                )
            return False
        if description in self._failing_actions:
            self._failing_actions.remove(description)
            logger.info("traces are %s %s again", description, self._folder)
        return True


def _join_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers as a dict; repeated headers are joined with commas."""
    merged_headers: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        merged_headers[key] = f"{merged_headers[key]}, {text}" if key in merged_headers else text
    return merged_headers


RECORD_OVERHEAD_BYTES: Final = 256  # of each record
