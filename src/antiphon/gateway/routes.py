"""Finds the upstream of a request by its model: the first in the configuration whose rules match.

A request only selects a target by its model name; no other field influences where a connection goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from antiphon.config import Config, ModelConfig, TargetConfig
from antiphon.config.model_rules import is_pattern
from antiphon.config.schema import EMBEDDINGS
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.errors import ClientFault, MissingField
from antiphon.gateway.upstreams import Target, Upstream, UpstreamAddress, make_upstream


class Routes:
    """The upstreams of a configuration, and the cached targets of models."""

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        addresses: Mapping[str, UpstreamAddress],
        previous: Routes | None = None,
    ) -> None:
        """`previous` are the routes of the configuration before: the keys of upstreams that stay go on resting."""
        earlier_upstreams: Mapping[str, Upstream] = {} if previous is None else previous.by_name
        #: Without those that lack their keys.
        upstreams = _without_shared_ids(
            [
                make_upstream(config, upstream_config, environ, addresses)
                for upstream_config in config.upstreams
                if upstream_config.name in addresses or not upstream_config.lacks_key(environ)
            ]
        )
        self.upstreams = [upstream.keep_state(earlier_upstreams.get(upstream.name)) for upstream in upstreams]
        self._config = config
        self.by_name: dict[str, Upstream] = {upstream.name: upstream for upstream in self.upstreams}
        self._targets: dict[str, Target] = {}
        self._alias_prefixes = ALIAS_PREFIXES if config.server.claude_aliases else ()
        #: The models of `[[models]]`, and the upstream of the first target of each.
        self.entries = {
            model.name: self._first_target(entry).upstream
            for model in config.models
            if (entry := self._without_unusable_targets(model)).targets
        }
        #: For a request that names no model.
        self.default_model = config.server.default_model or _only_model(config)

    def upstream(self, name: str) -> Upstream:
        """The upstream of a name in the configuration."""
        return self.by_name[name]

    def find(self, model: object) -> Target:
        """The first target for a client-side model name."""
        target = self._targets.get(model) if type(model) is str else None
        return target or self._match_rules(model)

    def _match_rules(self, model: object) -> Target:
        if not isinstance(model, str) or not model:
            raise MissingField(
                f"model is missing: expected the name of a model, such as {self._examples()}", param="model"
            )
        entry = self.find_entry(model)
        if entry is not None:
            first = self._first_target(entry)
            target = Target(upstream=self.by_name[first.upstream], model=first.model)
            # Patterns accept any names, so the cache is bounded.
            if len(self._targets) < MAX_CACHED_TARGETS and len(model) < MAX_CACHED_NAME:
                self._targets[model] = target
            return target
        raise ClientFault(
            f"no upstream serves the model {_abbreviate(model)}; expected a model such as {self._examples()} "
            "(GET /v1/models lists all)",
            type="not_found",
            code="model_not_found",
            param="model",
        )

    def find_entry(self, model: str) -> ModelConfig | None:
        """The targets of a model; None if it is not served. `claude-via-NAME` has those of NAME, even if a pattern of
        an upstream matches the alias too."""
        prefix = next((prefix for prefix in self._alias_prefixes if model.startswith(prefix)), "")
        name = model.removeprefix(prefix)
        entry = self._config.find_model(name) if prefix and name else None
        entry = entry or self._config.find_model(model)
        if entry is None:
            return None
        usable_entry = self._without_unusable_targets(entry)
        if not usable_entry.targets:
            raise self._missing_key_error(model, entry)
        return usable_entry

    def _first_target(self, entry: ModelConfig) -> TargetConfig:
        return min(entry.targets, key=lambda target: target.priority)

    def _without_unusable_targets(self, entry: ModelConfig) -> ModelConfig:
        """The entry without upstreams that lack their keys."""
        if len(self.by_name) == len(self._config.upstreams):
            return entry
        lists = {name: getattr(entry, name) for name in ("targets", "on_context_length", "on_refusal")}
        usable = {
            name: [target for target in targets if target.upstream in self.by_name] for name, targets in lists.items()
        }
        return replace(entry, **usable)

    def _missing_key_error(self, model: str, entry: ModelConfig) -> ClientFault:
        name = self._first_target(entry).upstream
        upstream = next(upstream for upstream in self._config.upstreams if upstream.name == name)
        variables = " or ".join(upstream.key_variables())
        return ClientFault(
            f"the upstream {name!r} of the model {_abbreviate(model)} has no key: set {variables} and restart the "
            "gateway",
            type="not_found",
            code="model_not_found",
            param="model",
        )

    def _examples(self) -> str:
        """Some of the names, and some of the patterns that other names may match."""
        names = self._config.model_names()
        listed = [name for name in names if not is_pattern(name)]
        patterns = [name for name in names if is_pattern(name)]
        parts = [_abbreviated_list(listed)] if listed else []
        parts += [f"one that matches {_abbreviated_list(patterns)}"] if patterns else []
        return " or ".join(parts)


def _only_model(config: Config) -> str | None:
    """The only name that the upstreams list; None if they list several, or a pattern. The local embedding model does
    not count: it answers no turns."""
    answering = [upstream for upstream in config.upstreams if upstream.embedded != EMBEDDINGS]
    names = replace(config, upstreams=answering).model_names()
    name = names[0] if len(names) == 1 else None
    return name if name and not is_pattern(name) else None


def _without_shared_ids(upstreams: list[Upstream]) -> list[Upstream]:
    """Servers that take only ids that they issued get none if several servers issue ids: an id does not show whose it
    is."""
    issuers = {upstream.base_url for upstream in upstreams if _item_ids(upstream) is not None}
    return upstreams if len(issuers) < 2 else [_without_item_ids(upstream) for upstream in upstreams]


def _without_item_ids(upstream: Upstream) -> Upstream:
    if _item_ids(upstream) != "own":
        return upstream
    profile = upstream.profile
    wires = {name: replace(getattr(profile, name), item_ids="drop") for name in ("wire", "own_client_wire")}
    return replace(upstream, profile=replace(profile, **wires))


def _item_ids(upstream: Upstream) -> str | None:
    """The ids of items that the upstream takes; None in a dialect without such ids."""
    ids: str | None = getattr(upstream.profile.wire, "item_ids", None)
    return ids


def _abbreviated_list(names: list[str]) -> str:
    return ", ".join(map(repr, names[:MAX_EXAMPLES])) + (", …" if len(names) > MAX_EXAMPLES else "")


def _abbreviate(model: str) -> str:
    return repr(model if len(model) <= 100 else model[:100] + "…")


MAX_EXAMPLES: Final = 5  # names, and patterns, in an error message
MAX_CACHED_TARGETS: Final = 1024
MAX_CACHED_NAME: Final = 256
ALIAS_PREFIXES: Final = tuple(
    dialect.model_alias_prefix for dialect in CLIENT_DIALECTS.values() if dialect.model_alias_prefix
)
