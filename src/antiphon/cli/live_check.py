"""Asks each upstream of a configuration for its models: whether it answers, and whether it accepts its key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from antiphon.cli.terminal import TextStyler, one_line
from antiphon.client import AsyncClient, Retries, Timeouts
from antiphon.config import Config, UpstreamConfig
from antiphon.errors import ApiError

TIMEOUTS: Final = Timeouts(connect=5.0, first_byte=15.0, idle=15.0, total=20.0)


class LiveResult(Struct, frozen=True):
    """The outcome for one upstream: the number of models that it lists, or an error."""

    upstream: str
    model_count: int = 0
    error: str = ""


def check_upstreams(config: Config, environ: Mapping[str, str]) -> list[LiveResult]:
    """Ask all upstreams at once. The embedded model and agents are left out, because they are part of the gateway."""
    upstreams = [upstream for upstream in config.upstreams if upstream.base_url]

    async def check_all() -> list[LiveResult]:
        return await asyncio.gather(*(_check_upstream(upstream, environ) for upstream in upstreams))

    return asyncio.run(check_all())


def describe_results(results: list[LiveResult], paint: TextStyler) -> list[str]:
    """Return one line for each upstream."""
    width = max((len(result.upstream) for result in results), default=0)
    return [
        f"{one_line(result.upstream):{width}}  "
        + (paint("red", one_line(result.error)) if result.error else f"answers, and lists {result.model_count} models")
        for result in results
    ]


async def _check_upstream(upstream: UpstreamConfig, environ: Mapping[str, str]) -> LiveResult:
    key = next(iter(upstream.api_keys(environ)), None)
    client = AsyncClient(
        upstream.base_url,
        key,
        dialect=upstream.dialect,
        profile=upstream.profile_name,
        timeouts=TIMEOUTS,
        retries=Retries(times=0),
        environ=environ,
    )
    try:
        async with client:
            return LiveResult(upstream.name, len(await client.models()))
    except ApiError as error:
        return LiveResult(upstream.name, error=error.message)
