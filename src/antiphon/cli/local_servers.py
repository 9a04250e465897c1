"""Finds model servers on this machine at their usual ports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from antiphon.cli.live_check import TIMEOUTS
from antiphon.client import AsyncClient, Retries
from antiphon.errors import ApiError
from antiphon.profiles.local_servers import LocalServer, builtin_local_servers


class AnsweringServer(Struct, frozen=True):
    """A server that answered, and its models."""

    server: LocalServer
    models: list[str]


def find_local_servers(environ: Mapping[str, str], kinds: Sequence[LocalServer] | None = None) -> list[AnsweringServer]:
    """Ask every usual address for its models, all at once."""

    async def find_all() -> list[AnsweringServer | None]:
        return await asyncio.gather(*(_find(server, environ) for server in kinds or builtin_local_servers()))

    return [server for server in asyncio.run(find_all()) if server is not None]


async def _find(server: LocalServer, environ: Mapping[str, str]) -> AnsweringServer | None:
    client = AsyncClient(
        server.base_url,
        dialect=server.dialect,
        profile=server.profile,
        timeouts=TIMEOUTS,
        retries=Retries(times=0),
        environ=environ,
    )
    try:
        async with client:
            models = await client.models()
    except ApiError:
        return None
    if server.owner and all(model.owned_by != server.owner for model in models):
        return None
    return AnsweringServer(server, [model.id for model in models])
