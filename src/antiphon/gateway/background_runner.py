"""Runs background responses (API-2): each process claims queued work, runs it and appends its events to the store.
Readers in any process read the events from the store.

A response whose runner died is run again from the start if no event was stored. Otherwise it fails
(`server_restarted`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon import sse
from antiphon.dialects import responses
from antiphon.errors import ApiError, StorageUnavailable
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.history import HistorySource
from antiphon.gateway.ids import new_id
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.recording import queued_response
from antiphon.gateway.request_log import RequestLog
from antiphon.gateway.turn import UpstreamTurn, is_json
from antiphon.gateway.turn_lifecycle import prepare_turn, shutdown_error, violation_reporter
from antiphon.protocol import codec
from antiphon.protocol.events import ErrorEvent, ResponseCreated, ResponseFailed, ResponseQueued, StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus
from antiphon.store.conversations import ConversationAddition
from antiphon.store.interface import ResponseRecord, Store
from antiphon.store.work import Work
from antiphon.trace.writer import Trace

LINE: Final = b"\n"


class BackgroundTimings(Struct, frozen=True, kw_only=True):
    """Intervals of background work, in seconds."""

    lease: float = 15.0  # time until the work of a silent runner is free again
    heartbeat: float = 1.0  # between lease renewals, which also report cancellations
    poll_interval: float = 1.0  # between queries for work without a wake-up
    flush_interval: float = 0.1  # between writes of collected events


class BackgroundRunner:
    """Runs background work in one process."""

    def __init__(self, services: GatewayContext, store: Store, limit: int, timings: BackgroundTimings) -> None:
        self.runner = new_id("run")
        self.waiting_jobs = 0  # of all processes, at the last count
        self._counted = -math.inf
        self._services = services
        self._store = store
        self._limit = limit
        self._timings = timings
        self._running: dict[str, _Job] = {}
        self._there_is_work = asyncio.Event()
        self._is_stopping = False
        loop = asyncio.get_running_loop()
        self._looking = loop.create_task(self._look_for_work())
        self._beating = loop.create_task(self._stay_alive())

    @property
    def running_jobs(self) -> int:
        return len(self._running)

    def wake(self) -> None:
        """Queries the store for work at once."""
        self._there_is_work.set()

    def cancel(self, id: str) -> None:
        """Cancels a response if it runs in this process."""
        job = self._running.get(id)
        if job is not None:
            job.cancel()

    def stop_claiming(self) -> None:
        """Claims no more work."""
        self._is_stopping = True
        self.wake()

    def force_shutdown(self) -> None:
        """Ends or releases all running work at once."""
        for job in self._running.values():
            job.give_up()

    async def stop(self, grace: float) -> None:
        """Claims no more work, waits up to `grace` seconds for running work, then ends or releases it."""
        self.stop_claiming()
        # A claim in progress must be recorded.
        await asyncio.wait([self._looking], timeout=CLOSE_TIMEOUT)
        self._looking.cancel()
        jobs = list(self._running.values())
        if jobs:
            await asyncio.wait([job.task for job in jobs], timeout=grace)
        self.force_shutdown()
        if jobs:
            await asyncio.wait([job.task for job in jobs], timeout=CLOSE_TIMEOUT)
        for job in jobs:
            job.task.cancel()
        self._beating.cancel()

    async def _look_for_work(self) -> None:
        while not self._is_stopping:
            self._there_is_work.clear()
            try:
                await self._take()
                await self._count()
            except StorageUnavailable as error:
                self._services.logger.event("background work cannot be claimed", level="warning", why=error.message)
            try:
                async with asyncio.timeout(self._timings.poll_interval):
                    await self._there_is_work.wait()
            except TimeoutError:
                pass

    async def _take(self) -> None:
        room = self._limit - len(self._running)
        if room <= 0:
            return
        for work in await self._store.claim(self.runner, self._timings.lease, room):
            if work.id in self._running:
                continue  # the lease expired while the storage was unavailable; the job still runs here
            job = _Job(self._services, self._store, self.runner, work, self._timings.flush_interval)
            self._running[work.id] = job
            job.task.add_done_callback(lambda task, id=work.id: self._is_over(id, task))  # type: ignore[misc]

    async def _count(self) -> None:
        """Counts the queue from time to time, for the metrics."""
        now = asyncio.get_running_loop().time()
        if now - self._counted >= self._timings.lease / 3:
            self._counted = now
            self.waiting_jobs = (await self._store.queue_stats()).waiting

    def _is_over(self, id: str, task: asyncio.Task[None]) -> None:
        self._running.pop(id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._services.logger.fault("work in the background failed inside the gateway", error, response_id=id)
        self.wake()

    async def _stay_alive(self) -> None:
        """Renews the leases of running work; cancels work that was cancelled, stops work whose lease is lost."""
        while True:
            await asyncio.sleep(self._timings.heartbeat)
            ids = list(self._running)
            if not ids:
                continue
            try:
                states = await self._store.renew(self.runner, self._timings.lease, ids)
            except StorageUnavailable as error:
                self._services.logger.event("leases could not be renewed", level="warning", why=error.message)
                continue
            for id in ids:
                job = self._running.get(id)
                if job is not None and states.get(id) != "held":
                    if id in states:
                        job.cancel()
                    else:
                        job.lose()


class _Ended(Struct, frozen=True, kw_only=True):
    """A finished response and its stored form."""

    response: Response
    record: ResponseRecord
    item_ids: list[str]
    call_ids: list[str]
    addition: ConversationAddition | None = None


class _Job:
    """One background response while this process runs it. It can be interrupted while it runs, but not while its end is
    written."""

    def __init__(self, services: GatewayContext, store: Store, runner: str, work: Work, flush_interval: float) -> None:
        self._services = services
        self._store = store
        self._runner = runner
        self._work = work
        self._log = _Log(store, runner, work.id, flush_interval, self.lose)
        self._making: _Making | None = None
        self._why: ApiError | None = None  # why it is ended from outside
        self._has_lost_lease = False
        self._can_be_interrupted = False
        self.task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Ends it because a client cancelled it."""
        self._end_for(cancelled_error())

    def give_up(self) -> None:
        """Ends it because the process stops."""
        self._end_for(shutdown_error())

    def lose(self) -> None:
        """Stops because another runner has it, or it was deleted."""
        self._has_lost_lease = True
        self._interrupt()

    def _end_for(self, why: ApiError) -> None:
        if self._why is None:
            self._why = why
            self._interrupt()

    def _interrupt(self) -> None:
        if self._can_be_interrupted:
            self._can_be_interrupted = False
            self.task.cancel()

    async def _run(self) -> None:
        services, work = self._services, self._work
        id = new_id("req")
        log_entry = RequestLog(
            request_id=id, method="BACKGROUND", path="/v1/responses", owner=work.owner, response_id=work.id
        )
        trace = services.traces.start_trace(id) if services.traces is not None else None
        if trace is not None:
            trace.record_client_request("BACKGROUND", "/v1/responses", [], work.request)
        try:
            await self._live(log_entry, trace)
        except StorageUnavailable as error:  # its lease expires, then a runner restarts it or fails it
            log_entry.error = error.code
            services.logger.event("work was left to its lease", level="warning", response_id=work.id, why=error.message)
        finally:
            services.logger.request(log_entry)
            if trace is not None:
                trace.record_note("error", log_entry.error)
                trace.finish()

    async def _live(self, log_entry: RequestLog, trace: Trace | None) -> None:
        if self._work.is_cancelled:
            why: ApiError | None = cancelled_error()
        elif self._work.has_events:
            why = ApiError("the gateway that ran this response was restarted", code="server_restarted", status=503)
        else:
            why = await self._make(log_entry, trace)
        if self._has_lost_lease:
            return
        has_events = await self._log.has_events()
        if not has_events and why is not None and why is self._why and why.code == SHUTDOWN:
            await self._store.release(self._runner, [self._work.id])
            return
        ended = await self._close(why or shutdown_error()) if self._making is None else self._making.end(why)
        if ended is None:
            return
        log_entry.status = 200
        log_entry.note_response(ended.response, self._log.count)
        if not await self._log.finish(ended):
            self._services.logger.event(
                "lease lost before the end of background work", level="warning", response_id=self._work.id
            )

    async def _make(self, log_entry: RequestLog, trace: Trace | None) -> ApiError | None:
        """Runs the turn; returns the error that ended it early, if any."""
        writing = asyncio.get_running_loop().create_task(self._log.keep_writing())
        try:
            self._can_be_interrupted = True
            if self._why is not None or self._has_lost_lease:
                return self._why
            making = await self._begin(log_entry, trace)
            if making is not None:
                await making.run()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return self._why or shutdown_error()
        except StorageUnavailable:
            raise
        except ApiError as error:
            return error
        except Exception as error:
            self._services.logger.fault(
                "work in the background failed inside the gateway", error, response_id=self._work.id
            )
            return ApiError("internal error; see the log of the gateway")
        finally:
            self._can_be_interrupted = False
            writing.cancel()
            if self._making is not None:
                self._making.turn.abort()
        return None

    async def _begin(self, log_entry: RequestLog, trace: Trace | None) -> _Making | None:
        """Prepares the turn. None: it was deleted, or another runner has it."""
        work, services = self._work, self._services
        record = await self._store.get(work.owner, work.id)
        if record is None or not await self._store.append(self._runner, work.id, 0, [], ResponseStatus.IN_PROGRESS):
            self._has_lost_lease = True
            return None
        request = replace(codec.decode_stored_request(work.request), stream=True)
        archive = HistorySource(owner=work.owner, store=self._store, limit=services.max_body)
        # Strict mode was checked when the request was queued.
        prepared_turn = await prepare_turn(services, request, Losses(), archive, log_entry, trace, strict=False)
        prepared_turn.turn.initial_response = queued_response(record)
        log_entry.response_id = work.id
        self._making = _Making(services, prepared_turn.turn, self._log, log_entry, record)
        return self._making

    async def _close(self, why: ApiError) -> _Ended | None:
        """Ends a response whose runner is gone: reads its stored events and completes them with an error."""
        record = await self._store.get(self._work.owner, self._work.id)
        past_events = await self._store.events_after(self._work.owner, self._work.id, -1)
        if record is None or past_events is None:
            return None  # it was deleted
        queued = queued_response(record)
        # With stored events, the events set the status.
        initial_response = replace(queued, status=ResponseStatus.IN_PROGRESS) if past_events.events else queued
        reader = responses.EventsToHub(Request(), initial_response, self._services.stamps)
        events = [event for line in past_events.events for event in reader.feed(sse.Frame("", line))] + reader.finish(
            why
        )
        lines = EventLineWriter(queued, is_cancelled=why.code == CANCELLED)
        self._log.number = len(past_events.events)
        self._log.add([line for event in events[len(past_events.events) :] if (line := lines.feed(event))])
        response = lines.response
        assert response is not None
        ended = replace(
            record,
            status=response.status,
            head=codec.encode(replace(response, output=[])),
            output=codec.encode(response.output),
        )
        return _Ended(
            response=response, record=ended, item_ids=_ids_in(ended.input) + _ids_in(ended.output), call_ids=[]
        )


