"""The metrics of `GET /metrics`: requests, errors, durations, tokens, and gauges.

Requests are counted from their log entry when they end. Labels are bounded: paths are those of the routes, and a model
is a label only after it has answered, up to a maximum number.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import platform
import re
import resource
import sys
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Final, cast

from antiphon import __version__
from antiphon.errors import StorageUnavailable
from antiphon.gateway.request_scope import RequestLog
from antiphon.ops.exposition import (
    Family,
    Histogram,
    SharedMetrics,
    format_labels,
    hide_label,
    render_text,
    sum_families,
)
from antiphon.redaction import MAX_NAME_LENGTH, mask_keys
from antiphon.store.interface import Store

Key = tuple[str, str, str | None, str | None, int | None]


class Metrics:
    """The metrics of one process. With `shared`, each process reports the sum of all processes."""

    def __init__(self, models: Iterable[str] = (), shared: SharedMetrics | None = None) -> None:
        self._paths: list[tuple[str, re.Pattern[str]]] = []
        self._models = set(models)
        self._codes: set[str] = set()
        self._counts_by_entry: dict[Key, _RequestCount] = {}  # a cache by the fields of the log entry
        self._counts_by_labels: dict[tuple[str, ...], _RequestCount] = {}
        self._sums: dict[tuple[str, str, str], _EndpointSums] = {}
        self._errors: dict[tuple[str, str], int] = {}
        self._attempts: dict[tuple[str, str], int] = {}  # by upstream and outcome
        self._upstream_gauges: list[tuple[str, str, Callable[[], dict[str, float]]]] = []
        self._store: dict[str, _StoreCalls] = {}
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []
        self._shared = shared
        self._timer: asyncio.TimerHandle | None = None

    def register_paths(self, paths: Iterable[str]) -> None:
        """Sets the paths of the routes. `{model}` matches any text; other parameters match one segment."""
        patterns = [
            (path, re.compile(PARAMETER.sub("[^/]+", re.escape(path).replace(r"\{model\}", ".+")), re.DOTALL))
            for path in paths
        ]
        self._paths = sorted(
            patterns, key=lambda pattern: ("{" in pattern[0], -len(pattern[0]))
        )  # the most specific first

    def add_models(self, models: Iterable[str]) -> None:
        """Adds models that are labels from their first request on."""
        self._models.update(models)

    def add_gauge(self, name: str, help: str, read: Callable[[], float]) -> None:
        """Adds a gauge. `read` returns its current value; it is called for each scrape and must be quick."""
        self._gauges.append((name, help, read))

    def add_upstream_gauge(self, name: str, help: str, read: Callable[[], dict[str, float]]) -> None:
        """Adds a gauge with a value for each upstream."""
        self._upstream_gauges.append((name, help, read))

    def count_request(self, log_entry: RequestLog) -> None:
        """Counts a request that has ended."""
        status = log_entry.status
        key = (
            log_entry.method,
            log_entry.path,
            log_entry.model,
            log_entry.upstream,
            None if status is None else status // 100,
        )
        request_count = self._counts_by_entry.get(key) or self._find_count(log_entry, key)
        request_count.count += 1
        sums = request_count.sums
        duration = (log_entry.duration_ms or 0) / 1000
        _observe(sums.duration, duration)
        if log_entry.first_event_ms is not None:
            first_event = log_entry.first_event_ms / 1000
            _observe(sums.first_event, first_event)
            if log_entry.events > 1:
                _observe(sums.between_events, (duration - first_event) / (log_entry.events - 1))
        if log_entry.input_tokens is not None:
            sums.input_tokens += log_entry.input_tokens
            sums.output_tokens += log_entry.output_tokens or 0
            sums.cached_tokens += log_entry.cached_tokens
            sums.cache_write_tokens += log_entry.cache_write_tokens
            sums.reasoning_tokens += log_entry.reasoning_tokens
        sums.losses += log_entry.losses
        sums.client_disconnects += log_entry.client_disconnected
        for attempt in log_entry.attempts:
            attempt_labels = (attempt.upstream, attempt.outcome)
            self._attempts[attempt_labels] = self._attempts.get(attempt_labels, 0) + 1
        if log_entry.error is not None:
            labels = (_limit_label(log_entry.error, self._codes, MAX_CODES), log_entry.upstream or "")
            self._errors[labels] = self._errors.get(labels, 0) + 1

    def model_label(self, log_entry: RequestLog) -> str:
        """The label for the model of a request."""
        return self._model_label_of(log_entry)[0]

    def count_store_call(self, operation: str, seconds: float, *, failed: bool) -> None:
        """Counts a call of the store."""
        calls = self._store.get(operation)
        if calls is None:
            calls = self._store[operation] = _StoreCalls()
        calls.failures += failed
        _observe(calls.duration, seconds)

    def render(self, *, names_models: bool = True) -> bytes:
        """The metrics of all processes, as text. Without `names_models` all models are one, `other`."""
        families = self._families()
        if self._shared is not None:
            self._shared.write(families)
            families = sum_families([families, *self._shared.read_others()])
        return render_text(families if names_models else [hide_label(family, "model", OTHER) for family in families])

    def start(self) -> None:
        """Starts to write the metrics to the shared folder, periodically."""
        if self._shared is not None:
            self._shared.write(self._families())
            self._timer = asyncio.get_running_loop().call_later(WRITE_INTERVAL, self.start)

    def stop(self) -> None:
        if self._timer is not None and self._shared is not None:
            self._timer.cancel()
            self._shared.write([family for family in self._families() if family.kind != "gauge"])

    # Labels

    def _find_count(self, log_entry: RequestLog, key: Key) -> _RequestCount:
        path = self._path_label(log_entry.path)
        method = log_entry.method if log_entry.method in METHODS else OTHER
        model, is_cacheable = self._model_label_of(log_entry)
        upstream = log_entry.upstream or ""
        status = "none" if log_entry.status is None else f"{log_entry.status // 100}xx"
        labels = (method, path, model, upstream, status)
        request_count = self._counts_by_labels.get(labels)
        if request_count is None:
            sums = self._sums.setdefault((path, model, upstream), _EndpointSums())
            request_count = self._counts_by_labels[labels] = _RequestCount(sums)
        if is_cacheable and path == log_entry.path and method == log_entry.method:
            self._counts_by_entry[key] = request_count
        return request_count

    def _path_label(self, path: str) -> str:
        patterns = self._paths if len(path) <= MAX_NAME_LENGTH else ()
        return next((route for route, pattern in patterns if pattern.fullmatch(path)), OTHER)

    def _model_label_of(self, log_entry: RequestLog) -> tuple[str, bool]:
        """The label of a model, and whether it can be cached. A client can send any name, so only models that answered
        are labels."""
        model = log_entry.model
        if log_entry.upstream is None or model is None:
            return "", model is None
        if model not in self._models:
            is_served = log_entry.status is not None and log_entry.status < 300 and log_entry.error is None
            if not is_served or len(self._models) >= MAX_MODELS or not _is_name(model):
                return OTHER, False
            self._models.add(model)
        return model, True

    # Output

    def _families(self) -> list[Family]:
        tokens, losses, disconnects = Family(*TOKENS, {}), Family(*LOSSES, {}), Family(*DISCONNECTS, {})
        duration, first_event, between_events = (
            Family(*DURATION, {}),
            Family(*FIRST_EVENT, {}),
            Family(*BETWEEN_EVENTS, {}),
        )
        for (path, model, upstream), sums in self._sums.items():
            labels = format_labels({"endpoint": path, "model": model, "upstream": upstream})
            duration.samples.update(sums.duration.samples(labels))
            disconnects.samples[f"{{{labels}}}"] = sums.client_disconnects
            if upstream:
                losses.samples[f"{{{labels}}}"] = sums.losses
            if sums.first_event.total:
                first_event.samples.update(sums.first_event.samples(labels))
                between_events.samples.update(sums.between_events.samples(labels))
            if sums.input_tokens or sums.output_tokens:
                for type, count in sums.tokens().items():
                    tokens.samples[f'{{{labels},type="{type}"}}'] = count
        store = self._store.items()
        return [
            Family(*BUILD, {f"{{{format_labels({'version': __version__, 'python': platform.python_version()})}}}": 1}),
            Family(
                *REQUESTS,
                {
                    f"{{{_label_text(LABELS, labels)}}}": request_count.count
                    for labels, request_count in self._counts_by_labels.items()
                },
            ),
            tokens,
            duration,
            first_event,
            between_events,
            losses,
            disconnects,
            Family(
                *ERRORS,
                {f"{{{_label_text(('code', 'upstream'), labels)}}}": count for labels, count in self._errors.items()},
            ),
            Family(*STORE_FAILURES, {f'{{operation="{name}"}}': calls.failures for name, calls in store}),
            Family(
                *STORE_DURATION, {k: v for n, c in store for k, v in c.duration.samples(f'operation="{n}"').items()}
            ),
            Family(
                *ATTEMPTS,
                {
                    f"{{{_label_text(('upstream', 'outcome'), labels)}}}": count
                    for labels, count in self._attempts.items()
                },
            ),
            *(
                Family(name, "gauge", help, {f"{{{format_labels({'upstream': key})}}}": v for key, v in read().items()})
                for name, help, read in self._upstream_gauges
            ),
            *(Family(name, "gauge", help, {"": read()}) for name, help, read in self._gauges),
            *_process_families(),
        ]


def timed_store(store: Store, metrics: Metrics) -> Store:
    """Wraps a store so that every call is timed."""
    return cast(Store, _TimedStore(store, metrics))


class _TimedStore:
    """Times the coroutine methods of a store. Each is wrapped on first use."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._store, name)
        if inspect.iscoroutinefunction(member):
            member = self._timed(name, member)
            setattr(self, name, member)
        return member

    def _timed(self, name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(method)
        async def timed(*arguments: Any, **named: Any) -> Any:
            started_at = perf_counter()
            failed = False
            try:
                return await method(*arguments, **named)
            except StorageUnavailable:
                failed = True
                raise
            finally:
                self._metrics.count_store_call(name, perf_counter() - started_at, failed=failed)

        return timed


class _RequestCount:
    """The number of requests with the same labels and status."""

    __slots__ = ("count", "sums")

    def __init__(self, sums: _EndpointSums) -> None:
        self.count = 0
        self.sums = sums


class _EndpointSums:
    """Durations and tokens of the requests with the same endpoint, model and upstream."""

    __slots__ = (
        "between_events",
        "cache_write_tokens",
        "cached_tokens",
        "client_disconnects",
        "duration",
        "first_event",
        "input_tokens",
        "losses",
        "output_tokens",
        "reasoning_tokens",
    )

    def __init__(self) -> None:
        self.duration = Histogram(DURATIONS)
        self.first_event = Histogram(FIRST_EVENTS)
        self.between_events = Histogram(EVENT_INTERVALS)
        self.input_tokens = self.output_tokens = self.reasoning_tokens = 0
        self.cached_tokens = self.cache_write_tokens = 0
        self.losses = self.client_disconnects = 0

    def tokens(self) -> dict[str, int]:
        return {
            "input": self.input_tokens,
            "cached": self.cached_tokens,
            "cache_write": self.cache_write_tokens,
            "output": self.output_tokens,
            "reasoning": self.reasoning_tokens,
        }


class _StoreCalls:
    __slots__ = ("duration", "failures")

    def __init__(self) -> None:
        self.duration = Histogram(STORE_CALLS)
        self.failures = 0


def _observe(histogram: Histogram, seconds: float) -> None:
    histogram.counts[bisect_left(histogram.bounds, seconds)] += 1
    histogram.total += seconds


def _limit_label(name: str, accepted_names: set[str], max_count: int) -> str:
    if name not in accepted_names:
        if len(accepted_names) >= max_count or not _is_name(name):
            return OTHER
        accepted_names.add(name)
    return name


def _is_name(text: str) -> bool:
    """Whether a text can be a label: it is short and has no API key."""
    return len(text) <= MAX_LABEL_LENGTH and mask_keys(text) == text


def _label_text(names: Iterable[str], values: Iterable[str]) -> str:
    return format_labels(dict(zip(names, values, strict=True)))


def _process_families() -> list[Family]:
    resource_usage = resource.getrusage(resource.RUSAGE_SELF)
    families = [
        Family("process_resident_memory_bytes", "gauge", "Memory in use.", {"": _resident_memory(resource_usage)}),
        Family(
            "process_cpu_seconds_total", "counter", "CPU time.", {"": resource_usage.ru_utime + resource_usage.ru_stime}
        ),
    ]
    with suppress(OSError):  # not Linux
        families.append(
            Family("process_open_fds", "gauge", "Open files and sockets.", {"": len(os.listdir("/proc/self/fd"))})
        )
    return families


def _resident_memory(resource_usage: resource.struct_rusage) -> float:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: the peak value
        return resource_usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


PARAMETER: Final = re.compile(r"\\\{\w+\\\}")
OTHER: Final = "other"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "WEBSOCKET", "BACKGROUND"})
LABELS: Final = ("method", "endpoint", "model", "upstream", "status")
MAX_MODELS: Final = 200
MAX_CODES: Final = 100
MAX_LABEL_LENGTH: Final = 200
WRITE_INTERVAL: Final = 1.0  # seconds between two writes to the shared folder

