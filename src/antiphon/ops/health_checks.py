"""Checks resting targets actively: an upstream that lists its models is up again, and its targets rest no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from msgspec.structs import replace

from antiphon.config import Config
from antiphon.errors import ApiError
from antiphon.gateway.routes import Routes
from antiphon.gateway.routing.router import Router
from antiphon.gateway.upstreams import Upstream
from antiphon.upstream.body import read_partial_body
from antiphon.upstream.transport import Transport


class CheckedServices(Protocol):
    """The services of one configuration, as far as checks use them."""

    @property
    def config(self) -> Config: ...

    @property
    def router(self) -> Router: ...

    @property
    def routes(self) -> Routes: ...

    @property
    def transport(self) -> Transport: ...


async def run_health_checks(current_services: Callable[[], CheckedServices]) -> None:
    """Checks periodically until it is cancelled, while the configuration has an interval."""
    while True:
        interval = current_services().config.health.check_interval
        await asyncio.sleep(interval or DISABLED_INTERVAL)
        services = current_services()
        if services.config.health.check_interval is not None:
            await check_resting_targets(services.router, services.routes, services.transport)


async def check_resting_targets(router: Router, routes: Routes, transport: Transport) -> None:
    """Wakes the resting targets of upstreams that answer. Each upstream is asked once."""
    now = router.clock()
    names = {name for (name, _), state in router.states.items() if state.may_be_checked(now)}
    upstreams = [routes.upstream(name) for name in sorted(names)]
    answers = await asyncio.gather(*(_is_up(upstream, transport) for upstream in upstreams))
    for upstream, is_up in zip(upstreams, answers, strict=True):
        for (name, _), state in router.states.items():
            if is_up and name == upstream.name and state.may_be_checked(router.clock()):
                state.wake()


async def _is_up(upstream: Upstream, transport: Transport) -> bool:
    timeouts = replace(upstream.timeouts, first_byte=CHECK_TIMEOUT, total=CHECK_TIMEOUT)
    url = upstream.base_url + upstream.server_dialect.models_path
    try:
        answer = await transport.send("GET", url, upstream.headers, b"", timeouts)
        _, fault = await read_partial_body(answer, MAX_LIST_BYTES)
    except ApiError:
        return False
    return fault is None and answer.status == 200


DISABLED_INTERVAL: Final = 5.0  # seconds until a reload that enables the checks is noticed
CHECK_TIMEOUT: Final = 5.0  # seconds
MAX_LIST_BYTES: Final = 4 * 1024 * 1024
