"""Decodes a server's list of models, in the form of any dialect."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from antiphon.errors import UpstreamFault
from antiphon.protocol.codec import decode_json


class Model(Struct, frozen=True, kw_only=True):
    """A model that a server lists. `owned_by` is the name of its upstream if the server is a gateway.

    Example:
        names = [model.id for model in client.models()]
    """

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = ""


class _NamedModel(Struct, frozen=True):
    name: str


class _Models(Struct, frozen=True):
    """Servers list models under `data`; Gemini lists them under `models`."""

    data: list[Model] | None = None
    models: list[_NamedModel] | None = None


def read_models(body: bytes) -> list[Model]:
    """Decodes the answer to `GET /models`."""
    try:
        listed = decode_json(body, type=_Models)
    except msgspec.DecodeError:
        listed = _Models()
    if listed.data is not None:
        return listed.data
    if listed.models is not None:
        return [Model(id=model.name.removeprefix("models/")) for model in listed.models]
    raise UpstreamFault("the server's answer is not a list of models", code="upstream_invalid_response")
