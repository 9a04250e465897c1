"""Checks the settings of routing: names of upstreams, duplicate targets, and rules that can never apply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from antiphon.config.model_rules import is_pattern
from antiphon.config.problem import Problem
from antiphon.config.routing import ModelConfig, TargetConfig
from antiphon.config.schema import Config
from antiphon.profiles.toml_source import SettingPath, as_toml
from antiphon.protocol.suggestions import suggest_names


def routing_problems(config: Config) -> Iterator[Problem]:
    """Yields the problems of `[[models]]`."""
    upstream_names = [upstream.name for upstream in config.upstreams]
    seen_names: set[str] = set()
    for index, model in enumerate(config.models):
        for path, message in _model_problems(model, upstream_names):
            yield Problem(("models", index, *path), message)
        if model.name in seen_names:
            yield Problem(
                ("models", index, "name"),
                f"duplicate name {as_toml(model.name)}: only the first entry would apply; merge them",
            )
        seen_names.add(model.name)


def _model_problems(model: ModelConfig, upstream_names: Collection[str]) -> Iterator[Problem]:
    if not model.name or is_pattern(model.name):
        yield Problem(("name",), f"expected the name of a model, without *, got {as_toml(model.name)}")
    if not model.targets:
        yield Problem(("targets",), "empty: expected at least one target, such as { upstream = …, model = … }")
    for setting, targets in (
        ("targets", model.targets),
        ("on_context_length", model.on_context_length),
        ("on_refusal", model.on_refusal),
    ):
        yield from _target_problems((setting,), targets, upstream_names)
        yield from _unused_weight_problems(setting, targets)
    yield from _unused_rule_problems(model)


def _target_problems(
    path: SettingPath, targets: list[TargetConfig], upstream_names: Collection[str]
) -> Iterator[Problem]:
    seen_targets: set[tuple[str, str]] = set()
    for index, target in enumerate(targets):
        if target.upstream not in upstream_names:
            yield Problem(
                (*path, index, "upstream"),
                f"no upstream has the name {as_toml(target.upstream)}{suggest_names(target.upstream, upstream_names)}",
            )
        if not target.model or is_pattern(target.model):
            yield Problem(
                (*path, index, "model"),
                f"expected the upstream's own name for the model, without *, got {as_toml(target.model)}",
            )
        key = (target.upstream, target.model)
        if key in seen_targets:
            yield Problem(
                (*path, index),
                f"the same target as an earlier one, which is asked in its place: remove it, or raise the weight of "
                f"the earlier one ({as_toml(target.upstream)}, {as_toml(target.model)})",
            )
        seen_targets.add(key)


def _unused_weight_problems(setting: str, targets: list[TargetConfig]) -> Iterator[Problem]:
    sizes = Counter(target.priority for target in targets)
    for index, target in enumerate(targets):
        if target.weight != 1 and sizes[target.priority] == 1:
            yield Problem(
                (setting, index, "weight"),
                f"can never apply: no other target has the priority {target.priority}; give another one the same "
                "priority, or remove it",
            )


def _unused_rule_problems(model: ModelConfig) -> Iterator[Problem]:
    """Rules that can never apply. They are errors, because whoever wrote them expects an effect."""
    sizes = Counter(target.priority for target in model.targets)
    if model.targets and max(sizes.values()) == 1:
        hint = "each target has a priority of its own, so there is never a choice: give targets the same priority"
        if model.strategy != "weighted":
            yield Problem(("strategy",), f"can never apply: {hint}, or remove it")
        if model.prefer is not None:
            yield Problem(("prefer",), f"can never apply: {hint}, or remove it")
    own_targets = {(target.upstream, target.model) for target in model.targets}
    for setting, targets in (("on_context_length", model.on_context_length), ("on_refusal", model.on_refusal)):
        for index, target in enumerate(targets):
            if own_targets == {(target.upstream, target.model)}:
                yield Problem(
                    (setting, index), "can never apply: it is the only target, which has failed when it would be asked"
                )
