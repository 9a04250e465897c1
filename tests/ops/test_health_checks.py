"""`ops/health_checks`: resting targets are woken by an upstream that lists its models."""

from __future__ import annotations

import asyncio

import pytest
from tests.gateway.routing.making import at, make_router
from tests.gateway.scripted import JSON, ScriptedAnswer, ScriptedTransport

from antiphon.config import Config, HealthConfig, UpstreamConfig
from antiphon.errors import ApiError, UpstreamFault
from antiphon.gateway.routes import Routes
from antiphon.gateway.upstreams import TargetState
from antiphon.ops.health_checks import check_resting_targets, run_health_checks


@pytest.mark.parametrize(
    ("answer", "is_up"),
    [
        (ScriptedAnswer([b'{"data":[]}'], JSON), True),
        (ScriptedAnswer([b"{}"], JSON, status=503), False),
        (ScriptedAnswer([UpstreamFault("cut")], JSON), False),
        (UpstreamFault("refused"), False),
    ],
)
def test_resting_target_is_woken_only_by_a_proper_answer(answer: ScriptedAnswer | ApiError, is_up: bool) -> None:
    router = make_router([at("a"), at("b", 2)])
    upstreams = [UpstreamConfig(name=name, dialect="chat", base_url=f"http://{name}/v1") for name in ("a", "b")]
    routes = Routes(Config(upstreams=upstreams), {}, {})
    state = router.find("m").targets[0].state
    rest_after_failures(state, router.clock())
    transport = ScriptedTransport(answer)
    asyncio.run(check_resting_targets(router, routes, transport))
    assert [request.url for request in transport.asked] == ["http://a/v1/models"]
    assert state.is_resting(router.clock()) is not is_up


def rest_after_failures(state: TargetState, now: float) -> None:
    for _ in range(state.config.min_requests):
        state.begin(now)
        state.end("failure", now)
    assert state.is_resting(now)


def test_rest_that_the_server_asked_for_is_not_ended_by_a_check() -> None:
    """`Retry-After` says when it answers turns again; its list of models says nothing about that."""
    router = make_router([at("a"), at("b", 2)])
    state = router.find("m").targets[0].state
    state.rest(60.0, router.clock())
    transport = ScriptedTransport(ScriptedAnswer([b'{"data":[]}'], JSON))
    asyncio.run(check_resting_targets(router, Routes(Config(), {}, {}), transport))
    assert (transport.asked, state.is_resting(router.clock())) == ([], True)


class ScriptedServices:
    """The services of a configuration with one resting target."""

    def __init__(self, check_interval: float | None) -> None:
        upstream = UpstreamConfig(name="a", dialect="chat", base_url="http://a/v1")
        self.config = Config(upstreams=[upstream], health=HealthConfig(check_interval=check_interval))
        self.router = make_router([at("a")])
        self.routes = Routes(self.config, {}, {})
        self.transport = ScriptedTransport(UpstreamFault("refused"))
        rest_after_failures(self.router.find("m").targets[0].state, self.router.clock())


@pytest.mark.parametrize(("check_interval", "is_asked"), [(0.001, True), (None, False)])
def test_checks_run_at_the_interval_of_the_newest_configuration(check_interval: float | None, is_asked: bool) -> None:
    started, newest = ScriptedServices(0.001), ScriptedServices(check_interval)
    configurations = [started, newest]

    async def run_shortly() -> None:
        with pytest.raises((TimeoutError, IndexError)):
            await asyncio.wait_for(run_health_checks(lambda: configurations.pop(0)), 60.0)

    asyncio.run(run_shortly())
    assert started.transport.asked == []
    assert bool(newest.transport.asked) is is_asked
