"""One turn: sends the prepared request to the upstream and reads the response.

A turn sends one request, and at most `MAX_RETRIES` more if the upstream refuses something about reasoning, or system
messages. The client may want a
stream or not, and the upstream may stream or not: all four cases work, since servers that ignore `stream` exist in both
directions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from antiphon.diagnosis import diagnose, named_findings, summary_sentence
from antiphon.dialects.common.refused_reasoning import RefusedPart, refused_part
from antiphon.dialects.common.relay import LiteralContent, Relay, relayed_answer, repaired_answer
from antiphon.dialects.common.server_turn import StreamReader, turn_url, with_billed_tokens
from antiphon.dialects.dialect import FRAME_ENCODERS, ClientDialect, EventsFromHub
from antiphon.dialects.registry import Wire
from antiphon.errors import AnswerTooLarge, ApiError, ClientFault, OriginalError, UpstreamFault
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.recording import Recorder
from antiphon.gateway.short_answer import AnswerShortener
from antiphon.gateway.turn_data import PreparedRequest, RetryRequest, prepare_retry
from antiphon.gateway.upstreams import Target, Upstream
from antiphon.protocol import codec
from antiphon.protocol.events import StreamEvent, TerminalEvent, TextRun
from antiphon.protocol.fold import replay_response
from antiphon.protocol.grammar import Violation
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.policy import PaddingSource, Policy
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ResponseStatus
from antiphon.trace.writer import Trace
from antiphon.upstream.body import read_body
from antiphon.upstream.transport import Flow, Transport, UpstreamResponse, flow_of_pieces

MAX_ERROR_BYTES: Final = 256 * 1024  # bytes of an error body that are read
ERROR_BODY_SECONDS: Final = 2.0  # for which the body of an error is awaited
MAX_DIAGNOSED_BYTES: Final = 1024 * 1024  # bytes of a refused request body that are diagnosed
MAX_RETRIES: Final = 2  # of one turn, each without another part that the upstream refused
UNNAMED_UPSTREAM: Final = "the upstream "  # the beginning of most messages of the transport
OMISSIONS_NOTE: Final = "left_out"  # the name of a trace note


class UpstreamTurn:
    """A prepared turn and its exchange with the upstream."""

    def __init__(
        self,
        prepared: PreparedRequest,
        target: Target,
        stamps: Stamps,
        pad: PaddingSource | None,
        trace: Trace | None = None,
        recorder: Recorder | None = None,
        limits: OutputLimits = OutputLimits(),  # noqa: B008
    ) -> None:
        self.recorder = recorder  # None: the response is not stored
        self.prepared = prepared
        self.target = target
        self.initial_response = make_initial_response(
            prepared.request, id=stamps.new_id("resp"), created_at=stamps.now()
        )
        self.losses = prepared.losses
        self.headers: Mapping[str, str] = target.upstream.headers
        self.check_response: Callable[[Response], None] | None = None  # raises if a whole answer is no answer
        self.allows_lossy_retry = True  # whether a retry without refused reasoning may lose data
        #: Prepares a retry from the client's body, unless `prepared.retry_source` is set.
        self.prepare_retry: Callable[[Sequence[RefusedPart]], Awaitable[RetryRequest | None]] | None = None
        self.on_retry: Callable[[ApiError], None] | None = None
        self.shortener: AnswerShortener | None = None  # if the answer may repeat large settings
        self._stamps = stamps
        has_client_tools = getattr(target.upstream.profile.wire, "has_client_tools", False)
        self._policy = Policy.for_request(prepared.request, pad=pad, checks_client_tools=not has_client_tools)
        self._trace = trace
        self._limits = limits
        self._answer: UpstreamResponse | None = None
        self._whole_body = b""  # the upstream's answer, if it is no stream
        self._request_losses = self.losses  # without those of the answer

    async def send_request(self, transport: Transport) -> UpstreamResponse:
        """Sends the request; raises the upstream's error if it refuses. RSN-3: if it refuses something about reasoning,
        or system messages, retries without that part, before the client has received anything."""
        body, self.prepared.body = self.prepared.body, b""
        retry_source, self.prepared.retry_source = self.prepared.retry_source, None
        original, self.prepared.original = self.prepared.original, None
        prepare_again, self.prepare_retry = self.prepare_retry, None
        sent_bodies: list[bytes] = []
        refused_parts: list[RefusedPart] = []
        wire: Wire | None = None  # without the refused parts
        try:
            while True:
                sent_bodies.append(body)
                try:
                    answer = await self._send(transport, body)
                    break
                except ClientFault as error:
                    refused = refused_part(error)
                    if refused is None or len(refused_parts) == MAX_RETRIES:
                        raise
                    refused_parts.append(refused)
                    retry: RetryRequest | None = None
                    if retry_source is not None:
                        retry = prepare_retry(retry_source, self.prepared.plan, refused_parts, original)
                    elif prepare_again is not None:
                        retry = await prepare_again(refused_parts)
                    if retry is None or not self._allows_retry(retry, sent_bodies):
                        raise
                    self._note_refusal(error, retry)
                body, wire = retry.body, retry.wire
        finally:
            del prepare_again  # it holds the client's body
            self.on_retry = None  # it may too
        if wire is not None:
            self._remember_refusals(refused_parts, wire)
        return answer

    def _remember_refusals(self, refused_parts: Sequence[RefusedPart], wire: Wire) -> None:
        """Remembers the parts without which the upstream accepted the request; not those of this turn's history."""
        for refused in [part for part in refused_parts if part != "reasoning"]:
            self.target.upstream.refusals.remember(self.target.model, refused, wire)
        self.note_omissions()

    def note_omissions(self) -> None:
        """Notes in the trace which parts were left out because the upstream refused them, now or earlier."""
        remembered = self.target.upstream.refusals.find(self.target.model)
        if self._trace is not None and remembered is not None:
            self._trace.record_note(OMISSIONS_NOTE, " ".join(remembered.refused))

    def _allows_retry(self, retry: RetryRequest, sent_bodies: Sequence[bytes]) -> bool:
        if retry.body in sent_bodies:  # the refused part was not sent, or what the retry would send was refused before
            return False
        return self.allows_lossy_retry or set(retry.losses) <= set(self.losses)

    async def _send(self, transport: Transport, body: bytes) -> UpstreamResponse:
        upstream = self.target.upstream
        url = turn_url(
            upstream.server_dialect,
            upstream.base_url,
            self.target.model,
            streams=bool(self.prepared.upstream_request.stream),
        )
        headers = self.headers
        if self._trace is not None:
            self._trace.record_upstream_request("POST", url, headers, body)
        try:
            answer = self._answer = await transport.send("POST", url, headers, body, upstream.timeouts)
        except UpstreamFault as fault:
            fault.message = with_upstream_name(fault.message, upstream.name)
            self._note_fault(fault)
            raise
        if self._trace is not None:
            self._trace.record_upstream_head(answer.status, answer.headers)
        if answer.status != 200:
            raise await self._read_error(answer, body)
        check_content(answer)
        return answer

    def abort(self) -> None:
        """Aborts the exchange with the upstream, if it is still open."""
        if self._answer is not None:
            self._answer.abort()

    @property
    def has_complete_response(self) -> bool:
        """Whether the upstream's body has arrived in full and no trace needs its pieces."""
        return self._trace is None and getattr(self._answer, "is_complete", False)

    def make_reader(self) -> StreamReader:
        dialect = self.target.upstream.server_dialect
        wire = self.target.upstream.profile.wire
        to_hub = dialect.events_to_hub(self.prepared.upstream_request, self.initial_response, self._stamps, wire)
        return StreamReader(to_hub, self._limits, dialect.framing)

    def make_pipe(
        self,
        from_hub: EventsFromHub,
        *,
        reports_losses: bool = False,
        loss_comment: Callable[[Losses], bytes] | None = None,
        on_violation: Callable[[Violation], None] | None = None,
        separator: bytes = b"",
        client_dialect: ClientDialect | None = None,
    ) -> Pipe:
        """The pipe for a client that wants a stream. If the response is stored, the terminal event is held back until
        it is. With `client_dialect`, a client of the upstream's dialect gets the upstream's own frames."""
        content = self._answer_content(client_dialect)
        encode_frame = FRAME_ENCODERS[self.target.upstream.server_dialect.framing]
        return Pipe(
            self.make_reader(),
            self._policy,
            from_hub,
            self.losses,
            reports_losses=reports_losses,
            loss_comment=loss_comment,
            on_violation=on_violation,
            holds_terminal_event=self.recorder is not None,
            separator=separator,
            relay=None if content is None else Relay(content, encode_frame),
        )

    def answer_client(self, client_dialect: ClientDialect, response: Response) -> bytes:
        """The body for a client that wants no stream: the upstream's own answer for a client of its dialect, or the
        translation of the response. A translation within a dialect keeps the upstream's members beside the content."""
        body, self._whole_body = self._whole_body, b""
        content = self._answer_content(client_dialect) if body else None
        relayed_body = None if content is None else relayed_answer(content, body, response)
        if relayed_body is not None:
            self.losses = self._request_losses  # an answer that passes as it came loses nothing
            return relayed_body
        translation, losses = client_dialect.response_from_hub(response, self.prepared.request)
        self.losses.extend(losses)
        return translation if content is None else repaired_answer(content, body, translation)

    def _answer_content(self, client_dialect: ClientDialect | None) -> LiteralContent | None:
        """The literal content of the answer, if the client speaks the upstream's dialect."""
        profile = self.target.upstream.profile
        if client_dialect is None or client_dialect.answer_content is None or client_dialect.name != profile.dialect:
            return None
        if self.recorder is not None and client_dialect.continues_answers:
            return None  # the upstream's own answer would have its own id
        model = self.prepared.request.model or None
        mapped_model = None if model == self.target.model else model
        return client_dialect.answer_content(self.prepared.request, profile.wire, self.initial_response, mapped_model)

    async def read_response(self, answer: UpstreamResponse) -> Response:
        """For a client that wants no stream: stores the response if required and returns it, or raises its error."""
        response = (
            await self._stream_as_whole(answer)
            if is_stream(answer)
            else self._read_whole(await self._read_short_body(answer))
        )
        if self.check_response is not None:
            self.check_response(response)
        client_response = self._policy.apply_to_response(response)
        self.losses.extend(self._policy.losses)
        if self.recorder is not None:
            recorded_output = self._policy.without_withheld_items(response).output
            try:
                await self.recorder.save(replace(client_response, output=recorded_output))
            except ApiError as error:
                error.was_paid = True
                raise
        return client_response

    async def read_response_as_events(self, answer: UpstreamResponse) -> list[StreamEvent]:
        """The events of a response that was not streamed although a stream was requested."""
        was_queued = self.initial_response.status == ResponseStatus.QUEUED
        return replay_response(self._read_whole(await self._read_short_body(answer)), was_queued=was_queued)

    async def _read_short_body(self, answer: UpstreamResponse) -> bytes:
        body = await self.read_body(answer)
        return body if self.shortener is None else await self.shortener.shorten_body(body)

    async def read_body(self, answer: UpstreamResponse, limit: int | None = None) -> bytes:
        limit = self._limits.max_bytes if limit is None else limit
        flow = None if self._trace is None else flow_of_pieces(self._record_pieces(answer, self._trace))
        return await read_body(answer, limit, flow)

    def body_pieces(self, answer: UpstreamResponse) -> AsyncIterator[bytes]:
        """The pieces of a body, recorded by the trace if there is one."""
        pieces = answer.pieces() if self._trace is None else self._record_pieces(answer, self._trace)
        return pieces if self.shortener is None else self.shortener.shorten_pieces(pieces)

    def body_flow(self, answer: UpstreamResponse) -> Flow:
        """The same as a flow for a sink; faster if there is no trace."""
        if self._trace is not None or self.shortener is not None:
            return flow_of_pieces(self.body_pieces(answer))
        return getattr(answer, "flow", None) or flow_of_pieces(answer.pieces())

    async def _record_pieces(self, answer: UpstreamResponse, trace: Trace) -> AsyncIterator[bytes]:
        try:
            async for piece in answer.pieces():
                trace.record_upstream_piece(piece)
                yield piece
        except UpstreamFault as fault:
            self._note_fault(fault)
            raise

    def _note_refusal(self, error: ApiError, retry: RetryRequest) -> None:
        self.losses.extend(retry.losses)
        if self._trace is not None:
            self._trace.record_note("reasoning_refused", f"{error.code}: {error.message}")
        if self.on_retry is not None:
            self.on_retry(error)

    def _note_fault(self, fault: UpstreamFault) -> None:
        """Notes a transport error in the trace, since the recorded bytes do not show it."""
        if self._trace is not None:
            self._trace.record_note("upstream_fault", f"{fault.code}: {fault.message}")

    def _read_whole(self, body: bytes) -> Response:
        self._whole_body, self._request_losses = body, Losses()
        self._request_losses.extend(self.losses)
        upstream = self.target.upstream
        try:
            response, losses = upstream.server_dialect.response_to_hub(
                body, self.prepared.upstream_request, self.initial_response, self._stamps, upstream.profile.wire
            )
        except UpstreamFault as fault:
            mark_invalid_answer(fault, body)
            raise
        self.losses.extend(losses)
        if len(response.output) > self._limits.max_items:
            message = (
                f"the upstream's answer has {len(response.output)} items; expected at most {self._limits.max_items}"
            )
            too_large = AnswerTooLarge(message)
            too_large.was_paid = True
            raise too_large
        if response.status == ResponseStatus.FAILED and response.error is not None:
            # A server may report a failure with status 200; a client that does not stream gets an error status.
            body = codec.encode({"error": {"code": response.error.code, "message": response.error.message}})
            raise with_billed_tokens(upstream.server_dialect.error_to_hub(0, {}, body), response)
        return response

    async def _stream_as_whole(self, answer: UpstreamResponse) -> Response:
        reader = self.make_reader()
        last_events: list[StreamEvent | TextRun] = []
        fault: UpstreamFault | None = None
        try:
            async for piece in self.body_pieces(answer):
                last_events = reader.feed_runs(piece)
                if last_events and isinstance(last_events[-1], TerminalEvent):
                    break  # the response is complete; ignore the rest of the body
        except UpstreamFault as error:
            # A response that ended before the fault is complete, as it is for a client that streams.
            fault = error.without_traceback()
        # The terminal event holds the whole response, so earlier events are not needed.
        last_events = [*last_events[-1:], *reader.finish(fault)]
        self.losses.extend(reader.losses)
        terminal_event = next(event for event in last_events if isinstance(event, TerminalEvent))
        if reader.error is not None:
            failure = with_billed_tokens(reader.error, terminal_event.response)
            failure.was_paid = bool(terminal_event.response.output)  # usage may come before the model has answered
            raise failure.without_traceback()  # the raised error is no variable of this frame
        return terminal_event.response

    async def _read_error(self, answer: UpstreamResponse, request_body: bytes) -> ApiError:
        """ERR-4: the error for a status other than 200. Redirects are errors: they are not followed."""
        try:
            async with asyncio.timeout(ERROR_BODY_SECONDS):
                body = await self.read_body(answer, MAX_ERROR_BYTES)
        except (UpstreamFault, TimeoutError):
            body = b""  # the status is enough
        body = self.target.upstream.redact_key(b"" if is_compressed(answer) else body)
        error = error_of_answer(self.target.upstream, answer, body)
        self._add_diagnosis(error, request_body, answer.status, body)
        return error

    def _add_diagnosis(self, error: ApiError, request_body: bytes, status: int, body: bytes) -> None:
        """C-6: appends the diagnosis of a refused request to the server's message, and notes all findings."""
        if (
            not isinstance(error, ClientFault)
            or error.code == "context_length_exceeded"
            or len(request_body) > MAX_DIAGNOSED_BYTES
        ):
            return
        profile = self.target.upstream.profile
        refusal = (profile.dialect, request_body, status, body.decode("utf-8", "replace"), profile)
        if self._trace is not None:
            for finding in diagnose(*refusal):
                self._trace.record_note("diagnosis", str(finding))
        explanation = summary_sentence(named_findings(*refusal))
        if explanation and refused_part(error) is None:  # there, the message decides whether to retry
            error.message = f"{error.message.rstrip()} {explanation}"


