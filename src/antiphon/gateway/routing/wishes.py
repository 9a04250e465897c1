"""What callers say about routing, in the words of three public gateways, and how it changes a route. Pure.

A caller chooses within what the configuration offers. What is not offered is a loss; a caller who excludes every target
gets an error, because no other upstream may have the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from antiphon.config.routing import Strategy
from antiphon.errors import ClientFault, InvalidValue
from antiphon.gateway.routing.attempts import ModelRoute, RouteGroup, RouteTarget, make_group
from antiphon.protocol.codec import decode_json
from antiphon.protocol.losses import Loss


class RoutingWishes(Struct, frozen=True, kw_only=True):
    """What a caller says about routing. `losses` are the words that mean nothing here."""

    models: tuple[str, ...] = ()  # asked after the model itself
    order: tuple[str, ...] = ()  # names of upstreams
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    allows_fallbacks: bool = True
    requires_parameters: bool = False
    sort: str | None = None
    retries: int | None = None
    losses: tuple[Loss, ...] = ()
    model: str | None = None  # of the request; None: it has none, or not in its body
    words: tuple[str, ...] = ()  # the members of the body
    too_long: str | None = None  # the path of a list with more than `MAX_NAMES` names, which is refused


class QueuedRouting(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a caller says about the route of a background response. It is stored with the request."""

    wishes: RoutingWishes | None = None
    strict: bool | None = None  # whether lossy translation is refused; None: the upstream's setting
    session: str | None = None  # of the caller's agent


def add_routing(request: bytes, routing: QueuedRouting) -> bytes:
    """The request for the background queue, after a line with what its caller says about its route, if that is
    anything."""
    if routing == QueuedRouting():
        return request
    return b"%b%b\n%b" % (ROUTING_PREFIX, msgspec.json.encode(routing), request)


def take_routing(request: bytes) -> tuple[bytes, QueuedRouting]:
    """A queued request as it was before `add_routing`, and what its caller says about its route."""
    if not request.startswith(ROUTING_PREFIX):
        return request, QueuedRouting()
    line, _, rest = request.partition(b"\n")
    return rest, msgspec.json.decode(line.removeprefix(ROUTING_PREFIX), type=QueuedRouting)


def take_wishes(body: bytes) -> tuple[bytes, RoutingWishes | None]:
    """The body without its words about routing, and what they say. None if it has none, or is not an object: the
    dialect reports that."""
    if not any(map(body.__contains__, ROUTING_WORDS)):
        return body, None
    try:
        members = decode_json(body, type=dict[str, Raw])
    except (msgspec.DecodeError, ValueError):
        return body, None
    words: dict[str, Any] = {
        name: msgspec.json.decode(members[name]) for name in MEMBERS if name in members and _is_routing(name, members)
    }
    if not words:
        return body, None
    rest = {name: raw for name, raw in members.items() if name not in words}
    gateway_options = _take_gateway_options(words, rest)
    model = msgspec.json.decode(members.get("model", b"null"))
    wishes = _read_words(words, gateway_options)
    return msgspec.json.encode(rest), replace(wishes, model=model if isinstance(model, str) else None)


def apply_wishes(
    route: ModelRoute, wishes: RoutingWishes, find_route: Callable[[str], ModelRoute | None]
) -> tuple[ModelRoute, list[Loss]]:
    """The route that a caller wants, within what `route` and the routes of other models offer, and what is not
    offered. Raises if nothing is left."""
    if wishes.too_long is not None:
        raise InvalidValue(f"{wishes.too_long}: expected at most {MAX_NAMES} names", param=wishes.too_long)
    losses = list(wishes.losses)
    groups = list(route.groups)
    for index, model in enumerate(wishes.models):
        other = find_route(model)
        if other is None:
            losses.append(Loss(f"models[{index}]", f"the model {model[:100]!r}", "no upstream serves it"))
        elif other.name != route.name:
            groups += _without_labels(other.groups, {target.label for group in groups for target in group.targets})
    offered = {_upstream_name(target) for group in groups for target in group.targets}
    special = {_upstream_name(target) for target in (*route.on_context_length, *route.on_refusal)}
    for member, names in (("order", offered), ("only", offered | special), ("ignore", offered | special)):
        for name in getattr(wishes, member):
            if name.lower() not in names:
                what = f"the provider {name[:100]!r}"
                losses.append(Loss(f"provider.{member}", what, "the model has no such target"))
    groups = _order_groups(_filter_groups(groups, wishes), wishes)
    if not groups:
        raise _no_target_error(route.name, offered)
    strategy = SORTS.get(wishes.sort or "", route.strategy)
    if wishes.sort and wishes.sort not in SORTS:
        losses.append(Loss("provider.sort", f"sorting by {wishes.sort[:50]!r}", "the gateway does not know it"))
    rounds = route.retry.rounds if wishes.retries is None else min(wishes.retries + 1, route.retry.rounds)
    if not wishes.allows_fallbacks:
        rounds = 1
    retry = replace(route.retry, rounds=rounds)
    return (
        replace(
            route,
            groups=tuple(groups),
            strategy=strategy,
            retry=retry,
            on_context_length=_filter_special(route.on_context_length, wishes),
            on_refusal=_filter_special(route.on_refusal, wishes),
        ),
        losses,
    )


