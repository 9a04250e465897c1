"""Finds model servers on this machine at their usual ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from antiphon.cli.live_check import TIMEOUTS
from antiphon.client import AsyncClient, Model, Retries
from antiphon.dialects.dialect import ServerDialectName
from antiphon.errors import ApiError


class LocalServer(Struct, frozen=True):
    """A kind of server: its usual address, its profile, and how its list of models is recognized."""

    name: str
    title: str
    base_url: str
    profile: str
    is_own_list: Callable[[list[Model]], bool]
    dialect: ServerDialectName = "chat"


class FoundServer(Struct, frozen=True):
    """A server that answered, and its models."""

    server: LocalServer
    models: list[str]


def find_local_servers(environ: Mapping[str, str]) -> list[FoundServer]:
    """Ask every usual address for its models, all at once."""

    async def find_all() -> list[FoundServer | None]:
        return await asyncio.gather(*(_find(server, environ) for server in LOCAL_SERVERS))

    return [found for found in asyncio.run(find_all()) if found is not None]


async def _find(server: LocalServer, environ: Mapping[str, str]) -> FoundServer | None:
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
    return FoundServer(server, [model.id for model in models]) if server.is_own_list(models) else None


def _is_any(_: list[Model]) -> bool:
    return True


def _is_owned_by(owner: str) -> Callable[[list[Model]], bool]:
    """Other programs use these ports too, so the server must name itself in its list."""
    return lambda models: any(model.owned_by == owner for model in models)


LOCAL_SERVERS: Final = (
    LocalServer("ollama", "Ollama", "http://127.0.0.1:11434/v1", "ollama", _is_any),
    LocalServer("lmstudio", "LM Studio", "http://127.0.0.1:1234/v1", "chat", _is_any),
    LocalServer("llamacpp", "llama.cpp", "http://127.0.0.1:8080/v1", "chat", _is_owned_by("llamacpp")),
    LocalServer("vllm", "vLLM", "http://127.0.0.1:8000/v1", "vllm", _is_owned_by("vllm")),
)