def error_of_answer(upstream: Upstream, answer: UpstreamResponse, body: bytes) -> ApiError:
    """The error for an answer with a status other than 200. `body` has none of our keys."""
    if 200 <= answer.status < 400:
        return UpstreamFault(f"the upstream answered with status {answer.status}", code="upstream_invalid_response")
    error = upstream.server_dialect.error_to_hub(answer.status, answer.headers, body)
    if error.status == answer.status:  # others are about the gateway's own key, or about another cause (ERR-4)
        error.original = OriginalError(upstream.profile.dialect, body)
    return error


def mark_invalid_answer(fault: UpstreamFault, body: bytes) -> None:
    """Notes that the model was paid for an answer which is no valid one. An error that the server sent is none."""
    fault.was_paid = fault.was_paid or (fault.code == "upstream_invalid_response" and bool(body.strip()))


def check_content(answer: UpstreamResponse) -> None:
    """Refuses an answer that cannot be the answer of an API."""
    if "content-encoding" not in answer.headers and answer.headers.get("content-type") == "application/json":
        return  # the usual answer
    if is_compressed(answer):
        problem = "a compressed answer, which was not requested"
    elif is_html(answer):
        problem = "an HTML page instead of an answer"
    else:
        return
    answer.abort()
    raise UpstreamFault(f"the upstream sent {problem}", code="upstream_invalid_response")


def with_upstream_name(message: str, name: str) -> str:
    """The message of a transport error with the name of the upstream."""
    if message.startswith(UNNAMED_UPSTREAM):
        return f"the upstream {name!r} {message.removeprefix(UNNAMED_UPSTREAM)}"
    return f"the upstream {name!r}: {message}"


def is_stream(answer: UpstreamResponse) -> bool:
    """Whether a body is an event stream by its content type. Callers decide for servers that send no content type."""
    return answer.headers.get("content-type", "").lower().startswith("text/event-stream")


def is_json(answer: UpstreamResponse) -> bool:
    return answer.headers.get("content-type", "").lower().startswith("application/json")


def is_html(answer: UpstreamResponse) -> bool:
    """Whether a body is an HTML page, as proxies and login pages send, often with status 200."""
    return answer.headers.get("content-type", "").lower().startswith("text/html")


def is_compressed(answer: UpstreamResponse) -> bool:
    """Whether the body is compressed. Requests ask for identity encoding, and nothing here decompresses (a body may be
    a decompression bomb)."""
    return "content-encoding" in answer.headers and answer.headers["content-encoding"].strip().lower() not in (
        "",
        "identity",
    )
