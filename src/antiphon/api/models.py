"""`GET /v1/models` and `GET /v1/models/{model}`: the available models (API-5), in the format of the client's
dialect."""

from __future__ import annotations

import msgspec

from antiphon.gateway.model_catalog import Model
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange
from antiphon.ops.services import Services


async def list_models(services: Services, exchange: Exchange) -> None:
    """Lists all named models."""
    model_list = await services.models.list_models()
    render = exchange.dialect.models_from_hub
    names = [model.id for model in model_list.data]
    if services.config.server.claude_aliases and exchange.dialect.model_alias_prefix:
        names += [exchange.dialect.model_alias_prefix + name for name in names]
    body = model_list if render is None else render(names)
    await exchange.respond(200, [JSON], msgspec.json.encode(body))


async def get_model(services: Services, exchange: Exchange) -> None:
    """Returns one available model, listed or not."""
    name = exchange.path_parameter
    target = services.routes.find(name)
    render = exchange.dialect.model_from_hub
    body = Model(id=name, owned_by=target.upstream.name) if render is None else render(name)
    await exchange.respond(200, [JSON], msgspec.json.encode(body))
