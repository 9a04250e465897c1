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
from antiphon.errors import ClientFault, UpstreamFault
from antiphon.gateway.routed_request import OutgoingRequest, RoutedRequest
from antiphon.gateway.upstreams import Target
from antiphon.http.asgi import JSON, Headers
from antiphon.http.exchange import Exchange, losses_header, route_headers
from antiphon.ops.services import Services
from antiphon.protocol.embeddings import EmbeddingOperation, EmbeddingRequest, EmbeddingResult
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
        await services.fair_starts.wait(exchange.owner)
        self._body, wishes = requested_routing(services, content)
        call = services.workers.call
        self._request, self._client_losses = await call(len(content), self._operation.request_to_hub, self._body)
        model = exchange.path_parameter if exchange.path_parameters else self._request.model
        routed = RoutedRequest(services, exchange.request_scope, model, wishes)
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
        assert operation.request_from_hub is not None  # the first operation of every API has it
        body, losses = await call(size, operation.request_from_hub, self._request, target.model)
        losses.extend(self._client_losses)
        self._refuse_losses(target, losses)
        self._losses = losses
        return OutgoingRequest(path=operation.path, body=body, losses=losses)

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
            self._note_usage(await call(len(body), operation.read_usage, body))
            if request.model == target.model:
                return body
            return await call(len(body), operation.restore_model, body, request.model)
        server_operation = first_operation(target)
        translated_body, tokens, is_estimate = await call(
            len(body), translate_answer, server_operation, operation, body, request
        )
        self._headers = [(b"antiphon-estimated", b"true")] if is_estimate else []
        self._note_usage(tokens)
        return translated_body

    def _note_usage(self, tokens: int | None) -> None:
        if tokens is not None:
            self._exchange.log_entry.input_tokens, self._exchange.log_entry.output_tokens = tokens, 0


def translate_answer(
    server: EmbeddingOperation, client: EmbeddingOperation, body: bytes, request: EmbeddingRequest
) -> tuple[bytes, int | None, bool]:
    """A server's answer in the form of another API, its input tokens, and whether their number is an estimate."""
    result = server.answer_to_hub(body)
    if len(result.vectors) != len(request.inputs):
        message = f"the upstream sent {len(result.vectors)} embeddings; expected {len(request.inputs)}"
        raise UpstreamFault(message, code="upstream_invalid_response")
    is_estimate = result.input_tokens is None
    if is_estimate:
        result = _with_estimate(result, request)
    return client.answer_from_hub(result, request), result.input_tokens, is_estimate


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
