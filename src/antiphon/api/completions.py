"""`POST /v1/completions`: legacy text completions, by servers that have them.

The request and the answer pass as they came, apart from the name of the model. A stream is always asked to end with its
usage, which a client that did not ask for it does not get.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from antiphon import sse
from antiphon.api.request_options import requested_routing, requested_strictness
from antiphon.dialects.common.embeddings import replace_model, restore_model
from antiphon.dialects.registry import DIALECTS
from antiphon.errors import ApiError, ClientFault, UpstreamFault
from antiphon.gateway.routed_request import OutgoingRequest, RoutedRequest
from antiphon.gateway.upstreams import Target
from antiphon.http.asgi import JSON
from antiphon.http.exchange import SSE_HEADERS, EventStream, Exchange, losses_header, route_headers
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.upstream.transport import UpstreamResponse

DONE: Final = b"[DONE]"


class StreamOptions(Struct, frozen=True, kw_only=True):
    include_usage: bool | None = None


class CompletionRequest(Struct, frozen=True, kw_only=True):
    """What the gateway reads of a request. Only the presence of a prompt matters."""

    prompt: Raw
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class _Usage(Struct, frozen=True, kw_only=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Choice(Struct, frozen=True, kw_only=True):
    text: Any = None
    finish_reason: Any = None


class _Chunk(Struct, frozen=True, kw_only=True):
    """What the gateway reads of an answer, or of an event of a stream."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


async def create_completion(services: Services, exchange: Exchange) -> None:
    """Completes a text, whole or as a stream."""
    with services.admission.admit(exchange.owner):
        content = await exchange.read_body(services.max_body)
        body, wishes = await requested_routing(services, content, exchange.owner)
        request = await services.workers.call(len(body), read_request, body, owner=exchange.owner)
        strict = requested_strictness(exchange.scope)
        routed = RoutedRequest(services, exchange.request_scope, request.model, wishes, strict=strict)
        exchange.answer_headers = partial(route_headers, routed)
        exchange.watch_disconnect()
        try:
            await Completion(services, exchange, request, body, routed).run()
        finally:
            exchange.unwatch_disconnect()
            routed.abort()