def _without_labels(groups: Sequence[RouteGroup], labels: set[str]) -> list[RouteGroup]:
    """The groups without targets that another model has brought already: a round asks each target once."""
    others = [
        make_group([each for each in group.targets if each.label not in labels], group.reason) for group in groups
    ]
    return [group for group in others if group.targets]


def _upstream_name(target: RouteTarget) -> str:
    return target.target.upstream.name.lower()


def _no_target_error(model: str, offered: set[str]) -> ClientFault:
    names = ", ".join(map(repr, sorted(offered)[:MAX_LISTED_NAMES])) + (
        ", …" if len(offered) > MAX_LISTED_NAMES else ""
    )
    return ClientFault(
        f"provider: it excludes all providers of the model {model[:100]!r}, which are {names}",
        type="not_found",
        code="model_not_found",
        param="provider",
    )


def _filter_groups(groups: list[RouteGroup], wishes: RoutingWishes) -> list[RouteGroup]:
    is_allowed = _allowance(wishes)
    allowed = [make_group(filter(is_allowed, group.targets), group.reason) for group in groups]
    return [group for group in allowed if group.targets]


def _filter_special(targets: tuple[RouteTarget, ...], wishes: RoutingWishes) -> tuple[RouteTarget, ...]:
    """The targets for a special failure that the caller allows. They are fallbacks too."""
    return tuple(filter(_allowance(wishes), targets)) if wishes.allows_fallbacks else ()


def _allowance(wishes: RoutingWishes) -> Callable[[RouteTarget], bool]:
    """Whether `only` and `ignore` allow a target."""
    only = {name.lower() for name in wishes.only}
    ignored = {name.lower() for name in wishes.ignore}

    def is_allowed(target: RouteTarget) -> bool:
        name = _upstream_name(target)
        return (not only or name in only) and name not in ignored

    return is_allowed


def _order_groups(groups: list[RouteGroup], wishes: RoutingWishes) -> list[RouteGroup]:
    ordered: list[RouteGroup] = []
    for name in dict.fromkeys(map(str.lower, wishes.order)):
        named = [target for group in groups for target in group.targets if _upstream_name(target) == name]
        if named:
            ordered.append(make_group(named, "in the order of the caller"))
    if not wishes.allows_fallbacks:
        return ordered if wishes.order else groups[:1]
    taken = {target for group in ordered for target in group.targets}
    rest = [make_group([each for each in group.targets if each not in taken], group.reason) for group in groups]
    return ordered + [group for group in rest if group.targets]


def _is_routing(name: str, members: dict[str, Raw]) -> bool:
    """Whether a member has the form of a word about routing; others of the same name stay in the body."""
    value = msgspec.json.decode(members[name])
    match name:
        case "models":
            return isinstance(value, list)
        case "fallbacks":  # objects alone are a field of the Messages API
            return isinstance(value, list) and any(isinstance(model, str) for model in value)
        case "num_retries":
            return isinstance(value, int) and not isinstance(value, bool)
        case "provider":
            return isinstance(value, dict)
        case _:
            return isinstance(value, dict) and isinstance(value.get("gateway"), dict)


def _take_gateway_options(words: dict[str, Any], rest: dict[str, Raw]) -> dict[str, Any]:
    """The options for a gateway in `providerOptions`; options of providers stay in the body."""
    options = words.get("providerOptions")
    if options is None:
        return {}
    others = {name: value for name, value in options.items() if name != "gateway"}
    if others:
        rest["providerOptions"] = Raw(msgspec.json.encode(others))
    gateway_options: dict[str, Any] = options["gateway"]
    return gateway_options