DURATIONS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
FIRST_EVENTS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)
EVENT_INTERVALS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
STORE_CALLS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)

BUILD: Final = ("antiphon_build_info", "gauge", "The version, and the number of serving processes.")
REQUESTS: Final = (
    "antiphon_requests_total",
    "counter",
    "Requests and turns that ended; status none: the client disconnected.",
)
TOKENS: Final = (
    "antiphon_tokens_total",
    "counter",
    "Tokens as counted by upstreams; input includes cached, output includes reasoning.",
)
DURATION: Final = ("antiphon_request_duration_seconds", "histogram", "From a request to the end of its answer.")
FIRST_EVENT: Final = ("antiphon_first_event_seconds", "histogram", "From a request to the first event of its stream.")
BETWEEN_EVENTS: Final = (
    "antiphon_between_events_seconds",
    "histogram",
    "The mean time between two events of a stream, one observation per stream.",
)
LOSSES: Final = ("antiphon_losses_total", "counter", "Losses in translation between two APIs.")
DISCONNECTS: Final = (
    "antiphon_client_disconnects_total",
    "counter",
    "Clients that disconnected before the end of their answer.",
)
ATTEMPTS: Final = (
    "antiphon_attempts_total",
    "counter",
    "Attempts to get an answer from an upstream: answered, or the kind of their failure.",
)
ERRORS: Final = ("antiphon_errors_total", "counter", "Errors sent to clients, in a stream or instead of an answer.")
STORE_FAILURES: Final = ("antiphon_store_failures_total", "counter", "Store operations that failed.")
STORE_DURATION: Final = (
    "antiphon_store_duration_seconds",
    "histogram",
    "Duration of store operations.",
)
