"""Runs one background response: its turn is answered into a log of events, which the store keeps and readers in any
process read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon import sse
from antiphon.dialects import responses
from antiphon.errors import ApiError, StorageUnavailable
from antiphon.gateway.answer_settings import read_large_response
from antiphon.gateway.client_body import ClientBody
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.event_lines import EventLineWriter, StoredEventReader
from antiphon.gateway.history import HistorySource
from antiphon.gateway.ids import id_of, new_id
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.prepare_turn import PreparedTurn, TurnPreparer, prepare_turn
from antiphon.gateway.queued_turns import QueuedTurn
from antiphon.gateway.recording import ResponseRecorder, queued_response, restore_input
from antiphon.gateway.request_scope import RequestLog, RequestScope, run_in_scope, shutdown_error
from antiphon.gateway.routing.wishes import QueuedRouting, take_routing
from antiphon.gateway.run_turn import run_turn, violation_reporter
from antiphon.gateway.turn import UpstreamTurn
from antiphon.gateway.worker_pool import LARGE_INPUT
from antiphon.protocol import codec
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus
from antiphon.store.conversations import ConversationAddition
from antiphon.store.interface import ResponseRecord, Store, StoredTurn
from antiphon.store.work import Work


class Ending(Struct, frozen=True, kw_only=True):
    """A finished response and its stored form."""

    response: Response
    record: ResponseRecord
    item_ids: list[str]  # of its output: those of its input are stored already
    call_ids: list[str]
    addition: ConversationAddition | None = None


class BackgroundJob:
    """One background response while this process runs it. It can be interrupted while it runs, but not while its end is
    written. It is the requester of its turn, and the sink of its events."""

    has_started = True  # every error is part of the response
    is_disconnected = False  # nobody is connected

    def __init__(
        self,
        services: GatewayContext,
        store: Store,
        runner: str,
        work: Work,
        flush_interval: float,
        on_finishing: Callable[[], None],
        queued_turn: QueuedTurn | None = None,
    ) -> None:
        """`on_finishing` is called when the turn is over and its end is to be written. `queued_turn` is the prepared
        turn, if this process has it; then `work` has no contents."""
        self._services = services
        self._store = store
        self._runner = runner
        self._work = work
        self._queued_turn = queued_turn
        self._event_log = EventLog(store, runner, work.id, flush_interval, self.lose_lease)
        log_entry = RequestLog(
            request_id=new_id("req"), method="BACKGROUND", path="/v1/responses", owner=work.owner, response_id=work.id
        )
        trace = services.traces.start_trace(log_entry.request_id) if services.traces is not None else None
        self._scope = RequestScope(log_entry, trace)
        self._recorder: JobRecorder | None = None  # None: the turn has not begun
        self._line_writer: EventLineWriter | None = None
        self._interruption: ApiError | None = None  # why the job is ended from outside
        self._has_lost_lease = False
        self._can_be_interrupted = False
        self._on_finishing = on_finishing
        self.is_finishing = False  # only its end is to be written
        self.task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Ends the job because a client cancelled it."""
        self._interrupt_with(cancelled_error())

    def give_up(self) -> None:
        """Ends the job because the process stops."""
        self._interrupt_with(shutdown_error())

    def lose_lease(self) -> None:
        """Stops because another runner has the work, or it was deleted."""
        self._has_lost_lease = True
        self._interrupt()

    def _interrupt_with(self, error: ApiError) -> None:
        if self._interruption is None:
            self._interruption = error
            self._interrupt()

    def _interrupt(self) -> None:
        if self._can_be_interrupted:
            self._can_be_interrupted = False
            self.task.cancel()

    async def _run(self) -> None:
        if self._scope.trace is not None:
            content, _ = self._request_and_routing()
            self._scope.trace.record_client_request("BACKGROUND", "/v1/responses", [], content)
        try:
            await run_in_scope(self._services, self._scope, self, self._run_turn())
        finally:
            self._can_be_interrupted = False
            self._event_log.stop_writing()

    async def _run_turn(self) -> None:
        work, services, scope = self._work, self._services, self._scope
        if work.is_cancelled:
            raise cancelled_error()
        if work.next_event > 0:
            raise ApiError("the gateway that ran this response was restarted", code="server_restarted", status=503)
        self._can_be_interrupted = True
        self._event_log.start()
        if self._interruption is not None or self._has_lost_lease:
            self._interrupt()
            await asyncio.sleep(0)  # it takes effect here, before anything is sent
        queued_turn, self._queued_turn = self._queued_turn, None
        if queued_turn is None:
            prepared_turn, input = await self._prepare_turn(), work.input
            prepared_turn.turn.initial_response = await self._queued_response(work.head)
        else:
            prepared_turn, input = queued_turn.prepared_turn, queued_turn.input
            prepared_turn.turn.initial_response = queued_turn.response
            self._note_request(queued_turn)
        turn = prepared_turn.turn
        scope.log_entry.response_id = work.id
        assert prepared_turn.recorder is not None  # the response is stored
        self._recorder = turn.recorder = JobRecorder(prepared_turn.recorder, input)
        try:
            await run_turn(services, scope, prepared_turn, self._make_pipe, self)
        finally:
            prepared_turn.turn.abort()

    async def _prepare_turn(self) -> PreparedTurn:
        """Prepares the turn of the stored request."""
        work, services, scope = self._work, self._services, self._scope
        archive = HistorySource(owner=work.owner, store=self._store, limit=services.max_body)
        content, routing = self._request_and_routing()
        preparer = TurnPreparer(
            services,
            ClientBody(content=content, form="stored"),
            lambda _: archive,
            scope.log_entry,
            scope.trace,
            strict=routing.strict,
            find_session=lambda: routing.session,
            wishes=routing.wishes,
        )
        return await prepare_turn(preparer)

    async def _queued_response(self, head: bytes) -> Response:
        if len(head) <= LARGE_INPUT:
            return queued_response(head)
        return await read_large_response(self._services.workers, head)

    def _note_request(self, queued_turn: QueuedTurn) -> None:
        """Notes in the log what was found when the turn was prepared."""
        log_entry, earlier = self._scope.log_entry, queued_turn.log_entry
        log_entry.model, log_entry.upstream, log_entry.losses = earlier.model, earlier.upstream, earlier.losses
        log_entry.attempts = queued_turn.prepared_turn.attempts.records

    def _request_and_routing(self) -> tuple[bytes, QueuedRouting]:
        """The queued request, and what its caller says about its route, which is nothing in most cases."""
        request, routing = take_routing(self._work.request)
        return restore_input(request, self._work.input), routing

    def _make_pipe(self, turn: UpstreamTurn) -> Pipe:
        self._line_writer = EventLineWriter(turn.initial_response)
        on_violation = violation_reporter(self._services, self._scope.id)
        return turn.make_pipe(self._line_writer, on_violation=on_violation)

    # The sink

    def try_write(self, data: bytes) -> bool:
        """The task writes, because it yields to other tasks after each piece."""
        del data
        return False

    async def write(self, data: bytes) -> None:
        del data  # the lines themselves are not joined, because the last ones may be large
        await self._event_log.wait_for_room()
        assert self._line_writer is not None
        self._event_log.add(self._line_writer.take_lines())

    async def end(self, data: bytes, stored_turn: StoredTurn | None) -> None:
        """Writes the last events and the response in one transaction."""
        del stored_turn
        self._can_be_interrupted = False
        assert self._recorder is not None
        assert self._line_writer is not None
        del data
        self._event_log.add(self._line_writer.take_lines())
        await self._event_log.write_large_lines()  # before the response is encoded, which repeats them
        await self._finish(await self._recorder.make_ending(self._line_writer.response))

    # The requester

    async def interruption_error(self) -> ApiError | None:
        """None if the work is left to another runner."""
        self._can_be_interrupted = False
        error = self._interruption or shutdown_error()
        if self._has_lost_lease or await self._release_unstarted(error):
            return None
        if self._line_writer is not None:
            self._line_writer.is_cancelled = error.code == CANCELLED
        return error

    async def respond_with_error(self, error: ApiError) -> None:
        """Ends a response whose turn has not begun, in this run or in an earlier one. If the end of a turn could not be
        written, the work is left to its lease: when that expires, a runner ends the response."""
        self._can_be_interrupted = False
        if self._recorder is not None:
            self._scope.log_entry.error = error.code
            return
        try:
            if isinstance(error, StorageUnavailable):
                raise error
            ending = None if self._has_lost_lease else await self._end_stored_events(error)
            if ending is not None:
                await self._finish(ending)
        except StorageUnavailable as storage_error:
            self._leave_to_lease(storage_error)

    async def _finish(self, ending: Ending) -> None:
        log_entry = self._scope.log_entry
        log_entry.status = 200
        log_entry.note_response(ending.response, self._event_log.count)
        self.is_finishing = True
        self._on_finishing()
        if not await self._event_log.finish(ending):
            self._services.logger.event(
                "lease lost before the end of background work", level="warning", response_id=self._work.id
            )

    async def _release_unstarted(self, error: ApiError) -> bool:
        """Releases work that the process stops before any event was stored, so that another runner can start it."""
        if error.code != SHUTDOWN or await self._event_log.has_events():
            return False
        try:
            await self._store.release(self._runner, [self._work.id])
        except StorageUnavailable as storage_error:
            self._leave_to_lease(storage_error)
        return True

    def _leave_to_lease(self, error: StorageUnavailable) -> None:
        """Leaves the work as it is: when its lease expires, a runner restarts it or fails it."""
        self._scope.log_entry.error = error.code
        self._services.logger.event(
            "background work interrupted: the store is unavailable",
            level="warning",
            response_id=self._work.id,
            why=error.message,
        )

    async def _end_stored_events(self, error: ApiError) -> Ending | None:
        """Ends a response whose runner is gone: reads its stored events and completes them with an error."""
        record = await self._store.get(self._work.owner, self._work.id)
        if record is None:
            return None  # it was deleted
        queued = await self._queued_response(record.head)
        # With stored events, the events set the status.
        initial_response = replace(queued, status=ResponseStatus.IN_PROGRESS) if self._work.next_event > 0 else queued
        reader = responses.EventsToHub(Request(), initial_response, self._services.stamps)
        stored_count, events = await self._complete_stored_events(reader, error)
        lines = EventLineWriter(queued, is_cancelled=error.code == CANCELLED)
        self._event_log.next_number = stored_count
        for event in events:
            lines.feed(event)
        self._event_log.add(lines.take_lines())
        response = lines.response
        assert response is not None
        ended_record = replace(
            record,
            status=response.status,
            head=codec.encode(replace(response, output=[])),
            output=codec.encode(response.output),
        )
        return Ending(
            response=response,
            record=ended_record,
            item_ids=_ids_of_items(ended_record.output),
            call_ids=[],
        )

    async def _complete_stored_events(
        self, reader: responses.EventsToHub, error: ApiError
    ) -> tuple[int, list[StreamEvent]]:
        """Feeds the stored events to a reader and ends it. Returns their number, and the events that follow them. The
        reader may return an event later than the line that it belongs to."""
        stored_events = StoredEventReader(self._store, self._work.owner, self._work.id)
        stored_count, earlier_count, has_more = 0, 0, True  # `earlier_count`: events of the pages before the last
        events: list[StreamEvent] = []
        while has_more:
            page = await stored_events.read_after(stored_count - 1)
            lines, has_more = ([], False) if page is None else (page.lines, page.has_more)
            earlier_count += len(events)
            events = [event for line in lines for event in reader.feed(sse.Frame("", line))]
            stored_count += len(lines)
        events += reader.finish(error)
        return stored_count, events[max(0, stored_count - earlier_count) :]


