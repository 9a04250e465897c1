"""Endpoints for editors besides turns: the list of models with the fields that an editor shows, and token counts.

Editors count every message separately and often, so a single text or message is estimated without calling an upstream.
A whole conversation is counted like any other request.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.api.count_tokens import count_body_tokens
from antiphon.dialects import vscode
from antiphon.dialects.common.token_estimate import estimate_items, estimate_text
from antiphon.gateway.model_catalog import Model
from antiphon.gateway.upstreams import Target
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_json
from antiphon.protocol.request import input_items


class Capabilities(Struct, frozen=True, kw_only=True, rename="camel"):
    image_input: bool
    tool_calling: bool = True


class EditorModel(Struct, frozen=True, kw_only=True, rename="camel"):
    """A model, with the field names of the editor's API."""

    id: str
    name: str
    family: str
    version: str
    tooltip: str
    detail: str
    max_input_tokens: int
    max_output_tokens: int
    capabilities: Capabilities


async def list_editor_models(services: Services, exchange: Exchange) -> None:
    """Lists all named models."""
    models = (await services.models.list_models()).data
    targets = [services.routes.find(model.id) for model in models]
    target_of_upstream = {target.upstream.name: target for target in targets}
    await asyncio.gather(
        *map(services.models.context_size, target_of_upstream.values())
    )  # fills the cache of all upstreams concurrently
    context_sizes = [await services.models.context_size(target) for target in targets]
    editor_models = [_render_model(*model_facts) for model_facts in zip(models, targets, context_sizes, strict=True)]
    await exchange.respond(200, [JSON], msgspec.json.encode({"models": editor_models}))


async def count_editor_tokens(services: Services, exchange: Exchange) -> None:
    """Counts `text`, a text or a message of the editor. A body without `text` is a conversation."""
    body = await exchange.read_body(services.max_body)
    call, owner = services.workers.call, exchange.owner
    single_text = await call(len(body), _decode_single_text, body, owner=owner)
    if single_text is None:
        await count_body_tokens(services, exchange, body)
        return
    services.routes.find(single_text.model)
    count = await call(len(body), _estimate_tokens, single_text.text, owner=owner)
    await exchange.respond(200, [JSON, (b"antiphon-estimated", b"true")], msgspec.json.encode({"count": count}))


class _SingleText(Struct):
    """A text or message to count, and the model."""

    text: Raw
    model: str | None | UnsetType = UNSET


def _decode_single_text(body: bytes) -> _SingleText | None:
    try:
        return decode_json(body, type=_SingleText)
    except msgspec.DecodeError:
        return None


def _estimate_tokens(text: Raw) -> int:
    if bytes(text).startswith(b'"'):
        return estimate_text(str(codec.decode_as(text, str)))
    # `leadingAssistant`: a single message may be one of the assistant.
    body = codec.encode({"messages": [text], "choices": {"leadingAssistant": "turn"}})
    request, _ = vscode.request_to_hub(body)
    return estimate_items(input_items(request)) + estimate_text(request.instructions or "")


def _render_model(model: Model, target: Target, context_tokens: int | None) -> EditorModel:
    context_tokens = context_tokens or DEFAULT_CONTEXT_TOKENS
    output_tokens = min(MAX_OUTPUT_TOKENS, context_tokens // 4)
    dated_name = DATED_NAME.fullmatch(model.id)
    return EditorModel(
        id=model.id,
        name=model.id,
        family=dated_name["family"] if dated_name else model.id,
        version=dated_name["date"] if dated_name else "latest",
        tooltip=f"{model.id}: model {target.model} of upstream {target.upstream.name}",
        detail=target.upstream.name,
        max_input_tokens=context_tokens - output_tokens,
        max_output_tokens=output_tokens,
        capabilities=Capabilities(image_input=target.upstream.profile.accepts_images),
    )


DEFAULT_CONTEXT_TOKENS: Final = 128_000  # for a model of unknown context size
MAX_OUTPUT_TOKENS: Final = 16_384
DATED_NAME: Final = re.compile(r"(?P<family>.+)-(?P<date>20\d\d-\d\d-\d\d|20\d{6})")
