"""The models that a gateway serves: names from the configuration, and for patterns the upstream's own list, cached for
a minute.

An upstream that does not answer is left out: the list says what can be requested, not what is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.config import ModelRule, UpstreamConfig
from antiphon.config.model_rules import is_pattern, upstream_model_name
from antiphon.errors import ApiError
from antiphon.gateway.context_size import context_size_in
from antiphon.gateway.routes import Routes
from antiphon.gateway.upstreams import Target, Upstream
from antiphon.protocol.codec import decode_json
from antiphon.upstream.body import read_body
from antiphon.upstream.transport import Transport

LIST_LIFETIME: Final = 60.0  # seconds for which an upstream's list is cached
LIST_TIMEOUT: Final = 5.0  # seconds
MAX_LIST_BYTES: Final = 4 * 1024 * 1024
ContextSizes = dict[str, int | None]  # an upstream's model names → context size, if listed


class Model(Struct, frozen=True, kw_only=True):
    """One model in the form of `/v1/models`."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str


class ModelList(Struct, frozen=True, kw_only=True):
    """The list of `/v1/models`. Names that match one of the patterns are served too, if the upstream has the model."""

    object: str = "list"
    data: list[Model]
    patterns: list[str] = []


class ModelCatalog:
    """API-5. Queries each upstream at most once a minute, all concurrently."""

    def __init__(self, routes: Routes, transport: Transport, clock: Callable[[], float]) -> None:
        self._routes = routes
        self._transport = transport
        self._clock = clock
        self._cached_lists: dict[str, tuple[float, ContextSizes]] = {}

    async def list_models(self) -> ModelList:
        name_lists = await asyncio.gather(*(self._model_names(upstream) for upstream in self._routes.upstreams))
        models = {name: Model(id=name, owned_by=owner) for name, owner in self._routes.entries.items()}
        for upstream, names in zip(self._routes.upstreams, name_lists, strict=True):
            for name in names:  # the first upstream that serves a model gets its requests
                models.setdefault(name, Model(id=name, owned_by=upstream.name))
        configured = {
            *self._routes.entries,
            *(name for upstream in self._routes.upstreams for name in upstream.config.listed_models()),
        }
        return ModelList(
            # Names of the configuration come first: what an upstream lists is in no order that a user chose.
            data=sorted(models.values(), key=lambda model: model.id not in configured),
            patterns=self._patterns(),
        )

    def _patterns(self) -> list[str]:
        names = [name for upstream in self._routes.upstreams for name in upstream.config.model_names()]
        return list(dict.fromkeys(filter(is_pattern, names)))

    async def context_size(self, target: Target) -> int | None:
        """The context size of a model in tokens: from the configuration, else from the upstream's list. If a server
        lists one model only, its size is used whatever the name."""
        configured = target.upstream.config.context_size(target.model)
        if configured is not None:
            return configured
        context_sizes = await self._get_list(target.upstream)
        return next(iter(context_sizes.values())) if len(context_sizes) == 1 else context_sizes.get(target.model)

    async def _model_names(self, upstream: Upstream) -> list[str]:
        names = upstream.config.listed_models()
        if upstream.config.has_patterns:
            upstream_names = await self._get_list(upstream)
            names += [
                name
                for upstream_name in upstream_names
                if (name := _client_name(upstream.config, upstream_name)) is not None
            ]
        return names

    async def _get_list(self, upstream: Upstream) -> ContextSizes:
        entry = self._cached_lists.get(upstream.name)
        if entry is None or self._clock() - entry[0] > LIST_LIFETIME:
            entry = self._cached_lists[upstream.name] = (self._clock(), await self._fetch_list(upstream))
        return entry[1]

    async def _fetch_list(self, upstream: Upstream) -> ContextSizes:
        timeouts = replace(
            upstream.timeouts,
            connect=min(LIST_TIMEOUT, upstream.timeouts.connect),
            first_byte=LIST_TIMEOUT,
            total=LIST_TIMEOUT,
        )
        try:
            answer = await self._transport.send(
                "GET", upstream.base_url + upstream.server_dialect.models_path, upstream.headers, b"", timeouts
            )
            body = await read_body(answer, MAX_LIST_BYTES)
        except ApiError:
            return {}
        return _parse_list(body) if answer.status == 200 else {}


def _client_name(config: UpstreamConfig, upstream_name: str) -> str | None:
    """The client-side name of a model that the upstream lists; None if no pattern matches."""
    for rule in config.models:
        client_pattern, upstream_pattern = (rule, rule) if isinstance(rule, str) else (rule.from_, rule.to)
        name = (
            upstream_model_name(ModelRule(from_=upstream_pattern, to=client_pattern), upstream_name)
            if is_pattern(client_pattern) and is_pattern(upstream_pattern)
            else None
        )
        if name is not None:
            return name
    return None


def _parse_list(body: bytes) -> ContextSizes:
    try:
        match decode_json(body):
            case {"data": list() as rows}:
                return {row["id"]: context_size_in(row) for row in rows if _has_id(row)}
            case {"models": list() as rows}:
                return {
                    name.removeprefix("models/"): context_size_in(row)
                    for row in rows
                    if (name := _generating_model_name(row))
                }
            case _:
                return {}
    except ValueError:
        return {}


def _generating_model_name(row: Any) -> str:
    """The name of a model that can generate content; some servers list other models too."""
    match row:
        case {"name": str() as name, "supportedGenerationMethods": list() as actions}:
            return name if "generateContent" in actions else ""
        case {"name": str() as name}:
            return name
        case _:
            return ""


def _has_id(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("id"), str)
