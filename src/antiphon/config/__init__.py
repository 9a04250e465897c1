"""One frozen `Config`, from TOML and the environment. Unknown settings are errors with a suggestion.

Reading is done once, at the start; nothing here changes afterwards. `find_config` says which file is meant, `load` reads it, and
`default` is what holds without one.
"""

from antiphon.config.checks import check, is_loopback
from antiphon.config.models import ModelRule
from antiphon.config.reading import default, find_config, load, parse
from antiphon.config.shapes import (
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
    key_hash,
)
from antiphon.config.summary import describe

__all__ = [
    "BackgroundConfig",
    "CompactionConfig",
    "Config",
    "KeyConfig",
    "ModelRule",
    "ServerConfig",
    "StoreConfig",
    "TelemetryConfig",
    "Timeouts",
    "TraceConfig",
    "UpstreamConfig",
    "check",
    "default",
    "describe",
    "find_config",
    "is_loopback",
    "key_hash",
    "load",
    "parse",
]
