"""Finds settings that are valid and probably not meant: upstreams without their keys, and models that an earlier
upstream takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from antiphon.config.model_rules import is_pattern, upstream_model_name
from antiphon.config.problem import Problem
from antiphon.config.schema import Config, UpstreamConfig
from antiphon.profiles.toml_source import as_toml


def find_warnings(config: Config, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yields all warnings, in the order of the upstreams."""
    routed_names = {
        target.upstream
        for model in config.models
        for target in (*model.targets, *model.on_context_length, *model.on_refusal)
    }
    for index, upstream in enumerate(config.upstreams):
        yield from _key_warnings(upstream, index, environ)
        if upstream.name not in routed_names:
            yield from _shadow_warnings(upstream, index, config.upstreams[:index])
        yield from _hidden_name_warnings(upstream, index, config)


def _key_warnings(upstream: UpstreamConfig, index: int, environ: Mapping[str, str]) -> Iterator[Problem]:
    unset = [variable for variable in upstream.key_variables() if not environ.get(variable)]
    effect = (
        f"the upstream {as_toml(upstream.name)} is not used"
        if upstream.lacks_key(environ)
        else f"the upstream {as_toml(upstream.name)} is used with its other keys"
    )
    for variable in unset:
        message = f"the environment variable {variable} is not set: {effect}"
        yield Problem(("upstreams", index, "api_key_env"), message)


def _hidden_name_warnings(upstream: UpstreamConfig, index: int, config: Config) -> Iterator[Problem]:
    """A listed name is hidden by an entry of `[[models]]` that does not ask this upstream."""
    hiding = {
        model.name for model in config.models if upstream.name not in (target.upstream for target in model.targets)
    }
    for name in upstream.model_names():
        if name in hiding:
            message = (
                f"{as_toml(name)} of the upstream {as_toml(upstream.name)} is hidden: the entry of that name in "
                "[[models]] has other targets; add the upstream there, or remove the name here"
            )
            yield Problem(("upstreams", index, "models"), message)


def _shadow_warnings(upstream: UpstreamConfig, index: int, earlier: list[UpstreamConfig]) -> Iterator[Problem]:
    """A name or pattern is shadowed if a pattern of an earlier upstream matches all that it matches. The model of a
    name is then asked of this upstream only if the earlier one fails."""
    for name in upstream.model_names():
        shadow = next(((other, pattern) for other in earlier if (pattern := _covering_pattern(other, name))), None)
        if shadow is not None:
            other, pattern = shadow
            effect = "is shadowed" if is_pattern(name) else "is shadowed, and asked there only if another fails"
            message = (
                f"{as_toml(name)} of the upstream {as_toml(upstream.name)} {effect}: the earlier upstream "
                f"{as_toml(other.name)} serves {as_toml(pattern)}; give that one narrower models, or put it last"
            )
            yield Problem(("upstreams", index, "models"), message)


def _covering_pattern(upstream: UpstreamConfig, name: str) -> str | None:
    patterns = filter(is_pattern, upstream.model_names())
    return next((pattern for pattern in patterns if upstream_model_name(pattern, name) is not None), None)