class JobRecorder:
    """Keeps the response of a job until its last events are written: the store saves both in one transaction."""

    has_started: Final = True  # nothing is recorded for a job that is abandoned

    def __init__(self, recorder: ResponseRecorder, input: bytes) -> None:
        self._recorder = recorder
        self._input = input  # the request's items, with the ids assigned when it was queued
        self._response: Response | None = None

    async def save(self, response: Response) -> StoredTurn:
        self._response = response
        return StoredTurn(id=response.id, input=b"", output=b"")  # nobody reads it: `make_ending` has the content

    async def make_ending(self, failed_response: Response | None) -> Ending:
        """The stored form of the response. `failed_response` is a failed or cancelled response, as written."""
        response = self._response
        assert response is not None  # every turn ends with a response
        if failed_response is not None:
            response = replace(response, status=failed_response.status, error=failed_response.error)
        record, _, call_ids = self._recorder.make_record(response)
        record = replace(record, input=self._input)
        return Ending(
            response=response,
            record=record,
            item_ids=[id for item in response.output if (id := id_of(item)) is not None],
            call_ids=call_ids,
            addition=await self._recorder.make_addition(record),
        )


class EventLog:
    """Buffers the events of a response and writes them to the store."""

    def __init__(
        self, store: Store, runner: str, id: str, flush_interval: float, on_lease_lost: Callable[[], None]
    ) -> None:
        self.next_number = 0  # of the next event to write
        self._store = store
        self._runner = runner
        self._id = id
        self._flush_interval = flush_interval
        self._on_lease_lost = on_lease_lost
        self._pending_lines: list[bytes] = []
        self._pending_bytes = 0
        self._written = asyncio.Event()
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None  # until the next write
        self._write_task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._has_lost_lease = False

    @property
    def count(self) -> int:
        """The number of all events, written or not."""
        return self.next_number + len(self._pending_lines)

    def start(self) -> None:
        """Stores that the response is in progress, unless it ends within `flush_interval`."""
        self._schedule_write(self._flush_interval)

    def add(self, lines: list[bytes]) -> None:
        """Adds lines. They are written `flush_interval` after the first of them."""
        self._pending_lines += lines
        self._pending_bytes += sum(map(len, lines))
        if self._timer is None:
            self._schedule_write(self._flush_interval)

    async def wait_for_room(self) -> None:
        """Waits while the buffer is full, so that the upstream is read no faster than events are stored. Always yields
        once, so that a fast upstream does not block other tasks."""
        await asyncio.sleep(0)
        while self._pending_bytes > MAX_PENDING_BYTES:
            self._written.clear()
            await self._written.wait()

    async def write_large_lines(self) -> None:
        """Writes until no large lines wait. Retries while the storage is unavailable."""
        while self._pending_bytes > LARGE_LINE and not self._has_lost_lease:
            if not await self._write():
                await asyncio.sleep(RETRY_DELAY)

    async def has_events(self) -> bool:
        """Whether any event was stored, so that a reader may have received it."""
        async with self._lock:
            return self.next_number > 0

    def stop_writing(self) -> None:
        """Starts no more writes. A write that has begun ends."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule_write(self, delay: float) -> None:
        if not self._is_stopped:
            self._timer = asyncio.get_running_loop().call_later(delay, self._start_write)

    def _start_write(self) -> None:
        self._write_task = asyncio.get_running_loop().create_task(self._write_pending())

    async def _write_pending(self) -> None:
        """Writes the buffer, and schedules the next write if there are new lines, or these could not be written."""
        has_written = await self._write()
        self._timer = None
        if self._pending_lines:
            self._schedule_write(self._flush_interval if has_written else RETRY_DELAY)

    async def _write(self) -> bool:
        """Writes lines of the buffer; False if it must be retried."""
        async with self._lock:
            return await self._write_batch()

    async def _write_batch(self) -> bool:
        lines = self._first_lines()
        try:
            if not await self._store.append(
                self._runner, self._id, self.next_number, lines, ResponseStatus.IN_PROGRESS
            ):
                self._on_lease_lost()
                self._has_lost_lease = True
                return True
        except StorageUnavailable:
            return False
        del self._pending_lines[: len(lines)]
        self._pending_bytes -= sum(map(len, lines))
        self.next_number += len(lines)
        self._written.set()
        return True

    def _first_lines(self) -> list[bytes]:
        """The lines of the next write: all, but a large one is written alone, so that nothing copies it."""
        lines = self._pending_lines
        large = next((at for at, line in enumerate(lines) if len(line) > LARGE_LINE), len(lines))
        return lines[: large or 1]

    async def finish(self, ending: Ending) -> bool:
        """Writes the remaining events and the response; retries while the storage is unavailable, since no other runner
        can claim the work then. Returns whether this runner still had the lease."""
        self.stop_writing()
        await self.write_large_lines()
        async with self._lock:
            while True:
                try:
                    return await self._store.finish(
                        self._runner,
                        ending.record,
                        ending.item_ids,
                        ending.call_ids,
                        self.next_number,
                        self._pending_lines,
                        addition=ending.addition,
                    )
                except StorageUnavailable:
                    await asyncio.sleep(RETRY_DELAY)


def cancelled_error() -> ApiError:
    """The error that ends a cancelled response."""
    return ApiError("the response was cancelled", code=CANCELLED)


def _ids_of_items(items: bytes) -> list[str]:
    ids = [item.get("id") for item in msgspec.json.decode(items, type=list[dict[str, Any]])]
    return [id for id in ids if isinstance(id, str) and id]


CANCELLED: Final = "cancelled"
SHUTDOWN: Final = "server_shutdown"
MAX_PENDING_BYTES: Final = 4 * 1024 * 1024  # bytes of events in the buffer
LARGE_LINE: Final = 1024 * 1024  # bytes of an event
RETRY_DELAY: Final = 1.0  # seconds between attempts while the storage is unavailable
