"""Finds model servers on this machine at their usual ports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from antiphon.client import AsyncClient, Retries
from antiphon.errors import ApiError
from antiphon.profiles.local_servers import LocalServer, builtin_local_servers

ANSWER_LIMIT: Final = 2.0  # seconds


class AnsweringServer(Struct, frozen=True):
    """A server that answered, and its models."""

    server: LocalServer
    models: list[str]


class ServerSearch(Struct, frozen=True):
    """The servers that answered, and those that accepted a connection and did not answer."""

    answering: list[AnsweringServer]
    silent: list[LocalServer] = []


def find_local_servers(environ: Mapping[str, str], kinds: Sequence[LocalServer] | None = None) -> ServerSearch:
    """Ask every usual address for its models, all at once, for at most `ANSWER_LIMIT`."""
    servers = kinds or builtin_local_servers()

    async def find_all() -> list[AnsweringServer | TimeoutError | None]:
        return await asyncio.gather(*(_find_in_time(server, environ) for server in servers))

    results = asyncio.run(find_all())
    return ServerSearch(
        [result for result in results if isinstance(result, AnsweringServer)],
        [server for server, result in zip(servers, results, strict=True) if isinstance(result, TimeoutError)],
    )


async def _find_in_time(server: LocalServer, environ: Mapping[str, str]) -> AnsweringServer | TimeoutError | None:
    try:
        async with asyncio.timeout(ANSWER_LIMIT):
            return await _find(server, environ)
    except TimeoutError as error:
        return error


async def _find(server: LocalServer, environ: Mapping[str, str]) -> AnsweringServer | None:
    client = AsyncClient(
        server.base_url,
        dialect=server.dialect,
        profile=server.profile,
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
