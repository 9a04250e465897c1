"""Summarizes a configuration in a few lines: upstreams, clients, traces. Shows no keys."""

from __future__ import annotations

from antiphon.config.model_rules import ModelRule
from antiphon.config.routing import ModelConfig, TargetConfig
from antiphon.config.schema import Config, UpstreamConfig


def describe_config(config: Config) -> list[str]:
    """One line per upstream (name, dialect, address, models), one for keys, one for traces."""
    rows = [
        (upstream.name, upstream.dialect, _address(upstream), _model_list(upstream)) for upstream in config.upstreams
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]
    owners = ", ".join(dict.fromkeys(key.name for key in config.keys))
    return [
        *lines,
        *map(_model_line, _routed_models(config)),
        f"keys: {owners}" if owners else "keys: none; only this machine can connect",
        f"traces: in {config.trace.dir}" if config.trace.dir else "traces: off",
    ]


def _routed_models(config: Config) -> list[ModelConfig]:
    """The models of `[[models]]`, and those that several upstreams list."""
    entry_names = {model.name for model in config.models}
    listed_names = dict.fromkeys(name for upstream in config.upstreams for name in upstream.listed_models())
    implicit_models = [config.find_model(name) for name in listed_names if name not in entry_names]
    return [*config.models, *(model for model in implicit_models if model is not None and len(model.targets) > 1)]


def _model_line(model: ModelConfig) -> str:
    line = f"model {model.name}: {_target_list(model.targets)}"
    for reason, targets in (("context length", model.on_context_length), ("refusal", model.on_refusal)):
        if targets:
            line += f"; on {reason}: {_target_list(targets)}"
    return line


def _target_list(targets: list[TargetConfig]) -> str:
    """Targets in the order of their priorities: `a/x, then b/y (weight 3) or c/z`."""
    priorities = sorted({target.priority for target in targets})
    groups = [[target for target in targets if target.priority == priority] for priority in priorities]
    return ", then ".join(" or ".join(map(_target_text, group)) for group in groups)


def _target_text(target: TargetConfig) -> str:
    weight = f" (weight {target.weight})" if target.weight != 1 else ""
    return f"{target.upstream}/{target.model}{weight}"


def _address(upstream: UpstreamConfig) -> str:
    return "embedded" if upstream.embedded else upstream.agent or upstream.base_url


def _model_list(upstream: UpstreamConfig) -> str:
    return ", ".join(f"{rule.from_} → {rule.to}" if isinstance(rule, ModelRule) else rule for rule in upstream.models)