def _read_words(words: dict[str, Any], gateway_options: dict[str, Any]) -> RoutingWishes:
    provider = words.get("provider", {})
    read = _WordReader()
    read.note_unknown_options("provider", provider, PROVIDER_OPTIONS)
    read.note_unknown_options("providerOptions.gateway", gateway_options, GATEWAY_OPTIONS)
    retries = words.get("num_retries")
    return RoutingWishes(
        models=(
            *read.names("models", words.get("models")),
            *read.names("providerOptions.gateway.models", gateway_options.get("models")),
            *read.names("fallbacks", words.get("fallbacks")),
        ),
        order=(
            *read.names("provider.order", provider.get("order")),
            *read.names("providerOptions.gateway.order", gateway_options.get("order")),
        ),
        only=(
            *read.names("provider.only", provider.get("only")),
            *read.names("providerOptions.gateway.only", gateway_options.get("only")),
        ),
        ignore=tuple(read.names("provider.ignore", provider.get("ignore"))),
        allows_fallbacks=read.flag("provider.allow_fallbacks", provider.get("allow_fallbacks"), default=True),
        requires_parameters=read.flag("provider.require_parameters", provider.get("require_parameters"), default=False),
        sort=read.sort("provider.sort", provider.get("sort"))
        or read.sort("providerOptions.gateway.sort", gateway_options.get("sort")),
        retries=None if retries is None else max(0, retries),
        losses=tuple(read.losses),
        words=tuple(words),
        too_long=read.too_long,
    )


class _WordReader:
    """Reads values of any type. Those of a wrong type are losses; null is as absent."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []
        self.too_long: str | None = None

    def note_unknown_options(self, path: str, options: dict[str, Any], handled: frozenset[str]) -> None:
        for name, value in options.items():
            if name not in handled and value is not None:
                self._add(f"{path}.{name[:50]}", f"the option {name[:50]!r}", "the gateway does not route by it")

    def names(self, path: str, value: Any) -> list[str]:
        """Names, also in objects such as `{"model": "x"}`."""
        if value is None:
            return []
        if not isinstance(value, list):
            self._add(path, "its value", "expected a list of names")
            return []
        if len(value) > MAX_NAMES:
            self.too_long = self.too_long or path
            return []
        names: list[str] = []
        for index, entry in enumerate(value):
            entry_path = f"{path}[{index}]"
            if isinstance(entry, dict):
                self.note_unknown_options(entry_path, entry, MODEL_MEMBERS)
                entry = entry.get("model")
            if isinstance(entry, str) and entry:
                names.append(entry)
            else:
                self._add(entry_path, "its value", "expected a name")
        return names

    def flag(self, path: str, value: Any, *, default: bool) -> bool:
        if value is not None and not isinstance(value, bool):
            self._add(path, "its value", "expected true or false")
        return value if isinstance(value, bool) else default

    def sort(self, path: str, value: Any) -> str | None:
        if isinstance(value, dict):
            self.note_unknown_options(path, value, SORT_MEMBERS)
            value = value.get("by")
        if value is not None and not isinstance(value, str):
            self._add(path, "its value", "expected a word")
        return value if isinstance(value, str) and value else None

    def _add(self, path: str, what: str, why: str) -> None:
        if len(self.losses) < MAX_WORD_LOSSES:
            self.losses.append(Loss(path, what, why))


ROUTING_PREFIX: Final = b"routing "  # no request begins so
#: A body without any of these says nothing about routing.
ROUTING_WORDS: Final = (b'"provider', b'"models"', b'"fallbacks', b'"num_retries')
MEMBERS: Final = ("provider", "providerOptions", "models", "fallbacks", "num_retries")
PROVIDER_OPTIONS: Final = frozenset({"order", "only", "ignore", "allow_fallbacks", "require_parameters", "sort"})
GATEWAY_OPTIONS: Final = frozenset({"order", "only", "models", "sort"})
#: How callers sort targets, and the strategy that is meant.
SORTS: Final[dict[str, Strategy]] = {
    "latency": "fastest",
    "throughput": "fastest",
    "ttft": "fastest",
    "tps": "fastest",
}
MODEL_MEMBERS: Final = frozenset({"model"})
SORT_MEMBERS: Final = frozenset({"by"})
MAX_NAMES: Final = 100  # in one list
MAX_WORD_LOSSES: Final = 1000
MAX_LISTED_NAMES: Final = 20  # in an error message
