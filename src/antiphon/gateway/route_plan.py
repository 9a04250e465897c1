"""Explains a route: the targets of a turn in order and why, what each would lose, and its health. Nothing is sent."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.prepare_turn import TurnPreparer, groups_by_losses
from antiphon.gateway.routing.attempts import ModelRoute, RouteGroup, RouteTarget
from antiphon.gateway.routing.facts import RequestFacts, find_obstacle
from antiphon.gateway.upstreams import Health
from antiphon.protocol.losses import Loss


class TargetHealth(Struct, frozen=True, kw_only=True):
    """The state of a target in one process of the gateway."""

    upstream: str
    model: Annotated[str, Meta(description="The upstream's name for the model.")]
    health: Annotated[Health, Meta(description="`resting`: asked last. `trial`: the next request tries it again.")]
    rest_seconds: Annotated[float, Meta(description="The seconds of rest that are left.")]
    attempts: Annotated[int, Meta(description="Attempts since the start of the process.")]
    failures: int
    in_flight: int


class UpstreamList(Struct, frozen=True, kw_only=True):
    """The targets that one process of the gateway has asked."""

    object: str = "list"
    data: Annotated[list[TargetHealth], Meta(description="By upstream and model.")]


class PlannedTarget(Struct, frozen=True, kw_only=True):
    """One target of a plan."""

    upstream: str
    model: Annotated[str, Meta(description="The upstream's name for the model.")]
    why: Annotated[list[str], Meta(description="Why it is at this place.")]
    losses: Annotated[list[Loss], Meta(description="What the translation of the request would lose.")]
    error: Annotated[str | None, Meta(description="Why the request cannot be sent to it.")] = None
    health: Health
    keys: int
    resting_keys: int


class RoutePlan(Struct, frozen=True, kw_only=True):
    """How a turn would be routed."""

    object: str = "antiphon.route"
    model: str
    strategy: str
    rounds: int
    deadline: float
    targets: Annotated[list[PlannedTarget], Meta(description="In the order in which they would be asked.")]
    on_context_length: list[str]
    on_refusal: list[str]
    not_offered: Annotated[list[Loss], Meta(description="What the caller says about routing that has no effect.")] = []


async def explain_route(services: GatewayContext, preparer: TurnPreparer) -> RoutePlan:
    """The plan of the turn of a body. Its own faults are raised; those of single targets are in the plan."""
    try:
        await preparer.prepare()
    except ClientFault:
        if preparer.attempts is None:
            raise
    route, facts = preparer.route, preparer.facts
    losses = await preparer.count_losses(route.targets)
    groups = groups_by_losses(route, losses) if route.prefers_fewest_losses else route.groups
    order = services.router.make_order(route, facts, preparer.first_target, groups)
    reasons = {target: _group_reason(route, group, target) for group in groups for target in group.targets}
    targets: list[PlannedTarget] = []
    while (target := order.next(services.router.clock())) is not None:
        is_warm = target is preparer.first_target
        why = _reasons(services, route, target, facts, reasons[target], is_warm=is_warm)
        targets.append(_plan_target(services, target, why, losses.get(target, [])))
    return RoutePlan(
        model=route.name,
        strategy=route.strategy,
        rounds=route.retry.rounds,
        deadline=route.retry.deadline,
        targets=targets,
        on_context_length=[target.label for target in route.on_context_length],
        on_refusal=[target.label for target in route.on_refusal],
        not_offered=preparer.wish_losses,
    )


def list_targets(services: GatewayContext) -> list[TargetHealth]:
    """The state of all targets that were used in this process."""
    now = services.router.clock()
    return [
        TargetHealth(
            upstream=upstream,
            model=model,
            health=state.health(now) if services.router.may_rest(upstream, model) else "healthy",
            rest_seconds=round(state.rest_seconds(now), 3) if services.router.may_rest(upstream, model) else 0.0,
            attempts=state.attempts,
            failures=state.failures,
            in_flight=state.in_flight,
        )
        for (upstream, model), state in services.router.states.items()
        if state.attempts or state.is_resting(now)
    ]


def _reasons(
    services: GatewayContext,
    route: ModelRoute,
    target: RouteTarget,
    facts: RequestFacts | None,
    group_reason: str,
    *,
    is_warm: bool,
) -> list[str]:
    now = services.router.clock()
    reasons = [group_reason]
    if is_warm:
        reasons.append("it answered this conversation before, so its cache is warm")
    if not route.is_lone and target.state.is_resting(now):
        reasons.append(f"it rests for {target.state.rest_seconds(now):.0f} s after failures")
    obstacle = "" if facts is None else find_obstacle(target.target, facts)
    if obstacle:
        reasons.append(obstacle)
    return reasons


def _group_reason(route: ModelRoute, group: RouteGroup, target: RouteTarget) -> str:
    """Why a target is in its group, and how it is chosen among the others of the group."""
    if len(group.targets) == 1:
        return group.reason
    if route.strategy == "weighted":
        return f"{group.reason}, drawn with weight {target.weight} of {group.weight_sums[-1]}"
    weight = f" for weight {target.weight}" if route.strategy == "least-busy" and target.weight != 1 else ""
    return f"{group.reason}, {route.strategy}{weight}"


def _plan_target(
    services: GatewayContext, target: RouteTarget, why: list[str], losses: list[Loss] | ApiError
) -> PlannedTarget:
    upstream, now = target.target.upstream, services.router.clock()
    return PlannedTarget(
        upstream=upstream.name,
        model=target.target.model,
        why=why,
        losses=losses if isinstance(losses, list) else [],
        error=None if isinstance(losses, list) else losses.message,
        health=target.state.health(now),
        keys=upstream.key_ring.count,
        resting_keys=len(upstream.key_ring.resting(now)),
    )
