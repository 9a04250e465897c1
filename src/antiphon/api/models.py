"""`GET /v1/models` and `GET /v1/models/{model}`: the available models (API-5), in the format of the client's
dialect."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.gateway.client_dialect import ClientDialectName
from antiphon.gateway.model_catalog import Model, ModelList
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange
from antiphon.ops.services import Services


async def list_models(services: Services, exchange: Exchange) -> None:
    """Lists all named models."""
    listed = await services.models.list_models()
    await exchange.respond(200, [JSON], msgspec.json.encode(_list_for(exchange.dialect.name, listed)))


async def get_model(services: Services, exchange: Exchange) -> None:
    """Returns one available model, listed or not."""
    name = exchange.path_parameter
    target = services.routes.find(name)
    model = Model(id=name, owned_by=target.upstream.name)
    await exchange.respond(200, [JSON], msgspec.json.encode(_model_for(exchange.dialect.name, model)))


def _list_for(dialect: ClientDialectName, listed: ModelList) -> Any:
    models = [_model_for(dialect, model) for model in listed.data]
    match dialect:
        case "messages":
            first, last = (listed.data[0].id, listed.data[-1].id) if models else (None, None)
            return {"data": models, "has_more": False, "first_id": first, "last_id": last}
        case "gemini":
            return {"models": models}
        case _:
            return listed


def _model_for(dialect: ClientDialectName, model: Model) -> Any:
    match dialect:
        case "messages":
            return {"type": "model", "id": model.id, "display_name": model.id, "created_at": UNKNOWN_CREATION_TIME}
        case "gemini":
            return {"name": f"models/{model.id}", "displayName": model.id, "supportedGenerationMethods": ACTIONS}
        case _:
            return model


UNKNOWN_CREATION_TIME: Final = "1970-01-01T00:00:00Z"  # the creation time of models is not known
ACTIONS: Final = ["generateContent", "streamGenerateContent", "countTokens"]
