"""`gateway/route_plan`: the plan of a turn, without asking anybody."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import msgspec
import pytest
from tests.gateway.scripted import ScriptedTransport

from antiphon.config import Config, ModelConfig, RetryConfig, StoreConfig, TargetConfig, UpstreamConfig
from antiphon.errors import ClientFault
from antiphon.gateway.client_body import ClientBody
from antiphon.gateway.history import HistorySource
from antiphon.gateway.prepare_turn import TurnPreparer
from antiphon.gateway.request_scope import RequestLog
from antiphon.gateway.route_plan import RoutePlan, explain_route, list_targets
from antiphon.ops.logger import Logger
from antiphon.ops.services import Services

UPSTREAMS = [
    UpstreamConfig(name="chat", dialect="chat", base_url="http://a/v1", models=["lone"]),
    UpstreamConfig(name="messages", dialect="messages", base_url="http://b/v1", models=["x"]),
    UpstreamConfig(name="small", dialect="chat", base_url="http://c/v1", models=["y"], context=256),
]
TARGETS = [
    TargetConfig(upstream="messages", model="x", weight=3),
    TargetConfig(upstream="chat", model="c"),
    TargetConfig(upstream="small", model="y", priority=2),
]


def services_with(**settings: Any) -> Services:
    entry = ModelConfig(name="coder", targets=TARGETS, **settings)
    config = Config(upstreams=UPSTREAMS, models=[entry], store=StoreConfig(url="off"))
    return Services(config, {}, ScriptedTransport(), Logger(io.StringIO(), "json"))


def plan(services: Services, *, strict: bool | None = None, **fields: Any) -> RoutePlan:
    body = ClientBody(content=msgspec.json.encode({"model": "coder", "input": "Hi", **fields}))
    source = HistorySource(owner="alice", store=None, limit=1_000_000)
    log_entry = RequestLog(request_id="req_1", method="POST", path="/v1/route")
    preparer = TurnPreparer(services, body, lambda _: source, log_entry, None, strict=strict)
    return asyncio.run(explain_route(services, preparer))


def labels(route_plan: RoutePlan) -> list[str]:
    return [f"{target.upstream}/{target.model}" for target in route_plan.targets]


def test_plan_has_all_targets_with_reasons_and_losses() -> None:
    route_plan = plan(services_with(on_refusal=[TargetConfig(upstream="small", model="z")]), top_logprobs=3)
    assert sorted(labels(route_plan)[:2]) == ["chat/c", "messages/x"]
    assert labels(route_plan)[2] == "small/y"
    by_name = {target.upstream: target for target in route_plan.targets}
    assert by_name["messages"].why == ["priority 1, drawn with weight 3 of 4"]
    assert by_name["small"].why == ["priority 2"]
    assert [loss.path for loss in by_name["messages"].losses] == ["top_logprobs"]
    assert by_name["chat"].losses == []
    assert (route_plan.rounds, route_plan.on_context_length, route_plan.on_refusal) == (2, [], ["small/z"])


@pytest.mark.parametrize(("strategy", "reason"), [("least-busy", "least-busy for weight 3"), ("fastest", "fastest")])
def test_plan_names_the_strategy_that_chooses(strategy: str, reason: str) -> None:
    by_name = {target.upstream: target for target in plan(services_with(strategy=strategy)).targets}
    assert by_name["messages"].why == [f"priority 1, {reason}"]
    assert by_name["chat"].why == [f"priority 1, {strategy}"]


def test_plan_follows_the_caller_and_says_what_is_not_offered() -> None:
    route_plan = plan(services_with(), provider={"order": ["small", "gone"], "allow_fallbacks": False})
    assert labels(route_plan) == ["small/y"]
    assert route_plan.targets[0].why == ["in the order of the caller"]
    assert route_plan.rounds == 1
    assert [loss.path for loss in route_plan.not_offered] == ["provider.order"]


def test_plan_prefers_the_fewest_losses() -> None:
    route_plan = plan(services_with(prefer="fewest-losses"), top_logprobs=3)
    assert labels(route_plan) == ["chat/c", "messages/x", "small/y"]
    assert route_plan.targets[0].why == ["priority 1, 0 losses"]


def test_plan_shows_targets_that_rest_and_targets_that_cannot_carry_the_request() -> None:
    services = services_with()
    services.router.find("coder").targets[1].state.rest(20.0, services.router.clock())
    route_plan = plan(services, input="word " * 2000)
    assert labels(route_plan) == ["messages/x", "small/y", "chat/c"]
    assert any("its context 256" in reason for reason in route_plan.targets[1].why)
    assert any(reason.startswith("it rests for") for reason in route_plan.targets[2].why)
    assert route_plan.targets[2].health == "resting"


def test_plan_shows_targets_that_strict_mode_excludes() -> None:
    route_plan = plan(services_with(), strict=True, top_logprobs=3)
    errors = {target.upstream: target.error for target in route_plan.targets}
    assert errors["chat"] is None
    assert "strict mode" in (errors["messages"] or "")


def test_plan_names_the_target_with_a_warm_cache() -> None:
    services = services_with()
    route = services.router.find("coder")
    source = HistorySource(owner="alice", store=None, limit=1_000_000)
    log_entry = RequestLog(request_id="req_1", method="POST", path="/v1/route")
    body = ClientBody(content=b'{"model": "coder", "input": "Hi"}')

    def make_preparer() -> TurnPreparer:
        return TurnPreparer(services, body, lambda _: source, log_entry, None)

    first_preparer, second_preparer = make_preparer(), make_preparer()
    asyncio.run(explain_route(services, first_preparer))
    assert first_preparer.session is not None
    assert first_preparer.facts is not None
    services.router.remember_answer(first_preparer.session, route.targets[2], first_preparer.facts, "resp_1")
    route_plan = asyncio.run(explain_route(services, second_preparer))
    assert labels(route_plan)[0] == "small/y"
    assert "it answered this conversation before, so its cache is warm" in route_plan.targets[0].why


def test_plan_of_a_lone_target_has_one_row() -> None:
    route_plan = plan(services_with(), model="lone")
    assert labels(route_plan) == ["chat/lone"]
    assert route_plan.targets[0].why == ["priority 1"]
    assert route_plan.rounds == 1


def test_faults_of_the_request_are_raised() -> None:
    with pytest.raises(ClientFault):
        plan(services_with(), model="unknown")


def test_asked_targets_are_listed_with_their_health() -> None:
    services = services_with(retry=RetryConfig())
    services.router.find("coder").targets[0].state.begin(services.router.clock())
    (first, *_) = list_targets(services)
    assert (first.upstream, first.model, first.health, first.attempts, first.in_flight) == (
        "messages",
        "x",
        "healthy",
        1,
        1,
    )


def test_plan_of_a_lone_target_that_strict_mode_excludes_shows_its_error() -> None:
    (target,) = plan(services_with(), strict=True, model="x", top_logprobs=3).targets
    assert (target.upstream, target.losses) == ("messages", [])
    assert "strict mode" in (target.error or "")
