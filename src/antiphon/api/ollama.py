"""Endpoints for Ollama clients besides turns and the list of models: one model, and the version."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from antiphon import __version__
from antiphon.dialects import ollama
from antiphon.errors import MissingField
from antiphon.gateway.upstreams import Target
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange
from antiphon.ops.services import Services
from antiphon.protocol import codec


class ShowRequest(Struct, frozen=True):
    """The name of a model, under its newer or its older name. Other fields are ignored."""

    model: str | None = None
    name: str | None = None


async def show_ollama_model(services: Services, exchange: Exchange) -> None:
    """Describes one available model, listed or not: what its profile accepts, and its context size if it is known."""
    content = await exchange.read_body(services.max_body)
    request = await services.workers.call(len(content), codec.decode_as, content, ShowRequest, owner=exchange.owner)
    name = request.model or request.name
    if not name:
        raise MissingField("model is missing: expected the name of a model", param="model")
    target = services.routes.find(name)
    context_size = await services.models.context_size(target)
    body = ollama.model_from_hub(name, _capabilities(target), context_size)
    await exchange.respond(200, [JSON], msgspec.json.encode(body))


async def show_ollama_version(services: Services, exchange: Exchange) -> None:
    """Shows the version of the gateway: some clients ask for one before their first turn."""
    del services
    await exchange.respond(200, [JSON], msgspec.json.encode({"version": __version__}))


def _capabilities(target: Target) -> list[str]:
    """What the model can do, in Ollama's words, as far as its profile and earlier refusals of the upstream say."""
    plan = target.plan_translation()
    can_do = {
        "completion": True,
        "tools": getattr(plan.wire, "free_tools", True),
        "vision": plan.profile.accepts_images,
        "thinking": plan.wire.can_think(plan.model),
    }
    return [name for name, is_accepted in can_do.items() if is_accepted]
