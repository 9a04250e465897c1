"""A gateway with one agent in its own process, as tests ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.running import Running, running

from antiphon.config import Config
from antiphon.producer import Agent
from antiphon.producer.serving import agent_upstream
from antiphon.producer.transport import AgentTransport
from antiphon.upstream.http import HttpTransport


@contextmanager
def serving(agent: Agent, config: Config | None = None, **settings: Any) -> Iterator[Running]:
    config = config or Config()
    config = Config(upstreams=[agent_upstream("lab:agent", agent)], store=config.store, background=config.background)
    transport = AgentTransport({"lab:agent": agent}, HttpTransport({}))
    with running(config, transport=transport, **settings) as gateway:
        yield gateway
