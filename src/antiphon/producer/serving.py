"""Serves agents: loads them by name for `antiphon serve --agent`, or mounts them into another ASGI server."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from antiphon.api.app import App
from antiphon.config import Config, StoreConfig, UpstreamConfig
from antiphon.errors import ConfigError
from antiphon.http.asgi import Receive, Scope, Send
from antiphon.ops.logger import Logger
from antiphon.ops.services import Services
from antiphon.producer.agent import Agent
from antiphon.producer.transport import AgentTransport
from antiphon.upstream.http import HttpTransport


def load_agent(spec: str, folder: str) -> Agent:
    """Imports the agent `module:name`. Modules in `folder` can be imported too."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise ConfigError(
            f"agent: expected a module and the name of an agent in it, such as my_agents:run, got {spec!r}"
        )
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        candidate = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"agent {spec!r}: no module {error.name!r}, neither in {folder} nor installed") from error
    except AttributeError:
        raise ConfigError(f"agent {spec!r}: the module {module!r} has no attribute {name!r}") from None
    if not isinstance(candidate, Agent):
        kind = type(candidate).__name__
        raise ConfigError(
            f"agent {spec!r}: expected an agent, got an object of type {kind!r}: put @agent(model=…) above the function"
        )
    return candidate


def agent_upstream(spec: str, agent: Agent) -> UpstreamConfig:
    """The configuration of an agent as an upstream."""
    return UpstreamConfig(name=agent.model, dialect="responses", models=[agent.model], agent=spec)


def transport_opener(config: Config, folder: str) -> Callable[[Mapping[str, str]], AgentTransport]:
    """The function with which each serving process opens its transport: it imports the agents."""
    return partial(_open_transport, [upstream.agent for upstream in config.upstreams if upstream.agent], folder)


def asgi_app(agent: Agent, config: Config | None = None) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The gateway with one agent as an ASGI application. It can be mounted under any path."""
    config = config or Config(store=StoreConfig(url="off"))
    config = replace(config, upstreams=[agent_upstream(agent.model, agent), *config.upstreams])
    environ = dict(os.environ)
    transport = AgentTransport({agent.model: agent}, HttpTransport(environ))
    app = App(Services(config, environ, transport, Logger(sys.stderr, config.server.log)), environ)

    async def app_under_root(scope: Scope, receive: Receive, send: Send) -> None:
        root = scope.get("root_path", "")
        if root and scope["path"].startswith(f"{root}/"):
            scope = {**scope, "path": scope["path"].removeprefix(root)}
        await app(scope, receive, send)

    return app_under_root


def _open_transport(specs: Sequence[str], folder: str, environ: Mapping[str, str]) -> AgentTransport:
    return AgentTransport({spec: load_agent(spec, folder) for spec in specs}, HttpTransport(environ))
