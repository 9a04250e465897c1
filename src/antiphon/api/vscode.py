"""What an editor asks besides turns: which models there are, with all that its list of models shows, and how long a text is.

Editors count every message by itself and do so all the time: a text or a message alone is estimated here, no upstream is asked. A
whole conversation is counted as any other request is.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.api.count_tokens import count_body_tokens
from antiphon.dialects import vscode
from antiphon.gateway.model_catalog import Model
from antiphon.gateway.routes import Target, Upstream
from antiphon.gateway.token_estimate import estimate_items, estimate_text
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.request import input_items


class Capabilities(Struct, frozen=True, kw_only=True, rename="camel"):
    image_input: bool
    tool_calling: bool = True


class EditorModel(Struct, frozen=True, kw_only=True, rename="camel"):
    """A model, by the names that the editor's own API has."""

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
    """All that have a name."""
    listed = (await services.models.list_models()).data
    targets = [services.routes.find(model.id) for model in listed]
    first_of_each = {target.upstream.name: target for target in targets}
    await asyncio.gather(*map(services.models.context_size, first_of_each.values()))  # which asks them all, side by side
    contexts = [await services.models.context_size(target) for target in targets]
    models = [_model(*about) for about in zip(listed, targets, contexts, strict=True)]
    await exchange.respond(200, [JSON], msgspec.json.encode({"models": models}))


async def count_editor_tokens(services: Services, exchange: Exchange) -> None:
    """`text` is a text or a message, as the editor has it; anything else is a conversation."""
    body = await exchange.read_body(services.max_body)
    one = _one_in(body)
    if one is None:
        await count_body_tokens(services, exchange, body)
        return
    services.routes.find(one.model)
    headers = [JSON, (b"antiphon-estimated", b"true")]
    await exchange.respond(200, headers, msgspec.json.encode({"count": _estimate(one.text)}))


class _One(Struct):
    """A text or a message to be counted, and for which model."""

    text: Raw
    model: str | None | UnsetType = UNSET


def _one_in(body: bytes) -> _One | None:
    try:
        return decode_json(body, type=_One)
    except msgspec.DecodeError:
        return None


def _estimate(text: Raw) -> int:
    if bytes(text).startswith(b'"'):
        return estimate_text(str(codec.decode_as(text, str)))
    # A message alone is whoever's it says it is: nothing begins with it.
    asked = codec.encode({"messages": [text], "choices": {"leadingAssistant": "turn"}})
    request, _ = vscode.request_to_hub(asked)
    return estimate_items(input_items(request)) + estimate_text(request.instructions or "")


def _model(model: Model, target: Target, context: int | None) -> EditorModel:
    context = context or USUAL_CONTEXT
    output = min(MOST_OUTPUT, context // 4)
    dated = DATED.fullmatch(model.id)
    return EditorModel(
        id=model.id,
        name=model.id,
        family=dated["family"] if dated else model.id,
        version=dated["date"] if dated else "latest",
        tooltip=f"{model.id}, which is {target.model} at {target.upstream.name}",
        detail=target.upstream.name,
        max_input_tokens=context - output,
        max_output_tokens=output,
        capabilities=Capabilities(image_input=_takes_images(target.upstream)),
    )


def _takes_images(upstream: Upstream) -> bool:
    return WITHOUT_IMAGES.isdisjoint(quirk.name for quirk in upstream.profile.quirks)


USUAL_CONTEXT: Final = 128_000  # of a model that nobody tells the size of
MOST_OUTPUT: Final = 16_384
WITHOUT_IMAGES: Final = frozenset({"images_as_notes", "media_as_notes"})
DATED: Final = re.compile(r"(?P<family>.+)-(?P<date>20\d\d-\d\d-\d\d|20\d{6})")
