"""Routes with scripted servers' names, a clock that tests set, and random numbers that tests choose."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.config import Config, ModelConfig, RetryConfig, TargetConfig, UpstreamConfig
from antiphon.gateway.routes import Routes
from antiphon.gateway.routing.attempts import ModelRoute
from antiphon.gateway.routing.router import Router


class Clock:
    """A clock in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_router(
    targets: Sequence[TargetConfig],
    *,
    keys: int = 1,
    draws: float = 0.0,
    retry: RetryConfig = RetryConfig(),  # noqa: B008
    clock: Clock | None = None,
    config: Config = Config(),  # noqa: B008
    **settings: object,
) -> Router:
    """A router for the model `m`. Every upstream that a target names has so many keys."""
    entry = ModelConfig(name="m", targets=[*targets], retry=retry, **settings)  # type: ignore[arg-type]
    names = dict.fromkeys(target.upstream for target in (*entry.targets, *entry.on_context_length, *entry.on_refusal))
    variables = [f"KEY_{number}" for number in range(keys)]
    upstreams = [
        UpstreamConfig(name=name, dialect="chat", base_url=f"http://{name}/v1", models=["*"], api_key_env=variables)
        for name in names
    ]
    full_config = Config(upstreams=upstreams, models=[entry], health=config.health)
    environ = {variable: f"sk-{variable}" for variable in variables}
    return Router(full_config, Routes(full_config, environ, {}), clock or Clock(), lambda: draws)


def make_route(*targets: TargetConfig, **settings: object) -> ModelRoute:
    return make_router(targets, **settings).find("m")  # type: ignore[arg-type]


def at(upstream: str, priority: int = 1, weight: int = 1) -> TargetConfig:
    return TargetConfig(upstream=upstream, model="x", priority=priority, weight=weight)
