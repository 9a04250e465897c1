"""One frozen `Config`, from TOML and the environment. Unknown settings are errors with a suggestion.

`load` looks where `--config`, `$ANTIPHON_CONFIG` and `./antiphon.toml` say, in this order; with none of them the embedded model is
served, and every provider whose usual key variable is set. Reading is done once, at the start; nothing here changes afterwards.
"""

from __future__ import annotations

import fnmatch
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Seconds = Annotated[float, Meta(gt=0)]


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[server]: where to listen, and who may ask."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    #: Values of `Host` that are answered besides loopback names and the host above.
    allowed_hosts: list[str] = []
    #: Browser origins that may call; all others are refused.
    allowed_origins: list[str] = []
    #: The largest request body, in MiB.
    max_body_mib: Annotated[int, Meta(ge=1, le=1024)] = 64


class ModelRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model under another name: clients ask for `from`, the upstream is asked for `to`."""

    from_: str = field(name="from")
    to: str


class UpstreamConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[[upstreams]]: a server behind the gateway."""

    name: str
    dialect: Literal["chat", "responses"]
    base_url: str = ""
    #: The environment variable that holds the key for this upstream.
    api_key_env: str | None = None
    #: Names or patterns of models it serves; `{ from = "fast", to = "mock-1" }` renames one.
    models: list[str | ModelRule] = ["*"]
    profile: str | None = None
    #: The model inside Antiphon instead of a server: `base_url` stays empty.
    embedded: bool = False

    def upstream_model(self, asked: str) -> str | None:
        """The name under which this upstream knows the model, None if it does not serve it."""
        for rule in self.models:
            match rule:
                case ModelRule() if rule.from_ == asked:
                    return rule.to
                case str() if fnmatch.fnmatchcase(asked, rule):
                    return asked
        return None


class KeyConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[[keys]]: who may ask. A key is known by its hash alone."""

    name: str
    sha256: Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$")] | None = None
    env: str | None = None


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[timeouts]: seconds for each step of an upstream's answer."""

    connect: Seconds = 5.0
    first_byte: Seconds = 60.0
    idle: Seconds = 60.0
    total: Seconds = 600.0


class TraceConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[trace]: what happened to each request, on disk. Without `dir` nothing is written."""

    dir: str | None = None
    #: Oldest traces are removed beyond this many MiB.
    max_mib: Annotated[int, Meta(ge=1)] = 256
    #: Traces older than this are removed.
    max_days: Annotated[float, Meta(gt=0)] = 7.0


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: ServerConfig = ServerConfig()
    upstreams: list[UpstreamConfig] = []
    keys: list[KeyConfig] = []
    timeouts: Timeouts = Timeouts()
    trace: TraceConfig = TraceConfig()