class _Making:
    """A turn whose events go to the event log."""

    def __init__(
        self, services: GatewayContext, turn: UpstreamTurn, log: _Log, log_entry: RequestLog, record: ResponseRecord
    ) -> None:
        self.turn = turn
        self._own = record.input  # the request's items, with the ids assigned when it was queued
        self._services = services
        self._log = log
        self._log_entry = log_entry
        self._lines = EventLineWriter(turn.initial_response)
        self._pipe: Pipe = turn.make_pipe(
            self._lines, separator=LINE, on_violation=violation_reporter(services, log_entry.request_id)
        )

    async def run(self) -> None:
        turn, pipe = self.turn, self._pipe
        answer = await turn.send_request(self._services.transport)
        if is_json(answer):
            self._add(pipe.write_events(await turn.read_response_as_events(answer)))
            return
        async for piece in turn.body_pieces(answer):
            self._add(pipe.feed(piece))
            if pipe.has_ended:
                return
            await self._log.wait_for_room()
        self._add(pipe.finish())

    def end(self, why: ApiError | None) -> _Ended:
        """Writes the remaining events and returns the finished response. A response that has ended keeps its end,
        whatever `why` says."""
        pipe, lines, recorder = self._pipe, self._lines, self.turn.recorder
        assert recorder is not None
        if why is not None:
            lines.is_cancelled = why.code == CANCELLED
            self._add(pipe.finish(why))
        self._add(pipe.release())
        response = pipe.recorded_response
        assert response is not None
        if lines.response is not None:
            response = replace(response, status=lines.response.status, error=lines.response.error)
        self._log_entry.losses = len(pipe.losses)
        record, _, call_ids = recorder.make_record(response)
        record = replace(record, input=self._own)
        return _Ended(
            response=response,
            record=record,
            item_ids=_ids_in(record.input) + _ids_in(record.output),
            call_ids=call_ids,
            addition=recorder.make_addition(record),
        )

    def _add(self, out: bytes) -> None:
        if out:
            self._log_entry.note_first_event()
            self._log.add(out.split(LINE))


