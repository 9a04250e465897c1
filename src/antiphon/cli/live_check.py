"""Asks each upstream of a configuration for its models: whether it answers, accepts its key and lists the configured
models. Also checks whether a PostgreSQL store can be reached and the embedded model is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from antiphon.cli.terminal import TextStyler, one_line
from antiphon.client import AsyncClient, Retries, Timeouts
from antiphon.client.server import ConnectionFault
from antiphon.config import Config, StoreConfig, UpstreamConfig
from antiphon.config.schema import EMBEDDINGS
from antiphon.errors import AntiphonError, ApiError

TIMEOUTS: Final = Timeouts(connect=5.0, first_byte=15.0, idle=15.0, total=20.0)


class LiveResult(Struct, frozen=True):
    """The outcome for one upstream: the number of models that it lists, a note in place of it, or an error."""

    upstream: str
    model_count: int = 0
    error: str = ""
    note: str = ""
    warning: str = ""


def check_upstreams(config: Config, environ: Mapping[str, str]) -> list[LiveResult]:
    """Ask all upstreams at once. Agents are left out, because they are part of the gateway."""
    upstreams = [upstream for upstream in config.upstreams if upstream.base_url or upstream.embedded]

    async def check_all() -> list[LiveResult]:
        return await asyncio.gather(*(_check_upstream(upstream, environ) for upstream in upstreams))

    return asyncio.run(check_all())


def check_store(config: StoreConfig) -> LiveResult | None:
    """Connect to a PostgreSQL store, without changing it; None for another store."""
    url = config.url
    if url is None or not url.startswith(("postgresql://", "postgres://")):
        return None
    return asyncio.run(_check_postgres(url))


def describe_results(results: list[LiveResult], paint: TextStyler) -> list[str]:
    """Return one line for each upstream, and one more for a warning."""
    width = max((len(result.upstream) for result in results), default=0)
    lines: list[str] = []
    for result in results:
        outcome = (
            paint("red", one_line(result.error)) if result.error else one_line(result.note or _models_text(result))
        )
        lines.append(f"{one_line(result.upstream):{width}}  {outcome}")
        if result.warning:
            lines.append(f"{'':{width}}  {paint('yellow', 'warning:')} {one_line(result.warning)}")
    return lines


def _models_text(result: LiveResult) -> str:
    return f"answers, and lists {result.model_count} model{'' if result.model_count == 1 else 's'}"


async def _check_upstream(upstream: UpstreamConfig, environ: Mapping[str, str]) -> LiveResult:
    if upstream.embedded:
        return _check_embedded(upstream)
    if upstream.lacks_key(environ):
        variables = " or ".join(upstream.key_variables())
        return LiveResult(upstream.name, note=f"not asked, because it is not used: {variables} is not set")
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
            names = {model.id for model in await client.models()}
    except ApiError as error:
        return LiveResult(upstream.name, error=_describe_error(error, upstream))
    return LiveResult(upstream.name, len(names), warning=_missing_models(upstream, names))


def _check_embedded(upstream: UpstreamConfig) -> LiveResult:
    from antiphon.upstream.embedded import embedding_model_settings, model_file  # other configurations do not need it

    try:
        if upstream.embedded == EMBEDDINGS:
            embedding_model_settings()
        else:
            model_file()
    except AntiphonError as error:
        return LiveResult(upstream.name, error=str(error))
    return LiveResult(upstream.name, note="the embedded model is installed")


def _describe_error(error: ApiError, upstream: UpstreamConfig) -> str:
    """Describe the error of an upstream: its status, its message, and the setting to correct."""
    if isinstance(error, ConnectionFault):
        return f"{error.message}; base_url is {upstream.base_url}"
    hint = ""
    if error.status in (401, 403):
        variables = " or ".join(upstream.key_variables())
        hint = f"; the key is in {variables}" if variables else "; api_key_env names no variable with a key"
    elif error.status in (404, 405) or error.code == "upstream_invalid_response":
        hint = f"; check base_url, which is {upstream.base_url}"
    return f"HTTP {error.status}: {error.message}{hint}"


def _missing_models(upstream: UpstreamConfig, names: set[str]) -> str:
    """The configured models that the server does not list; empty if there are none."""
    configured = [upstream.upstream_model(name) or name for name in upstream.listed_models()]
    missing = [name for name in configured if name not in names]
    return f"the server does not list {', '.join(missing)}" if names and missing else ""


async def _check_postgres(url: str) -> LiveResult:
    import asyncpg  # type: ignore[import-untyped,unused-ignore]  # slow to load, and most stores are SQLite

    from antiphon.store.postgres.faults import FAILURES, startup_error

    try:
        connection = await asyncpg.connect(url, timeout=TIMEOUTS.connect)
        await connection.close()
    except (*FAILURES, ValueError) as error:
        return LiveResult("[store]", error=str(startup_error(error)))
    return LiveResult("[store]", note="PostgreSQL answers")
