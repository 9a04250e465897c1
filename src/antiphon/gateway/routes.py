"""Routes a request: its path selects the client's dialect, its model the upstream, the first in the configuration whose
rules match.

Keys and profiles are loaded once, at the start. A request only selects one of these targets by model name; no other
field influences where a connection goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from antiphon import __version__
from antiphon.config import Config, ModelConfig, TargetConfig, Timeouts, UpstreamConfig
from antiphon.config.model_rules import is_pattern
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.dialects.dialect import ClientDialect, ServerDialect
from antiphon.dialects.registry import CLIENT_DIALECTS, HUB_DIALECT, SERVER_DIALECTS, Wire
from antiphon.errors import ClientFault, MissingField
from antiphon.gateway.preparation import TranslationPlan
from antiphon.gateway.routing.keys import KeyRing
from antiphon.profiles import Profile, load_profile
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request

AGENT_SCHEME: Final = "agent:"  # prefix of the base URL of an in-process agent
SECONDS_PER_DAY: Final = 86_400.0  # seconds; an agent may work for long
USER_AGENT: Final = f"antiphon/{__version__}"


def dialect_at_path(path: str) -> ClientDialect:
    """The dialect of a path. Unknown paths have one too: it sets the form of the error."""
    for prefix, dialect in PREFIXES:
        if path.startswith(prefix):
            return dialect
    action = path.rpartition(":")[2] if path.startswith("/v1/models/") else ""
    return ACTIONS.get(action, HUB_DIALECT)


def is_turn_path(path: str) -> bool:
    """Whether requests to a path are turns."""
    return path in TURN_PATHS or path.endswith(TURN_SUFFIXES)


def request_at_path(path: str, dialect: ClientDialect, body: bytes) -> tuple[Request, Losses]:
    """The hub request for a body sent to a path. Only Responses requests are stored by default."""
    read = dialect.request_at_path
    request, losses = dialect.request_to_hub(body) if read is None else read(path, body)
    if dialect is not HUB_DIALECT and request.store in (UNSET, None):
        request = replace(request, store=False)
    return request, losses


class RememberedRefusals(Struct, frozen=True):
    """The parts refused for one model, and the wire options without them."""

    refused: tuple[RefusedPart, ...]
    wire: Wire
    expires_at: float


class RefusalMemory:
    """The parts that one upstream refused, so that later requests leave them out. It is per process, and holds at most
    `MAX_MODELS` models, each for an hour."""

    __slots__ = ("_by_model", "_now")

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._by_model: dict[str, RememberedRefusals] = {}
        self._now = now

    def find(self, model: str) -> RememberedRefusals | None:
        """The refusals of a model; None if there are none or they have expired."""
        entry = self._by_model.get(model)
        if entry is None or self._now() < entry.expires_at:
            return entry
        del self._by_model[model]
        return None

    def remember(self, model: str, refused: RefusedPart, wire: Wire) -> None:
        """Remembers that the upstream accepted a request for this model without `refused`, written with `wire`."""
        if len(model) > MAX_MODEL_NAME:
            return
        remembered = self.find(model)
        self._by_model.pop(model, None)
        if len(self._by_model) >= MAX_MODELS:
            del self._by_model[next(iter(self._by_model))]
        earlier_parts = tuple(part for part in remembered.refused if part != refused) if remembered is not None else ()
        self._by_model[model] = RememberedRefusals((*earlier_parts, refused), wire, self._now() + LIFETIME)


class UpstreamAddress(Struct, frozen=True, kw_only=True):
    """The address and keys of an upstream. For the embedded model, they are known only once it runs."""

    base_url: str
    key: str | None = None
    more_keys: tuple[str, ...] = ()
    timeouts: Timeouts | None = None


class Upstream(Struct, frozen=True, kw_only=True):
    """One upstream, ready for requests. `headers` is the complete list of headers it is sent (allow-list), with its
    first key."""

    config: UpstreamConfig
    profile: Profile
    server_dialect: ServerDialect
    base_url: str
    headers: dict[str, str]
    timeouts: Timeouts
    keys: tuple[str, ...] = ()
    key_ring: KeyRing = field(default_factory=lambda: KeyRing(0))
    #: The maker of the reasoning that this upstream wants back; None if it wants none back.
    reasoning_maker: str | None = None
    refusals: RefusalMemory = field(default_factory=RefusalMemory)

    @property
    def name(self) -> str:
        return self.config.name

    def headers_with_key(self, number: int) -> dict[str, str]:
        """The headers with one of its keys."""
        if number == 0:
            return self.headers
        return self.headers | _key_header(self.profile, self.keys[number])

    def redact_key(self, body: bytes) -> bytes:
        """A server's body with our keys removed, in case the server repeats one (ERR-5)."""
        for key in self.keys:
            if len(key) >= MIN_REDACTED_KEY_LENGTH:
                body = body.replace(key.encode(), b"[key]")
        return body


class Target(Struct, frozen=True, kw_only=True):
    """The target of one turn: an upstream, and its name for the model."""

    upstream: Upstream
    model: str

    def plan_translation(self, *, is_stored: bool = False) -> TranslationPlan:
        """The plan for a request to this target. It leaves out what the upstream refused for this model."""
        profile = self.upstream.profile
        remembered = self.upstream.refusals.find(self.model)
        wire = profile.wire if remembered is None else remembered.wire
        return TranslationPlan(model=self.model, profile=profile, wire=wire, is_stored=is_stored)