class EventLineWriter:
    """Writes events as lines of JSON. A cancelled response ends without an error. The events before `in_progress` are
    the same in every run, since a reader may have received them while the response was queued (see `tailing`)."""

    def __init__(self, queued: Response, *, is_cancelled: bool = False) -> None:
        self.losses = Losses()
        self.is_cancelled = is_cancelled
        self._queued = queued
        self.response: Response | None = None  # a failed or cancelled response, as written
        self._left_out = 0

    def feed(self, event: StreamEvent) -> bytes:
        if isinstance(event, ErrorEvent) and self.is_cancelled:
            self._left_out = 1
            return b""
        if type(event) is ResponseCreated or type(event) is ResponseQueued:
            event = replace(event, response=self._queued)
        elif isinstance(event, ResponseFailed):
            if self.is_cancelled:
                response = replace(event.response, status=ResponseStatus.CANCELLED, error=None)
                event = replace(event, sequence_number=event.sequence_number - self._left_out, response=response)
            self.response = event.response
        return encode_event_line(event)

    def finish(self) -> bytes:
        return b""


class _Log:
    """Buffers the events of a response and writes them to the store."""

    def __init__(self, store: Store, runner: str, id: str, flush_interval: float, lose: Callable[[], None]) -> None:
        self.number = 0  # of the next event to write
        self._store = store
        self._runner = runner
        self._id = id
        self._flush_interval = flush_interval
        self._lose = lose
        self._pending_lines: list[bytes] = []
        self._pending_bytes = 0
        self._written = asyncio.Event()
        self._news = asyncio.Event()
        self._lock = asyncio.Lock()

    @property
    def count(self) -> int:
        """The number of all events, written or not."""
        return self.number + len(self._pending_lines)

    def add(self, lines: list[bytes]) -> None:
        self._pending_lines += lines
        self._pending_bytes += sum(map(len, lines))
        self._news.set()

    async def wait_for_room(self) -> None:
        """Waits while the buffer is full, so that the upstream is read no faster than events are stored. Always yields
        once, so that a fast upstream does not block other tasks."""
        await asyncio.sleep(0)
        while self._pending_bytes > MAX_PENDING_BYTES:
            self._written.clear()
            await self._written.wait()

    async def has_events(self) -> bool:
        """Whether any event was stored, so that a reader may have received it."""
        async with self._lock:
            return self.number > 0

    async def keep_writing(self) -> None:
        """Writes collected events periodically, `flush_interval` after the first. Retries what could not be written."""
        while True:
            await self._news.wait()
            await asyncio.sleep(self._flush_interval)
            self._news.clear()
            if not await asyncio.shield(self._write()):
                await asyncio.sleep(AGAIN)
                self._news.set()

    async def _write(self) -> bool:
        """Writes the buffer; False if it must be retried."""
        async with self._lock:
            lines = list(self._pending_lines)
            try:
                if not await self._store.append(self._runner, self._id, self.number, lines, ResponseStatus.IN_PROGRESS):
                    self._lose()
                    return True
            except StorageUnavailable:
                return False
            del self._pending_lines[: len(lines)]
            self._pending_bytes -= sum(map(len, lines))
            self.number += len(lines)
            self._written.set()
            return True

    async def finish(self, ended: _Ended) -> bool:
        """Writes the remaining events and the response; retries while the storage is unavailable, since no other runner
        can claim the work then. Returns whether this runner still had the lease."""
        async with self._lock:
            while True:
                try:
                    return await self._store.finish(
                        self._runner,
                        ended.record,
                        ended.item_ids,
                        ended.call_ids,
                        self.number,
                        self._pending_lines,
                        addition=ended.addition,
                    )
                except StorageUnavailable:
                    await asyncio.sleep(AGAIN)


def cancelled_error() -> ApiError:
    """The error that ends a cancelled response."""
    return ApiError("the response was cancelled", code=CANCELLED)


def _ids_in(items: bytes) -> list[str]:
    ids = [item.get("id") for item in msgspec.json.decode(items, type=list[dict[str, Any]])]
    return [id for id in ids if isinstance(id, str) and id]


def encode_event_line(event: StreamEvent) -> bytes:
    """An event as JSON on one line. Raw bytes of the upstream in it may hold line breaks."""
    data = codec.encode(event)
    return msgspec.json.format(data, indent=-1) if b"\n" in data or b"\r" in data else data


CANCELLED: Final = "cancelled"
SHUTDOWN: Final = "server_shutdown"
CLOSE_TIMEOUT: Final = 5.0  # seconds
MAX_PENDING_BYTES: Final = 4 * 1024 * 1024  # bytes of events in the buffer
AGAIN: Final = 1.0  # seconds between attempts while the storage is unavailable
