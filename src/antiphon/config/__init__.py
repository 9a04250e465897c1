"""The configuration: one frozen `Config`, read from TOML and the environment. Unknown settings are errors with a
suggestion.

The configuration is read at the start and at each reload. `find_config` finds the file, `load_config` reads it, and
`default_config` is used without one.
"""

from antiphon.config.changes import describe_changes, keep_restart_settings
from antiphon.config.checks import check_config, is_loopback, min_key_length
from antiphon.config.loading import default_config, find_config, load_config, parse_config
from antiphon.config.model_rules import ModelRule
from antiphon.config.routing import HealthConfig, ModelConfig, RetryConfig, TargetConfig
from antiphon.config.schema import (
    BackgroundConfig,
    CompactionConfig,
    Config,
    KeyConfig,
    ServerConfig,
    StoreConfig,
    TelemetryConfig,
    Timeouts,
    TraceConfig,
    UpstreamConfig,
)
from antiphon.config.summary import describe_config
from antiphon.config.warnings import find_warnings

__all__ = [
    "BackgroundConfig",
    "CompactionConfig",
    "Config",
    "HealthConfig",
    "KeyConfig",
    "ModelConfig",
    "ModelRule",
    "RetryConfig",
    "ServerConfig",
    "StoreConfig",
    "TargetConfig",
    "TelemetryConfig",
    "Timeouts",
    "TraceConfig",
    "UpstreamConfig",
    "check_config",
    "default_config",
    "describe_changes",
    "describe_config",
    "find_config",
    "find_warnings",
    "is_loopback",
    "keep_restart_settings",
    "load_config",
    "min_key_length",
    "parse_config",
]