class Routes:
    """The upstreams of a configuration, and the cached targets of models."""

    def __init__(self, config: Config, environ: Mapping[str, str], addresses: Mapping[str, UpstreamAddress]) -> None:
        #: Without those that lack their keys.
        self.upstreams = _without_shared_ids(
            [
                _make_upstream(config, upstream_config, environ, addresses)
                for upstream_config in config.upstreams
                if upstream_config.name in addresses or not upstream_config.lacks_key(environ)
            ]
        )
        self._config = config
        self._by_name = {upstream.name: upstream for upstream in self.upstreams}
        self._targets: dict[str, Target] = {}
        self._alias_prefixes = ALIAS_PREFIXES if config.server.claude_aliases else ()
        #: The models of `[[models]]`, and the upstream of the first target of each.
        self.entries = {
            model.name: self._first_target(entry).upstream
            for model in config.models
            if (entry := self._without_unusable_targets(model)).targets
        }
        self.default_model = config.server.default_model or _only_model(config)

    def model_or_default(self, model: str | None) -> str | None:
        """The model that a request names, or the default model if it names none. An empty name is none."""
        return model or self.default_model

    def upstream(self, name: str) -> Upstream:
        """The upstream of a name in the configuration."""
        return self._by_name[name]

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
            target = Target(upstream=self._by_name[first.upstream], model=first.model)
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
        if len(self._by_name) == len(self._config.upstreams):
            return entry
        lists = {name: getattr(entry, name) for name in ("targets", "on_context_length", "on_refusal")}
        usable = {
            name: [target for target in targets if target.upstream in self._by_name] for name, targets in lists.items()
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
    """The only name that the upstreams list; None if they list several, or a pattern."""
    names = config.model_names()
    name = names[0] if len(names) == 1 else None
    return name if name and not is_pattern(name) else None


def _make_upstream(
    config: Config,
    upstream_config: UpstreamConfig,
    environ: Mapping[str, str],
    addresses: Mapping[str, UpstreamAddress],
) -> Upstream:
    address = addresses.get(upstream_config.name) or _configured_address(upstream_config, environ)
    profile = load_profile(upstream_config.profile_name)
    headers = {"content-type": "application/json", "user-agent": USER_AGENT, **profile.headers}
    keys = (address.key, *address.more_keys) if address.key else ()
    if keys:
        headers |= _key_header(profile, keys[0])
    return Upstream(
        config=upstream_config,
        profile=profile,
        server_dialect=SERVER_DIALECTS[profile.dialect],
        base_url=address.base_url.rstrip("/"),
        headers=headers,
        timeouts=upstream_config.timeouts or address.timeouts or config.timeouts,
        keys=keys,
        key_ring=KeyRing(len(keys)),
        reasoning_maker=profile.wire.maker if profile.wire.wants_reasoning_back else None,
    )


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


def _configured_address(upstream_config: UpstreamConfig, environ: Mapping[str, str]) -> UpstreamAddress:
    if upstream_config.agent:
        return UpstreamAddress(base_url=AGENT_SCHEME + upstream_config.agent, timeouts=Timeouts(total=SECONDS_PER_DAY))
    keys = upstream_config.api_keys(environ)
    return UpstreamAddress(base_url=upstream_config.base_url, key=keys[0] if keys else None, more_keys=tuple(keys[1:]))


def _key_header(profile: Profile, key: str) -> dict[str, str]:
    return {profile.key_header: f"Bearer {key}" if profile.key_header == "authorization" else key}


def _abbreviated_list(names: list[str]) -> str:
    return ", ".join(map(repr, names[:MAX_EXAMPLES])) + (", …" if len(names) > MAX_EXAMPLES else "")


def _abbreviate(model: str) -> str:
    return repr(model if len(model) <= 100 else model[:100] + "…")


MAX_EXAMPLES: Final = 5  # names, and patterns, in an error message
MAX_CACHED_TARGETS: Final = 1024
MAX_CACHED_NAME: Final = 256
MIN_REDACTED_KEY_LENGTH: Final = 8  # shorter keys are not redacted: they may be ordinary words
MAX_MODELS: Final = 1024  # models of one upstream; the oldest is evicted
MAX_MODEL_NAME: Final = 256  # characters; longer names are not remembered: patterns accept any names
LIFETIME: Final = 3600.0  # seconds
PREFIXES: Final = tuple((prefix, dialect) for dialect in CLIENT_DIALECTS.values() for prefix in dialect.path_prefixes)
TURN_PATHS: Final = frozenset(path for dialect in CLIENT_DIALECTS.values() for path in dialect.turn_paths)
TURN_SUFFIXES: Final = tuple(f":{action}" for dialect in CLIENT_DIALECTS.values() for action in dialect.turn_actions)
ALIAS_PREFIXES: Final = tuple(
    dialect.model_alias_prefix for dialect in CLIENT_DIALECTS.values() if dialect.model_alias_prefix
)
ACTIONS: Final = {
    action: dialect
    for dialect in CLIENT_DIALECTS.values()
    for action in (*dialect.turn_actions, *dialect.other_actions)
}
