"""Summarizes a configuration in a few lines: upstreams, clients, traces. Shows no keys."""

from __future__ import annotations

from antiphon.config.model_rules import ModelRule
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
        f"keys: {owners}" if owners else "keys: none; only this machine can connect",
        f"traces: in {config.trace.dir}" if config.trace.dir else "traces: off",
    ]


def _address(upstream: UpstreamConfig) -> str:
    return "embedded" if upstream.embedded else upstream.agent or upstream.base_url


def _model_list(upstream: UpstreamConfig) -> str:
    return ", ".join(f"{rule.from_} → {rule.to}" if isinstance(rule, ModelRule) else rule for rule in upstream.models)