class Completion:
    """One request for a completion while it is served."""

    def __init__(
        self, services: Services, exchange: Exchange, request: CompletionRequest, body: bytes, routed: RoutedRequest
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._request = request
        self._body = body
        self._routed = routed
        self._target: Target
        self._has_content = False  # of the current attempt

    async def run(self) -> None:
        if self._request.stream:
            await self._deliver_stream(await self._routed.run(self._make_request, self._open_stream))
        else:
            body = await self._routed.run(self._make_request, self._read_whole)
            await self._exchange.respond(200, [JSON, *losses_header(self._routed.losses)], body)

    async def _make_request(self, target: Target) -> OutgoingRequest:
        dialect = target.upstream.server_dialect
        if not dialect.completions_path:
            raise no_completions(target)
        streams = bool(self._request.stream)
        body = await self._services.workers.call(len(self._body), outgoing_body, self._body, target.model, streams)
        return OutgoingRequest(path=dialect.completions_path, body=body, losses=Losses(), streams=streams)

    async def _read_whole(self, target: Target, answer: UpstreamResponse) -> bytes:
        body = await self._routed.read_body(answer)
        call = self._services.workers.call
        chunk = await call(len(body), read_chunk, body)
        if chunk.error is not None:
            raise _error_in(target, body)
        if not chunk.choices:
            raise UpstreamFault("the upstream's answer has no choices", code="upstream_invalid_response")
        self._note_usage(chunk.usage)
        return body if self._is_named(target) else await call(len(body), restore_model, body, self._routed.model)

    async def _open_stream(self, target: Target, answer: UpstreamResponse) -> AsyncIterator[bytes]:
        """The bytes for the client. The events up to the first content are read here: until then another target can be
        asked."""
        self._target, self._has_content = target, False
        events = self._events(answer)
        held_events: list[bytes] = []
        async for data in events:
            held_events.append(data)
            if self._has_content or not self._routed.attempts.may_ask_another(self._services.router.clock()):
                break
        return _with_first(b"".join(held_events), events)

    async def _events(self, answer: UpstreamResponse) -> AsyncIterator[bytes]:
        decoder = sse.Decoder()
        trace = self._exchange.trace
        async for piece in answer.pieces():
            if trace is not None:
                trace.record_upstream_piece(piece)
            for frame in decoder.feed(piece):
                data = self._client_event(frame)
                if data:
                    yield data
                if frame.data == DONE:
                    return
        for frame in decoder.finish():
            yield self._client_event(frame)
            if frame.data == DONE:
                return
        message = "the upstream closed the stream before the completion was complete"
        raise UpstreamFault(message, code="upstream_disconnected")

    def _client_event(self, frame: sse.Frame) -> bytes:
        """An event for the client; empty for the usage that only the gateway asked for."""
        if frame.data == DONE:
            return sse.encode(frame)
        chunk = read_chunk(frame.data)
        if chunk.error is not None:
            raise _error_in(self._target, frame.data)
        self._has_content = self._has_content or any(choice.text or choice.finish_reason for choice in chunk.choices)
        if chunk.usage is not None:
            self._note_usage(chunk.usage)
            options = self._request.stream_options
            if not chunk.choices and not (options is not None and options.include_usage):
                return b""
        if self._is_named(self._target):
            return sse.encode(frame)
        return sse.encode(sse.Frame(frame.event, restore_model(frame.data, self._routed.model)))

    async def _deliver_stream(self, events: AsyncIterator[bytes]) -> None:
        exchange, services = self._exchange, self._services
        stream = EventStream(
            exchange.send,
            lambda: [*SSE_HEADERS, *losses_header(self._routed.losses)],
            services.first_byte_timeout,
            services.keepalive_interval,
            exchange.send_now,
            exchange.write_now,
        )
        exchange.log_entry.note_first_event()
        try:
            async for data in events:
                await stream.write(data)
            await stream.end(b"")
        except ApiError as error:
            exchange.log_entry.error = error.code
            _, body = exchange.dialect.error_from_hub(error)
            await stream.end(sse.encode_data(body))
        finally:
            stream.close()

    def _is_named(self, target: Target) -> bool:
        """Whether the server's name of the model is the client's."""
        return target.model == self._routed.model

    def _note_usage(self, usage: _Usage | None) -> None:
        if usage is not None and usage.prompt_tokens is not None:
            log_entry = self._exchange.log_entry
            log_entry.input_tokens, log_entry.output_tokens = usage.prompt_tokens, usage.completion_tokens or 0


def _error_in(target: Target, body: bytes) -> ApiError:
    """The error in an answer with status 200."""
    return target.upstream.server_dialect.error_to_hub(0, {}, target.upstream.redact_key(body))


async def _with_first(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for data in others:
        yield data


def read_request(body: bytes) -> CompletionRequest:
    """The request without its prompt, which may be large."""
    request: CompletionRequest = codec.decode_as(body, CompletionRequest)
    return replace(request, prompt=Raw())


def outgoing_body(body: bytes, model: str, streams: bool) -> bytes:
    """A client's body for a server: with its name of the model, and the request for usage at the end of a stream."""
    body = replace_model(body, model)
    if not streams:
        return body
    members: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Raw])
    options = msgspec.json.decode(members.get("stream_options", b"null"), type=dict[str, Any] | None) or {}
    return codec.encode({**members, "stream_options": {**options, "include_usage": True}})


def read_chunk(data: bytes) -> _Chunk:
    try:
        return msgspec.json.decode(data, type=_Chunk)
    except msgspec.DecodeError as error:
        message = f"the upstream's answer is no completion: {error}"
        raise UpstreamFault(message, code="upstream_invalid_response") from None


def no_completions(target: Target) -> ClientFault:
    upstream = target.upstream
    title = DIALECTS[upstream.profile.dialect].title
    message = (
        f"the upstream {upstream.name!r} has no text completions: its API is {title}; "
        "use /v1/chat/completions or /v1/responses, which every upstream serves"
    )
    return ClientFault(message, type="not_found", code="not_supported", param="model")
