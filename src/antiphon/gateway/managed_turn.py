"""Turns whose conversation is shortened first: compacted, truncated, or compacted only.

A managed turn runs like any other turn. It sends the shortened conversation, and its first output item is the
compaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from antiphon.dialects.common.server_turn import StreamReader
from antiphon.dialects.common.token_estimate import estimate_request
from antiphon.dialects.dialect import EventsToHub, Framing
from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.compaction import (
    Conversation,
    EncodedConversation,
    decode_contents,
    decode_conversation,
    encode_conversation,
)
from antiphon.gateway.compactor import CompactionResult, Compactor, add_usage, compaction_usage
from antiphon.gateway.planning import ContextPlan
from antiphon.gateway.recording import Recorder
from antiphon.gateway.truncation import input_token_limit, truncate_request
from antiphon.gateway.turn import UpstreamTurn
from antiphon.gateway.turn_data import PreparedRequest, prepare_request
from antiphon.gateway.upstreams import Target, TranslationPlan
from antiphon.gateway.worker_pool import LARGE_INPUT
from antiphon.protocol import codec
from antiphon.protocol.events import (
    ItemAdded,
    ItemDone,
    ResponseCreated,
    ResponseInProgress,
    ResponseQueued,
    StreamEvent,
    TerminalEvent,
    TextRun,
    UnknownEvent,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.policy import PaddingSource
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ResponseStatus
from antiphon.trace.writer import Trace
from antiphon.upstream.transport import Transport, UpstreamResponse

EventT = TypeVar("EventT", StreamEvent, StreamEvent | TextRun)


class ManagedTurn(UpstreamTurn):
    """A turn that carries out a `ContextPlan`."""

    def __init__(
        self,
        prepared: PreparedRequest,
        target: Target,
        stamps: Stamps,
        pad: PaddingSource | None,
        trace: Trace | None,
        recorder: Recorder | None,
        plan: ContextPlan,
        compactor: Compactor,
        limits: OutputLimits = OutputLimits(),  # noqa: B008
    ) -> None:
        super().__init__(prepared, target, stamps, pad, trace, recorder, limits)
        self._plan: ContextPlan | None = plan  # released once used: it holds the whole conversation
        self._compactor = compactor
        self._compaction: CompactionResult | None = None

    async def send_request(self, transport: Transport) -> UpstreamResponse:
        """Compacts if planned, then sends the request. If the upstream finds the input too long, sends it once more
        with less."""
        plan, self._plan = self._plan, None
        assert plan is not None  # a turn is sent once
        conversation = plan.conversation
        if plan.compacts:
            compaction = self._compaction = await self._compactor.compact(
                conversation,
                transport,
                self.losses,
                compaction_threshold=plan.threshold,
                headers=self.headers,
            )
            self._record_note("compacted")
            if plan.only_compacts:
                return EmptyResponse()
            context_size = plan.context_size if plan.truncates else None
            size = len(compaction.content) + len(plan.encoded_settings or b"")
            settings = plan.encoded_settings or plan.request
            conversation = await self._replace_request(
                size, compact_request, settings, compaction.content, context_size
            )
        try:
            return await super().send_request(transport)
        except ClientFault as error:
            if not plan.truncates or error.code != "context_length_exceeded":
                raise
            size = conversation.size if isinstance(conversation, EncodedConversation) else 0
            await self._replace_request(size, shorten_request, conversation, error.without_traceback())
        self._record_note("shortened")
        return await super().send_request(transport)

    def make_reader(self) -> StreamReader:
        dialect = self.target.upstream.server_dialect
        wire = self.target.upstream.profile.wire
        to_hub = dialect.events_to_hub(self.prepared.upstream_request, self.initial_response, self._stamps, wire)
        return PrefixedStreamReader(to_hub, lambda: self._compaction, self._limits, dialect.framing)

    async def read_body(self, answer: UpstreamResponse, limit: int | None = None) -> bytes:
        return b"" if isinstance(answer, EmptyResponse) else await super().read_body(answer, limit)

    def _read_whole(self, body: bytes) -> Response:
        compaction = self._compaction
        if compaction is None:
            return super()._read_whole(body)
        if body:
            return _add_compaction(super()._read_whole(body), compaction)
        usage = compaction_usage(compaction, self.losses)
        now = self._stamps.now()
        return replace(
            self.initial_response,
            status=ResponseStatus.COMPLETED,
            completed_at=now,
            output=[compaction.item],
            usage=usage,
        )

    async def _replace_request(
        self, size: int, shorten: Callable[..., ShortenedRequest], *arguments: Any
    ) -> Conversation | EncodedConversation:
        """Replaces the request by one that `shorten` makes, in a worker process if the conversation is large."""
        is_remote = size > LARGE_INPUT
        workers = self._compactor.workers
        shortened = await workers.call(size, shorten, *arguments, self.prepared.plan, is_remote)
        self.prepared.body = shortened.prepared.body
        self.prepared.retry_source, self.prepare_retry = shortened.prepared.retry_source, None
        self.losses.extend(shortened.losses)
        self.losses.extend(shortened.prepared.losses)
        if self._trace is not None:
            self._trace.record_hub_request(encode_conversation(shortened.conversation).request)
        return shortened.conversation

    def _record_note(self, what: str) -> None:
        if self._trace is not None:
            self._trace.record_note("conversation", what)


class ShortenedRequest(Struct, frozen=True, kw_only=True):
    """A request with a shorter conversation."""

    prepared: PreparedRequest
    conversation: Conversation | EncodedConversation
    losses: Losses  # of the conversation


def compact_request(
    settings: Request | bytes, content: bytes, context_size: int | None, plan: TranslationPlan, is_remote: bool
) -> ShortenedRequest:
    """The request with the contents of a compaction as its conversation, truncated to the context size if it is not
    None. `settings` is the request, whose items do not matter."""
    losses = Losses()
    request = codec.decode_stored_request(settings) if isinstance(settings, bytes) else settings
    request = replace(request, input=decode_contents(content).items())
    if context_size is not None:
        request = truncate_request(request, input_token_limit(context_size, request), losses)
    return _prepare_shortened(request, losses, plan, is_remote)


def shorten_request(
    conversation: Conversation | EncodedConversation, error: ClientFault, plan: TranslationPlan, is_remote: bool
) -> ShortenedRequest:
    """The request with a part of its conversation. Raises `error`, the upstream's, if there is nothing to leave out."""
    losses, request = Losses(), decode_conversation(conversation).request
    shorter = truncate_request(request, estimate_request(request) * RETRY_PERCENT // 100, losses)
    if shorter is request:
        raise error
    return _prepare_shortened(shorter, losses, plan, is_remote)


def _prepare_shortened(request: Request, losses: Losses, plan: TranslationPlan, is_remote: bool) -> ShortenedRequest:
    prepared = prepare_request(request, plan)
    conversation = Conversation(request=request, sealed_items=[])
    if not is_remote:
        return ShortenedRequest(prepared=prepared, conversation=conversation, losses=losses)
    prepared.release_retry_source()
    prepared.request = prepared.upstream_request = Request()  # the turn has the settings
    return ShortenedRequest(prepared=prepared, conversation=encode_conversation(conversation), losses=losses)


class EmptyResponse:
    """The response of a turn that only compacts."""

    status: Final = 200
    headers: Final[Mapping[str, str]] = {"content-type": "application/json"}

    async def pieces(self) -> AsyncIterator[bytes]:
        return
        yield b""

    def abort(self) -> None:
        pass  # no resources


class PrefixedStreamReader(StreamReader):
    """Puts the compaction item before the upstream's output: sends it once the response is in progress, and shifts all
    later indexes and sequence numbers."""

    def __init__(
        self,
        to_hub: EventsToHub,
        get_compaction: Callable[[], CompactionResult | None],
        limits: OutputLimits,
        framing: Framing = "sse",
    ) -> None:
        super().__init__(to_hub, limits, framing)
        self._get_compaction = get_compaction
        self._has_sent_item = False

    def feed_runs(self, data: bytes) -> list[StreamEvent | TextRun]:
        return self._shift_events(super().feed_runs(data))

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        return self._shift_events(super().finish(error))

    def _shift_events(self, events: Sequence[EventT]) -> list[EventT]:
        compaction = self._get_compaction()
        return (
            list(events)
            if compaction is None
            else [shifted_event for event in events for shifted_event in self._shift_event(event, compaction)]
        )

    def _shift_event(self, event: EventT, compaction: CompactionResult) -> Iterable[EventT]:
        if isinstance(event, ResponseCreated | ResponseQueued):
            return (event,)
        if isinstance(event, ResponseInProgress):
            if self._has_sent_item:
                return (event,)
            self._has_sent_item = True
            number = event.sequence_number
            return (
                event,
                ItemAdded(sequence_number=number + 1, output_index=0, item=compaction.item),
                ItemDone(sequence_number=number + 2, output_index=0, item=compaction.item),
            )
        changes: dict[str, Any] = {"sequence_number": event.sequence_number + BEFORE}
        if isinstance(event, UnknownEvent):
            changes["raw"] = _renumber_event(event)
        elif isinstance(event, TerminalEvent):
            changes["response"] = _add_compaction(event.response, compaction)
        elif hasattr(event, "output_index"):
            changes["output_index"] = event.output_index + 1
        return (replace(event, **changes),)


def _add_compaction(response: Response, compaction: CompactionResult) -> Response:
    return replace(
        response, output=[compaction.item, *response.output], usage=add_usage(compaction.usage, response.usage)
    )


def _renumber_event(event: UnknownEvent) -> Raw:
    members: dict[str, Any] = event.raw_members() | {"sequence_number": event.sequence_number + BEFORE}
    if "output_index" in members:
        index = msgspec.json.decode(members["output_index"])
        members["output_index"] = index + 1 if isinstance(index, int) else index
    return Raw(codec.encode(members))


BEFORE: Final = 2  # events of the compaction item
RETRY_PERCENT: Final = 60  # per cent of the estimate of the input that was too long
