"""The endpoints that return embeddings, in every API that has some: `POST /v1/embeddings`, Gemini's `embedContent` and
`batchEmbedContents`, Ollama's `/api/embed` and `/api/embeddings`.

A client of the server's own API gets the server's answer as it came, and the server the client's request; only the name
of the model may differ.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec.structs import replace

from antiphon.api.operation import Endpoint
from antiphon.api.request_options import requested_routing, requested_strictness
from antiphon.dialects.common.embeddings import TEXT_EMBEDDINGS
from antiphon.dialects.common.token_estimate import estimate_text
from antiphon.dialects.gemini.embeddings import BATCH_EMBED_CONTENTS, EMBED_CONTENT
from antiphon.dialects.ollama.embeddings import EMBED, OLD_EMBEDDINGS
from antiphon.dialects.registry import DIALECTS
from antiphon.errors import ApiError, ClientFault, UpstreamFault
from antiphon.gateway.client_body import InputLimits, check_item_count
from antiphon.gateway.routed_request import OutgoingRequest, RoutedRequest
from antiphon.gateway.upstreams import Target
from antiphon.http.asgi import JSON, Headers
from antiphon.http.exchange import Exchange, losses_header, route_headers
from antiphon.ops.services import Services
from antiphon.protocol.embeddings import (
    EmbeddingOperation,
    EmbeddingRequest,
    EmbeddingResult,
    join_results,
    split_request,
)
from antiphon.protocol.losses import Losses
from antiphon.upstream.transport import UpstreamResponse


async def _create_embeddings(operation: EmbeddingOperation, services: Services, exchange: Exchange) -> None:
    with services.admission.admit(exchange.owner):
        await EmbeddingTurn(operation, services, exchange).run()


class EmbeddingTurn:
    """One request for embeddings while it is served."""

    def __init__(self, operation: EmbeddingOperation, services: Services, exchange: Exchange) -> None:
        self._operation = operation
        self._services = services
        self._exchange = exchange
        self._is_strict = requested_strictness(exchange.scope)
        self._body = b""
        self._request: EmbeddingRequest
        self._client_losses = Losses()  # of members that no other API has
        self._losses = Losses()  # of the request that was answered
        self._headers: Headers = []

    async def run(self) -> None:
        services, exchange = self._services, self._exchange
        content = await exchange.read_body(services.max_body)
        self._body, wishes = await requested_routing(services, content, exchange.owner)
        if wishes is not None and wishes.requires_parameters:
            self._is_strict = True
        call = services.workers.call
        self._request, self._client_losses = await call(
            len(content), read_request, self._operation, self._body, services.input_limits, owner=exchange.owner
        )
        model = exchange.path_parameter if exchange.path_parameters else self._request.model
        routed = RoutedRequest(services, exchange.request_scope, model, wishes, strict=self._is_strict)
        self._request = replace(self._request, model=routed.model)
        exchange.answer_headers = partial(route_headers, routed)
        exchange.watch_disconnect()
        try:
            body = await routed.run(self._make_request, partial(self._read_answer, routed))
        finally:
            exchange.unwatch_disconnect()
            routed.abort()
        exchange.note_losses(self._losses)
        await exchange.respond(200, [JSON, *losses_header(self._losses), *self._headers], body)

    async def _make_request(self, target: Target) -> OutgoingRequest:
        call, size = self._services.workers.call, len(self._body)
        if self._operation in target.upstream.server_dialect.embeddings:
            body = await call(size, self._operation.replace_model, self._body, target.model)
            self._losses = Losses()
            return OutgoingRequest(path=self._operation.path, body=body, losses=self._losses)
        operation = first_operation(target)
        (body, *more_bodies), losses = await call(size, translate_request, operation, self._request, target.model)
        losses.extend(self._client_losses)
        self._refuse_losses(target, losses)
        self._losses = losses
        return OutgoingRequest(path=operation.path, body=body, losses=losses, more_bodies=more_bodies)

    def _refuse_losses(self, target: Target, losses: Losses) -> None:
        config = target.upstream.config
        is_strict = config.losses == "strict" if self._is_strict is None else self._is_strict
        if is_strict and len(losses):
            first = next(iter(losses))
            message = f"strict mode: the request cannot be translated without loss: {first}"
            raise ClientFault(message, code="lossy_translation", param=first.path)

    async def _read_answer(self, routed: RoutedRequest, target: Target, answer: UpstreamResponse) -> bytes:
        body = await routed.read_body(answer)
        call, operation, request = self._services.workers.call, self._operation, self._request
        if operation in target.upstream.server_dialect.embeddings:
            if operation.count_vectors is not None:
                _check_count(await call(len(body), operation.count_vectors, body), len(request.inputs))
            self._note_usage(await call(len(body), operation.read_usage, body))
            if request.model == target.model:
                return body
            return await call(len(body), operation.restore_model, body, request.model)
        server_operation, bodies = first_operation(target), [body]
        try:
            async for more in routed.read_more_bodies():
                bodies.append(more)
        except ApiError:
            counts = [await call(len(part), server_operation.read_usage, part) for part in bodies]
            routed.attempts.records[-1].input_tokens = sum(count or 0 for count in counts)  # they were billed
            raise
        translated_body, tokens, is_estimate = await call(
            sum(map(len, bodies)), translate_answers, server_operation, operation, bodies, request
        )
        self._headers = [(b"antiphon-estimated", b"true")] if is_estimate else []
        self._note_usage(tokens)
        return translated_body

    def _note_usage(self, tokens: int | None) -> None:
        if tokens is not None:
            self._exchange.log_entry.input_tokens, self._exchange.log_entry.output_tokens = tokens, 0


def read_request(operation: EmbeddingOperation, body: bytes, limits: InputLimits) -> tuple[EmbeddingRequest, Losses]:
    """The request of a body, and the losses of its translation. Too many inputs are refused."""
    request, losses = operation.request_to_hub(body)
    check_item_count(len(request.inputs), limits, operation.input_field)
    return request, losses


def translate_request(server: EmbeddingOperation, request: EmbeddingRequest, model: str) -> tuple[list[bytes], Losses]:
    """The bodies for a server of another API, which takes a limited number of inputs in each, and the losses."""
    assert server.request_from_hub is not None  # the first operation of every API has it
    parts = [server.request_from_hub(part, model) for part in split_request(request, server.max_inputs)]
    return [body for body, _ in parts], parts[0][1]  # the losses are those of the settings, which all parts share


def translate_answers(
    server: EmbeddingOperation, client: EmbeddingOperation, bodies: list[bytes], request: EmbeddingRequest
) -> tuple[bytes, int | None, bool]:
    """A server's answers to all parts of a request in the form of another API, their input tokens, and whether the
    number is an estimate."""
    results = list(map(server.answer_to_hub, bodies))
    for part, part_result in zip(split_request(request, server.max_inputs), results, strict=True):
        _check_count(len(part_result.vectors), len(part.inputs))
    result = join_results(results)
    is_estimate = result.input_tokens is None
    if is_estimate:
        result = _with_estimate(result, request)
    return client.answer_from_hub(result, request), result.input_tokens, is_estimate


def _check_count(count: int, expected: int) -> None:
    if count != expected:
        message = f"the upstream sent {count} embeddings; expected {expected}"
        raise UpstreamFault(message, code="upstream_invalid_response")


def _with_estimate(result: EmbeddingResult, request: EmbeddingRequest) -> EmbeddingResult:
    tokens = sum(estimate_text(value) if isinstance(value, str) else len(value) for value in request.inputs)
    return replace(result, input_tokens=tokens)


def first_operation(target: Target) -> EmbeddingOperation:
    """The operation of a target's API; raises if the API has no embeddings."""
    upstream = target.upstream
    if not upstream.server_dialect.embeddings:
        title = DIALECTS[upstream.profile.dialect].title
        others = ", ".join(
            dialect.title for dialect in DIALECTS.values() if dialect.server and dialect.server.embeddings
        )
        message = (
            f"the upstream {upstream.name!r} has no embeddings: its API is {title}; "
            f"choose a model of an upstream with {others}"
        )
        raise ClientFault(message, type="not_found", code="not_supported", param="model")
    return upstream.server_dialect.embeddings[0]


def _endpoint(operation: EmbeddingOperation) -> Endpoint:
    return partial(_create_embeddings, operation)


create_embeddings: Final = _endpoint(TEXT_EMBEDDINGS)
embed_content: Final = _endpoint(EMBED_CONTENT)
batch_embed_contents: Final = _endpoint(BATCH_EMBED_CONTENTS)
embed_ollama: Final = _endpoint(EMBED)
embed_ollama_prompt: Final = _endpoint(OLD_EMBEDDINGS)
